/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marking by count (opts.bad_after): a save that job after job recovers, and none goes on from.
 *
 *     GO                                                     one try more of the chosen save
 * chosen
 *     the first decision of the epoch on one of its saves    none is tried (commit/decide.c)
 *
 * The count is in the keep record (core/format/keep.h). After so many tries the next recovery marks
 * the save bad, if it chooses an older one in its place.
 */
#include "choice_state.h"

/* 1: opts.bad_after jobs have ended after they recovered the save. A job that recovers again has
 * not ended, although it is in the count. */
static int tries_are_enough(const struct hth_choice *co, struct hth_save_id save)
{
    uint32_t most = co->ctx->opts.bad_after;

    return most && hth_keep_tries(&co->ctx->keep, save) >= most + (uint32_t)co->same_job;
}

int tries_pass_over(const struct hth_choice *co, struct hth_save_id save)
{
    return hth_keep_is_bad(&co->ctx->keep, save) || tries_are_enough(co, save);
}

void tries_mark(struct hth_choice *co, const struct candidate *chosen)
{
    struct hth_keep *k = &co->ctx->keep;
    const struct candidate *c = candidate_find(co, k->tried);

    co->tries = 0;
    if (!chosen || hth_save_foreign(chosen->id) || co->wants || !c || !c->whole ||
            hth_save_cmp(chosen->id, c->id) >= 0 || !tries_are_enough(co, c->id))
        return;
    hth_keep_mark(k, c->id, 1);
    co->tries = k->tries;
}

void tries_go(struct hth_choice *co)
{
    struct hth_keep *k = &co->ctx->keep;

    if (!k->epoch)
        return; /* no save was PROTECTED yet, so there is no record */
    if (co->ctx->opts.bad_after && !hth_save_none(co->chosen) && !hth_save_foreign(co->chosen))
        hth_keep_try(k, co->chosen, co->same_job);
    else if (hth_save_none(k->tried))
        return;
    else
        hth_keep_end_tries(k);
    k->serial++; /* newer than what other nodes have on record */
}
