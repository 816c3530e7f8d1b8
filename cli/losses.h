/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a loss of nodes would mean, by the placement that an engine knows (PLACES) and the manifests
 * of the kept saves. No files, no messages: pages and manifests are handed in.
 */
/* For this folder alone. */
#ifndef CLI_LOSSES_H
#define CLI_LOSSES_H

#include "core/format/epoch.h"
#include "core/format/keep.h"
#include "core/format/manifest.h"
#include <jansson.h>

/* A node is known to have what it should have of a save, known not to, or neither. */
enum loss_has { LOSS_HAS_NOT, LOSS_HAS, LOSS_HAS_UNKNOWN };

struct loss_node {
    char name[HTH_NAME_MAX + 1];
    uint64_t domain[HTH_DOMAINS_MAX];
    uint32_t machine; /* HTH_NODE_NONE: no other node is on it */
    int lost;         /* the map calls it lost */
    enum loss_has has[HTH_KEEP_MAX];
};

/* A place of a rank's objects: its node as the epoch began, its node now, and a node that had it
 * when a map was settled last. HTH_NODE_NONE: none. */
struct loss_place {
    uint32_t home, now, was;
};

struct loss_object {
    uint32_t owner;
    uint64_t bytes;
};

struct loss_save {
    struct hth_save_id id;
    char state[16];
    int bad;
    int listed; /* its manifest was handed in; 0: all ranks count, and bytes are not known */
    int common; /* 1: it has objects that every node keeps */
    size_t objects;
    struct loss_object *object; /* [objects], by owner */
};

struct losses {
    char node[HTH_NAME_MAX + 1], coordinator[HTH_NAME_MAX + 1];
    uint64_t epoch, position; /* of the head that the engine follows */
    int64_t as_of_ms;         /* when the coordinator has sent something last; -1: never */
    int current, settled;
    uint32_t dead_ms, copies, nodes, ranks, saves;
    uint32_t nodes_read, ranks_read;
    struct loss_node *member;            /* [nodes] */
    struct loss_place *place;            /* [ranks][1 + copies], the owner's first */
    struct loss_save save[HTH_KEEP_MAX]; /* newest first */
};

/* Adds the next page: all until losses_whole(). Errors: HEARTH_EPROTO; HEARTH_ESTATE: something was
 * decided between two pages, so all are to be asked for again; HEARTH_ENOMEM. */
int losses_page(struct losses *l, const json_t *page, struct hearth_error *err);
int losses_whole(const struct losses *l);
/* The objects of save `at`. Errors: HEARTH_ENOMEM. */
int losses_manifest(struct losses *l, uint32_t at, const struct hth_manifest *m);
void losses_free(struct losses *l);

/* Marks the node of this name, or the nodes of a domain of this name; how many. gone[nodes] */
uint32_t losses_mark(const struct losses *l, const char *name, uint8_t *gone);
uint32_t losses_mark_domain(const struct losses *l, const char *name, uint8_t *gone);

/* LOST: none of the nodes that are left has a copy, or may have one. UNKNOWN: it is not known
 * whether one of them has it. */
enum loss_fate { LOSS_SURVIVES, LOSS_UNKNOWN, LOSS_LOST };

/* Of the objects that rank `owner` wrote of save `at`, if these nodes are gone. */
enum loss_fate losses_rank(
        const struct losses *l, uint32_t at, uint32_t owner, const uint8_t *gone);

struct loss_pull {
    uint64_t bytes, most; /* of all nodes; of the node that pulls most */
    uint32_t nodes;       /* that pull something */
};

struct loss_verdict {
    enum loss_fate fate[HTH_KEEP_MAX];
    uint32_t lost[HTH_KEEP_MAX], unknown[HTH_KEEP_MAX]; /* ranks whose objects are */
    int chosen; /* the save that a recovery would choose of those that survive; -1: none does */
    int sized;  /* the pulls are known: all manifests that they need were handed in */
    /* If empty nodes stand in for those that are gone or lost, in the same domains with the same
     * ranks: what ranks wait for; and after that the copies, and older kept saves. */
    struct loss_pull before, after;
};
/* Errors: HEARTH_ENOMEM. */
int losses_judge(const struct losses *l, const uint8_t *gone, struct loss_verdict *out);

struct loss_pair {
    uint32_t a, b;  /* units */
    uint32_t ranks; /* whose objects of save `at` would have no known copy left */
};
/* The pairs of units whose loss takes the objects of most ranks, worst first, into out[most]; how
 * many there are. unit[nodes]: the unit that each node fails with. Negative: HEARTH_ENOMEM. */
int losses_worst(const struct losses *l, uint32_t at, const uint32_t *unit, uint32_t units,
        struct loss_pair *out, uint32_t most);
/* Nodes as units, or the widest domains that are named; how many. */
uint32_t losses_units(const struct losses *l, int domains, uint32_t *unit);

#endif
