/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks that name different steps in one save. All ranks save the same steps in the same order, so
 * of two ranks one has done all that the other has. Where each of the two has done a save that the
 * other has not, neither save can come to its end, and both fail. Facts may be lost or late, and
 * are said again: it must be so for dead_ms.
 *
 * The ranks of one node are compared there, those of different nodes by the coordinator, which
 * knows of a node that all of its ranks have done a save.
 */
#include "commit_state.h"

#include <stdio.h>

static void steps_fail(struct hth_commit *c, struct hth_save_id a, uint32_t rank_a,
        struct hth_save_id b, uint32_t rank_b)
{
    const struct hth_epoch *e = c->ctx->epoch;
    char text[200];

    snprintf(text, sizeof(text),
            "the ranks name different steps in one save: rank %" PRIu32 " (%.24s) step %" PRIu64
            ", rank %" PRIu32 " (%.24s) step %" PRIu64,
            rank_a, e->member[e->rank_node[rank_a]].node, a.step, rank_b,
            e->member[e->rank_node[rank_b]].node, b.step);
    hth_commit_fail(c, a, HEARTH_EINVAL, text);
    hth_commit_fail(c, b, HEARTH_EINVAL, text);
}

/* And not the same step: attempts of one are counted, and say nothing of the ranks' steps. */
static int steps_same_ranks(struct hth_save_id a, struct hth_save_id b)
{
    return a.step != b.step && hth_attempt_set(a.attempt) == hth_attempt_set(b.attempt);
}

/* 1: it has been so for long enough. */
static int steps_sure(const struct hth_commit *c, uint64_t *since_ms, uint64_t now_ms)
{
    *since_ms = *since_ms ? *since_ms : now_ms;
    return now_ms - *since_ms >= c->ctx->opts.dead_ms;
}

/* ---- of one node --------------------------------------------------------------------------- */

static int track_is_open(const struct hth_commit *c, const struct track *t)
{
    return !t->recovered && !t->failing && !t->done_sent && !t->held &&
           t->id.epoch == c->ctx->epoch->epoch && t->id.nonce == c->ctx->epoch->nonce;
}

/* The first local rank that has done `a` and not begun `b`; `locals`: there is none. */
static uint32_t track_ahead(
        const struct hth_commit *c, const struct track *a, const struct track *b)
{
    uint32_t i = 0;

    while (i < c->locals && !((a->rank[i] & RANK_DONE) && !b->rank[i]))
        i++;
    return i;
}

static int track_crosses(struct hth_commit *c, struct track *a, uint64_t now_ms)
{
    for (const struct track *b = a->next; b; b = b->next) {
        uint32_t i, k;

        if (!track_is_open(c, b) || !steps_same_ranks(a->id, b->id))
            continue;
        i = track_ahead(c, a, b);
        k = track_ahead(c, b, a);
        if (i == c->locals || k == c->locals)
            continue;
        if (steps_sure(c, &a->crossed_ms, now_ms))
            steps_fail(c, b->id, c->local[k].rank, a->id, c->local[i].rank);
        return 1;
    }
    return 0;
}

void steps_member(struct hth_commit *c, uint64_t now_ms)
{
    for (struct track *t = c->tracks; t; t = t->next)
        if (!track_is_open(c, t) || !track_crosses(c, t, now_ms))
            t->crossed_ms = 0;
}

/* Steps never go down: an earlier save that the rank has not begun waits for it in vain, and so
 * does the rank for the room of that one. */
void steps_blocked(struct hth_commit *c, const struct local_rank *l, uint64_t step)
{
    const struct hth_epoch *e = c->ctx->epoch;
    char text[200];

    for (const struct track *t = c->tracks; t; t = t->next) {
        if (t->id.step >= step || t->rank[l - c->local] || !track_is_open(c, t) ||
                !track_has(c, t, (uint32_t)(l - c->local)))
            continue;
        snprintf(text, sizeof(text),
                "the ranks name different steps: rank %" PRIu32 " (%.24s) begins step %" PRIu64
                ", and has not begun step %" PRIu64,
                l->rank, e->member[e->self].node, step, t->id.step);
        hth_commit_fail(c, t->id, HEARTH_EINVAL, text);
    }
}

/* ---- of all nodes -------------------------------------------------------------------------- */

/* With a manifest all nodes have done it, though this engine may not have heard so. */
static int tally_is_open(const struct hth_commit *c, const struct tally *t)
{
    const struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    return !(s && s->has_manifest) && t->nodes_done && t->nodes_done < t->nodes_due &&
           !t->failing && !tally_is_recovered(c, t) && head_fate(c, t->id) == FATE_OPEN;
}

/* The first node that has done `a` and not `b`; `nodes`: there is none. */
static uint32_t tally_ahead(
        const struct hth_commit *c, const struct tally *a, const struct tally *b)
{
    for (uint32_t n = 0; n < c->ctx->epoch->nodes; n++)
        if (a->node[n].done && !b->node[n].parts && b->node[n].due && !holders_lost(c, n))
            return n;
    return c->ctx->epoch->nodes;
}

static uint32_t node_rank(const struct hth_epoch *e, uint32_t node)
{
    uint32_t r = 0;

    while (e->rank_node[r] != node)
        r++;
    return r;
}

static int tally_crosses(struct hth_commit *c, struct tally *a, uint64_t now_ms)
{
    const struct hth_epoch *e = c->ctx->epoch;

    for (const struct tally *b = a->next; b; b = b->next) {
        uint32_t i, k;

        if (!tally_is_open(c, b) || !steps_same_ranks(a->id, b->id))
            continue;
        i = tally_ahead(c, a, b);
        k = tally_ahead(c, b, a);
        if (i == e->nodes || k == e->nodes)
            continue;
        if (steps_sure(c, &a->crossed_ms, now_ms))
            steps_fail(c, b->id, node_rank(e, k), a->id, node_rank(e, i));
        return 1;
    }
    return 0;
}

void steps_coord(struct hth_commit *c, uint64_t now_ms)
{
    for (struct tally *t = c->coord.tallies; t; t = t->next)
        if (!tally_is_open(c, t) || !tally_crosses(c, t, now_ms))
            t->crossed_ms = 0;
}
