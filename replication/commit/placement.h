/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The nodes that hold the copies of each rank's objects. A pure function of the epoch's members,
 * the same on every node. Neither the owner and a copy nor two copies share a domain at the widest
 * level that is known: the members' machines, and above them the domains that are named. If there
 * are too few of these domains, placement is refused; if `degraded` allows it, further copies lie
 * in domains of narrower levels instead, and saves are DEGRADED. Pairs when they fit, a ring for
 * the rest; loads as even as possible.
 */
#ifndef HEARTH_REPLICATION_PLACEMENT_H
#define HEARTH_REPLICATION_PLACEMENT_H

#include "core/format/epoch.h"

#define HTH_COPIES_MAX    8u

/* Levels: 0 is the node itself, 1 its machine, 2 and above its domains, narrowest first. */
#define HTH_LEVEL_MACHINE 1u
#define HTH_LEVELS        (HTH_LEVEL_MACHINE + 1 + HTH_DOMAINS_MAX)

struct hth_placement {
    uint32_t world, copies;
    uint32_t *holder;  /* [world][copies]: node of each copy, HTH_NODE_NONE where there is none */
    uint32_t level;    /* up to this level no two copies share a domain */
    uint32_t widest;   /* the widest level at which nodes may share a domain */
    uint32_t separate; /* so many first copies share no domain of that level, nor the owner's */
};

/* Errors: HEARTH_EINVAL when fewer than `min_copies` can be had in other domains and degraded is
 * 0: with how many nodes or domains it takes. */
int hth_placement_make(struct hth_placement *out, const struct hth_epoch *epoch, uint32_t copies,
        uint32_t min_copies, int degraded, struct hearth_error *err);

/* Two nodes share a domain at `level` or a narrower one; level 0: they are one node. */
int hth_domain_shared(const struct hth_epoch *e, uint32_t a, uint32_t b, uint32_t level);

/* How many of these nodes share no domain at the widest level. */
uint32_t hth_placement_domains(const struct hth_placement *p, const struct hth_epoch *e,
        const uint32_t *node, uint32_t nodes);

/* "4 nodes on 2 machine(s) ('a' and 'b' are on one), 1 of 1 copies: survives the loss of any 1
 * machine(s)" */
void hth_placement_text(
        const struct hth_placement *p, const struct hth_epoch *epoch, char *out, size_t len);
void hth_placement_fini(struct hth_placement *p);

#endif
