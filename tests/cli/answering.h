/* SPDX-License-Identifier: Apache-2.0 */
/* A process that answers in the place of an engine of the job in the test's root. */
#ifndef TEST_CLI_ANSWERING_H
#define TEST_CLI_ANSWERING_H

#include "saved.h"

#include "core/local/local.h"
#include "core/local/packet.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

/* What it answers to a question of this type; text NULL: an error. */
struct answering {
    uint32_t type;
    const char *text;
};

static inline void answering_one(int c, const struct hth_local_head *asked, const char *text)
{
    struct hth_local_head head = {
        .length = sizeof(head), .type = HTH_LOCAL_BYTES, .request = asked->request
    };
    struct hth_local_error e = { .head = { sizeof(e), HTH_LOCAL_ERROR, asked->request, 0 },
        .code = HEARTH_ETIMEOUT,
        .text = "node n2 has not answered" };
    int fd = text ? memfd_create("answer", MFD_CLOEXEC) : -1;

    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        (void)hth_packet_put(c, &head, sizeof(head), fd);
        close(fd);
    } else {
        (void)hth_packet_put(c, &e, sizeof(e), -1);
    }
}

/* Makes the job's directory. Ends with answering_end(). */
static inline pid_t answering_begin(const struct answering *rows)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), c;
    _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
    const struct hth_local_head *head = (const void *)packet;
    pid_t pid;

    (void)mkdir(in_job(""), 0700);
    (void)mkdir(in_job(".hearth"), 0700);
    snprintf(a.sun_path, sizeof(a.sun_path), "%s", in_job(".hearth/sock"));
    unlink(a.sun_path);
    cr_assert(zero(int, bind(sock, (const struct sockaddr *)&a, sizeof(a)) || listen(sock, 8)),
            "%s", a.sun_path);
    pid = fork();
    if (!pid)
        alarm(30); /* a test that fails leaves it */
    while (!pid && (c = accept(sock, NULL, NULL)) >= 0) {
        while (recv(c, packet, sizeof(packet), 0) >= (ssize_t)sizeof(*head)) {
            const struct answering *row = rows;

            while (row->type && row->type != head->type)
                row++;
            answering_one(c, head, row->text);
        }
        close(c);
    }
    if (!pid)
        _exit(0);
    close(sock);
    return pid;
}

static inline void answering_end(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

#endif
