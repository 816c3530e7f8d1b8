/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves and copies that leave this node: a whole save, and copies that the newest map has no place
 * for here. Copies of kept saves leave when the map is settled, since a holder may need them until
 * then; copies of undecided saves of this epoch leave at once, except what this node's ranks wrote.
 * What recovery chose is kept until it is decided. A node that the map calls lost frees nothing: it
 * will have its places again.
 */
#include "release.h"

#include "commit_state.h"
#include "replication/held/seal.h"
#include "replication/transfer/transfer.h"
#include "replication/tree/blob.h"

/* Ends the save's transfers and blobs before the save is freed. */
void hth_save_release(struct hth_ctx *ctx, struct hth_held_save *save)
{
    hth_transfer_forget(ctx, save->id);
    hth_blobs_forget(ctx, save->id);
    hth_holdings_free_save(ctx, save);
}

static int release_may_drop(const struct hth_commit *c, const struct hth_held_save *s)
{
    const struct hth_epoch *e = c->ctx->epoch;

    if (s->removed || hth_save_foreign(s->id))
        return 0;
    if (head_fate(c, s->id) == FATE_KEPT)
        return c->head.settled;
    return head_fate(c, s->id) == FATE_OPEN && s->id.epoch == e->epoch && s->id.nonce == e->nonce;
}

static int release_has_place(const struct hth_commit *c, const struct hth_held *h)
{
    const struct hth_ctx *ctx = c->ctx;

    return h->state != HTH_HELD_SEALED || h->object.kind == HTH_OBJECT_RAW || h->theirs ||
           hth_job_runs(ctx, h) || local_owns(ctx, h) ||
           places_have(c, stand_in(ctx, h->object.owner), ctx->epoch->self);
}

void release_moved(struct hth_commit *c)
{
    struct hth_held *next;

    if (node_is_lost(c, c->ctx->epoch->self) || hth_breaks(c->ctx, HTH_BREAK_MOVED))
        return;
    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = s->next) {
        if (!release_may_drop(c, s))
            continue;
        for (struct hth_held *h = s->held; h; h = next) {
            next = h->next;
            if (release_has_place(c, h))
                continue;
            hth_point(&c->ctx->points, "free");
            hth_held_drop(c->ctx, s, h);
        }
    }
}
