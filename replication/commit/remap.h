/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next holder map: where copies go when nodes are lost or cannot reach each other, and when they are
 * back. A pure function of the epoch's placement, the last map and who is well.
 */
#ifndef HEARTH_REPLICATION_REMAP_H
#define HEARTH_REPLICATION_REMAP_H

#include "core/format/holders.h"
#include "placement.h"

enum hth_wellness {
    HTH_WELL,
    HTH_BACK, /* not lost, and not well for long enough to be given copies again */
    HTH_LOST
};

/* Two nodes that cannot reach each other: HTH_LOST; HTH_BACK: they can again, and not for long enough. */
struct hth_pair {
    uint32_t a, b;
    uint8_t is; /* enum hth_wellness */
};

struct hth_remap {
    const struct hth_epoch *epoch;
    const struct hth_placement *base; /* as the epoch began */
    const struct hth_holders *last;   /* its moves count, its notes do not */
    int settled;       /* it is: who had a place before has nothing left that counts */
    const uint8_t *is; /* [nodes] enum hth_wellness */
    uint32_t min_copies;
    const struct hth_pair *pair; /* [pairs], in the order of a map */
    uint32_t pairs;
    int any_source; /* simulator: a holder counts as a source of another, whether or not it has one itself */
    int stay; /* simulator: no copy goes home */
};

/* The moves of the next map: *out, in order, is the caller's. A lost node's places go to others,
 * the owner's own too, which is its owner's again as soon as that is not lost; a copy goes back
 * to where placement puts it once that node is well. A copy moves that has no source left: its
 * owner's place, or another copy that has one; where some node can take it, one that the owner's
 * place reaches first. Who is only back gets something where else fewer than `min_copies` would
 * be left, or somebody would have two places more than as the epoch began. What nobody can take
 * stays where it is: *out_stuck. Errors: HEARTH_ENOMEM. */
int hth_remap(const struct hth_remap *in, struct hth_move **out, uint32_t *out_moves,
        uint32_t *out_moved, uint32_t *out_stuck);

#endif
