/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds the copies of whose objects now: the placement of the epoch, with what the newest map has
 * moved since. Who is lost, and who cannot reach whom, is the map's word too, and nobody else writes it.
 */
#include "commit_state.h"

#include <stdlib.h>
#include <string.h>

int holders_make(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    const struct hth_epoch *e = c->ctx->epoch;
    char text[160];
    int rc;

    holders_fini(c);
    rc = hth_placement_make(&c->base, e, o->copies, o->min_copies, (int)o->allow_degraded, err);
    if (rc)
        return rc;
    c->placement = c->base;
    c->placement.holder = calloc((size_t)e->world * o->copies + 1, sizeof(uint32_t));
    c->keeper = calloc(e->world ? e->world : 1, sizeof(*c->keeper));
    if (!c->placement.holder || !c->keeper) {
        holders_fini(c);
        return hth_fail(err, HEARTH_ENOMEM, 0, "placement of %" PRIu32 " ranks", e->world);
    }
    hth_placement_text(&c->base, e, text, sizeof(text));
    hth_say(&c->ctx->log, HEARTH_LOG_INFO, "placement", "%s", text);
    return HEARTH_OK;
}

void holders_fini(struct hth_commit *c)
{
    hth_placement_fini(&c->base);
    hth_placement_fini(&c->placement);
    hth_holders_fini(&c->map);
    c->ctx->apart = NULL;
    c->ctx->aparts = 0;
    free(c->keeper);
    c->keeper = NULL;
}

void holders_take(struct hth_commit *c, struct hth_holders *map)
{
    const struct hth_epoch *e = c->ctx->epoch;
    uint32_t copies = c->base.copies;

    if (map != &c->map) {
        hth_holders_fini(&c->map);
        c->map = *map;
        *map = (struct hth_holders){ 0 };
    }
    c->ctx->apart = c->map.pair;
    c->ctx->aparts = c->map.pairs;
    memcpy(c->placement.holder, c->base.holder,
            (size_t)e->world * copies * sizeof(*c->base.holder));
    memcpy(c->keeper, e->rank_node, e->world * sizeof(*c->keeper));
    for (uint32_t i = 0; i < c->map.moves; i++) {
        const struct hth_move *m = &c->map.move[i];

        if (m->rank >= e->world || m->place > copies || m->node >= e->nodes)
            continue;
        if (m->place < copies)
            c->placement.holder[m->rank * copies + m->place] = m->node;
        else
            c->keeper[m->rank] = m->node;
    }
    memset(c->ctx->down, 0, e->nodes * sizeof(*c->ctx->down));
    for (uint32_t i = 0; i < c->map.notes; i++)
        if (c->map.note[i].lost && c->map.note[i].node < e->nodes && c->map.note[i].node != e->self)
            c->ctx->down[c->map.note[i].node] = 1;
}

int holders_lost(const struct hth_commit *c, uint32_t node)
{
    const struct hth_note *n = hth_holders_note(&c->map, node);

    return n && n->lost;
}

uint32_t hth_commit_holders(struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->placement.copies && i < HTH_COPIES_MAX; i++) {
        uint32_t node = c->placement.holder[rank * c->placement.copies + i];

        if (node != HTH_NODE_NONE)
            out[n++] = node;
    }
    if (n < HTH_COPIES_MAX && c->keeper[rank] != c->ctx->epoch->rank_node[rank])
        out[n++] = c->keeper[rank];
    return n;
}

uint32_t holders_of(const struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = 0;

    out[n++] = c->keeper[rank];
    for (uint32_t i = 0; i < c->placement.copies && i < HTH_COPIES_MAX; i++) {
        uint32_t node = c->placement.holder[rank * c->placement.copies + i];

        if (node != HTH_NODE_NONE)
            out[n++] = node;
    }
    return n;
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
