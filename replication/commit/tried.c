/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marking by count (opts.bad_after): a save that job after job recovers and none goes on from. The coordinator
 * counts, from what its own node sees, and each count is a head:
 *
 *     GO ──► trying ──a save of this epoch is begun──► none is tried
 *               └──the last rank of this node has gone──► one try more; after so many it is marked bad,
 *                                                         if an older one is kept
 *
 * Where the engine ends with its job, the next recovery counts that one (loader/choice/worn.c).
 */
#include "commit_state.h"

#include <string.h>

void hth_commit_ranks_gone(struct hth_commit *c)
{
    if (!c->joined || !c->running || !hth_is_coordinator(c->ctx) || !c->ctx->keep.trying)
        return;
    c->coord.gone = 1;
    c->coord.look = 1;
}

/* 1: it is marked now. */
static int tried_ended(const struct hth_commit *c, struct hth_keep *k)
{
    int at = hth_keep_at(k, k->tried);

    hth_keep_ended(k);
    if (!hth_keep_is_worn(k, k->tried, c->ctx->opts.bad_after) || at < 0 ||
            (uint32_t)at + 1 == k->saves || hth_keep_is_bad(k, k->tried))
        return 0;
    hth_keep_mark(k, k->tried, 1);
    return 1;
}

void tried_tick(struct hth_commit *c)
{
    struct hth_head next = c->head;
    int marked = 0;

    next.keep = c->ctx->keep;
    if (hth_save_none(next.keep.tried) || !(c->coord.begun || c->coord.gone))
        return;
    if (c->coord.begun)
        hth_keep_begun(&next.keep);
    else
        marked = tried_ended(c, &next.keep);
    next.keep.serial++;
    if (append_head(c, &next, NULL))
        return; /* it is tried again */
    c->coord.gone = 0;
    if (marked)
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "bad-by-count",
                HTH_SAVE " is marked bad: %" PRIu32 " jobs in a row recovered it and ended before "
                         "their first begin; `hearth keep --root ROOT %s good %" PRIu64 "` takes "
                         "the mark away",
                HTH_SAVE_ARGS(next.keep.tried), next.keep.tries, c->ctx->opts.job,
                next.keep.tried.step);
}
