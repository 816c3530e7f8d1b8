/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds the copies of whose objects now: the placement of the epoch, with what the newest map has
 * moved since. Who is lost, and who cannot reach whom, is the map's word too, and nobody else writes it.
 */
#include "commit_state.h"

#include <string.h>

int holders_make(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    const struct hth_epoch *e = c->ctx->epoch;
    char text[384];
    int rc;

    holders_fini(c);
    rc = hth_placement_make(&c->base, e, o->copies, o->min_copies, (int)o->allow_degraded, err);
    if (rc)
        return rc;
    hth_placement_text(&c->base, e, text, sizeof(text));
    hth_say(&c->ctx->log, HEARTH_LOG_INFO, "placement", "%s", text);
    return HEARTH_OK;
}

void holders_fini(struct hth_commit *c)
{
    hth_placement_fini(&c->base);
    hth_holders_fini(&c->map);
    c->ctx->apart = NULL;
    c->ctx->aparts = 0;
}

void holders_take(struct hth_commit *c, struct hth_holders *map)
{
    const struct hth_epoch *e = c->ctx->epoch;

    if (map != &c->map) {
        hth_holders_fini(&c->map);
        c->map = *map;
        *map = (struct hth_holders){ 0 };
    }
    c->ctx->apart = c->map.pair;
    c->ctx->aparts = c->map.pairs;
    memset(c->ctx->down, 0, e->nodes * sizeof(*c->ctx->down));
    for (uint32_t i = 0; i < c->map.notes; i++)
        if (c->map.note[i].lost && c->map.note[i].node < e->nodes && c->map.note[i].node != e->self)
            c->ctx->down[c->map.note[i].node] = 1;
}

uint32_t holders_apart(const struct hth_commit *c, const uint32_t *node, uint32_t nodes)
{
    return c->base.widest && !hth_breaks(c->ctx, HTH_BREAK_DOMAINS)
                   ? hth_placement_apart(&c->base, c->ctx->epoch, node, nodes)
                   : nodes;
}

int holders_lost(const struct hth_commit *c, uint32_t node)
{
    const struct hth_note *n = hth_holders_note(&c->map, node);

    return n && n->lost;
}

/* The node of one place of a rank's objects: where the map has moved it, else as the epoch began. */
static uint32_t holders_place(const struct hth_commit *c, uint32_t rank, uint32_t place)
{
    const struct hth_epoch *e = c->ctx->epoch;
    const struct hth_move *m = c->map.moves ? hth_holders_move(&c->map, rank, place) : NULL;

    if (m && m->node < e->nodes)
        return m->node;
    return place < c->base.copies ? c->base.holder[rank * c->base.copies + place]
                                  : e->rank_node[rank];
}

static uint32_t holders_copies(const struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->base.copies && i < HTH_COPIES_MAX; i++) {
        uint32_t node = holders_place(c, rank, i);

        if (node != HTH_NODE_NONE)
            out[n++] = node;
    }
    return n;
}

static uint32_t holders_keeper(const struct hth_commit *c, uint32_t rank)
{
    return holders_place(c, rank, c->base.copies);
}

uint32_t hth_commit_holders(struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = holders_copies(c, rank, out), keeper = holders_keeper(c, rank);

    if (n < HTH_COPIES_MAX && keeper != c->ctx->epoch->rank_node[rank])
        out[n++] = keeper;
    return n;
}

uint32_t holders_of(const struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    out[0] = holders_keeper(c, rank);
    return 1 + holders_copies(c, rank, out + 1);
}

int holders_have(const struct hth_commit *c, uint32_t rank, uint32_t node)
{
    uint32_t holder[PLACES_MAX];
    uint32_t n = holders_of(c, rank, holder);

    for (uint32_t i = 0; i < n; i++)
        if (holder[i] == node)
            return 1;
    return 0;
}

uint32_t holders_were(const struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = 0;

    for (uint32_t place = 0; place <= c->base.copies && n < PLACES_MAX; place++) {
        const struct hth_move *m = hth_holders_move(&c->map, rank, place);

        if (m && m->was < c->ctx->epoch->nodes && m->was != m->node)
            out[n++] = m->was;
    }
    return n;
}
