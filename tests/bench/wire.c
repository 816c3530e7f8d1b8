/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rate of a socket on loopback, sleeping: from a file of the tmpfs by send(), by sendfile(), or
 * by send() of records that are sealed here and opened there where they will stay, by one thread
 * each. The puller computes the CRC32C of what it has received, while its cache has it.
 */
#include "bench.h"

#include "core/base/crc.h"
#include "transport/tcp/seal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECE   (UINT64_C(4) << 20)
#define SUMMED  (UINT64_C(256) << 10) /* received at a time, and summed up then */
#define RECORDS 8u                    /* for one call */
#define STRIDE  (HTH_SEAL_PLAIN + HTH_SEAL_MORE)
#define BETWEEN (HTH_SEAL_TAG + HTH_SEAL_HEAD) /* one record's tag and the next one's head */

static int wire_move(int fd, void *from, uint64_t bytes, int sending)
{
    unsigned char *at = from;

    for (uint64_t done = 0; done < bytes;) {
        uint64_t left = bytes - done, len = left < PIECE ? left : PIECE;
        ssize_t n = sending ? send(fd, at + done, len, MSG_NOSIGNAL)
                            : recv(fd, at + done, len, MSG_WAITALL);

        if (n <= 0 && !(n < 0 && errno == EINTR))
            return -1;
        done += n > 0 ? (uint64_t)n : 0;
    }
    return 0;
}

static int wire_receive(int fd, unsigned char *at, uint64_t bytes, uint32_t *crc)
{
    for (uint64_t done = 0, len; done < bytes; done += len) {
        len = bytes - done < SUMMED ? bytes - done : SUMMED;
        if (wire_move(fd, at + done, len, 0))
            return -1;
        *crc = hth_crc32c_more(*crc, at + done, len);
    }
    return 0;
}

static int wire_sendfile(int conn, int file, uint64_t bytes)
{
    off_t at = 0;

    while ((uint64_t)at < bytes)
        if (sendfile(conn, file, &at, bytes - (uint64_t)at) <= 0 && errno != EINTR)
            return -1;
    return 0;
}

/* ---- sealed
 * ----------------------------------------------------------------------------------------- */

static struct hth_seal_opts seal_opts(void)
{
    struct hearth_error err;

    if (hth_seal_init(&err))
        die("%s", err.text);
    return (struct hth_seal_opts){
        .key = bench_key, .suites = hth_seal_suites(), .purpose = HTH_PURPOSE_MESSAGES
    };
}

static struct hth_seal *seal_dial(int fd)
{
    struct hth_seal_opts opts = seal_opts();
    unsigned char hello[HTH_SEAL_HELLO], proof[HTH_SEAL_PROOF];
    struct hth_seal_hand hand;
    struct hth_seal *seal;
    struct hearth_error err = { 0 };

    if (hth_seal_dial(&hand, &opts, hello, &err) || wire_move(fd, hello, sizeof(hello), 1) ||
            wire_move(fd, hello, sizeof(hello), 0) || hth_seal_answer(&hand, hello, proof, &err) ||
            wire_move(fd, proof, sizeof(proof), 1) || wire_move(fd, proof, sizeof(proof), 0) ||
            hth_seal_finish(&hand, proof, &seal, &err))
        die("no sealed connection: %s", err.text);
    return seal;
}

static struct hth_seal *seal_accept(int fd)
{
    struct hth_seal_opts opts = seal_opts();
    unsigned char hello[2][HTH_SEAL_HELLO], proof[2][HTH_SEAL_PROOF];
    struct hth_seal_hand hand;
    struct hth_seal *seal;
    struct hearth_error err = { 0 };

    if (wire_move(fd, hello[0], sizeof(hello[0]), 0) ||
            hth_seal_accept(&hand, &opts, hello[0], hello[1], &err) ||
            wire_move(fd, hello[1], sizeof(hello[1]), 1) ||
            wire_move(fd, proof[0], sizeof(proof[0]), 0) ||
            hth_seal_admit(&hand, proof[0], proof[1], &seal, &err) ||
            wire_move(fd, proof[1], sizeof(proof[1]), 1))
        die("no sealed connection: %s", err.text);
    return seal;
}

static uint64_t record_bytes(uint64_t left)
{
    return left < HTH_SEAL_PLAIN ? left : HTH_SEAL_PLAIN;
}

