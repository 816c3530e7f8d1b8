/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies that the newest map has no place for here go: of what is kept when the map is settled,
 * since until then a holder may still need them; of undecided saves of this epoch at once, but for
 * what our own ranks wrote. What recovery chose is kept until it is decided. Who is called lost
 * himself frees nothing: he will have his places again.
 */
#include "commit_state.h"
#include "replication/held/seal.h"

static int moved_may_go(const struct hth_commit *c, const struct hth_held_save *s)
{
    const struct hth_epoch *e = c->ctx->epoch;

    if (s->removed || hth_save_foreign(s->id))
        return 0;
    if (head_fate(c, s->id) == FATE_KEPT)
        return c->head.settled;
    return head_fate(c, s->id) == FATE_OPEN && s->id.epoch == e->epoch && s->id.nonce == e->nonce;
}

static int moved_is_here(const struct hth_commit *c, const struct hth_held *h)
{
    const struct hth_ctx *ctx = c->ctx;

    return h->state != HTH_HELD_SEALED || h->object.kind == HTH_OBJECT_RAW || h->theirs ||
           hth_job_runs(ctx, h) || local_owns(ctx, h) ||
           places_have(c, stand_in(ctx, h->object.owner), ctx->epoch->self);
}

void moved_free(struct hth_commit *c)
{
    struct hth_held *next;

    if (node_is_lost(c, c->ctx->epoch->self) || hth_breaks(c->ctx, HTH_BREAK_MOVED))
        return;
    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = s->next) {
        if (!moved_may_go(c, s))
            continue;
        for (struct hth_held *h = s->held; h; h = next) {
            next = h->next;
            if (moved_is_here(c, h))
                continue;
            hth_point(&c->ctx->points, "free");
            hth_held_drop(c->ctx, s, h);
        }
    }
}
