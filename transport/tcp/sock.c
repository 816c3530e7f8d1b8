/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets and what epoll watches them for. */
#include "tcp.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Sockets that have proved nothing have an epoll set of their own (listen.c). */
static int sock_set(const struct hth_tcp_sock *s)
{
    return s->role == HTH_TCP_STRANGER ? s->t->strangers_fd : s->t->epoll_fd;
}

static int sock_control(struct hth_tcp_sock *s, int op)
{
    struct epoll_event e = { .events = s->events, .data.u64 = s->id };

    return epoll_ctl(sock_set(s), op, s->fd, &e) ? errno : 0;
}

int hth_tcp_sock_open(struct hth_tcp *t, struct hth_tcp_sock *s, int fd, enum hth_tcp_role role,
        void *owner, uint32_t events)
{
    int rc;

    *s = (struct hth_tcp_sock){ t, hth_ids_put(&t->socks, s), fd, events, role, owner };
    rc = s->id ? sock_control(s, EPOLL_CTL_ADD) : ENOMEM;
    if (rc)
        hth_tcp_sock_close(s);
    return rc;
}

void hth_tcp_sock_watch(struct hth_tcp_sock *s, uint32_t events)
{
    if (s->events == events || !s->id)
        return;
    s->events = events;
    sock_control(s, EPOLL_CTL_MOD); /* of a descriptor that is there: it does not fail */
}

int hth_tcp_sock_move(
        struct hth_tcp_sock *from, struct hth_tcp_sock *to, enum hth_tcp_role role, void *owner)
{
    int rc, moves;

    *to = *from;
    to->role = role;
    to->owner = owner;
    moves = sock_set(to) != sock_set(from);
    if (moves)
        epoll_ctl(sock_set(from), EPOLL_CTL_DEL, from->fd, NULL);
    to->id = hth_ids_put(&to->t->socks, to);
    hth_ids_drop(&from->t->socks, from->id);
    from->id = 0;
    from->fd = -1;
    rc = to->id ? sock_control(to, moves ? EPOLL_CTL_ADD : EPOLL_CTL_MOD) : ENOMEM;
    if (rc)
        hth_tcp_sock_close(to);
    return rc;
}

int hth_tcp_sock_take(struct hth_tcp_sock *s)
{
    int fd = s->fd;

    epoll_ctl(sock_set(s), EPOLL_CTL_DEL, fd, NULL);
    s->fd = -1;
    hth_tcp_sock_close(s);
    return fd;
}

void hth_tcp_sock_close(struct hth_tcp_sock *s)
{
    if (s->id)
        hth_ids_drop(&s->t->socks, s->id);
    if (s->t && s->fd >= 0)
        close(s->fd);
    s->id = 0;
    s->fd = -1;
}

void hth_tcp_bulk_watch(struct hth_tcp_bulk *b, uint32_t events)
{
    struct epoll_event e = { .events = events, .data.ptr = b };

    if (b->events == events || !b->events)
        return;
    b->events = events;
    epoll_ctl(b->lane->epoll_fd, EPOLL_CTL_MOD, b->fd, &e); /* of one that is there: never fails */
}
