/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next map: where copies go when nodes are lost or unreachable to each other, and when they
 * have returned. A pure function of the epoch's placement, the last map and the nodes'
 * reachability.
 */
#ifndef HEARTH_REPLICATION_REMAP_H
#define HEARTH_REPLICATION_REMAP_H

#include "core/format/places.h"
#include "placement.h"

enum hth_reachability {
    HTH_REACHABLE,
    HTH_RETURNED,    /* reachable again, and not for long enough to be given places of others */
    HTH_UNREACHABLE, /* of a node: lost */
};

/* Two nodes that do not reach each other, or do so again. */
struct hth_pair {
    uint32_t a, b;
    uint8_t reach; /* enum hth_reachability */
};

struct hth_remap {
    const struct hth_epoch *epoch;
    const struct hth_placement *base; /* as the epoch began */
    const struct hth_places *last;    /* its moves count, its notes do not */
    int settled;          /* the last map is: nodes that had places before do not count */
    const uint8_t *reach; /* [nodes] enum hth_reachability */
    uint32_t min_copies;
    const struct hth_pair *pair; /* [pairs], in the order of a map */
    uint32_t pairs;
    int any_source; /* simulator: a holder counts as a source though it has no source */
    int stay;       /* simulator: no copy returns to the node of its placement */
};

/* The moves of the next map: *out, in order, is the caller's. A lost node's places go to other
 * nodes. A place returns to the node of its placement as soon as that node is not lost, and reaches
 * a source over pairs that are not HTH_UNREACHABLE. A copy moves if no source is left (the
 * owner's place, or another copy that has a source), preferably to a node that reaches
 * the owner's place. A node that is HTH_RETURNED is given copies of other nodes only if fewer than
 * `min_copies` would be left, or another node would have two places more than as the epoch began.
 * A place that no node can have stays where it is: *out_stuck. Errors: HEARTH_ENOMEM. */
int hth_remap(const struct hth_remap *in, struct hth_move **out, uint32_t *out_moves,
        uint32_t *out_moved, uint32_t *out_stuck);

#endif
