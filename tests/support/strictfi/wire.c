/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Datagrams between endpoints, over Unix sockets whose names are the endpoints' numbers: in the
 * abstract namespace, or as files of the folder STRICTFI_DIR where network namespaces differ; then
 * process namespaces may, too, and a side that permits a read sends a descriptor of its memory
 * along. The kernel keeps ten datagrams for a receiver that does not fetch them; after that no
 * sender can send more.
 */
#include "strictfi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MAGIC  0x53464931u
#define BUFFER (4 << 20)

#define ROOM   CMSG_SPACE(sizeof(int)) /* for a descriptor beside a datagram */

static const char *wire_dir(void)
{
    const char *dir = getenv("STRICTFI_DIR");

    return dir && *dir ? dir : NULL;
}

static socklen_t wire_name(const char *name, struct sockaddr_un *out)
{
    const char *dir = wire_dir();
    int n;

    *out = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (dir)
        n = snprintf(out->sun_path, sizeof(out->sun_path), "%s/%s", dir, name) + 1;
    else
        n = 1 + snprintf(out->sun_path + 1, sizeof(out->sun_path) - 1, "%s", name);
    if ((size_t)n > sizeof(out->sun_path))
        sfi_sin("setup", "STRICTFI_DIR is too long");
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)n);
}

static void id_name(uint32_t id, char out[SFI_ADDR])
{
    snprintf(out, SFI_ADDR, "strictfi-%08x", id);
}

int sfi_wire_bind(const char *name)
{
    struct sockaddr_un un;
    socklen_t len = wire_name(name, &un);
    int room = BUFFER, rc;
    int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (sock < 0)
        return -errno;
    if (bind(sock, (struct sockaddr *)&un, len)) {
        rc = -errno;
        close(sock);
        return rc;
    }
    if (setsockopt(sock, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room)))
        setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    return sock;
}

int sfi_wire_is_bound(const char *name)
{
    struct sockaddr_un un;
    socklen_t len = wire_name(name, &un);
    int sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int is = sock >= 0 && !connect(sock, (struct sockaddr *)&un, len);

    if (sock >= 0)
        close(sock);
    return is;
}

void sfi_wire_unbind(int sock, const char *name)
{
    struct sockaddr_un un;

    close(sock);
    wire_name(name, &un);
    if (un.sun_path[0])
        unlink(un.sun_path);
}

int sfi_wire_open(struct sfi_ep *ep)
{
    char name[SFI_ADDR];

    do {
        ep->id = (uint32_t)sfi_unique();
        id_name(ep->id, name);
        ep->sock = ep->id ? sfi_wire_bind(name) : -EADDRINUSE;
    } while (ep->sock == -EADDRINUSE);
    return ep->sock < 0 ? ep->sock : 0;
}

void sfi_wire_close(struct sfi_ep *ep)
{
    char name[SFI_ADDR];

    if (ep->sock < 0)
        return;
    id_name(ep->id, name);
    sfi_wire_unbind(ep->sock, name);
    ep->sock = -1;
}

/* A process that gives permission to read, to a reader who may know it by no number. */
static int memory_attach(struct msghdr *msg, void *room)
{
    const struct sfi_wire *head = msg->msg_iov[0].iov_base;
    struct cmsghdr *c = room;
    int fd;

    if (head->word != SFI_WORD_GO || !wire_dir())
        return -1;
    fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        sfi_sin("setup", "/proc/self/mem: %s", strerror(errno));
    *c = (struct cmsghdr){ CMSG_LEN(sizeof(fd)), SOL_SOCKET, SCM_RIGHTS };
    memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    msg->msg_control = room;
    msg->msg_controllen = ROOM;
    return fd;
}

static int wire_put(int sock, const char *to, struct iovec *iov, size_t count)
{
    _Alignas(struct cmsghdr) unsigned char room[ROOM] = { 0 };
    struct sockaddr_un name;
    struct msghdr msg = { .msg_name = &name, .msg_iov = iov, .msg_iovlen = count };
    int memory = memory_attach(&msg, room), failed;

    msg.msg_namelen = wire_name(to, &name);
    failed = sendmsg(sock, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
    if (memory >= 0)
        close(memory);
    errno = failed;
    if (!failed)
        return 0;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM || errno == EINTR)
        return -EAGAIN;
    if (errno == ECONNREFUSED || errno == ENOENT)
        return -ECONNREFUSED;
    sfi_sin("setup", "a datagram of the provider cannot be sent: %s", strerror(errno));
}

static void head_sign(struct sfi_wire *head, uint32_t from)
{
    head->magic = MAGIC;
    head->from = from;
    head->pid = (uint32_t)getpid();
}

int sfi_wire_send(struct sfi_ep *ep, uint32_t to, struct sfi_wire *head, const struct iovec *body,
        size_t bodies)
{
    struct iovec iov[1 + SFI_IOV] = { { head, sizeof(*head) } };
    char name[SFI_ADDR];

    head_sign(head, ep->id);
    for (size_t i = 0; i < bodies; i++)
        iov[i + 1] = body[i];
    id_name(to, name);
    return wire_put(ep->sock, name, iov, 1 + bodies);
}

int sfi_wire_call(
        struct sfi_ep *ep, const char *name, struct sfi_wire *head, const void *body, size_t len)
{
    struct iovec iov[2] = { { head, sizeof(*head) }, { (void *)(uintptr_t)body, len } };

    head_sign(head, ep->id);
    return wire_put(ep->sock, name, iov, 2);
}

void sfi_wire_throw(int sock, uint32_t to, struct sfi_wire *head, const void *body, size_t len)
{
    struct iovec iov[2] = { { head, sizeof(*head) }, { (void *)(uintptr_t)body, len } };
    char name[SFI_ADDR];

    head_sign(head, 0);
    id_name(to, name);
    wire_put(sock, name, iov, 2);
}

/* ---- answers: sent by strictfi itself, so no caller posts them again ---- */

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
    head_sign(head, ep->id);
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
        char name[SFI_ADDR];

        id_name(a->to, name);
        if (wire_put(ep->sock, name, &iov, 1) == -EAGAIN) {
            at = &a->next; /* one peer that takes nothing holds up no other */
            continue;
        }
        *at = a->next;
        free(a);
    }
    ep->answers_end = at;
}

ssize_t sfi_wire_fetch(int sock, struct sfi_wire *head, void *body, size_t cap)
{
    struct iovec iov[2] = { { head, sizeof(*head) }, { body, cap } };
    _Alignas(struct cmsghdr) unsigned char room[ROOM];
    struct msghdr msg = {
        .msg_iov = iov, .msg_iovlen = 2, .msg_control = room, .msg_controllen = sizeof(room)
    };
    ssize_t n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n < 0 ? NULL : CMSG_FIRSTHDR(&msg);

    if (n < 0)
        return -EAGAIN;
    head->memory = -1;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(&head->memory, CMSG_DATA(c), sizeof(int));
    if ((size_t)n < sizeof(*head) || head->magic != MAGIC) {
        head->word = 0; /* a stranger's: passed over */
        return 0;
    }
    return n - (ssize_t)sizeof(*head);
}
