/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of the local socket, one small record each:
 *
 *     listen ─accept─► client { socket, pidfd, answers not yet taken }
 *                        │ end of file, process dead, nonsense, too many answers waiting
 *                        ▼
 *                      gone ─reap()─► events.gone, freed
 *
 * A client is only marked where it is found gone, which may be inside an answer to it, and taken
 * away after the round. Messages that a process sent before it died or closed are read first.
 */
#include "server.h"

#include "attach.h"
#include "core/base/full.h"
#include "core/base/open.h"
#include "core/local/packet.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define ROUND_PACKETS 16  /* are read from one client before the others have their turn */
#define QUEUE         512 /* connections that wait to be accepted */
#define LAST_PACKETS  256 /* are read from a process that has died */

/* Epoll tags: kind in the upper half, client in the lower. */
enum tag { TAG_LISTEN = 0x5e01, TAG_SOCKET = 0x5e02, TAG_PROCESS = 0x5e03 };

struct answer {
    struct answer *next;
    int fd; /* owned; -1: none */
    size_t len;
    unsigned char bytes[];
};

struct connection {
    struct connection *next;
    uint32_t id;
    pid_t pid;
    char who[40];  /* the client, in words */
    int fd, pidfd; /* pidfd -1: the connection alone decides */
    int is_gone;
    int has_out; /* epoll waits for room to write, too */
    /* it has closed: no answer reaches it, but the packets that it sent before are still read */
    int is_deaf;
    uint32_t waiting;
    struct answer *first, *last;
};

struct hth_server {
    int epoll_fd, listen_fd, dir_fd;
    int spare_fd; /* closed for a moment when no other is left, to accept a connection and end it */
    int kept;     /* the socket is another engine's from here on */
    uint32_t last_id, count;
    struct connection *clients;
    struct hth_server_events events;
    struct hth_log log;
    _Alignas(8) unsigned char packet[HTH_LOCAL_MAX];
};

static struct connection *server_find(const struct hth_server *s, uint32_t id)
{
    struct connection *c = s->clients;

    while (c && c->id != id)
        c = c->next;
    return c;
}

static int server_watch(
        const struct hth_server *s, int op, int fd, enum tag kind, uint32_t id, uint32_t events)
{
    struct epoll_event e = { .events = events, .data.u64 = (uint64_t)kind << 32 | id };

    return epoll_ctl(s->epoll_fd, op, fd, &e);
}

static void connection_lose(struct hth_server *s, struct connection *c, const char *why)
{
    if (c->is_gone)
        return;
    c->is_gone = 1;
    hth_say(&s->log, HEARTH_LOG_DEBUG, "client-gone", "client %u (%s): %s", c->id, c->who, why);
}

static void connection_free(struct connection *c)
{
    while (c->first) {
        struct answer *a = c->first;

        c->first = a->next;
        if (a->fd >= 0)
            close(a->fd);
        free(a);
    }
    if (c->pidfd >= 0)
        close(c->pidfd);
    close(c->fd);
    free(c);
}

/* The client has closed, and its earlier packets are still read; or it lives and waits for an
 * answer that the kernel does not accept (ETOOMANYREFS, ENOBUFS): then the library makes another
 * connection. */
