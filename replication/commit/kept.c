/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The keep list: which saves are PROTECTED, since when, and which of them have too few copies. It
 * is a part of each head, and beside that a record of its own, which outlives the epoch.
 */
#include "commit_state.h"

#include <string.h>

int kept_write(struct hth_commit *c, const struct hth_keep *keep, struct hearth_error *err)
{
    unsigned char record[HTH_KEEP_BYTES];
    struct hth_store *s = c->ctx->store;

    hth_keep_encode(keep, record);
    return s->ops->record_put(s, "keep", record, sizeof(record), err);
}

/* 1: save i of the old list stays on a new list that already has `saves` saves. Pinned saves get a
 * place before newer saves that are not pinned. (If `keep` is smaller than before, the oldest
 * pinned saves leave too: a new save needs a place.) */
static int kept_stays(const struct hth_keep *old, uint32_t i, uint32_t saves, uint32_t keep)
{
    uint32_t pins = 0;

    if (hth_keep_pinned(old, (int)i))
        return saves < keep;
    for (uint32_t k = i + 1; k < old->saves; k++)
        pins += (uint32_t)hth_keep_pinned(old, (int)k);
    return saves + pins < keep;
}

int kept_lost(const struct hth_commit *c, const struct hth_keep *list)
{
    return hth_save_none(c->chosen) && list->epoch != c->ctx->epoch->epoch;
}

/* The keep record with `save` in front. A save that is protected again keeps its age. Older saves
 * that an earlier epoch decided are marked DEGRADED: the coordinator has not counted their copies
 * in this epoch. */
struct hth_keep kept_with(const struct hth_commit *c, struct hth_save_id save, uint32_t degraded)
{
    const struct hth_ctx *ctx = c->ctx;
    const struct hth_keep *old = &ctx->keep;
    struct hth_keep keep = { .epoch = ctx->epoch->epoch,
        .dropped = old->dropped,
        .saves = 1,
        .bads = old->bads,
        .degraded = degraded,
        .tried = old->tried,
        .tries = old->tries };
    int at = hth_keep_at(old, save);

    keep.serial = old->epoch == keep.epoch ? old->serial + 1 : 1;
    keep.save[0] = save;
    keep.since_ms[0] = at >= 0 ? old->since_ms[at] : commit_wall_ms(c);
    keep.pinned = at >= 0 ? (uint32_t)hth_keep_pinned(old, at) : 0;
    memcpy(keep.bad, old->bad, sizeof(keep.bad));
    for (uint32_t i = 0; i < old->saves && !kept_lost(c, old); i++)
        if (hth_save_cmp(old->save[i], save) < 0 &&
                kept_stays(old, i, keep.saves, ctx->opts.keep)) {
            uint32_t unsure = old->epoch != keep.epoch || hth_keep_degraded(old, (int)i);

            keep.degraded |= unsure << keep.saves;
            keep.pinned |= (uint32_t)hth_keep_pinned(old, (int)i) << keep.saves;
            keep.since_ms[keep.saves] = old->since_ms[i];
            keep.save[keep.saves++] = old->save[i];
        }
    return keep;
}

/* ---- Questions ------------------------------------------------------------------------------- */

enum hth_kept hth_commit_kept(const struct hth_commit *c, uint32_t at)
{
    const struct hth_keep *k = &c->ctx->keep;
    uint64_t ago_ms;

    if (!hth_commit_as_of(c, &ago_ms) || k->epoch != c->ctx->epoch->epoch)
        return HTH_KEPT_UNSURE;
    return hth_keep_degraded(k, (int)at) ? HTH_KEPT_DEGRADED : HTH_KEPT_PROTECTED;
}

int hth_commit_settled(const struct hth_commit *c, uint64_t *out_mapped)
{
    *out_mapped = c->head.mapped;
    return c->running && c->head.settled;
}

int hth_commit_current(const struct hth_commit *c)
{
    uint64_t ago_ms;

    return c->running && hth_commit_as_of(c, &ago_ms) && !c->unsure &&
           c->awaited.position <= c->head.position;
}

uint64_t hth_commit_position(const struct hth_commit *c)
{
    return c->head.position;
}

uint64_t hth_commit_kept_s(const struct hth_commit *c, uint32_t at)
{
    uint64_t now_ms = commit_wall_ms(c);
    uint64_t since_ms = c->ctx->keep.since_ms[at];

    return now_ms > since_ms ? (now_ms - since_ms) / 1000 : 0;
}
