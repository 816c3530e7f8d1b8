/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One turn: what lanes report, what epoll reports, in bounded batches; then deadlines, and the
 * connections that end. epoll goes on reporting what a turn has left, so there is no other list of
 * it, and where more sockets are ready than a turn serves, the kernel gives the next turn the
 * others. A turn is short, since its caller has other work: pings, ranks. So it serves few sockets,
 * and its work for strangers does not count as work: a caller that waits until nothing is left to
 * do does not wait for strangers.
 */
#include "tcp.h"

#include <sys/epoll.h>

#define SOCKETS 8 /* a turn: of each at most HTH_TCP_TURN bytes are read, and as many written */

static struct hth_tcp_sock *event_sock(struct hth_tcp *t, const struct epoll_event *e)
{
    return hth_ids_get(&t->socks, e->data.u64); /* NULL: strangers, wake(), or gone since */
}

/* Lanes that have no thread: after messages. */
static int lanes_last(struct hth_tcp *t, const struct epoll_event *e, int n)
{
    int done = 0;

    for (int i = 0; i < n; i++)
        done |= e[i].data.u64 == HTH_TCP_LANE;
    for (uint32_t i = 0; done && i < t->lanes; i++)
        if (!t->lane[i].has_thread)
            hth_tcp_lane_turn(&t->lane[i], 0);
    return done;
}

static int others_first(struct hth_tcp *t, const struct epoll_event *e, int n)
{
    int done = 0;

    for (int i = 0; i < n; i++) {
        struct hth_tcp_sock *s = event_sock(t, &e[i]);

        if (e[i].data.u64 == HTH_TCP_DOOR)
            hth_tcp_strangers_turn(t);
        if (!s)
            continue;
        if (s->role == HTH_TCP_MESSAGES)
            hth_tcp_messages_event(s->owner, e[i].events);
        else
            hth_tcp_greeting_event(s->owner);
        done++;
    }
    return done;
}

static int deadlines(struct hth_tcp *t)
{
    uint64_t now;

    if (t->due_ms == HTH_NEVER && hth_tcp_strangers_due(t) == HTH_NEVER)
        return 0;
    now = hth_now_ms(&t->clock);
    return hth_tcp_strangers_expire(t, now) + hth_tcp_conns_expire(t, now);
}

int hth_tcp_progress(struct hth_transport *transport)
{
    struct hth_tcp *t = hth_tcp_of(transport);
    struct epoll_event e[SOCKETS];
    int got, n;

    hth_wake_taken(t->wake_fd, &t->woken);
    n = hth_tcp_back_take(t);
    n += hth_tcp_finish(t);
    got = epoll_wait(t->epoll_fd, e, SOCKETS, 0);
    n += others_first(t, e, got);
    n += lanes_last(t, e, got);
    n += hth_tcp_back_take(t);
    n += deadlines(t);
    n += hth_tcp_finish(t);
    return n;
}

int hth_tcp_arm(struct hth_transport *transport, int *out_fd, uint64_t *out_due_ms)
{
    struct hth_tcp *t = hth_tcp_of(transport);
    uint64_t due = hth_tcp_strangers_due(t);

    if (t->doomed || atomic_load(&t->woken) || hth_tcp_back_waits(t))
        return 0;
    *out_fd = t->epoll_fd;
    *out_due_ms = due < t->due_ms ? due : t->due_ms;
    return 1;
}

void hth_tcp_wake(struct hth_transport *transport)
{
    struct hth_tcp *t = hth_tcp_of(transport);

    hth_wake(t->wake_fd, &t->woken);
}
