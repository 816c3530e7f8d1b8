/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether all is well with the job, as this engine knows it: named checks, computed from its state
 * when they are asked for. This is the one table of their names and levels; STATUS has the checks
 * that are raised, metrics have one gauge for each, and the runbook has a section for each.
 *
 *     state   well: no check is raised;  at risk: a check of level 1 is;  broken: of level 2
 *
 * A check that is raised is true, as far as this engine can know. One that is not raised may be
 * unknown: an engine that has not heard of its coordinator for longer than a change takes to reach
 * it (dead_ms and a heartbeat for each level of the tree, and one more) raises coordinator_silent,
 * and then no check about other nodes. A loss reaches all checks of all engines that hear of the
 * coordinator within dead_ms and two heartbeats, where the coordinator watches the lost node (nodes
 * 1 to 32). A node further down the tree is watched by its parent: the coordinator then dials it,
 * for connect_ms at most, before it calls it lost.
 *
 *   engine_gone        no engine answers. Never raised here: who asks an engine raises it
 *   epoch_failed       this node, or another one, cannot take part in the epoch, or this engine
 *                      ends; with the sentence that the ranks receive
 *   coordinator_silent see above. Not: whether the coordinator is lost or only this node is cut off
 *   object_lost        nodes are lost, and for longer than save_ms this node asked in vain for an
 *                      object of a kept save that it has to hold: each node that may have it, and
 *                      others, answered that they have it not. Not: what a lost node still has
 *   not_running        this engine has joined no epoch, or the recovery of its epoch has not ended:
 *                      no save can be protected before it has
 *   node_lost          the newest map calls members lost
 *   node_unreachable   by the newest map two members do not reach each other; or this node has no
 *                      connection to a member, or cannot pull from it
 *   copies_below       a kept save has fewer copies than asked for, or may have since a node was
 *                      lost; or its copies have not been counted in this epoch
 *   protection_old     the newest protected save is older than three of the intervals between the
 *                      last ones, and older than it takes to notice a lost node (dead_ms and two
 *                      heartbeats: a loss costs that time however often a job saves), while a rank
 *                      is attached here. Not: why; nor before two saves were protected since this
 *                      engine began
 *   save_failed        of the saves of this epoch that have ended here, the newest has failed
 *   no_room            a copy of a save has no room on a node (the coordinator knows of all nodes,
 *                      a member of its own and those that hold its copies); or that was why the
 *                      last save failed
 *   checksum_error     this node has found wrong bytes within the last hour: in a copy of its own,
 *                      or in bytes that came from a node
 *   log_lost           the last lines of this engine's log could not be written
 */
#ifndef HEARTH_ENGINE_HEALTH_H
#define HEARTH_ENGINE_HEALTH_H

#include <stdint.h>
#include <stdio.h>

struct hth_node;

/* Of one level the most urgent first. */
#define HEALTH_CHECKS(X)     \
    X(engine_gone, 2)        \
    X(epoch_failed, 2)       \
    X(coordinator_silent, 2) \
    X(object_lost, 2)        \
    X(not_running, 1)        \
    X(node_lost, 1)          \
    X(node_unreachable, 1)   \
    X(copies_below, 1)       \
    X(protection_old, 1)     \
    X(save_failed, 1)        \
    X(no_room, 1)            \
    X(checksum_error, 1)     \
    X(log_lost, 1)

enum health_row {
#define HEALTH_ROW(name, level) HEALTH_##name,
    HEALTH_CHECKS(HEALTH_ROW)
#undef HEALTH_ROW
            HEALTH_ROWS
};

#define HEALTH_TEXT 480u /* bytes of a sentence, with terminator */
#define HEALTH_OLD  3u   /* intervals */

struct health_name {
    const char *name;
    int level;
};
extern const struct health_name health_names[HEALTH_ROWS];

struct health {
    uint32_t raised;                     /* a bit for each row */
    char text[HEALTH_ROWS][HEALTH_TEXT]; /* of those that are raised: whole sentences */
};

void health_look(struct hth_node *n, struct health *out);
const char *health_state(const struct health *h);
/* {"state", "checks": [...]}, the worst first. */
void health_put(FILE *to, const struct health *h);

/* The newest save on the keep list, as STATUS and metrics have it. */
struct health_newest {
    int is; /* 0: none */
    uint64_t step;
    const char *state; /* as in `kept` of STATUS */
    /* by the wall clocks of the coordinator and of this node, but no less than since its end was
     * known here, and no more than since its begin, if both were under this engine */
    uint64_t age_ms;
    uint64_t every_ms; /* between the last protected saves, the median; 0: not known */
};
struct health_newest health_newest(const struct hth_node *n);

#endif
