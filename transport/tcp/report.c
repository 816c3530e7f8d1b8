/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a lane reports to the caller's thread, which is woken: pulls that are done, and sockets that
 * have broken or are closed. back.c takes it.
 */
#include "tcp.h"

#include <sys/epoll.h>

/* back_lock is released. */
static void back_told(struct hth_tcp *t)
{
    pthread_mutex_unlock(&t->back_lock);
    hth_wake(t->wake_fd, &t->woken);
}

void hth_tcp_back_pull(struct hth_tcp *t, struct hth_tcp_pull *p, int code)
{
    p->code = code;
    p->next = NULL;
    pthread_mutex_lock(&t->back_lock);
    *t->back_pulls_end = p;
    t->back_pulls_end = &p->next;
    back_told(t);
}

/* back_lock is held. */
static void bulk_back(struct hth_tcp_bulk *b)
{
    struct hth_tcp *t = b->t;

    if (b->is_back)
        return;
    b->is_back = 1;
    b->back_next = NULL;
    *t->back_bulks_end = b;
    t->back_bulks_end = &b->back_next;
}

void hth_tcp_bulk_broke(struct hth_tcp_bulk *b, int error)
{
    if (!b->events)
        return;
    b->events = 0;
    epoll_ctl(b->lane->epoll_fd, EPOLL_CTL_DEL, b->fd, NULL);
    pthread_mutex_lock(&b->t->back_lock);
    b->broke = 1;
    b->error = error;
    bulk_back(b);
    back_told(b->t);
}

void hth_tcp_back_stopped(struct hth_tcp_bulk *b)
{
    pthread_mutex_lock(&b->t->back_lock);
    b->stopped = 1;
    bulk_back(b);
    back_told(b->t);
}

int hth_tcp_back_waits(struct hth_tcp *t)
{
    int waits;

    pthread_mutex_lock(&t->back_lock);
    waits = t->back_pulls || t->back_bulks;
    pthread_mutex_unlock(&t->back_lock);
    return waits;
}
