/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who holds the copies of whose objects now: the placement of the epoch, with the copies that the
 * coordinator has moved since, because their holders were lost.
 */
#include "commit_state.h"

#include <stdlib.h>

int holders_make(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    char text[160];
    int rc;

    hth_placement_fini(&c->placement);
    free(c->override);
    c->override = NULL;
    c->overrides = 0;
    c->serial = 0;
    rc = hth_placement_make(
            &c->placement, c->ctx->epoch, o->copies, o->min_copies, (int)o->allow_degraded, err);
    if (rc)
        return rc;
    hth_placement_text(&c->placement, c->ctx->epoch, text, sizeof(text));
    hth_say(&c->ctx->log, HEARTH_LOG_INFO, "placement", "%s", text);
    return HEARTH_OK;
}

void holders_fini(struct hth_commit *c)
{
    hth_placement_fini(&c->placement);
    free(c->override);
}

uint32_t hth_commit_holders(struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->placement.copies && i < HTH_COPIES_MAX; i++) {
        uint32_t node = c->placement.holder[rank * c->placement.copies + i];

        if (node != HTH_NODE_NONE)
            out[n++] = node;
    }
    return n;
}

int holders_have(struct hth_commit *c, uint32_t rank, uint32_t node)
{
    uint32_t holder[HTH_COPIES_MAX];
    uint32_t n = hth_commit_holders(c, rank, holder);

    if (c->ctx->epoch->rank_node[rank] == node)
        return 1;
    for (uint32_t i = 0; i < n; i++)
        if (holder[i] == node)
            return 1;
    return 0;
}

void holders_set(struct hth_commit *c, const struct override *o)
{
    if (o->rank < c->placement.world && o->copy < c->placement.copies &&
            (o->node < c->ctx->epoch->nodes || o->node == HTH_NODE_NONE))
        c->placement.holder[o->rank * c->placement.copies + o->copy] = o->node;
}

static int holders_move(struct hth_commit *c, uint32_t rank, uint32_t copy)
{
    struct override *more = realloc(c->override, (c->overrides + 1) * sizeof(*more));
    uint32_t to;

    if (!more)
        return 0;
    c->override = more;
    to = hth_placement_replace(&c->placement, c->ctx->epoch, c->ctx->down, rank, copy);
    if (to == HTH_NODE_NONE)
        return 0;
    c->placement.holder[rank * c->placement.copies + copy] = to;
    more[c->overrides++] = (struct override){ rank, copy, to };
    return 1;
}

void holders_lost(struct hth_commit *c, uint32_t node, uint32_t *out_moved, uint32_t *out_stuck)
{
    *out_moved = *out_stuck = 0;
    for (uint32_t r = 0; r < c->placement.world; r++)
        for (uint32_t i = 0; i < c->placement.copies; i++)
            if (c->placement.holder[r * c->placement.copies + i] == node) {
                int ok = holders_move(c, r, i);

                *out_moved += (uint32_t)ok;
                *out_stuck += (uint32_t)!ok;
            }
}