static int sealed_send(int fd, struct hth_seal *seal, const unsigned char *at, uint64_t bytes)
{
    static unsigned char record[RECORDS * STRIDE];

    for (uint64_t done = 0; done < bytes;) {
        size_t len = 0;

        for (unsigned i = 0; i < RECORDS && done < bytes; i++) {
            uint64_t some = record_bytes(bytes - done);

            if (hth_seal_put(seal, record + len, at + done, some))
                return -1;
            len += some + HTH_SEAL_MORE;
            done += some;
        }
        if (wire_move(fd, record, len, 1))
            return -1;
    }
    return 0;
}

/* Some records straight to where they will stay; head: of the first one, then of the one after
 * them. */
static int sealed_some(int fd, struct hth_seal *seal, unsigned char *at, uint64_t bytes,
        unsigned char head[HTH_SEAL_HEAD], uint32_t *crc, uint64_t *out_done)
{
    unsigned char between[RECORDS][BETWEEN];
    struct iovec piece[2 * RECORDS];
    struct msghdr m = { .msg_iov = piece };
    unsigned records = 0;
    ssize_t want = 0;

    for (*out_done = 0; records < RECORDS && *out_done < bytes; records++) {
        uint64_t some = record_bytes(bytes - *out_done);
        size_t after = *out_done + some < bytes ? BETWEEN : HTH_SEAL_TAG;

        piece[m.msg_iovlen++] = (struct iovec){ at + *out_done, some };
        piece[m.msg_iovlen++] = (struct iovec){ between[records], after };
        want += (ssize_t)(some + after);
        *out_done += some;
    }
    if (recvmsg(fd, &m, MSG_WAITALL) != want)
        return -1;
    for (unsigned i = 0; i < records; i++) {
        if (hth_seal_take(seal, piece[2 * i].iov_base, head, piece[2 * i].iov_base, between[i]))
            return -1;
        *crc = hth_crc32c_more(*crc, piece[2 * i].iov_base, piece[2 * i].iov_len);
        memcpy(head, between[i] + HTH_SEAL_TAG, HTH_SEAL_HEAD);
    }
    return 0;
}

static int sealed_receive(
        int fd, struct hth_seal *seal, unsigned char *at, uint64_t bytes, uint32_t *crc)
{
    unsigned char head[HTH_SEAL_HEAD];
    uint64_t some;

    if (wire_move(fd, head, sizeof(head), 0))
        return -1;
    for (uint64_t done = 0; done < bytes; done += some)
        if (sealed_some(fd, seal, at + done, bytes - done, head, crc, &some))
            return -1;
    return 0;
}

/* ---- the two processes
 * --------------------------------------------------------------------------------- */

static void wire_owner(const void *arg, int out)
{
    const struct pull_job *job = arg;
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(a);
    void *at;
    int file = file_open(job->base, "wire-owner", job->bytes, &at);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), conn, rc = 0;
    struct hth_seal *seal = NULL;
    char order;

    fill(at, job->bytes, 1);
    if (fd < 0 || bind(fd, (void *)&a, sizeof(a)) || listen(fd, 1) ||
            getsockname(fd, (void *)&a, &len) || write(out, &a, sizeof(a)) != sizeof(a))
        die("no socket: %s", strerror(errno));
    conn = accept(fd, NULL, NULL);
    if (job->wire == WIRE_SEALED)
        seal = seal_accept(conn);
    while (!rc && recv(conn, &order, 1, 0) == 1)
        rc = seal                         ? sealed_send(conn, seal, at, job->bytes)
             : job->wire == WIRE_SENDFILE ? wire_sendfile(conn, file, job->bytes)
                                          : wire_move(conn, at, job->bytes, 1);
}

static void wire_puller(const void *arg, int address, int in, int out)
{
    const struct pull_job *job = arg;
    struct sockaddr_in a;
    uint64_t *at = file_memory(job->base, "wire-puller", job->bytes);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), first = 1;
    struct hth_seal *seal = NULL;
    char order;

    if (read(address, &a, sizeof(a)) != sizeof(a) || connect(fd, (void *)&a, sizeof(a)))
        die("no connection: %s", strerror(errno));
    if (job->wire == WIRE_SEALED)
        seal = seal_dial(fd);
    while (read(in, &order, 1) == 1) {
        double took = -now_s();
        uint32_t crc = 0;

        if (send(fd, "p", 1, MSG_NOSIGNAL) != 1 ||
                (seal ? sealed_receive(fd, seal, (void *)at, job->bytes, &crc)
                      : wire_receive(fd, (void *)at, job->bytes, &crc)))
            die("the socket broke");
        took += now_s();
        if (first)
            check(at, job->bytes, 1);
        if (first && crc != hth_crc32c(at, job->bytes))
            die("the checksum of what came is wrong");
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
