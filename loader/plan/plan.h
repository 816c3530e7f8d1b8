/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inventory of each node, the choice from all of them, and the plan for all nodes. Pure
 * functions: no clock, no messages. Record layouts are drawn in inventory.c and plan.c.
 */
#ifndef HEARTH_LOADER_PLAN_PLAN_H
#define HEARTH_LOADER_PLAN_PLAN_H

#include "core/foreign/foreign.h"
#include "core/format/keep.h"
#include "core/format/manifest.h"
#include "runs.h"

#define HTH_PLAN_KEEP 32u

struct hth_seen_object { /* sealed here, block, table and digest hold (raw: its bytes) */
    uint64_t id;
    unsigned char digest[HTH_DIGEST];
};

struct hth_seen_run { /* so many objects of a manifest, by their places in it */
    uint32_t first, count;
};

struct hth_seen_save {
    struct hth_save_id id;
    int has_manifest;
    unsigned char manifest[HTH_DIGEST]; /* its own digest */
    uint32_t runs;
    struct hth_seen_run *run;       /* [runs] here just as that manifest has them; rising, apart */
    uint32_t objects;               /* objects that are listed one by one */
    struct hth_seen_object *object; /* in order of id */
    struct hth_object *file; /* foreign: [objects] the same ones, with name and length; else NULL */
    struct hth_foreign_look *look; /* foreign: [objects] and what is in them */
    int unfinished;                /* foreign: its writer has left a marker */
};

#define HTH_INVENTORY_SAVES 1024u /* of a node, the newest; the rest is left out */

struct hth_inventory {
    uint64_t store;
    struct hth_keep keep;
    uint32_t saves;
    struct hth_seen_save *save; /* newest first */
};

/* Memory for the objects of a save whose id is set; hth_inventory_fini() frees it, on failure
 * too. */
int hth_seen_make(struct hth_seen_save *s, uint32_t objects);

size_t hth_inventory_bytes(const struct hth_inventory *inv);
void hth_inventory_encode(const struct hth_inventory *inv, unsigned char *out);
/* Bytes that may be damaged or hostile. Errors: HEARTH_EPROTO, HEARTH_ENOMEM. */
int hth_inventory_decode(
        struct hth_inventory *out, const void *bytes, size_t len, struct hearth_error *err);
void hth_inventory_fini(struct hth_inventory *inv);
const struct hth_seen_save *hth_inventory_find(
        const struct hth_inventory *inv, struct hth_save_id id);
/* 1: the inventory lists this same object; for foreign saves, which have no runs. */
int hth_inventory_has(
        const struct hth_inventory *inv, struct hth_save_id save, const struct hth_object *o);

/* Finds the nodes that have each object of `m`: out[m->objects]. Returns how many objects no node
 * has, the first of them in out_lost (may be NULL). inventory[nodes]. rank_node[world] as in the
 * epoch: objects that their rank's node lacks will be pulled. Their holders are in such an order
 * that, if the first holder is taken first, no node serves much more than its fair share. */
uint32_t hth_sources_find(const struct hth_inventory *inventory, uint32_t nodes,
        const uint32_t *rank_node, uint32_t world, const struct hth_manifest *m,
        struct hth_sources *out, const struct hth_object **out_lost);

struct hth_plan {
    uint32_t serial;
    struct hth_save_id chosen; /* epoch 0: nothing, start from scratch */
    uint32_t beyond;           /* newer saves that were beyond redundancy */
    uint32_t passed;           /* newer saves that are whole and marked bad */
    uint32_t tries;            /* jobs that ended without a save, for which one of them is;
                                  0: a user has marked them */
    uint32_t keeps;
    struct hth_save_id keep[HTH_PLAN_KEEP]; /* every node frees the rest */
    /* the chosen save's manifest digest: a node that lacks it fetches it */
    unsigned char manifest[HTH_DIGEST];
    struct hth_runs from; /* the nodes that have its objects */
};

size_t hth_plan_bytes(const struct hth_plan *p);
void hth_plan_encode(const struct hth_plan *p, unsigned char *out);
int hth_plan_decode(struct hth_plan *out, const void *bytes, size_t len, struct hearth_error *err);
void hth_plan_fini(struct hth_plan *p);

#endif
