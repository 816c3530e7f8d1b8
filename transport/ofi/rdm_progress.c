/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One turn, and what to wait for. Where the provider has no descriptors, or has not taken
 * something, a timer says when to come back: rdm_rest.h.
 */
#include "rdm.h"

#include "rdm_rest.h"

#include <sys/timerfd.h>

#define SAFETY_MS 50u /* descriptors or not, while something is under way; else twice that */
#define RETRY_MS  2u  /* an endpoint that is to be closed */
#define DRAIN_MS  100u
#define SPIN_US   1000u /* no rest at all between reads */

void hth_rdm_ended(struct hth_rdm_op *op, size_t len, int fi_err)
{
    struct hth_rdm *r = op->end->r;
    struct hth_rdm_conn *c = hth_rdm_conn_get(r, op->conn);

    if (op->kind == HTH_RDM_RECV) {
        if (!fi_err && !r->o.closing)
            hth_rdm_received(r, op->bytes, len);
        op->next = op->end->back;
        op->end->back = op;
        return;
    }
    if (op->kind == HTH_RDM_READ) {
        if (c)
            hth_rdm_pulled(c, op->index, fi_err);
        hth_rdm_op_give(op);
        return;
    }
    hth_rdm_op_give(op);
    if (!c)
        return;
    c->sends--;
    if (fi_err)
        hth_rdm_conn_leave(c, HEARTH_EPEER, r->o.lib->strerror(fi_err), 0);
    else
        hth_rdm_sent(c);
}

static void rdm_stuck_retry(struct hth_rdm *r)
{
    for (uint32_t i = 0; r->o.stuck && i < r->o.conns.cap; i++) {
        struct hth_rdm_conn *c = hth_ids_at(&r->o.conns, i);

        if (!c || !c->link.stuck)
            continue;
        hth_ofi_link_stuck(&c->link, 0);
        hth_rdm_flush(c);
        hth_rdm_pulls_post(c);
    }
}

int hth_rdm_progress(struct hth_transport *t)
{
    struct hth_rdm *r = hth_rdm_of(t);
    int n;

    hth_wake_taken(r->o.wake_fd, &r->o.woken);
    n = hth_ofi_finish(&r->o);
    n += hth_rdm_end_read(&r->home);
    if (r->pull)
        n += hth_rdm_end_read(r->pull);
    if (r->old)
        n += hth_rdm_end_read(r->old);
    n += hth_ofi_pulls_ripen(&r->o);
    rdm_stuck_retry(r);
    hth_rdm_byes_post(r);
    n += hth_rdm_expire(r);
    hth_rdm_pull_ends_settle(r);
    n += hth_ofi_finish(&r->o);
    if (n)
        r->lately_us = hth_rdm_real_us();
    return n;
}

static uint32_t reads_under_way(const struct hth_rdm *r)
{
    return (r->pull ? r->pull->busy : 0) + (r->old ? r->old->busy : 0);
}

static int is_under_way(const struct hth_rdm *r)
{
    return r->home.busy || reads_under_way(r) || r->byes;
}

/* 0: a queue has an entry. */
static int queues_are_empty(struct hth_rdm *r)
{
    struct fid *queues[3] = { &r->home.cq->fid };
    int n = 1;

    if (r->pull)
        queues[n++] = &r->pull->cq->fid;
    if (r->old)
        queues[n++] = &r->old->cq->fid;
    return r->polls || fi_trywait(r->o.fabric, queues, n) == FI_SUCCESS;
}

/* Sets the timer, which also clears an earlier ring. us 0: it does not ring. */
static void timer_set(const struct hth_rdm *r, uint64_t us)
{
    const struct itimerspec at = { .it_value.tv_nsec = (long)us * 1000 };

    timerfd_settime(r->timer_fd, 0, &at, NULL);
}

int hth_rdm_arm(struct hth_transport *t, int *out_fd, uint64_t *out_due_ms)
{
    struct hth_rdm *r = hth_rdm_of(t);
    uint64_t since_us = hth_rdm_real_us() - r->lately_us, rest_ms = 2 * SAFETY_MS, due_ms;
    int retries = r->o.stuck || r->byes || r->home.back;

    if (r->o.doomed.head || r->o.ripe || atomic_load(&r->o.woken) || !queues_are_empty(r))
        return 0;
    if (since_us < SPIN_US && (r->o.stuck || (r->polls && reads_under_way(r))))
        return 0;
    timer_set(r, r->polls || retries ? hth_rdm_rest_us(since_us, retries || is_under_way(r)) : 0);
    if (r->old || is_under_way(r))
        rest_ms = r->old ? RETRY_MS : SAFETY_MS;
    *out_fd = r->o.epoll_fd;
    due_ms = hth_rdm_now(r) + rest_ms;
    *out_due_ms = due_ms > r->scan_ms ? r->scan_ms : due_ms;
    return 1;
}

void hth_rdm_drain(struct hth_rdm *r)
{
    uint64_t end = hth_rdm_now(r) + DRAIN_MS;

    while ((r->byes || r->home.busy) && hth_rdm_now(r) < end) {
        hth_rdm_byes_post(r);
        hth_rdm_end_read(&r->home);
    }
}
