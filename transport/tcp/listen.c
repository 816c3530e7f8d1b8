/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listeners, one for each address of this node, and their strangers. Until a socket is half of
 * a connection it costs its greeting, a few hundred bytes, and nothing else; it has
 * HTH_TCP_PATIENCE, and where too many stand one of them goes (places.c). Strangers have an epoll
 * set of their own, which is one entry of the transport's: however many there are, a turn serves
 * ACCEPTS + EVENTS of them, and connections keep their places in the kernel's order. Without
 * descriptors the listeners rest, and the kernel's queue waits for them.
 */
#include "tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define BACKLOG      1024
#define ACCEPTS      16  /* a turn */
#define EVENTS       16  /* of greetings, a turn */
#define ANY_PORTS    16  /* that are tried for one that is free on all addresses */
#define LISTENS_REST 100 /* ms without looking at the listener, when descriptors are used up */

/* Each listener's events have its number: no socket has such an id. */
static int listen_watch(struct hth_tcp *t, int op, uint32_t events)
{
    int rc = 0;

    t->listens = events != 0;
    for (uint32_t i = 0; i < t->self.count; i++) {
        struct epoll_event e = { .events = events, .data.u64 = i };

        rc |= epoll_ctl(t->strangers_fd, op, t->listen_fd[i], &e);
    }
    return rc;
}

/* 0 or an errno. The first listener may choose the port. */
static int listen_on(struct hth_tcp *t, uint32_t i)
{
    union hth_addr *a = &t->self.at[i];
    socklen_t len = sizeof(*a);
    int on = 1, fd;

    fd = socket(a->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    if (fd < 0)
        return errno;
    t->listen_fd[i] = fd;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, &a->sa, hth_addr_len(a)) || listen(fd, BACKLOG) || getsockname(fd, &a->sa, &len))
        return errno;
    if (!i)
        hth_addrs_set_port(&t->self, ntohs(a->in.sin_port));
    return 0;
}

static void listeners_close(struct hth_tcp *t)
{
    for (uint32_t i = 0; i < HTH_ADDRS; i++) {
        if (t->listen_fd[i] >= 0)
            close(t->listen_fd[i]);
        t->listen_fd[i] = -1;
    }
}

/* All addresses with one port. */
static int listen_all(struct hth_tcp *t, uint32_t *out_failed)
{
    int rc = 0;

    for (uint32_t i = 0; !rc && i < t->self.count; i++)
        if ((rc = listen_on(t, i)))
            *out_failed = i;
    if (rc)
        listeners_close(t);
    return rc;
}

int hth_tcp_listen_open(struct hth_tcp *t, struct hearth_error *err)
{
    uint16_t port = ntohs(t->self.at[0].in.sin_port);
    char label[HTH_ADDR_LABEL];
    uint32_t failed = 0;
    int rc;

    t->listen_due_ms = HTH_NEVER;
    rc = listen_all(t, &failed);
    for (int i = 0; rc == EADDRINUSE && !port && i < ANY_PORTS; i++) {
        hth_addrs_set_port(&t->self, 0); /* the port is free on the first address alone */
        rc = listen_all(t, &failed);
    }
    if (!rc && listen_watch(t, EPOLL_CTL_ADD, EPOLLIN))
        rc = errno;
    if (!rc)
        return HEARTH_OK;
    hth_addr_text(&t->self.at[failed], label);
    if (rc == EADDRINUSE)
        return hth_fail(err, HEARTH_EEXIST, rc,
                "another program listens on %s already; choose another port, or 0 for any", label);
    return hth_fail(err, HEARTH_EINVAL, rc,
            "this machine cannot listen on %s: %s; set bind (--bind, HEARTH_BIND) to an address "
            "that it has",
            label, strerrordesc_np(rc));
}

void hth_tcp_listen_close(struct hth_tcp *t)
{
    while (t->oldest)
        hth_tcp_greeting_end(t->oldest);
    listeners_close(t);
}

/* ---- strangers ---- */

static void stranger_add(struct hth_tcp *t, int fd, const union hth_addr *peer)
{
    struct hth_tcp_greeting *g = calloc(1, sizeof(*g));
    int on = 1;

    if (!g) {
        close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    g->stage = HTH_TCP_LISTENS;
    g->peer = *peer;
    g->due_ms = hth_now_ms(&t->clock) + HTH_TCP_PATIENCE;
    if (hth_tcp_sock_open(t, &g->sock, fd, HTH_TCP_STRANGER, g, EPOLLIN)) {
        free(g);
        return;
    }
    hth_tcp_stranger_list(g);
    if (hth_tcp_places_are_full(t))
        hth_tcp_greeting_end(hth_tcp_place_least(t));
}

/* Descriptors or memory are used up: the oldest stranger makes room, or the listener rests. */
static void listen_rest(struct hth_tcp *t)
{
    if (t->oldest) {
        hth_tcp_greeting_end(hth_tcp_place_least(t));
        return;
    }
    hth_say(&t->log, HEARTH_LOG_WARN, "tcp-accept", "no connection is accepted for %d ms: %s",
            LISTENS_REST, strerrordesc_np(errno));
    listen_watch(t, EPOLL_CTL_MOD, 0);
    t->listen_due_ms = hth_now_ms(&t->clock) + LISTENS_REST;
}

static void listen_accept(struct hth_tcp *t, uint64_t which)
{
    for (int n = 0; n < ACCEPTS && t->listens; n++) {
        union hth_addr peer = { 0 };
        socklen_t len = sizeof(peer);
        int fd = accept4(t->listen_fd[which], &peer.sa, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0)
            stranger_add(t, fd, &peer);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            listen_rest(t);
        else if (errno == EAGAIN)
            break;
    }
}

void hth_tcp_strangers_turn(struct hth_tcp *t)
{
    struct epoll_event e[EVENTS];
    int n = epoll_wait(t->strangers_fd, e, EVENTS, 0);

    for (int i = 0; i < n; i++) {
        struct hth_tcp_sock *s = hth_ids_get(&t->socks, e[i].data.u64);

        if (e[i].data.u64 < t->self.count)
            listen_accept(t, e[i].data.u64);
        else if (s) /* one that was joined or let go a moment ago is in no list */
            hth_tcp_greeting_event(s->owner);
    }
}

int hth_tcp_strangers_expire(struct hth_tcp *t, uint64_t now)
{
    int n = 0;

    for (; t->oldest && t->oldest->due_ms <= now; n++)
        hth_tcp_greeting_end(t->oldest);
    if (t->listen_due_ms <= now) {
        t->listen_due_ms = HTH_NEVER;
        listen_watch(t, EPOLL_CTL_MOD, EPOLLIN);
    }
    return n;
}

uint64_t hth_tcp_strangers_due(const struct hth_tcp *t)
{
    uint64_t due = t->oldest ? t->oldest->due_ms : HTH_NEVER;

    return due < t->listen_due_ms ? due : t->listen_due_ms;
}
