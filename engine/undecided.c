/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save is staged beside undecided ones only if this node has room for all of them: for its ranks'
 * objects, and for the copies that it holds for other nodes. Otherwise the new save would take the
 * room of a copy that an older save waits for, and none of them would ever be PROTECTED.
 *
 *     saves here          decided and kept | undecided: begun on some node
 *     saves of a rank     begun by it | to come: it has staged them, or will
 *
 * If another rank has begun a save, this rank's next save is the same one, and both count once.
 * The first undecided save of a rank is not held up: older saves of other ranks may wait for it.
 */
#include "undecided.h"

#include "loan.h"
#include "node_state.h"
#include "reserve.h"

static uint32_t undecided_staged(const struct hth_node *n, uint32_t rank)
{
    uint32_t staged = 0;

    for (const struct loan *l = n->loans; l; l = l->next)
        staged += l->rank == rank && !l->has_id && !l->dead;
    return staged;
}

/* It is the first undecided save of this rank. */
static int undecided_first(struct hth_node *n, uint32_t rank, uint32_t more)
{
    uint32_t undecided, to_come;

    (void)hth_commit_saves(n->commit, rank, &undecided, &to_come);
    return undecided == to_come && undecided_staged(n, rank) + more <= 1;
}

/* The saves on this node once all its ranks have begun the saves that they have staged. */
static uint32_t undecided_saves(
        struct hth_node *n, uint32_t rank, uint32_t more, uint32_t *out_undecided)
{
    const struct hth_epoch *e = &n->epoch;
    uint32_t most = 0, undecided = 0, all = 0;

    for (uint32_t r = 0; r < e->world; r++) {
        uint32_t to_come, staged;

        if (e->rank_node[r] != e->self)
            continue;
        all = hth_commit_saves(n->commit, r, &undecided, &to_come);
        staged = undecided_staged(n, r) + (r == rank ? more : 0);
        if (staged > to_come && staged - to_come > most)
            most = staged - to_come;
    }
    *out_undecided = undecided + most;
    return all + most;
}

int undecided_room(
        struct hth_node *n, uint32_t rank, uint64_t bytes, uint32_t more, struct hearth_error *err)
{
    uint32_t undecided, saves = undecided_saves(n, rank, more, &undecided);
    struct hearth_error cause;
    int rc;

    if (undecided < 2 || undecided_first(n, rank, more) || hth_breaks(&n->ctx, HTH_BREAK_CROWD))
        return HEARTH_OK;
    rc = reserve_room(n, rank, bytes, saves, &cause);
    if (rc != HEARTH_ENOSPC)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EBUSY, 0,
            "%" PRIu32 " saves are undecided or staged on node '%.64s', and one more would take "
            "the room of their copies: %.400s",
            undecided - 1, n->epoch.member[n->epoch.self].node, cause.text);
}
