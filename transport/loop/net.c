/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes and what is on its way to them. Each node has a heap of events, by due time and then by
 * the order they were caused in; an array heap knows which node is first. An event that would
 * go to or come from a silent node is put aside until it speaks again.
 */
#include "loop_parts.h"

#include <stdlib.h>

/* ---- which node is next: an array heap of places ---- */

static int place_before(const struct place *a, const struct place *b)
{
    if (!a->events || !b->events)
        return a->events != NULL;
    if (a->events->ms != b->events->ms)
        return a->events->ms < b->events->ms;
    return a->events->seq < b->events->seq;
}

static void swap(struct hth_loop_net *net, size_t i, size_t j)
{
    struct place *a = net->order[i], *b = net->order[j];

    net->order[i] = b;
    net->order[j] = a;
    b->at = i;
    a->at = j;
}

static void reorder(struct hth_loop_net *net, struct place *place)
{
    size_t i = place->at;

    while (i && place_before(net->order[i], net->order[(i - 1) / 2])) {
        swap(net, i, (i - 1) / 2);
        i = (i - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < net->count && place_before(net->order[child + 1], net->order[child]))
            child++;
        if (child >= net->count || !place_before(net->order[child], net->order[i]))
            return;
        swap(net, i, child);
        i = child;
    }
}

/* ---- the net ---- */

int hth_loop_net_open(const struct hth_clock *clock, uint32_t latency_ms, struct hth_loop_net **out,
        struct hearth_error *err)
{
    struct hth_loop_net *net = calloc(1, sizeof(*net));

    if (!net)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a net inside the process");
    net->clock = *clock;
    net->latency_ms = latency_ms;
    *out = net;
    return HEARTH_OK;
}

void hth_loop_net_script(struct hth_loop_net *net, hth_loop_script *script, void *arg)
{
    net->script = script;
    net->script_arg = arg;
}

struct hth_loop_verdict hth_loop_ask(struct hth_loop_net *net, enum hth_loop_kind kind,
        uint32_t from, uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict none = { HTH_LOOP_NONE, 0, 0 };

    return net->script ? net->script(net->script_arg, kind, from, to, bytes, len) : none;
}

struct place *hth_loop_place(struct hth_loop_net *net, uint32_t node)
{
    struct place *place = hth_map_get(&net->nodes, (uint64_t)node + 1);
    struct place **order;

    if (place)
        return place;
    place = calloc(1, sizeof(*place));
    order = realloc(net->order, (net->count + 1) * sizeof(struct place *));
    if (order)
        net->order = order;
    if (!place || !order || hth_map_put(&net->nodes, (uint64_t)node + 1, place)) {
        free(place);
        return NULL;
    }
    place->node = node;
    place->held.end = &place->held.first;
    place->next = net->places;
    net->places = place;
    place->at = net->count;
    net->order[net->count++] = place;
    return place;
}

uint64_t hth_loop_net_due_ms(struct hth_loop_net *net)
{
    return net->count && net->order[0]->events ? net->order[0]->events->ms : HTH_NEVER;
}

struct hth_transport *hth_loop_net_first(struct hth_loop_net *net)
{
    struct place *first = net->count ? net->order[0] : NULL;

    return first && first->events && first->loop ? &first->loop->base : NULL;
}

/* ---- events ---- */

struct event *hth_loop_event(enum event_kind kind, size_t len)
{
    struct event *e = calloc(1, sizeof(*e) + len);

    if (e) {
        e->kind = kind;
        e->len = len;
    }
    return e;
}

static void event_free(struct event *e)
{
    if (e->pull && !e->pull->end)
        free(e->pull);
    else if (e->pull)
        e->pull->event = NULL;
    free(e);
}

static int is_held(const struct event *e)
{
    return e->from != e->to && (e->from->silent || e->to->silent);
}

static void hold(struct event *e)
{
    struct held *held = e->to->silent ? &e->to->held : &e->from->held;

    e->held_next = NULL;
    *held->end = e;
    held->end = &e->held_next;
}

/* `e` is where it should be: at its node, if somebody is there. */
static void place_event(struct hth_loop_net *net, struct event *e)
{
    if (e->to->silent && is_held(e)) {
        hold(e);
    } else if (e->to->loop) {
        hth_heap_push(&e->to->events, &e->due);
        reorder(net, e->to);
    } else {
        if (e->kind == EVENT_ARRIVE)
            hth_loop_refuse(net, e);
        event_free(e);
    }
}

void hth_loop_post(struct hth_loop_net *net, struct event *e, struct place *from, struct place *to,
        uint64_t due_ms)
{
    e->from = from;
    e->to = to;
    e->due.ms = due_ms;
    e->due.seq = ++net->seq;
    place_event(net, e);
}

struct event *hth_loop_take(struct hth_loop_net *net, struct place *place, uint64_t last_seq)
{
    uint64_t now = hth_now_ms(&net->clock);
    struct event *e;

    while (place->events && place->events->ms <= now && place->events->seq <= last_seq) {
        e = (struct event *)hth_heap_pop(&place->events);
        reorder(net, place);
        if (!is_held(e))
            return e;
        hold(e);
    }
    return NULL;
}

void hth_loop_leave(struct hth_loop_net *net, struct place *place)
{
    struct hth_due *due;

    place->loop = NULL;
    while ((due = hth_heap_pop(&place->events)))
        place_event(net, (struct event *)due); /* nobody is there: refused or freed */
    reorder(net, place);
}

void hth_loop_net_silence(struct hth_loop_net *net, uint32_t node, int silent)
{
    struct place *place = hth_loop_place(net, node);
    struct hth_due *all, *due;
    struct event *e, *next;

    if (!place || place->silent == !!silent)
        return;
    place->silent = !!silent;
    if (silent) {
        all = place->events;
        place->events = NULL;
        while ((due = hth_heap_pop(&all)))
            place_event(net, (struct event *)due);
        reorder(net, place);
        return;
    }
    e = place->held.first;
    place->held = (struct held){ NULL, &place->held.first };
    for (; e; e = next) {
        next = e->held_next;
        if (e->due.ms < hth_now_ms(&net->clock))
            e->due.ms = hth_now_ms(&net->clock);
        e->due.seq = ++net->seq;
        place_event(net, e);
    }
}

void hth_loop_net_close(struct hth_loop_net *net)
{
    struct place *place;

    if (!net)
        return;
    while ((place = net->places)) {
        net->places = place->next;
        for (struct event *e = place->held.first, *next; e; e = next) {
            next = e->held_next;
            event_free(e);
        }
        free(place);
    }
    hth_map_fini(&net->nodes);
    free(net->order);
    free(net);
}
