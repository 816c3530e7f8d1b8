/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport: connections and messages. Whatever will happen at a node is an event in that
 * node's heap; progress() runs what is due.
 *
 *   connect ──ARRIVE──> on_accept            drop ──DOWN──> on_down (own side: at once)
 *   on_up   <──UP─────                        send ──MESSAGE──> on_message
 *
 * Connections are looked up by id when the event comes: what was meant for one that has ended is
 * lost.
 */
#include "loop_parts.h"

#include "core/base/bytes.h"
#include <stdio.h>
#include <stdlib.h>

#define FLYING_MAX 256u /* messages of one side under way; more: HEARTH_EBUSY */

/* ---- what happens when an event is due ---- */

static void loop_arrive(struct loop *loop, struct event *e)
{
    struct loop *dialler = e->from->loop;
    struct end *far = hth_loop_end_find(dialler, e->other), *end;
    struct event *up;

    if (!far)
        return;
    end = hth_loop_end_new(loop, e->from);
    if (!end) {
        hth_loop_refuse(loop->net, e);
        return;
    }
    end->state = END_UP;
    end->peer_conn = far->conn;
    up = far->up;
    far->up = NULL;
    if (up) { /* NULL: this is the second arrival of one dial */
        far->peer_conn = end->conn;
        up->conn = far->conn;
        hth_loop_post(loop->net, up, loop->place, e->from, hth_loop_sent_due_ms(loop, end, 0, 0));
    }
    loop->events.on_accept(loop->events.self, end->conn);
}

static void loop_up(struct loop *loop, struct end *end)
{
    if (end->state != END_DIALLING)
        return;
    end->state = END_UP;
    loop->events.on_up(loop->events.self, end->conn);
}

static void loop_landed(struct loop *loop, struct loop *sender, hth_conn conn)
{
    struct end *end = hth_loop_end_find(sender, conn);

    if (!end)
        return;
    end->flying--;
    if (!end->blocked || end->flying > FLYING_MAX / 2 || !end->writable)
        return;
    end->writable->conn = conn;
    hth_loop_post(loop->net, end->writable, sender->place, sender->place, hth_loop_now(loop->net));
    end->writable = NULL;
}

static void loop_down(struct loop *loop, struct end *end, int code)
{
    hth_conn conn = end->conn;
    char detail[64];

    end->state = END_ENDING;
    hth_loop_pulls_end(loop, end, code);
    snprintf(detail, sizeof(detail), "node %" PRIu32 " of the net: %s", end->peer->node,
            hearth_strerror(code));
    loop->events.on_down(loop->events.self, conn, code, detail);
    hth_loop_end_free(loop, end);
}

/* Runs one event; frees it unless its end keeps it for the next time. */
static void loop_run(struct loop *loop, struct event *e)
{
    struct end *end = hth_loop_end_find(loop, e->conn);
    int keep = 0;

    if (e->kind == EVENT_ARRIVE) {
        loop_arrive(loop, e);
    } else if (e->kind == EVENT_PULL) {
        hth_loop_pull_due(loop, e);
    } else if (e->kind == EVENT_MESSAGE) {
        loop_landed(loop, e->from->loop, e->other);
        if (end && end->state == END_UP)
            loop->events.on_message(loop->events.self, e->conn, e->bytes, e->len);
    } else if (end && e->kind == EVENT_UP) {
        loop_up(loop, end);
    } else if (end && e->kind == EVENT_DOWN) {
        loop_down(loop, end, e->code);
    } else if (end && e->kind == EVENT_WRITABLE) {
        end->writable = e;
        end->blocked = 0;
        keep = 1;
        if (end->state == END_UP)
            loop->events.on_writable(loop->events.self, e->conn);
    }
    if (!keep)
        free(e);
}

static int loop_progress(struct hth_transport *t)
{
    struct loop *loop = (struct loop *)t;
    uint64_t last = loop->net->seq; /* events that these cause wait for the next call */
    struct event *e;
    int done = atomic_exchange(&loop->woken, 0);

    while ((e = hth_loop_take(loop->net, loop->place, last))) {
        loop_run(loop, e);
        done++;
    }
    return done;
}

/* ---- the calls ---- */

static uint32_t loop_caps(struct hth_transport *t)
{
    const struct loop *loop = (struct loop *)t;

    return HTH_CAP_ONE_SIDED | HTH_CAP_READ_ONLY | HTH_CAP_BOUNDS | HTH_CAP_GRANT_PER_CONN |
           (loop->net->no_revoke ? 0 : HTH_CAP_REVOKES);
}

static int loop_address(struct hth_transport *t, unsigned char *out_addr, uint32_t *out_len,
        struct hearth_error *err)
{
    (void)err;
    hth_put32(out_addr, ((struct loop *)t)->place->node);
    *out_len = 4;
    return HEARTH_OK;
}

