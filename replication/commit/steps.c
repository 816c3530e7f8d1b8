/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that name different steps. Steps of one rank never go down, so a rank that has passed a
 * step never begins an open save of that step or of an earlier one:
 *
 *     the rank takes part in save T and has not begun it; it has begun a later step S, or waits
 *     for the room of S: its node fails T at once. Attempts of one step are counted, and do not
 *     matter here.
 *
 * Two saves that are open at once and become done in any order are not such a case: each rank has
 * begun both. A node learns of a save of other nodes by an offer, or, when it was awaited for
 * dead_ms, by the coordinator's AWAITED.
 *
 * S can wait in vain too, for a rank that is at T. Its node fails S after dead_ms in which the
 * rank has begun nothing, if T failed by the rule above, and the rank stages no save; or if the
 * rank waits for the room of T, and S takes that room.
 */
#include "commit_state.h"

#include <stdio.h>

/* ---- A member ------------------------------------------------------------------------------ */

static int track_is_open(const struct hth_commit *c, const struct track *t)
{
    return head_is_open(c, t->id) && !t->fail_code && !t->done_sent && !t->held &&
           t->id.epoch == c->ctx->epoch->epoch && t->id.nonce == c->ctx->epoch->nonce;
}

static void steps_fail(struct hth_commit *c, const struct track *t, const struct local_rank *l,
        int code, const char *what)
{
    const struct hth_epoch *e = c->ctx->epoch;
    char text[200];

    snprintf(text, sizeof(text),
            "the ranks name different steps: rank %" PRIu32 " (%.24s) is at step %" PRIu64
            "%s and has not begun step %" PRIu64,
            l->rank, e->member[e->self].node, l->passed, what, t->id.step);
    hth_commit_fail(c, t->id, code, text);
}

/* 1: the rank waits for room for its present step. A wait for a slot does not count: slots are made
 * in time. */
static int rank_waits_for_room(const struct hth_commit *c, const struct local_rank *l)
{
    uint32_t others = 0;

    for (const struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = s->next)
        others += !s->removed && s->id.epoch && !hth_save_foreign(s->id) && s->id.step != l->passed;
    return l->begun.step < l->passed && others > c->ctx->opts.keep;
}

/* 1: the save that the rank began last failed because another rank has passed it. A save that
 * failed because this rank was slow does not count: otherwise a rank that is late each time would
 * let no save succeed. */
static int rank_is_passed(const struct hth_commit *c, const struct local_rank *l)
{
    const struct hth_epoch *e = c->ctx->epoch;
    struct hth_save_id last = { e->epoch, e->nonce, l->begun.step, hth_attempts_last(&l->begun) };

    if (l->begun.step != l->passed ||
            (c->events.is_staging && c->events.is_staging(c->events.self, l->rank)))
        return 0;
    for (uint32_t i = 0; i < c->head.cancels; i++)
        if (c->head.cancelled[i].code == HEARTH_ESTATE &&
                hth_save_cmp(c->head.cancelled[i].save, last) == 0)
            return 1;
    return 0;
}

static void steps_look_at(struct hth_commit *c, struct track *t, uint64_t now_ms)
{
    const struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);
    const struct local_rank *left = NULL;

    for (uint32_t i = 0; i < c->locals; i++) {
        const struct local_rank *l = &c->local[i];

        if ((t->rank[i] & RANK_BEGUN) || !track_has(c, t, i))
            continue;
        if (t->id.step < l->passed) {
            steps_fail(c, t, l, HEARTH_ESTATE, "");
            return;
        }
        if (!left && l->passed < t->id.step &&
                (rank_is_passed(c, l) || (s && !s->removed && rank_waits_for_room(c, l))))
            left = l;
    }
    if (!left)
        t->left_ms = 0;
    else if (!t->left_ms)
        t->left_ms = now_ms;
    else if (now_ms - t->left_ms >= c->ctx->opts.dead_ms)
        /* HEARTH_ESTATE would let the next save fail by the rule of rank_is_passed() */
        steps_fail(c, t, left, HEARTH_EINVAL,
                rank_is_passed(c, left) ? ", which failed for that," : ", which has no room,");
}

void steps_member(struct hth_commit *c, uint64_t now_ms)
{
    for (struct track *t = c->tracks; t && !hth_breaks(c->ctx, HTH_BREAK_STEPS); t = t->next)
        if (track_is_open(c, t))
            steps_look_at(c, t, now_ms);
}

/* 1: a rank of this node takes part in a save of these ranks (NULL: of all). */
static int steps_concern(const struct hth_commit *c, const struct hth_ranks *ranks)
{
    uint32_t i = 0;

    while (ranks && i < c->locals && !hth_ranks_have(ranks, c->local[i].rank))
        i++;
    return i < c->locals;
}

void steps_awaited(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    const struct hth_epoch *e = c->ctx->epoch;
    struct hth_ranks set, *ranks;
    struct hth_save_id save;
    struct track *t;

    if (len < SAVE_BYTES || !c->running ||
            hth_ranks_decode(&set, bytes + SAVE_BYTES, len - SAVE_BYTES, NULL))
        return;
    save = save_get(bytes);
    ranks = set.runs ? &set : NULL;
    if (save.epoch != e->epoch || save.nonce != e->nonce || !steps_concern(c, ranks) ||
            outcome_find(c, save) || head_fate(c, save) != FATE_OPEN)
        return;
    t = track_get(c, save);
    if (t)
        (void)track_name(t, ranks, NULL);
}

/* ---- The coordinator ------------------------------------------------------------------------- */

/* 1: some nodes have sent DONE and others have not. If there is a manifest, all nodes have sent it,
 * though this engine may not have received it. */
static int tally_is_awaited(const struct hth_commit *c, const struct tally *t)
{
    const struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    return !(s && s->has_manifest) && t->nodes_done && t->nodes_done < t->nodes_due &&
           !t->fail_code && head_is_open(c, t->id);
}

static void steps_send_awaited(const struct hth_commit *c, const struct tally *t)
{
    unsigned char body[SAVE_BYTES + HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];
    size_t len = SAVE_BYTES;

    save_put(body, t->id);
    if (t->ranks) {
        hth_ranks_encode(t->ranks, body + len);
        len += hth_ranks_bytes(t->ranks);
    }
    hth_tree_down(c->ctx, HTH_KIND_AWAITED, body, len);
}

void steps_coord(struct hth_commit *c, uint64_t now_ms)
{
    for (struct tally *t = c->coord.tallies; t; t = t->next) {
        if (!tally_is_awaited(c, t)) {
            t->awaited_ms = 0;
            continue;
        }
        if (t->awaited_ms && now_ms >= t->awaited_ms)
            steps_send_awaited(c, t);
        if (!t->awaited_ms || now_ms >= t->awaited_ms)
            t->awaited_ms = now_ms + c->ctx->opts.dead_ms;
    }
}