static void connection_refused(struct hth_server *s, struct connection *c, int e)
{
    if (e == EPIPE || e == ECONNRESET) {
        c->is_deaf = 1;
        return;
    }
    hth_say(&s->log, HEARTH_LOG_WARN, "client-cut",
            "an answer to client %u (%s) cannot be sent: %s; its connection is ended, and the rank "
            "makes another",
            c->id, c->who, strerrordesc_np(e));
    connection_lose(s, c, "its answer cannot be sent");
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* Takes fd. */
static void server_take_packet(struct hth_server *s, struct connection *c, size_t len, int fd)
{
    struct hearth_error err = { 0 };
    struct hth_content *content = NULL;

    if (fd >= 0 && hth_attach_open(fd, &content, &err)) {
        hth_say(&s->log, HEARTH_LOG_WARN, "client-nonsense", "client %u (%s): %s", c->id, c->who,
                err.text);
        connection_lose(s, c, "it sent a descriptor that cannot be used");
    } else {
        s->events.request(s->events.self, c->id, s->packet, len, content);
    }
}

static void server_read_packets(struct hth_server *s, struct connection *c, int most)
{
    for (int i = 0; i < most && !c->is_gone; i++) {
        size_t len = 0;
        int fd;

        switch (hth_packet_receive(c->fd, s->packet, &len, &fd)) {
        case HTH_PACKET_GOT:
            server_take_packet(s, c, len, fd);
            break;
        case HTH_PACKET_NONE:
            return;
        case HTH_PACKET_END:
            connection_lose(s, c, "it closed its connection");
            return;
        case HTH_PACKET_BAD:
            hth_say(&s->log, HEARTH_LOG_WARN, "client-nonsense",
                    "client %u (%s) sent a packet that is none of ours", c->id, c->who);
            connection_lose(s, c, "it sent nonsense");
            return;
        }
    }
}

/* Reads the packets that the process sent before its end. Packets that a forked child still sends
 * are not read. */
static void server_process_ended(struct hth_server *s, struct connection *c)
{
    server_read_packets(s, c, LAST_PACKETS);
    connection_lose(s, c, "its process has ended");
}

/* ---- coming ---------------------------------------------------------------------------------- */

static uint32_t server_free_id(struct hth_server *s)
{
    do
        s->last_id++;
    while (s->last_id == 0 || server_find(s, s->last_id));
    return s->last_id;
}

/* Root may do all that the engine's own user may, and an operator looks at a user's job as root. */
static int server_serves(uid_t user)
{
    return user == geteuid() || user == 0;
}

/* Takes fd. */
static void server_welcome(struct hth_server *s, int fd)
{
    struct ucred peer = { 0 };
    socklen_t len = sizeof(peer);
    struct connection *c = NULL;
    int is_dead;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) || !server_serves(peer.uid)) {
        hth_say(&s->log, HEARTH_LOG_WARN, "client-refused",
                "a process of user %u may not use this engine", (unsigned)peer.uid);
        close(fd);
        return;
    }
    if (s->count < HTH_CLIENTS_MAX)
        c = calloc(1, sizeof(*c));
    if (!c) {
        hth_say(&s->log, HEARTH_LOG_WARN, "client-refused", "there are %u clients already",
                s->count);
        close(fd);
        return;
    }
    c->id = server_free_id(s);
    c->fd = fd;
    c->pid = peer.pid;
    if (peer.pid > 0)
        snprintf(c->who, sizeof(c->who), "pid %ld", (long)peer.pid);
    else /* it has no pid in this pid namespace */
        snprintf(c->who, sizeof(c->who), "in another pod or container");
    c->pidfd = peer.pid > 0 ? (int)syscall(SYS_pidfd_open, peer.pid, 0) : -1;
    is_dead = c->pidfd < 0 && peer.pid > 0 && errno == ESRCH;
    c->next = s->clients;
    s->clients = c;
    s->count++;
    if (server_watch(s, EPOLL_CTL_ADD, fd, TAG_SOCKET, c->id, EPOLLIN) ||
            (c->pidfd >= 0 &&
                    server_watch(s, EPOLL_CTL_ADD, c->pidfd, TAG_PROCESS, c->id, EPOLLIN)))
        connection_lose(s, c, "no room to watch it");
    if (is_dead)
        server_process_ended(s, c);
}

/* No descriptor is left for a connection, and a connection that waits to be accepted would wake
 * epoll without end. */
static void server_turn_away(struct hth_server *s)
{
    int fd;

    close(s->spare_fd);
    fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    s->spare_fd = hth_open_kernel("/dev/null", O_RDONLY);
    hth_say(&s->log, HEARTH_LOG_WARN, "client-refused",
            "no descriptors are left: raise the limit (ulimit -n)");
}

static void server_accept(struct hth_server *s)
{
    for (int i = 0; i < ROUND_PACKETS; i++) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd >= 0) {
            server_welcome(s, fd);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE)
            server_turn_away(s);
        else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* ---- answering ------------------------------------------------------------------------------- */

static void connection_want_out(struct hth_server *s, struct connection *c, int want)
{
    if (c->has_out == want)
        return;
    c->has_out = want;
    if (server_watch(s, EPOLL_CTL_MOD, c->fd, TAG_SOCKET, c->id, EPOLLIN | (want ? EPOLLOUT : 0)))
        connection_lose(s, c, "no room to watch it");
}

static void connection_flush(struct hth_server *s, struct connection *c)
{
    while (c->first && !c->is_gone) {
        struct answer *a = c->first;
        int e = hth_packet_put(c->fd, a->bytes, a->len, a->fd);

        if (e == EAGAIN)
            return;
        if (e)
            connection_refused(s, c, e);
        c->first = a->next;
        c->waiting--;
        if (a->fd >= 0)
            close(a->fd);
        free(a);
    }
    if (!c->first) {
        c->last = NULL;
        connection_want_out(s, c, 0);
    }
}

/* Takes fd. */
static void connection_enqueue(
        struct hth_server *s, struct connection *c, const void *bytes, size_t len, int fd)
{
    struct answer *a = c->waiting < HTH_QUEUE_MAX ? malloc(sizeof(*a) + len) : NULL;

    if (!a) {
        connection_lose(s, c, "it does not read its answers");
        if (fd >= 0)
            close(fd);
        return;
    }
    *a = (struct answer){ .fd = fd, .len = len };
    memcpy(a->bytes, bytes, len);
    if (c->last)
        c->last->next = a;
    else
        c->first = a;
    c->last = a;
    c->waiting++;
    connection_want_out(s, c, 1);
}

