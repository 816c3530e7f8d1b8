/* SPDX-License-Identifier: Apache-2.0 */
/* A member, node 1, and the plans that it is given; node 0 receives its messages. */
#ifndef HEARTH_TESTS_LOADER_PLANS_H
#define HEARTH_TESTS_LOADER_PLANS_H

#include "raws.h"
#include "rig.h"

#include "core/base/auth.h"

enum { NODES = 2, MEMBER = 1 };

static const struct hth_save_id chosen = { 4, 77, 9, 1 }, kept = { 4, 77, 8, 1 };

static inline void begin(void)
{
    rig_open(NODES, MEMBER);
}

enum { OBJECTS = 2 };

static const uint64_t id_of[OBJECTS] = { UINT64_C(1) << 32 | 1,
    UINT64_C(1) << 32 | 2 }; /* of rank 1 */

static unsigned char manifest[HTH_MANIFEST_HEAD + OBJECTS * HTH_MANIFEST_OBJECT + HTH_DIGEST];
static size_t manifest_len;
static uint32_t plan_objects; /* that its list of holders has; 0: as many as the manifest */
static int manifest_here = 1; /* the member has the manifest of the plan's save */

static inline void hold_manifest(uint32_t node)
{
    struct hth_ctx *ctx = &p->node[node].ctx;
    struct hth_held_save *s = hth_holdings_get(ctx, chosen);
    unsigned char *copy = malloc(manifest_len);

    memcpy(copy, manifest, manifest_len);
    must(hth_held_set_manifest(ctx, s, copy, manifest_len, NULL));
}

/* A plan of these objects, which `sources` of the nodes from 0 on have. */
static inline void give_plan_of(
        uint32_t serial, const struct hth_object *object, uint32_t objects, uint32_t sources)
{
    struct hth_blob_id id = hth_restore_plan_id(&p->node[MEMBER].ctx, serial);
    struct hth_object list[OBJECTS];
    struct hth_manifest m = { .save = chosen,
        .world = NODES,
        .nodes = NODES,
        .job = "pair",
        .objects = objects,
        .object = list };
    struct hth_sources from[OBJECTS] = { { .count = sources }, { .count = sources } };
    struct hth_plan plan = {
        .serial = serial, .chosen = chosen, .keeps = 2, .keep = { chosen, kept }
    };
    unsigned char *bytes;

    memcpy(list, object, objects * sizeof(*object));
    manifest_len = hth_manifest_bytes(&m);
    must(hth_manifest_encode(&m, manifest, NULL));
    if (manifest_here)
        hold_manifest(MEMBER);
    memcpy(plan.manifest, m.digest, HTH_DIGEST);
    must(hth_runs_make(&plan.from, from, plan_objects ? plan_objects : objects, NULL));
    bytes = malloc(hth_plan_bytes(&plan));
    hth_plan_encode(&plan, bytes);
    hth_restore_plan(restore, &id, bytes, hth_plan_bytes(&plan));
    free(bytes);
    hth_plan_fini(&plan);
}

/* The object of rank 1, which node 0 has. */
static inline void give_plan(void)
{
    struct hth_object object = { .id = hth_object_id(1, 0),
        .kind = HTH_OBJECT_SHARD,
        .owner = 1,
        .data_len = 1000,
        .table_len = 64,
        .name = "o" };

    give_plan_of(1, &object, 1, 1);
}

static inline void run(uint64_t ms)
{
    struct pair_node *member = &p->node[MEMBER];
    uint32_t arrived = member->arrived;

    for (uint64_t end_ms = p->now_ms + ms; p->now_ms < end_ms;
            hth_restore_tick(restore, p->now_ms)) {
        if (!pair_step(p))
            p->now_ms += 10;
        if (arrived != member->arrived && member->blob.kind == HTH_BLOB_MANIFEST)
            hth_restore_manifest(restore, &member->blob);
        else if (arrived != member->arrived)
            hth_restore_raw(restore, &member->blob, NULL);
        arrived = member->arrived;
    }
}

/* Node 0's, sealed. */
static inline struct hth_object there(uint64_t id)
{
    struct hth_held *held = pair_seal(p, 0, chosen, id, 4096, id);

    held->verified = 1;
    return held->object;
}

static inline uint32_t votes(void)
{
    return p->node[0].heard[HTH_KIND_VOTE];
}

/* The code of the last vote, and of which plan. */
static inline int voted(uint32_t *out_serial)
{
    cr_assert(eq(u16, p->node[0].kind, HTH_KIND_VOTE));
    *out_serial = hth_get32(p->node[0].fact);
    return (int)hth_get32(p->node[0].fact + 4);
}

#endif
