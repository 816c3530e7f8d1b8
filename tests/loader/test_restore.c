/* SPDX-License-Identifier: Apache-2.0 */
/* What a member makes of a plan. */
#include "rig.h"

enum { NODES = 2, MEMBER = 1 };

static const struct hth_save_id chosen = { 4, 77, 9, 1 };
static void begin(void)
{
    rig_open(NODES, MEMBER);
}

TestSuite(restore, .init = begin, .fini = rig_close);

/* The object of rank 1, which node 0 has. */
static void give_plan(void)
{
    struct hth_blob_id id = hth_restore_plan_id(&p->node[MEMBER].ctx, 1);
    struct hth_object object = { .id = hth_object_id(1, 0),
        .kind = HTH_OBJECT_SHARD,
        .owner = 1,
        .data_len = 1000,
        .table_len = 64,
        .name = "o" };
    struct hth_manifest m = { .save = chosen,
        .world = NODES,
        .nodes = NODES,
        .job = "pair",
        .objects = 1,
        .object = &object };
    struct hth_sources sources = { .count = 1, .node = { 0 } };
    struct hth_plan plan = { .serial = 1,
        .chosen = chosen,
        .keeps = 1,
        .keep = { chosen },
        .manifest_len = hth_manifest_bytes(&m),
        .sources = &sources };
    unsigned char *bytes;

    plan.manifest_bytes = malloc(plan.manifest_len);
    must(hth_manifest_encode(&m, plan.manifest_bytes, NULL));
    plan.manifest = m;
    bytes = malloc(hth_plan_bytes(&plan));
    hth_plan_encode(&plan, bytes);
    hth_restore_plan(restore, &id, bytes, hth_plan_bytes(&plan));
    free(bytes);
    free(plan.manifest_bytes);
}

static size_t wanted;

static int no_room(struct hth_store *s, const uint64_t *bytes, size_t count, enum hth_want how,
        struct hearth_error *err)
{
    (void)s, (void)bytes;
    wanted = how == HTH_WANT_FIRST ? count : 0;
    return hth_fail(err, HEARTH_ENOSPC, 0, "1000 bytes do not fit; enlarge the mount");
}

Test(restore, a_node_without_room_votes_no_with_the_reason_before_it_pulls)
{
    struct hth_store *store = p->node[MEMBER].store;
    struct hth_store_ops ops = *store->ops;
    const struct hth_store_ops *whole = store->ops;
    struct pair_node *coordinator = &p->node[0];
    uint64_t pulled = 1;

    ops.want = no_room;
    store->ops = &ops;
    must(hth_restore_start(restore, 10000, NULL));
    give_plan();
    cr_assert(eq(sz, wanted, 1));
    while (coordinator->kind != HTH_KIND_VOTE && pair_step(p))
        continue;
    cr_assert(eq(int, (int)hth_get32(coordinator->fact + 4), HEARTH_ENOSPC));
    cr_assert(memmem(coordinator->fact, coordinator->len, "1000 bytes do not fit; enlarge", 30) !=
              NULL);
    hth_transfer_pulled(&p->node[MEMBER].ctx, &pulled, NULL);
    cr_assert(zero(u64, pulled));
    store->ops = whole;
}
