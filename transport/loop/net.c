/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The net: its nodes, and which of them is next. Each node has a heap of events, by due time and
 * then by the order they were caused in; an array heap of nodes knows whose first event is first.
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

static void place_swap(struct hth_loop_net *net, size_t i, size_t j)
{
    struct place *a = net->order[i], *b = net->order[j];

    net->order[i] = b;
    net->order[j] = a;
    b->at = i;
    a->at = j;
}

void hth_loop_reorder(struct hth_loop_net *net, struct place *place)
{
    size_t i = place->at;

    while (i && place_before(net->order[i], net->order[(i - 1) / 2])) {
        place_swap(net, i, (i - 1) / 2);
        i = (i - 1) / 2;
    }
    for (;;) {
        size_t child = 2 * i + 1;

        if (child + 1 < net->count && place_before(net->order[child + 1], net->order[child]))
            child++;
        if (child >= net->count || !place_before(net->order[child], net->order[i]))
            return;
        place_swap(net, i, child);
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

void hth_loop_net_on_reg(struct hth_loop_net *net, hth_loop_reg_fn *on_reg, void *arg)
{
    net->on_reg = on_reg;
    net->on_reg_arg = arg;
}

void hth_loop_net_no_revoke(struct hth_loop_net *net)
{
    net->no_revoke = 1;
}

void hth_loop_net_sums(struct hth_loop_net *net)
{
    net->sums = 1;
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

struct event *hth_loop_event_new(enum event_kind kind, size_t len)
{
    struct event *e = calloc(1, sizeof(*e) + len);

    if (e) {
        e->kind = kind;
        e->len = len;
    }
    return e;
}

void hth_loop_event_free(struct event *e)
{
    if (e->pull && !e->pull->end)
        free(e->pull);
    else if (e->pull)
        e->pull->event = NULL;
    free(e);
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
            hth_loop_event_free(e);
        }
        free(place);
    }
    hth_map_fini(&net->nodes);
    hth_map_fini(&net->muted);
    free(net->order);
    free(net);
}
