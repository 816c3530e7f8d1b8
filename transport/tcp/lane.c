/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane is a thread that serves bulk sockets: it copies, checks and encrypts, and the caller's
 * thread waits for no byte. The caller's thread lists what a lane is to do (lane->todo) and wakes
 * it; the lane reports what has ended (report.c) and wakes the caller's.
 *
 *   new ── starts ──► watched ── it breaks ──► over ─┐
 *                        └───── stops ───────────────┴─ stops ──► closed: `stopped` is reported
 *
 * Threads start when the first bytes are to be pulled: an engine that has none to pull has no
 * threads for it, and threads that start late are confined as the caller's is by then. A lane
 * without a thread (not yet, none is asked for, or none can be had) takes its turns in progress().
 */
#include "tcp.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define SOCKETS 8 /* a turn: of each at most HTH_TCP_TURN bytes are read, and as many written */

/* ---- the caller's thread ----------------------------------------------------------------- */

/* Connections begin on each lane in turn. Their other sockets go where they have the fewest. */
static struct hth_tcp_lane *lane_next(const struct hth_tcp_conn *c)
{
    struct hth_tcp *t = c->t;
    uint32_t on[HTH_TCP_LANES] = { 0 }, first, best;

    if (!c->bulks)
        return &t->lane[t->lane_next++ % t->lanes];
    for (uint32_t i = 0; i < c->bulks; i++)
        on[c->bulk[i]->lane - t->lane]++;
    first = best = (uint32_t)(c->bulk[0]->lane - t->lane);
    for (uint32_t i = 1; i < t->lanes; i++)
        if (on[(first + i) % t->lanes] < on[best])
            best = (first + i) % t->lanes;
    return &t->lane[best];
}

int hth_tcp_bulk_add(struct hth_tcp_conn *c, int fd, struct hth_seal *seal)
{
    struct hth_tcp *t = c->t;
    struct hth_tcp_bulk *b = calloc(1, sizeof(*b));
    socklen_t len = sizeof(b->peer);

    if (!b) {
        close(fd);
        hth_seal_close(seal);
        return ENOMEM;
    }
    *b = (struct hth_tcp_bulk){ .t = t,
        .conn = c,
        .lane = lane_next(c),
        .fd = fd,
        .seal = seal,
        .path = hth_tcp_path_here(t, fd),
        .since_ms = hth_now_ms(&t->clock),
        .is_sealed = hth_seal_suite(seal) != HTH_SUITE_PROOF };
    getpeername(fd, &b->peer.sa, &len); /* while it has one */
    hth_tcp_path_watch(c, fd, HTH_TCP_SILENT_BULK);
    b->begins_end = &b->begins;
    c->bulk[c->bulks++] = b;
    return 0;
}

/* The lane's lock is held. */
static void bulk_list(struct hth_tcp_bulk *b)
{
    struct hth_tcp_lane *lane = b->lane;

    if (b->is_listed)
        return;
    b->is_listed = 1;
    b->next = NULL;
    *lane->todo_end = b;
    lane->todo_end = &b->next;
}

static void lane_todo(struct hth_tcp_lane *lane);

/* The lane's lock is released. */
static void lane_told(struct hth_tcp_lane *lane)
{
    pthread_mutex_unlock(&lane->lock);
    if (lane->has_thread)
        hth_wake(lane->wake_fd, &lane->woken);
    else
        lane_todo(lane);
}

void hth_tcp_bulk_start(struct hth_tcp_bulk *b)
{
    hth_tcp_pulls_begin(b);
    b->is_started = 1;
    b->conn->running++;
    pthread_mutex_lock(&b->lane->lock);
    b->starts = 1;
    bulk_list(b);
    lane_told(b->lane);
}

void hth_tcp_bulk_begin(struct hth_tcp_bulk *b, struct hth_tcp_pull *p)
{
    pthread_mutex_lock(&b->lane->lock);
    p->next = NULL;
    *b->begins_end = p;
    b->begins_end = &p->next;
    bulk_list(b);
    lane_told(b->lane);
}

void hth_tcp_bulk_stop(struct hth_tcp_bulk *b)
{
    pthread_mutex_lock(&b->lane->lock);
    b->stops = 1;
    bulk_list(b);
    lane_told(b->lane);
}

void hth_tcp_bulk_free(struct hth_tcp_bulk *b)
{
    if (b->fd >= 0) /* never started */
        close(b->fd);
    hth_tcp_sealed_fini(b);
    hth_seal_close(b->seal);
    free(b);
}

/* ---- the lane ---------------------------------------------------------------------------- */

static void bulk_starts(struct hth_tcp_bulk *b)
{
    struct epoll_event e = { .events = EPOLLIN, .data.ptr = b };

    b->events = EPOLLIN;
    if (epoll_ctl(b->lane->epoll_fd, EPOLL_CTL_ADD, b->fd, &e))
        hth_tcp_bulk_broke(b, errno);
}

static void bulk_stops(struct hth_tcp_bulk *b)
{
    if (b->events) /* a child may have the socket, too: then close() ends no event */
        epoll_ctl(b->lane->epoll_fd, EPOLL_CTL_DEL, b->fd, NULL);
    b->events = 0;
    close(b->fd);
    b->fd = -1;
    hth_tcp_sealed_in_end(b);
    hth_tcp_back_stopped(b);
}

