/* SPDX-License-Identifier: Apache-2.0 */
/* What a socket on loopback gives: send() from a file of the tmpfs, recv() into one, sleeping. */
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE (UINT64_C(4) << 20)

static int wire_move(int fd, char *at, uint64_t bytes, int sending)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t left = bytes - done, len = left < PIECE ? left : PIECE;
        ssize_t n = sending ? send(fd, at + done, len, MSG_NOSIGNAL) : recv(fd, at + done, len, 0);

        if (n <= 0 && !(n < 0 && errno == EINTR))
            return -1;
        done += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

static void wire_owner(const void *arg, int out)
{
    const struct pull_job *job = arg;
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);
    uint64_t *at = file_memory(job->base, "wire-owner", job->bytes);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), conn;
    char order;

    fill(at, job->bytes, 1);
    if (fd < 0 || bind(fd, (void *)&a, sizeof(a)) || listen(fd, 1) ||
            getsockname(fd, (void *)&a, &len) || write(out, &a, sizeof(a)) != sizeof(a))
        die("no socket: %s", strerror(errno));
    conn = accept(fd, NULL, NULL);
    while (recv(conn, &order, 1, 0) == 1)
        if (wire_move(conn, (char *)at, job->bytes, 1))
            break;
}

static void wire_puller(const void *arg, int address, int in, int out)
{
    const struct pull_job *job = arg;
    struct sockaddr_in a;
    uint64_t *at = file_memory(job->base, "wire-puller", job->bytes);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), first = 1;
    char order;

    if (read(address, &a, sizeof(a)) != sizeof(a) || connect(fd, (void *)&a, sizeof(a)))
        die("no connection: %s", strerror(errno));
    while (read(in, &order, 1) == 1) {
        double took = -now_s();

        if (send(fd, "p", 1, MSG_NOSIGNAL) != 1 || wire_move(fd, (char *)at, job->bytes, 0))
            die("the socket broke");
        took += now_s();
        if (first)
            check(at, job->bytes, 1);
        first = 0;
        if (write(out, &took, sizeof(took)) != sizeof(took))
            return;
    }
}

void wire_start(struct peers *p, const struct pull_job *job)
{
    peers_start(p, wire_owner, wire_puller, job);
    peers_pull(p);
}
