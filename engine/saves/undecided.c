/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save is staged beside undecided ones only if this node has room for all of them: for its ranks'
 * objects, and for the copies that it holds for other nodes. Otherwise the new save would take the
 * room of a copy that an older save waits for, and none of them would ever be PROTECTED.
 *
 *     saves here          decided and kept | undecided: begun on some node
 *     saves of a rank     begun by it | to come: it has staged them, or will
 *
 * A save of some of the ranks takes the room of their objects and copies alone. If another rank has
 * begun a save, this rank's next save of the same set of ranks is the same one, and both count
 * once.
 * The first undecided save of a rank is not held up: older saves of other ranks may wait for it.
 */
#include "undecided.h"

#include "engine/state/node_state.h"
#include "loan.h"
#include "reserve.h"

#include <stdlib.h>

struct staging { /* the question */
    struct hth_node *n;
    uint32_t rank, more;
    const struct hth_ranks *ranks;
};

static int set_is(const struct hth_ranks *a, const struct hth_ranks *b)
{
    return a && b ? hth_ranks_same(a, b) : a == b;
}

static int loan_counts(const struct loan *l, uint32_t rank)
{
    return l->rank == rank && !l->has_id && !l->dead;
}

/* 1: the save would be the first undecided save of this rank. */
static int undecided_first(const struct staging *s)
{
    const struct hth_ranks *ranks;
    enum hth_part part = HTH_PART_NONE;
    uint32_t staged = s->more;

    for (const struct loan *l = s->n->loans; l; l = l->next)
        staged += (uint32_t)loan_counts(l, s->rank);
    for (uint32_t at = 0; part && part != HTH_PART_BEGUN; at++)
        part = hth_commit_part(s->n->commit, at, s->rank, &ranks);
    return !part && staged <= 1;
}

/* Saves of this set that the rank has staged, and that no other rank has begun. */
static uint32_t undecided_staged(
        const struct staging *s, uint32_t rank, const struct hth_ranks *set)
{
    uint32_t staged = rank == s->rank && set_is(set, s->ranks) ? s->more : 0, to_come = 0;
    enum hth_part part = HTH_PART_NONE;
    const struct hth_ranks *ranks;

    for (const struct loan *l = s->n->loans; l; l = l->next)
        staged += (uint32_t)(loan_counts(l, rank) && set_is(l->ranks, set));
    for (uint32_t at = 0; part; at++) {
        part = hth_commit_part(s->n->commit, at, rank, &ranks);
        to_come += part == HTH_PART_TO_COME && set_is(ranks, set);
    }
    return staged > to_come ? staged - to_come : 0;
}

static uint32_t undecided_most(const struct staging *s, const struct hth_ranks *set)
{
    const struct hth_epoch *e = &s->n->epoch;
    uint32_t most = 0, one;

    for (uint32_t r = 0; r < e->world; r++)
        if (e->rank_node[r] == e->self && (one = undecided_staged(s, r, set)) > most)
            most = one;
    return most;
}

/* An earlier loan of any rank has staged a save of that set. */
static int undecided_is_counted(
        const struct staging *s, const struct loan *until, const struct hth_ranks *set)
{
    const struct loan *l = s->n->loans;

    while (l != until && !(loan_counts(l, l->rank) && set_is(l->ranks, set)))
        l = l->next;
    return l != until;
}

/* The sets of the undecided saves on this node, as if all its ranks had begun the saves that they
 * have staged. out[]: as many as there are tracks and loans, and one. */
static uint32_t undecided_sets(const struct staging *s, const struct hth_ranks **out)
{
    uint32_t count = 0;

    while (hth_commit_part(s->n->commit, count, s->rank, &out[count]))
        count++;
    for (const struct loan *l = s->n->loans; l; l = l->next)
        if (loan_counts(l, l->rank) && !undecided_is_counted(s, l, l->ranks))
            for (uint32_t most = undecided_most(s, l->ranks); most; most--)
                out[count++] = l->ranks;
    if (s->more && !undecided_is_counted(s, NULL, s->ranks))
        for (uint32_t most = undecided_most(s, s->ranks); most; most--)
            out[count++] = s->ranks;
    return count;
}

/* Most entries of undecided_sets(). */
static uint32_t undecided_max(const struct staging *s)
{
    const struct hth_ranks *ranks;
    uint32_t count = 0;

    while (hth_commit_part(s->n->commit, count, s->rank, &ranks))
        count++;
    for (const struct loan *l = s->n->loans; l; l = l->next)
        count++;
    return count + 2;
}

int undecided_room(struct hth_node *n, uint32_t rank, const struct hth_ranks *ranks, uint64_t bytes,
        uint32_t more, struct hearth_error *err)
{
    const struct staging s = { n, rank, more, ranks };
    uint32_t decided = hth_commit_decided(n->commit), undecided;
    const struct hth_ranks **sets;
    struct hearth_error cause;
    int rc = HEARTH_OK;

    if (undecided_first(&s) || hth_breaks(&n->ctx, HTH_BREAK_CROWD))
        return HEARTH_OK;
    /* Decided saves count as saves of all ranks. */
    sets = calloc(decided + undecided_max(&s), sizeof(const struct hth_ranks *));
    if (!sets)
        return hth_fail(err, HEARTH_ENOMEM, 0, "sets of ranks");
    undecided = undecided_sets(&s, sets + decided);
    if (undecided >= 2)
        rc = reserve_room(n, rank, bytes, sets, decided + undecided, &cause);
    free(sets);
    if (rc != HEARTH_ENOSPC)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EBUSY, 0,
            "%" PRIu32 " saves are undecided or staged on node '%.64s', and one more would take "
            "the room of their copies: %.400s",
            undecided - 1, n->epoch.member[n->epoch.self].node, cause.text);
}
