/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One turn: events, completions, what was left over, deadlines, and the connections that end.
 * Each in bounded batches; a callback may call everything but progress() and close().
 */
#include "ofi.h"

#include <stdint.h>
#include <stdlib.h>

#define EVENTS      16 /* of each kind, a turn */
#define COMPLETIONS 64
#define RETRY_MS    10 /* for what the library did not take, at the latest */

/* ---- events: connections come and go ---- */

static void event_take(struct hth_ofi *o, const struct hth_ofi_event *e)
{
    struct hth_ofi_conn *c;

    if (e->info) {
        hth_ofi_accept(o, e->info);
        return;
    }
    c = hth_ofi_conn_of(o, e->fid);
    if (c && e->err)
        hth_ofi_conn_leave(c, HEARTH_EPEER, o->lib->strerror(e->err));
    else if (c && e->event == FI_CONNECTED)
        hth_ofi_conn_up(c);
    else if (c && e->event == FI_SHUTDOWN)
        hth_ofi_conn_leave(c, HEARTH_EPEER, "the peer has closed the connection");
}

static int events_read(struct hth_ofi *o)
{
    struct hth_ofi_event e;
    int n = 0;

    for (; n < EVENTS && hth_ofi_event_next(o, &e); n++)
        event_take(o, &e);
    return n;
}

/* ---- completions ---- */

struct context {
    struct hth_ofi_conn *c; /* NULL: of a connection that is gone */
    enum hth_ofi_kind kind;
    uint32_t index;
};

static struct context completion_context(struct hth_ofi *o, const void *op_context)
{
    uint64_t v = hth_ofi_context_number(op_context);
    struct context x = { .kind = (enum hth_ofi_kind)(v >> 24 & 0xff),
        .index = (uint32_t)(v >> 16 & 0xff) };

    x.c = hth_ofi_conn_get(o, v & (UINT64_C(0xffffffff) << 32 | 0xffff));
    if (x.c && (!x.c->ep || x.index >= HTH_OFI_RING))
        x.c = NULL;
    return x;
}

static void completion_take(struct hth_ofi *o, const struct fi_cq_msg_entry *e)
{
    struct context x = completion_context(o, e->op_context);

    if (!x.c)
        return;
    hth_ofi_conn_release(x.c, x.kind);
    switch (x.kind) {
    case HTH_OFI_RECV:
        hth_ofi_received(x.c, x.index, e->len);
        break;
    case HTH_OFI_SEND:
        hth_ofi_sent(x.c, x.index);
        break;
    case HTH_OFI_PULL:
        hth_ofi_pulled(x.c, x.index);
        break;
    }
}

/* Any failed operation ends its connection: that is what connected endpoints promise. */
static int completion_read_failure(struct hth_ofi *o)
{
    struct fi_cq_err_entry e = { 0 };
    struct context x;

    if (fi_cq_readerr(o->cq, &e, 0) < 0)
        return 0;
    x = completion_context(o, e.op_context);
    if (!x.c)
        return 1;
    hth_ofi_conn_release(x.c, x.kind);
    if (x.kind == HTH_OFI_PULL && x.c->link.pull[x.index].state == HTH_OFI_PULL_POSTED)
        hth_ofi_pull_failed(&x.c->link, &x.c->link.pull[x.index], e.err);
    if (x.kind == HTH_OFI_RECV && (e.err == FI_ETRUNC || e.err == FI_EMSGSIZE))
        hth_ofi_conn_leave(x.c, HEARTH_EPROTO, "a message is too long");
    else
        hth_ofi_conn_leave(x.c, HEARTH_EPEER,
                e.err == FI_ECANCELED ? "the connection broke" : o->lib->strerror(e.err));
    return 1;
}