static int loop_connect(struct hth_transport *t, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err)
{
    struct loop *loop = (struct loop *)t;
    struct hth_loop_net *net = loop->net;
    struct hth_loop_verdict v;
    struct place *peer;
    struct event *e[2] = { NULL, NULL };
    struct end *end;
    uint64_t due;

    if (len != 4)
        return hth_fail(err, HEARTH_EINVAL, 0, "an address of this net has 4 bytes, not %u", len);
    if (loop->closing)
        return hth_fail(err, HEARTH_ESTATE, 0, "the transport is being closed");
    v = hth_loop_ask(net, HTH_LOOP_CONNECT, loop->place->node, hth_get32(addr), NULL, 0);
    if (v.fault == HTH_LOOP_FULL)
        return hth_fail(err, HEARTH_EBUSY, 0, "the table of connections is full");
    peer = hth_loop_place(net, hth_get32(addr));
    end = peer ? hth_loop_end_new(loop, peer) : NULL;
    if (!end)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a connection");
    due = hth_loop_now(net) + net->latency_ms + v.delay_ms;
    *out_conn = end->conn;
    if (v.fault == HTH_LOOP_STALL)
        return HEARTH_OK;
    if (v.fault != HTH_LOOP_DROP)
        e[0] = hth_loop_event_new(EVENT_ARRIVE, 0);
    if (v.fault == HTH_LOOP_DUPLICATE)
        e[1] = hth_loop_event_new(EVENT_ARRIVE, 0);
    if (!e[0])
        hth_loop_post_down(loop, end, &end->down_peer, peer, HEARTH_EPEER, due);
    for (int i = 0; i < 2; i++)
        if (e[i]) {
            e[i]->other = end->conn;
            hth_loop_post(net, e[i], loop->place, peer, due);
        }
    return HEARTH_OK;
}

static void loop_drop(struct hth_transport *t, hth_conn conn)
{
    struct loop *loop = (struct loop *)t;
    struct end *end = hth_loop_end_find(loop, conn);

    if (end)
        hth_loop_break(loop, end, HEARTH_ECANCELED);
}

static int loop_post_message(struct loop *loop, struct end *end, const void *bytes, size_t len,
        struct hth_loop_verdict v)
{
    struct event *e = hth_loop_event_new(EVENT_MESSAGE, len);

    if (!e)
        return HEARTH_ENOMEM;
    if (len)
        memcpy(e->bytes, bytes, len);
    if (v.fault == HTH_LOOP_FLIP && len)
        e->bytes[len / 2] ^= 0x10;
    e->conn = end->peer_conn;
    e->other = end->conn;
    end->flying++;
    hth_loop_post(loop->net, e, loop->place, end->peer,
            hth_loop_sent_due_ms(loop, end, v.delay_ms, v.late));
    return HEARTH_OK;
}

static int loop_send(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len)
{
    struct loop *loop = (struct loop *)t;
    struct end *end = hth_loop_end_find(loop, conn);
    struct hth_loop_verdict v;
    int rc = HEARTH_OK;

    if (len > HTH_MESSAGE_MAX)
        return HEARTH_EINVAL;
    if (!end || end->state != END_UP)
        return HEARTH_EPEER;
    if (end->flying >= FLYING_MAX) {
        end->blocked = 1;
        return HEARTH_EBUSY;
    }
    v = hth_loop_ask(loop->net, HTH_LOOP_MESSAGE, loop->place->node, end->peer->node, bytes, len);
    if (v.fault != HTH_LOOP_DROP)
        rc = loop_post_message(loop, end, bytes, len, v);
    if (v.fault == HTH_LOOP_DUPLICATE && !rc)
        rc = loop_post_message(loop, end, bytes, len, v);
    return rc;
}

static int loop_arm(struct hth_transport *t, int *out_fd, uint64_t *out_due_ms)
{
    struct loop *loop = (struct loop *)t;
    struct hth_due *first = loop->place->events;

    *out_fd = -1;
    *out_due_ms = first ? first->ms : HTH_NEVER;
    return !atomic_load(&loop->woken) && *out_due_ms > hth_loop_now(loop->net);
}

static void loop_wake(struct hth_transport *t)
{
    atomic_store(&((struct loop *)t)->woken, 1);
}

static void loop_close(struct hth_transport *t)
{
    struct loop *loop = (struct loop *)t;

    loop->closing = 1;
    for (uint32_t i = 0; i < loop->end_cap; i++)
        if (loop->ends[i]) {
            if (loop->ends[i]->state != END_ENDING)
                hth_loop_break_peer(loop, loop->ends[i]);
            loop_down(loop, loop->ends[i], HEARTH_ECANCELED);
        }
    hth_loop_leave(loop->net, loop->place);
    hth_loop_memory_free(loop);
    pthread_mutex_destroy(&loop->lock);
    free(loop->ends);
    free(loop);
}

static const struct hth_transport_ops loop_ops = {
    .name = "loop",
    .caps = loop_caps,
    .address = loop_address,
    .connect = loop_connect,
    .drop = loop_drop,
    .send = loop_send,
    .reg = hth_loop_reg,
    .dereg = hth_loop_dereg,
    .grant = hth_loop_grant,
    .revoke = hth_loop_revoke,
    .pull = hth_loop_pull,
    .pulled_crc = hth_loop_pulled_crc,
    .progress = loop_progress,
    .arm = loop_arm,
    .wake = loop_wake,
    .close = loop_close,
};

int hth_loop_open(struct hth_loop_net *net, uint32_t node,
        const struct hth_transport_events *events, struct hth_transport **out,
        struct hearth_error *err)
{
    struct place *place = hth_loop_place(net, node);
    struct loop *loop = place ? calloc(1, sizeof(*loop)) : NULL;

    if (!loop)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for node %" PRIu32 " of the net", node);
    if (place->loop) {
        free(loop);
        return hth_fail(err, HEARTH_EEXIST, 0, "node %" PRIu32 " is on the net already", node);
    }
    pthread_mutex_init(&loop->lock, NULL);
    loop->base.ops = &loop_ops;
    loop->net = net;
    loop->place = place;
    loop->events = *events;
    place->loop = loop;
    *out = &loop->base;
    return HEARTH_OK;
}
