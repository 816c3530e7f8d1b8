/* SPDX-License-Identifier: Apache-2.0 */
/* The front of a meeting: ranks come and go, and the one epoll set has its turn. */
#include "parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define TURN_EVENTS 64 /* then the owner has its turn */

int hth_meeting_open(
        const struct hth_meeting_opts *opts, struct hth_meeting **out, struct hearth_error *err)
{
    struct hth_meeting *m = calloc(1, sizeof(*m));

    if (m)
        m->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (!m || m->epoll < 0) {
        int e = errno;

        free(m);
        return hth_fail(err, HEARTH_ENOMEM, e, "the ranks cannot meet: %s", strerror(e));
    }
    m->events = *opts->events;
    m->node = opts->node;
    *out = m;
    return HEARTH_OK;
}

void hth_meeting_close(struct hth_meeting *m)
{
    if (!m)
        return;
    hth_host_close(m);
    hth_visits_close(m);
    close(m->epoll);
    hth_wipe(&m->keys, sizeof(m->keys));
    free(m);
}

void hth_meeting_keys(struct hth_meeting *m, const struct hth_meeting_keys *keys)
{
    m->keys = *keys;
}

int hth_meeting_come(struct hth_meeting *m, const struct hth_meeting_rank *rank, uint64_t now_ms,
        struct hearth_error *err)
{
    int rc;

    m->now_ms = now_ms;
    if (rank->rank >= rank->world || !rank->place->addresses ||
            rank->place->addresses > HTH_MEETING_ADDRESSES || !rank->len)
        return hth_fail(err, HEARTH_EINVAL, 0, "a rank of no world comes to the ranks' meeting");
    hth_visit_gone(m, rank->rank);
    if (!rank->rank)
        hth_host_close(m);
    rc = hth_visit_come(m, rank);
    if (!rc && !rank->rank && (rc = hth_host_open(m, rank)))
        hth_visit_gone(m, 0);
    return rc ? hth_fail(err, rc, 0, "no memory for the ranks' meeting") : HEARTH_OK;
}

void hth_meeting_gone(struct hth_meeting *m, uint32_t rank)
{
    if (!rank)
        hth_host_gone(m);
    hth_visit_gone(m, rank);
}

void hth_meeting_fetched(struct hth_meeting *m, uint32_t round, struct hth_buf *packed)
{
    hth_visit_fetched(m, round, packed);
}

int hth_meeting_fd(const struct hth_meeting *m)
{
    return m->epoll;
}

/* One event at a time: what it does may close the connection of another one. */
void hth_meeting_turn(struct hth_meeting *m, uint64_t now_ms)
{
    struct epoll_event e;

    m->now_ms = now_ms;
    for (int i = 0; i < TURN_EVENTS && epoll_wait(m->epoll, &e, 1, 0) == 1; i++) {
        struct hth_watch *w = e.data.ptr;

        w->stir(w, e.events);
    }
    hth_host_tick(m);
    hth_visits_tick(m);
}

uint64_t hth_meeting_due_ms(const struct hth_meeting *m)
{
    uint64_t host = hth_host_due_ms(m), visits = hth_visits_due_ms(m);

    return host < visits ? host : visits;
}