/* The lane takes a socket's list under the lock, and works through it without the lock. */
static void bulk_todo(struct hth_tcp_bulk *b)
{
    struct hth_tcp_pull *p, *next;
    int starts, stops;

    pthread_mutex_lock(&b->lane->lock);
    starts = b->starts;
    stops = b->stops;
    p = b->begins;
    b->is_listed = 0; /* not before it is emptied: else it would be listed again, and freed there */
    b->starts = b->stops = 0;
    b->begins = NULL;
    b->begins_end = &b->begins;
    pthread_mutex_unlock(&b->lane->lock);
    if (starts)
        bulk_starts(b);
    for (; p; p = next) {
        next = p->next;
        hth_tcp_pulls_add(b, p);
    }
    if (stops)
        bulk_stops(b);
    else if (b->events)
        hth_tcp_bulk_write(b);
}

static struct hth_tcp_bulk *todo_take(struct hth_tcp_lane *lane)
{
    struct hth_tcp_bulk *b;

    pthread_mutex_lock(&lane->lock);
    b = lane->todo;
    if (b) {
        lane->todo = b->next;
        if (!lane->todo)
            lane->todo_end = &lane->todo;
    }
    pthread_mutex_unlock(&lane->lock);
    return b;
}

static void lane_todo(struct hth_tcp_lane *lane)
{
    for (struct hth_tcp_bulk *b = todo_take(lane); b; b = todo_take(lane))
        bulk_todo(b);
}

/* A socket that is stopped is closed before the lane waits: no event names one that is gone. */
void hth_tcp_lane_turn(struct hth_tcp_lane *lane, int timeout_ms)
{
    struct epoll_event e[SOCKETS];
    int n;

    hth_wake_taken(lane->wake_fd, &lane->woken);
    lane_todo(lane);
    /* `closing` is read after the wake is taken: a close that found the lane woken is seen here. */
    n = epoll_wait(lane->epoll_fd, e, SOCKETS, atomic_load(&lane->closing) ? 0 : timeout_ms);
    for (int i = 0; i < n; i++)
        if (e[i].data.ptr)
            hth_tcp_bulk_event(e[i].data.ptr, e[i].events);
}

static void *lane_run(void *arg)
{
    struct hth_tcp_lane *lane = arg;

    pthread_setname_np(pthread_self(), "hearth-lane");
    while (!atomic_load(&lane->closing))
        hth_tcp_lane_turn(lane, -1);
    lane_todo(lane);
    return NULL;
}

/* ---- from open to close ------------------------------------------------------------------ */

/* The thread blocks all signals, which belong to the process, except SIGBUS of a cut file: a
 * blocked SIGBUS ends hearthd, while hearthd's handler survives it. */
static int lane_thread(struct hth_tcp_lane *lane)
{
    sigset_t all, old;
    int rc;

    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&lane->thread, NULL, lane_run, lane);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return rc;
}

void hth_tcp_lanes_start(struct hth_tcp *t)
{
    for (uint32_t i = 0; i < t->lanes && t->lane[i].wants_thread; i++) {
        struct hth_tcp_lane *lane = &t->lane[i];

        lane->wants_thread = 0;
        if (lane_thread(lane))
            continue; /* it goes on in turns */
        lane->has_thread = 1;
        epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, lane->epoll_fd, NULL);
    }
}

/* 0 or an errno. */
static int lane_open(struct hth_tcp *t, int threaded)
{
    struct hth_tcp_lane *lane = &t->lane[t->lanes];
    struct epoll_event wake = { .events = EPOLLIN };
    struct epoll_event own = { .events = EPOLLIN, .data.u64 = HTH_TCP_LANE };

    lane->t = t;
    lane->todo_end = &lane->todo;
    lane->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    lane->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&lane->lock, NULL);
    t->lanes++;
    if (lane->epoll_fd < 0 || lane->wake_fd < 0 ||
            epoll_ctl(lane->epoll_fd, EPOLL_CTL_ADD, lane->wake_fd, &wake) ||
            epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, lane->epoll_fd, &own))
        return errno;
    lane->wants_thread = threaded;
    return 0;
}

int hth_tcp_lanes_open(struct hth_tcp *t, unsigned threads, struct hearth_error *err)
{
    int rc;

    do {
        rc = lane_open(t, threads != 0);
    } while (!rc && t->lanes < threads && t->lanes < HTH_TCP_LANES);
    return rc ? hth_fail(err, HEARTH_EIO, rc, "no descriptors for a transport: %s",
                        strerrordesc_np(rc))
              : HEARTH_OK;
}

void hth_tcp_lanes_close(struct hth_tcp *t)
{
    for (uint32_t i = 0; i < t->lanes; i++) {
        struct hth_tcp_lane *lane = &t->lane[i];

        atomic_store(&lane->closing, 1);
        if (lane->has_thread) {
            hth_wake(lane->wake_fd, &lane->woken);
            pthread_join(lane->thread, NULL);
        }
        if (lane->epoll_fd >= 0)
            close(lane->epoll_fd);
        if (lane->wake_fd >= 0)
            close(lane->wake_fd);
        pthread_mutex_destroy(&lane->lock);
    }
    t->lanes = 0;
}
