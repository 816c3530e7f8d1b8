/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which node has each place of each rank's objects: the placement of the epoch, with the moves of
 * the newest map. The lost nodes and the unreachable pairs are the map's too: ctx.lost and ctx.pair
 * are written here alone.
 */
#include "commit_state.h"

#include <stdlib.h>

int places_make(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    const struct hth_epoch *e = c->ctx->epoch;
    char text[384];
    int rc;

    places_fini(c);
    c->since_s = malloc(e->nodes * sizeof(*c->since_s));
    if (!c->since_s)
        return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " members", e->nodes);
    for (uint32_t i = 0; i < e->nodes; i++)
        c->since_s[i] = (uint32_t)(hth_now_ms(&c->ctx->clock) / 1000);
    rc = hth_placement_make(&c->base, e, o->copies, o->min_copies, (int)o->allow_degraded, err);
    if (rc)
        return rc;
    hth_placement_text(&c->base, e, text, sizeof(text));
    hth_say(&c->ctx->log, HEARTH_LOG_INFO, "placement", "%s", text);
    return HEARTH_OK;
}

void places_fini(struct hth_commit *c)
{
    hth_placement_fini(&c->base);
    hth_places_fini(&c->map);
    free(c->since_s);
    c->since_s = NULL;
    c->ctx->pair = NULL;
    c->ctx->pairs = 0;
}

void places_take(struct hth_commit *c, struct hth_places *map)
{
    const struct hth_epoch *e = c->ctx->epoch;

    if (map != &c->map) {
        hth_places_fini(&c->map);
        c->map = *map;
        *map = (struct hth_places){ 0 };
    }
    c->ctx->pair = c->map.pair;
    c->ctx->pairs = c->map.pairs;
    for (uint32_t i = 0, at = 0; i < e->nodes; i++) { /* notes are in order of nodes */
        uint32_t lost;

        while (at < c->map.notes && c->map.note[at].node < i)
            at++;
        lost = at < c->map.notes && c->map.note[at].node == i && c->map.note[at].lost &&
               i != e->self;
        if (lost != c->ctx->lost[i])
            c->since_s[i] = (uint32_t)(hth_now_ms(&c->ctx->clock) / 1000);
        c->ctx->lost[i] = lost;
    }
}

uint32_t places_domains(const struct hth_commit *c, const uint32_t *node, uint32_t nodes)
{
    return c->base.widest && !hth_breaks(c->ctx, HTH_BREAK_DOMAINS)
                   ? hth_placement_domains(&c->base, c->ctx->epoch, node, nodes)
                   : nodes;
}

int node_is_lost(const struct hth_commit *c, uint32_t node)
{
    const struct hth_note *n = hth_places_note(&c->map, node);

    return n && n->lost;
}

/* The node of one place of a rank's objects: where the map has moved it, else as the epoch
 * began. */
static uint32_t places_node(const struct hth_commit *c, uint32_t rank, uint32_t place)
{
    const struct hth_epoch *e = c->ctx->epoch;
    const struct hth_move *m = c->map.moves ? hth_places_move(&c->map, rank, place) : NULL;

    if (m && m->node < e->nodes)
        return m->node;
    return place < c->base.copies ? c->base.holder[rank * c->base.copies + place]
                                  : e->rank_node[rank];
}

static uint32_t places_copies(const struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->base.copies && i < HTH_COPIES_MAX; i++) {
        uint32_t node = places_node(c, rank, i);

        if (node != HTH_NODE_NONE)
            out[n++] = node;
    }
    return n;
}

static uint32_t places_keeper(const struct hth_commit *c, uint32_t rank)
{
    return places_node(c, rank, c->base.copies);
}

uint32_t hth_commit_holders(struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = places_copies(c, rank, out), keeper = places_keeper(c, rank);

    if (n < HTH_COPIES_MAX && keeper != c->ctx->epoch->rank_node[rank])
        out[n++] = keeper;
    return n;
}

uint32_t hth_commit_rank_places(
        const struct hth_commit *c, uint32_t rank, struct hth_place out[HTH_COPIES_MAX + 1])
{
    const struct hth_epoch *e = c->ctx->epoch;

    for (uint32_t i = 0; i <= c->base.copies; i++) {
        const struct hth_move *m = hth_places_move(&c->map, rank, i);
        uint32_t now = places_node(c, rank, i);

        out[i] = (struct hth_place){
            .home = i < c->base.copies ? c->base.holder[rank * c->base.copies + i]
                                       : e->rank_node[rank],
            .now = now,
            .was = m && m->was < e->nodes && m->was != now ? m->was : HTH_NODE_NONE,
        };
    }
    return c->base.copies + 1;
}

uint32_t places_of(const struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    out[0] = places_keeper(c, rank);
    return 1 + places_copies(c, rank, out + 1);
}

int places_have(const struct hth_commit *c, uint32_t rank, uint32_t node)
{
    uint32_t holder[PLACES_MAX];
    uint32_t n = places_of(c, rank, holder);

    for (uint32_t i = 0; i < n; i++)
        if (holder[i] == node)
            return 1;
    return 0;
}

uint32_t places_were(const struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = 0;

    for (uint32_t place = 0; place <= c->base.copies && n < PLACES_MAX; place++) {
        const struct hth_move *m = hth_places_move(&c->map, rank, place);

        if (m && m->was < c->ctx->epoch->nodes && m->was != m->node)
            out[n++] = m->was;
    }
    return n;
}
