/* SPDX-License-Identifier: Apache-2.0 */
/* What this node knows of the other members and of copies, for operators. Nothing changes by a
 * question; none takes longer than to look at each member, track or place once. */
#ifndef HEARTH_REPLICATION_KNOWN_H
#define HEARTH_REPLICATION_KNOWN_H

#include "commit.h"

enum hth_member_state {
    HTH_MEMBER_UNKNOWN, /* nothing has come from the coordinator for longer than a change takes, and
                         * nothing from the member itself for dead_ms */
    HTH_MEMBER_OK,      /* neither the newest map nor this node has anything against it */
    HTH_MEMBER_SILENT,  /* this node has no connection to it, or pulls from it stall; the map knows
                         * nothing of it, or not yet */
    HTH_MEMBER_UNREACHABLE, /* by the map, it and this node cannot reach or pull from each other */
    HTH_MEMBER_LOST,        /* by the map */
};

/* *out_since_ms: for how long this engine has known that, at least; UINT64_MAX: it is UNKNOWN. */
enum hth_member_state hth_commit_member(
        const struct hth_commit *c, uint32_t node, uint64_t *out_since_ms);

/* 1: a copy of the save has no room on that node, for that reason (borrowed until the next event).
 * The coordinator has all nodes' refusals, a member its own and those of its holders. */
struct hth_refused {
    struct hth_save_id save;
    uint32_t node;
    const char *text;
};
int hth_commit_refused(const struct hth_commit *c, struct hth_refused *out);

/* 1: this node has to hold an object of a kept save, and no node that it could ask has it. */
struct hth_gone {
    struct hth_save_id save;
    uint32_t rank;
    uint64_t since_ms; /* for how long */
};
int hth_commit_gone(const struct hth_commit *c, struct hth_gone *out);

/* Saves of which this node does not have all that it has to hold yet, or not under the newest map.
 * *out_oldest_ms: for how long this engine has known of the first of them. */
uint32_t hth_commit_behind(const struct hth_commit *c, uint64_t *out_oldest_ms);

/* Objects of other nodes' ranks, in one save, that the newest map places on the nodes first ..
 * first + count - 1: out[count]. */
void hth_commit_places(const struct hth_commit *c, uint32_t first, uint32_t count, uint32_t *out);

/* Copies of this node's objects of undecided saves that each of those nodes has to pull, and has
 * not reported to this node: out[count]; HTH_NODE_NONE: this is not known, since an engine before
 * this one has received reports. */
void hth_commit_owed(const struct hth_commit *c, uint32_t first, uint32_t count, uint32_t *out);

/* Copies of each object that share a failure domain with another one, or that no node has, since
 * the job has too few domains: 0 to `copies`. */
uint32_t hth_commit_crowded(const struct hth_commit *c);

#endif
