/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams between endpoints, over Unix sockets whose names are the endpoints' numbers: in the
 * abstract namespace, or as files of the folder STRICTFI_DIR where network namespaces differ.
 * The kernel keeps ten for a receiver that does not fetch them, then nobody gets rid of more.
 */
#include "strictfi.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAGIC  0x53464931u
#define BUFFER (4 << 20)

static socklen_t wire_name(uint32_t id, struct sockaddr_un *out)
{
    const char *dir = getenv("STRICTFI_DIR");
    int n;

    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (dir && *dir)
        n = snprintf(out->sun_path, sizeof(out->sun_path), "%s/strictfi-%08x", dir, id) + 1;
    else
        n = 1 + snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "strictfi-%08x", id);
    if ((size_t)n > sizeof(out->sun_path))
        sfi_sin("setup", "STRICTFI_DIR is too long");
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n);
}

int sfi_wire_open(struct sfi_ep *ep)
{
    struct sockaddr_un name;
    int room = BUFFER;

    ep->sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (ep->sock < 0)
        return -errno;
    do {
        ep->id = (uint32_t)sfi_unique();
        if (ep->id && ep->id != STRICTFI_ALL &&
                bind(ep->sock, (struct sockaddr *)&name, wire_name(ep->id, &name)) == 0)
            break;
    } while (!ep->id || ep->id == STRICTFI_ALL || errno == EADDRINUSE);
    if (setsockopt(ep->sock, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)))
        setsockopt(ep->sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    return 0;
}

void sfi_wire_close(struct sfi_ep *ep)
{
    struct sockaddr_un name;

    if (ep->sock < 0)
        return;
    close(ep->sock);
    ep->sock = -1;
    wire_name(ep->id, &name);
    if (name.sun_path[0])
        unlink(name.sun_path);
}

static int wire_put(struct sfi_ep *ep, uint32_t to, struct iovec *iov, size_t count)
{
    struct sockaddr_un name;
    struct msghdr msg = { .msg_name = &name, .msg_iov = iov, .msg_iovlen = count };

    msg.msg_namelen = wire_name(to, &name);
    if (sendmsg(ep->sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
        return 0;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR)
        return -EAGAIN;
    if (errno == ECONNREFUSED || errno == ENOENT)
        return -ECONNREFUSED;
    sfi_sin("setup", "a datagram of the provider cannot be sent: %s", strerror(errno));
}

int sfi_wire_send(struct sfi_ep *ep, uint32_t to, struct sfi_wire *head, const struct iovec *body,
        size_t bodies)
{
    struct iovec iov[1 + SFI_IOV] = { { head, sizeof(*head) } };

    head->magic = MAGIC;
    head->from = ep->id;
    head->pid = (uint32_t)getpid();
    for (size_t i = 0; i < bodies; i++)
        iov[i + 1] = body[i];
    return wire_put(ep, to, iov, 1 + bodies);
}

/* ---- answers, which nobody posts again ---- */

void sfi_wire_answer(
        struct sfi_ep *ep, uint32_t to, struct sfi_wire *head, const void *body, size_t len)
{
    struct iovec iov = { (void *)(uintptr_t)body, len };
    struct sfi_answer *a;

    if (!ep->answers && sfi_wire_send(ep, to, head, &iov, 1) != -EAGAIN)
        return;
    a = malloc(sizeof(*a) + sizeof(*head) + len);
    if (!a)
        return;
    head->magic = MAGIC;
    head->from = ep->id;
    head->pid = (uint32_t)getpid();
    a->next = NULL;
    a->to = to;
    a->len = sizeof(*head) + len;
    memcpy(a->bytes, head, sizeof(*head));
    if (len)
        memcpy(a->bytes + sizeof(*head), body, len);
    *ep->answers_end = a;
    ep->answers_end = &a->next;
}

void sfi_wire_flush(struct sfi_ep *ep)
{
    struct sfi_answer **at = &ep->answers, *a;

    while ((a = *at)) {
        struct iovec iov = { a->bytes, a->len };

        if (wire_put(ep, a->to, &iov, 1) == -EAGAIN) {
            at = &a->next; /* one peer that takes nothing holds up no other */
            continue;
        }
        *at = a->next;
        free(a);
    }
    ep->answers_end = at;
}

ssize_t sfi_wire_receive(struct sfi_ep *ep, struct sfi_wire *head, void *body, size_t cap)
{
    struct iovec iov[2] = { { head, sizeof(*head) }, { body, cap } };
    struct msghdr msg = { .msg_iov = iov, .msg_iovlen = 2 };
    ssize_t n = recvmsg(ep->sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0)
        return -EAGAIN;
    if ((size_t)n < sizeof(*head) || head->magic != MAGIC) {
        head->word = 0; /* a stranger's: passed over */
        return 0;
    }
    return n - (ssize_t)sizeof(*head);
}
