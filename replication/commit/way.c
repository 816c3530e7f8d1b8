/* SPDX-License-Identifier: Apache-2.0 */
/*
 * While the map is not settled, a copy of what is kept goes before one of an undecided save: it is
 * pulled first, and where there is no room for it here, a copy of an undecided save that is not
 * promised gives way, is dropped, and pulled again later. What is promised stands, so that nothing
 * undecided is promised before all that is kept has been tried. What cannot be had after some tries
 * makes nobody wait: saving goes on.
 */
#include "commit_state.h"
#include "replication/held/seal.h"

#define TRIES 8u /* of a kept save, under one map */

int way_is_kept(const struct hth_commit *c, const struct track *t)
{
    return !c->head.settled && head_fate(c, t->id) == FATE_KEPT &&
           !hth_breaks(c->ctx, HTH_BREAK_WAY);
}

int way_has_all(const struct hth_commit *c, struct hth_held_save *s)
{
    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];

        if (!hth_held_find(s, o->id) &&
                (o->kind == HTH_OBJECT_RAW ||
                        places_have(c, stand_in(c->ctx, o->owner), c->ctx->epoch->self)))
            return 0;
    }
    return 1;
}

/* Under this map it has not been tried yet, or room is being made for it. */
static int way_is_waited_for(struct hth_commit *c, const struct track *t)
{
    struct hth_held_save *s;

    if (!way_is_kept(c, t))
        return 0;
    if (t->no_room)
        return 1;
    s = t->repairs ? NULL : hth_holdings_find(c->ctx, t->id);
    return s && s->has_manifest && !way_has_all(c, s);
}

/* It is of this epoch, and neither decided nor what recovery chose. */
static int way_is_undecided(const struct hth_commit *c, struct hth_save_id id)
{
    const struct hth_epoch *e = c->ctx->epoch;

    return id.epoch == e->epoch && id.nonce == e->nonce && head_fate(c, id) == FATE_OPEN;
}

int way_waits(struct hth_commit *c, struct hth_save_id save)
{
    if (!way_is_undecided(c, save))
        return 0;
    for (const struct track *t = c->tracks; t; t = t->next)
        if (way_is_waited_for(c, t))
            return 1;
    return 0;
}

static int way_may_go(const struct hth_commit *c, const struct hth_held *h, uint64_t bytes)
{
    return (h->state == HTH_HELD_SEALED || h->state == HTH_HELD_RECEIVING) &&
           h->object.kind == HTH_OBJECT_SHARD && !h->theirs && h->slot &&
           h->slot->capacity >= bytes && !hth_job_runs(c->ctx, h) && !local_owns(c->ctx, h);
}

static int way_make_in(struct hth_commit *c, struct hth_held_save *s, uint64_t bytes)
{
    struct track *t = track_find(c, s->id);
    struct hth_held *h = s->held;

    if (t && t->promised && t->promised_map == c->head.mapped)
        return 0;
    while (h && !way_may_go(c, h, bytes))
        h = h->next;
    if (!h)
        return 0;
    hth_say(&c->ctx->log, HEARTH_LOG_INFO, "gave-way",
            HTH_SAVE " object '%s' gives way to a copy of what is kept, and is pulled again later",
            HTH_SAVE_ARGS(s->id), h->object.name);
    hth_point(&c->ctx->points, "free");
    hth_held_drop(c->ctx, s, h);
    if (t && t->repair_ms != HTH_NEVER)
        t->repair_ms = hth_now_ms(&c->ctx->clock) + 4 * (uint64_t)c->ctx->opts.retry_ms;
    return 1;
}

int way_make(struct hth_commit *c, struct track *t, uint64_t bytes)
{
    int made = 0;

    if (!way_is_kept(c, t) || t->repairs > TRIES)
        return 0;
    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s && !made; s = s->next)
        made = !s->removed && way_is_undecided(c, s->id) && way_make_in(c, s, bytes);
    t->no_room |= made;
    return made;
}