/* *drained: nothing is left in the queue. */
static int completions_read(struct hth_ofi *o, int *drained)
{
    struct fi_cq_msg_entry entry[16];
    int n = 0;

    *drained = 0;
    while (n < COMPLETIONS) {
        ssize_t got = fi_cq_read(o->cq, entry, sizeof(entry) / sizeof(entry[0]));

        if (got == -FI_EAVAIL && completion_read_failure(o)) {
            n++;
            continue;
        }
        if (got <= 0) {
            *drained = 1;
            break;
        }
        for (ssize_t i = 0; i < got; i++)
            completion_take(o, &entry[i]);
        n += (int)got;
    }
    return n;
}

/* ---- what the library did not take ---- */

static void stuck_retry(struct hth_ofi *o)
{
    for (uint32_t i = 0; o->stuck && i < o->conns.cap; i++) {
        struct hth_ofi_conn *c = hth_ids_at(&o->conns, i);

        if (!c || !c->link.stuck || c->link.state == HTH_OFI_DIALLED ||
                c->link.state == HTH_OFI_HALF_OPEN)
            continue;
        hth_ofi_link_stuck(&c->link, 0);
        if (c->link.state == HTH_OFI_UP)
            hth_ofi_receives_post(c);
        if (c->link.state == HTH_OFI_UP)
            hth_ofi_sends_post(c);
        if (c->link.state == HTH_OFI_UP)
            hth_ofi_pulls_post(c);
    }
}

/* ---- what the two kinds of connection differ in ---- */

static void conn_free(struct hth_ofi_link *link)
{
    struct hth_ofi_conn *c = (struct hth_ofi_conn *)link;

    hth_ofi_message_fini(c);
    hth_ofi_contexts_fini(c);
    free(c);
}

static void conn_leave(struct hth_ofi_link *c, int code, const char *why)
{
    hth_ofi_conn_leave((struct hth_ofi_conn *)c, code, why);
}

static void grants_flush(struct hth_ofi *o, hth_conn conn)
{
    struct hth_ofi_conn *c = hth_ofi_conn_get(o, conn);

    if (c)
        hth_ofi_words_post(c);
}

void hth_ofi_conn_hooks(struct hth_ofi *o)
{
    o->grants_of = hth_ofi_conn_grants;
    o->grants_flush = grants_flush;
    o->pull_post = hth_ofi_pull_post;
    o->leave = conn_leave;
    o->conn_free = conn_free;
}

/* ---- the turn ---- */

int hth_ofi_progress(struct hth_transport *t)
{
    struct hth_ofi *o = hth_ofi_of(t);
    int drained, n;

    o->turn++;
    hth_wake_taken(o->wake_fd, &o->woken);
    n = hth_ofi_finish(o);
    n += hth_ofi_dials_take(o);
    n += events_read(o);
    n += completions_read(o, &drained);
    if (drained)
        hth_ofi_contexts_drained(o);
    n += hth_ofi_pulls_ripen(o);
    stuck_retry(o);
    n += hth_ofi_expire(o);
    n += hth_ofi_settle(o, drained);
    n += hth_ofi_finish(o);
    return n;
}

void hth_ofi_drain(struct hth_ofi *o)
{
    int drained;

    while (o->leaving.head) {
        o->turn++;
        completions_read(o, &drained);
        hth_ofi_settle(o, drained);
    }
}

int hth_ofi_arm(struct hth_transport *t, int *out_fd, uint64_t *out_due_ms)
{
    struct hth_ofi *o = hth_ofi_of(t);
    struct fid *queues[] = { &o->eq->fid, &o->cq->fid };
    uint64_t due = o->due_ms;

    if (o->kept || o->doomed.head || o->leaving.head || o->ripe || atomic_load(&o->woken))
        return 0;
    if (fi_trywait(o->fabric, queues, 2) != FI_SUCCESS)
        return 0;
    if (o->stuck) {
        uint64_t soon = hth_now_ms(&o->clock) + RETRY_MS;

        if (soon < due)
            due = soon;
    }
    *out_fd = o->epoll_fd;
    *out_due_ms = due;
    return 1;
}

void hth_ofi_wake(struct hth_transport *t)
{
    struct hth_ofi *o = hth_ofi_of(t);

    hth_wake(o->wake_fd, &o->woken);
}
