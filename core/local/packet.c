/* SPDX-License-Identifier: Apache-2.0 */
/* One packet in, one packet out, each whole or not at all: core/local/packet.h. */
#include "packet.h"
#include "core/base/open.h"
#include "local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FDS_MAX 8 /* taken out of a packet; the kernel closes what goes beyond */

union control {
    struct cmsghdr head;
    char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
};

/* The first descriptor; others are closed. */
static int take_descriptor(struct msghdr *m)
{
    int first = -1;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR(m, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
            if (first < 0)
                first = fd;
            else
                close(fd);
        }
    }
    return first;
}

int hth_packet_dial(int records, int *out_sock)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int name = hth_open_below(records, "sock", O_PATH, 0), sock, why = 0;

    if (name < 0)
        return errno == ELOOP ? ECONNREFUSED : errno; /* no engine makes a link */
    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/thread-self/fd/%d", name);
    sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (sock < 0 || connect(sock, (const struct sockaddr *)&a, sizeof(a)))
        why = errno;
    close(name);
    if (why && sock >= 0)
        close(sock);
    if (!why)
        *out_sock = sock;
    return why;
}

enum hth_packet hth_packet_receive(int sock, void *bytes, size_t *out_len, int *out_fd)
{
    struct iovec iov = { .iov_base = bytes, .iov_len = HTH_LOCAL_MAX };
    union control control;
    struct msghdr m = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)
    };
    struct hth_local_head head;
    ssize_t n;

    /* A peer that closes with unread answers resets the connection. The kernel reports that once
     * (ECONNRESET); packets that the peer sent before are still there, and come next. */
    do
        n = recvmsg(sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (n < 0 && (errno == EINTR || errno == ECONNRESET));
    *out_fd = -1;
    if (n < 0)
        return errno == EAGAIN ? HTH_PACKET_NONE : HTH_PACKET_END;
    *out_fd = take_descriptor(&m);
    if (n == 0 && *out_fd < 0)
        return HTH_PACKET_END;
    /* Truncated control data without a descriptor: this process may open no more files. The request
     * fails, and the connection stays. */
    if (n >= (ssize_t)sizeof(head) && !(m.msg_flags & MSG_TRUNC) &&
            (!(m.msg_flags & MSG_CTRUNC) || *out_fd < 0)) {
        memcpy(&head, bytes, sizeof(head));
        *out_len = (size_t)n;
        if (head.length == (uint32_t)n)
            return HTH_PACKET_GOT;
    }
    if (*out_fd >= 0)
        close(*out_fd);
    *out_fd = -1;
    return HTH_PACKET_BAD;
}

int hth_packet_put(int sock, const void *bytes, size_t len, int fd)
{
    struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = len };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    ssize_t n;

    if (fd >= 0) {
        m.msg_control = &control;
        m.msg_controllen = sizeof(control);
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    }
    do
        n = sendmsg(sock, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n < 0 ? errno : 0;
}