pid_t hth_server_pid(const struct hth_server *s, uint32_t client)
{
    const struct connection *c = server_find(s, client);

    return c ? c->pid : 0;
}

void hth_server_reply(struct hth_server *s, uint32_t client, const void *bytes, size_t len, int fd)
{
    struct connection *c = server_find(s, client);
    int e = EAGAIN;

    if (!c || c->is_gone || c->is_deaf)
        return;
    if (!c->first)
        e = hth_packet_put(c->fd, bytes, len, fd);
    if (e == EAGAIN) {
        int own = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);

        if (fd >= 0 && own < 0)
            connection_lose(s, c, "no descriptor is left for its answer");
        else
            connection_enqueue(s, c, bytes, len, own);
    } else if (e) {
        connection_refused(s, c, e);
    }
}

/* ---- the rounds ------------------------------------------------------------------------------ */

int hth_server_event(struct hth_server *s, uint64_t tag, uint32_t events)
{
    enum tag kind = (enum tag)(tag >> 32);
    struct connection *c = server_find(s, (uint32_t)tag);

    if (kind == TAG_LISTEN)
        server_accept(s);
    else if (kind == TAG_PROCESS && c) {
        server_process_ended(s, c);
    } else if (kind == TAG_SOCKET && c) {
        if (events & EPOLLOUT)
            connection_flush(s, c);
        if (events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            server_read_packets(s, c, ROUND_PACKETS);
    }
    return kind == TAG_LISTEN || kind == TAG_PROCESS || kind == TAG_SOCKET;
}

unsigned hth_server_reap(struct hth_server *s)
{
    struct connection **at = &s->clients;
    unsigned n = 0;

    while (*at) {
        struct connection *c = *at;

        if (!c->is_gone) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        s->count--;
        n++;
        s->events.gone(
                s->events.self, c->id); /* may answer other clients, which removes none of them */
        connection_free(c);
    }
    return n;
}

uint32_t hth_server_clients(const struct hth_server *s)
{
    return s->count;
}

/* Listens in the directory that is open, even if its path leads elsewhere by now. */
static int server_listen(struct hth_server *s)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };

    snprintf(a.sun_path, sizeof(a.sun_path), "/proc/thread-self/fd/%d/sock", s->dir_fd);
    s->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (s->listen_fd < 0)
        return -1;
    unlinkat(s->dir_fd, "sock", 0);
    /* bind() makes the file with the socket's mode, less the umask. */
    if (fchmod(s->listen_fd, 0600) || bind(s->listen_fd, (const struct sockaddr *)&a, sizeof(a)) ||
            listen(s->listen_fd, QUEUE))
        return -1;
    return server_watch(s, EPOLL_CTL_ADD, s->listen_fd, TAG_LISTEN, 0, EPOLLIN);
}

/* Clients see the process that has called listen() last. */
static int server_listens_on(struct hth_server *s, int sock)
{
    s->listen_fd = sock > 0 ? fcntl(sock, F_DUPFD_CLOEXEC, STDERR_FILENO + 1) : -1;
    if (s->listen_fd >= 0 && !listen(s->listen_fd, QUEUE) &&
            !server_watch(s, EPOLL_CTL_ADD, s->listen_fd, TAG_LISTEN, 0, EPOLLIN))
        return 1;
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    s->listen_fd = -1;
    return 0;
}

int hth_server_open(int dir_fd, const char *dir, int listens, int epoll_fd,
        const struct hth_server_events *events, const struct hth_log *log, struct hth_server **out,
        struct hearth_error *err)
{
    struct hth_server *s = calloc(1, sizeof(*s));

    if (!s)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the local socket");
    s->epoll_fd = epoll_fd;
    s->listen_fd = -1;
    s->events = *events;
    s->log = *log;
    s->spare_fd = hth_open_kernel("/dev/null", O_RDONLY);
    s->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 0);
    if (s->dir_fd < 0 || (!server_listens_on(s, listens) && server_listen(s))) {
        int why = errno;

        hth_server_close(s);
        return hth_fail(err, HEARTH_EIO, why, "cannot listen on %.300s/sock: %s%s", dir,
                hth_full_text(dir_fd, why), hth_limit_text(why));
    }
    *out = s;
    return HEARTH_OK;
}

int hth_server_keep(struct hth_server *s)
{
    int fd = fcntl(s->listen_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);

    s->kept = fd >= 0;
    return fd;
}

void hth_server_close(struct hth_server *s)
{
    if (!s)
        return;
    while (s->clients) {
        struct connection *c = s->clients;

        s->clients = c->next;
        connection_free(c);
    }
    if (s->listen_fd >= 0) {
        if (!s->kept)
            unlinkat(s->dir_fd, "sock", 0);
        close(s->listen_fd);
    }
    if (s->dir_fd >= 0)
        close(s->dir_fd);
    if (s->spare_fd >= 0)
        close(s->spare_fd);
    free(s);
}
