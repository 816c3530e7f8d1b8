/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Marking by count (opts.bad_after), in a recovery. The keep record says which save was recovered last and how
 * many jobs in a row have ended before their first begin (core/format/keep.h). One whose end no engine has seen,
 * since engines ended with it, is counted here. A save that so many have not got on from is marked bad where
 * an older one is chosen in its place, and with GO it is on record which save is tried next.
 */
#include "choice_state.h"

void tries_count(struct hth_choice *co)
{
    struct hth_keep *k = &co->ctx->keep;

    if (co->same_job)
        k->trying = 0;
    else
        hth_keep_ended(k);
}

int tries_pass_over(const struct hth_choice *co, struct hth_save_id save)
{
    const struct hth_keep *k = &co->ctx->keep;

    return hth_keep_is_bad(k, save) || hth_keep_is_worn(k, save, co->ctx->opts.bad_after);
}

void tries_mark(struct hth_choice *co, const struct candidate *chosen)
{
    struct hth_keep *k = &co->ctx->keep;
    const struct candidate *c = candidate_find(co, k->tried);

    co->tries = 0;
    if (!chosen || hth_save_foreign(chosen->id) || co->wants || !c || !c->whole ||
            hth_save_cmp(chosen->id, c->id) >= 0 ||
            !hth_keep_is_worn(k, c->id, co->ctx->opts.bad_after))
        return;
    hth_keep_mark(k, c->id, 1);
    co->tries = k->tries;
}

void tries_go(struct hth_choice *co)
{
    struct hth_keep *k = &co->ctx->keep;

    if (!k->epoch)
        return; /* nothing was PROTECTED yet, and there is no record */
    if (co->ctx->opts.bad_after && !hth_save_none(co->chosen) && !hth_save_foreign(co->chosen))
        hth_keep_try(k, co->chosen);
    else if (hth_save_none(k->tried))
        return;
    else
        hth_keep_begun(k);
    k->serial++; /* newer than what other nodes have on record */
}
