/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages in flight between nodes. An event goes to its node's heap; one that would come from or
 * go to a silent node is put aside until that speaks again, and one that would go to a blocked node
 * until its thread goes on; an event for a node that does not listen is freed, and the dialler is
 * notified. An end has the events of its own break from the start, so that a break needs no memory.
 */
#include "loop_parts.h"

#include <stdlib.h>

static uint64_t muted_key(uint32_t from, uint32_t to)
{
    return ((uint64_t)from << 32 | to) + 1;
}

static int event_is_muted(const struct hth_loop_net *net, const struct event *e)
{
    return net->muted.len && hth_map_get(&net->muted, muted_key(e->from->node, e->to->node));
}

static int event_is_held(const struct hth_loop_net *net, const struct event *e)
{
    if (e->to->blocked || (e->kind == EVENT_PULL && e->from->blocked && !net->no_revoke))
        return 1;
    return e->from != e->to && (e->from->silent || e->to->silent || event_is_muted(net, e));
}

/* With the sender only where that is silent and nothing else keeps it. */
static void event_hold(const struct hth_loop_net *net, struct event *e)
{
    int with_to = e->to->silent || e->to->blocked || event_is_muted(net, e);
    struct held *held = with_to ? &e->to->held : &e->from->held;

    e->held_next = NULL;
    *held->end = e;
    held->end = &e->held_next;
}

void hth_loop_refuse(struct hth_loop_net *net, struct event *arrive)
{
    struct loop *dialler = arrive->from->loop;
    struct end *end = dialler ? hth_loop_end_find(dialler, arrive->other) : NULL;

    if (end)
        hth_loop_post_down(dialler, end, &end->down_peer, arrive->to, HEARTH_EPEER,
                arrive->due.ms + net->latency_ms);
}

/* Puts the event into the heap of its node. It is held while the node is silent or blocked, and
 * refused or freed if no transport listens there. */
static void event_place(struct hth_loop_net *net, struct event *e)
{
    if ((e->to->silent || e->to->blocked) && event_is_held(net, e)) {
        event_hold(net, e);
    } else if (e->to->loop) {
        hth_heap_push(&e->to->events, &e->due);
        hth_loop_reorder(net, e->to);
    } else {
        if (e->kind == EVENT_ARRIVE)
            hth_loop_refuse(net, e);
        hth_loop_event_free(e);
    }
}

void hth_loop_post(struct hth_loop_net *net, struct event *e, struct place *from, struct place *to,
        uint64_t due_ms)
{
    e->from = from;
    e->to = to;
    e->due.ms = due_ms;
    e->due.seq = ++net->seq;
    event_place(net, e);
}

struct event *hth_loop_take(struct hth_loop_net *net, struct place *place, uint64_t last_seq)
{
    uint64_t now = hth_now_ms(&net->clock);
    struct event *e;

    while (place->events && place->events->ms <= now && place->events->seq <= last_seq) {
        e = (struct event *)hth_heap_pop(&place->events);
        hth_loop_reorder(net, place);
        if (!event_is_held(net, e))
            return e;
        event_hold(net, e);
    }
    return NULL;
}

void hth_loop_leave(struct hth_loop_net *net, struct place *place)
{
    struct hth_due *due;

    place->loop = NULL;
    while ((due = hth_heap_pop(&place->events)))
        event_place(net, (struct event *)due); /* no transport listens: refused or freed */
    hth_loop_reorder(net, place);
}

/* The node has become silent or blocked: events on their way to it are put aside. */
static void place_hold(struct hth_loop_net *net, struct place *place)
{
    struct hth_due *all = place->events, *due;

    place->events = NULL;
    while ((due = hth_heap_pop(&all)))
        event_place(net, (struct event *)due);
    hth_loop_reorder(net, place);
}

/* The node is no longer silent or blocked: held events are due now, in their order. */
static void place_go_on(struct hth_loop_net *net, struct place *place)
{
    struct event *e = place->held.first, *next;

    place->held = (struct held){ NULL, &place->held.first };
    for (; e; e = next) {
        next = e->held_next;
        if (e->due.ms < hth_now_ms(&net->clock))
            e->due.ms = hth_now_ms(&net->clock);
        e->due.seq = ++net->seq;
        event_place(net, e);
    }
}

void hth_loop_net_silence(struct hth_loop_net *net, uint32_t node, int silent)
{
    struct place *place = hth_loop_place(net, node);

    if (!place || place->silent == !!silent)
        return;
    place->silent = !!silent;
    (silent ? place_hold : place_go_on)(net, place);
}

void hth_loop_net_block(struct hth_loop_net *net, uint32_t node, int blocked)
{
    struct place *place = hth_loop_place(net, node);

    if (!place || place->blocked == !!blocked)
        return;
    place->blocked = !!blocked;
    (blocked ? place_hold : place_go_on)(net, place);
}

/* A message that was sent first is due first, however long it has waited: no time is changed
 * here. */
int hth_loop_net_mute(struct hth_loop_net *net, uint32_t from, uint32_t to, int muted)
{
    struct place *place = hth_loop_place(net, to);
    struct event *e, *next;

    if (!place)
        return HEARTH_ENOMEM;
    if (muted)
        return hth_map_put(&net->muted, muted_key(from, to), place);
    hth_map_take(&net->muted, muted_key(from, to));
    e = place->held.first;
    place->held = (struct held){ NULL, &place->held.first };
    for (; e; e = next) {
        next = e->held_next;
        event_place(net, e);
    }
    return HEARTH_OK;
}

/* ---- breaks ---- */

void hth_loop_post_down(struct loop *loop, struct end *end, struct event **spare,
        struct place *from, int code, uint64_t due_ms)
{
    struct event *e = *spare;

    if (!e)
        return;
    *spare = NULL;
    e->conn = end->conn;
    e->code = code;
    hth_loop_post(loop->net, e, from, loop->place, due_ms);
}

uint64_t hth_loop_sent_due_ms(struct loop *loop, struct end *end, uint64_t delay_ms, int late)
{
    uint64_t due = hth_loop_now(loop->net) + loop->net->latency_ms + delay_ms;

    if (late)
        return due;
    if (due < end->last_due)
        due = end->last_due;
    end->last_due = due;
    return due;
}

void hth_loop_break_peer(struct loop *loop, struct end *end)
{
    struct loop *other = end->peer->loop;
    struct end *peer = hth_loop_end_find(other, end->peer_conn);

    if (peer && peer->peer_conn == end->conn)
        hth_loop_post_down(other, peer, &peer->down_peer, loop->place, HEARTH_EPEER,
                hth_loop_sent_due_ms(loop, end, 0, 0));
}

void hth_loop_break(struct loop *loop, struct end *end, int code)
{
    if (end->state == END_ENDING)
        return;
    end->state = END_ENDING;
    hth_loop_break_peer(loop, end);
    hth_loop_post_down(loop, end, &end->down_own, loop->place, code, hth_loop_now(loop->net));
}
