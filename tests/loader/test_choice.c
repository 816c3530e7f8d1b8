/* SPDX-License-Identifier: Apache-2.0 */
/* What the coordinator makes of that which the members say they hold. */
#include "check.h"
#include "pair.h"

#include "core/base/bytes.h"
#include "loader/choice/choice.h"
#include "loader/plan/plan.h"
#include <stdlib.h>
#include <unistd.h>

enum { NODES = 3 };

static struct pair *p;
static struct hth_restore *restore;
static struct hth_choice *choice;

static void on_end(void *self, int code, const struct hearth_error *err, struct hth_save_id save,
        const struct hearth_recovery *info)
{
    (void)self, (void)code, (void)err, (void)save, (void)info;
}

static void begin(void)
{
    alarm(60);
    p = pair_open(NODES);
    must(hth_restore_open(&p->node[0].ctx, on_end, NULL, &restore, NULL));
    must(hth_choice_open(&p->node[0].ctx, restore, &choice, NULL));
}

static void end(void)
{
    hth_choice_close(choice);
    hth_restore_close(restore);
    pair_close(p);
}

TestSuite(choice, .init = begin, .fini = end);

/* `node` tells in one part that it holds nothing but this record. */
static void say_keep(uint32_t node, const struct hth_keep *keep)
{
    struct hth_inventory inv = { .store = node + 1, .keep = *keep };
    size_t len = 8 + hth_inventory_bytes(&inv);
    unsigned char *part = malloc(len);

    cr_assert(part != NULL);
    hth_put32(part, 0);
    hth_put32(part + 4, 1);
    hth_inventory_encode(&inv, part + 8);
    hth_choice_deliver(choice, node, HTH_KIND_INVENTORY, part, len);
    free(part);
}

static struct hth_keep keep_of(uint64_t epoch, uint64_t serial)
{
    return (struct hth_keep){
        .epoch = epoch, .serial = serial, .saves = 1, .save = { { epoch, 77, 10 * serial, 1 } }
    };
}

Test(choice, of_all_keep_records_the_last_decision_counts)
{
    struct hth_keep *ours = &p->node[0].ctx.keep;
    struct hth_keep said[NODES] = { keep_of(5, 3), keep_of(5, 9), keep_of(4, 20) };

    for (uint32_t first = 0; first < NODES;
            first++) { /* whoever has it, and before or after others */
        hth_choice_join(choice);
        *ours = keep_of(5, 4);
        for (uint32_t n = 0; n < NODES; n++)
            say_keep(n, &said[(first + n) % NODES]);
        cr_assert(eq(u64, ours->epoch, 5));
        cr_assert(eq(u64, ours->serial, 9));
        cr_assert(eq(u64, ours->save[0].step, 90));
    }
}

Test(choice, our_own_keep_record_stays_where_nobody_has_a_later_one)
{
    struct hth_keep *ours = &p->node[0].ctx.keep;
    struct hth_keep said[NODES] = { keep_of(5, 3), keep_of(5, 9), keep_of(4, 20) };

    hth_choice_join(choice);
    *ours = keep_of(5, 10);
    for (uint32_t n = 0; n < NODES; n++)
        say_keep(n, &said[n]);
    cr_assert(eq(u64, ours->serial, 10));
    cr_assert(eq(u64, ours->save[0].step, 100));
}

/* ---- A manifest that is here ---------------------------------------------------------------------- */

/* Every node has this manifest, and the save has no objects. */
static void say_manifest(uint32_t node, const struct hth_manifest *m)
{
    struct hth_seen_save seen = { .id = m->save, .has_manifest = 1 };
    struct hth_inventory inv = { .store = node + 1, .saves = 1, .save = &seen };
    unsigned char part[2048];

    memcpy(seen.manifest, m->digest, HTH_DIGEST);
    cr_assert(le(sz, 8 + hth_inventory_bytes(&inv), sizeof(part)));
    hth_put32(part, 0);
    hth_put32(part + 4, 1);
    hth_inventory_encode(&inv, part + 8);
    hth_choice_deliver(choice, node, HTH_KIND_INVENTORY, part, 8 + hth_inventory_bytes(&inv));
}

Test(choice, a_manifest_that_came_before_the_inventories_is_not_waited_for)
{
    struct hth_ctx *ctx = &p->node[0].ctx;
    struct hth_manifest m = {
        .save = { 5, 77, 10, 1 }, .world = NODES, .nodes = NODES, .job = "pair"
    };
    struct hth_manifest read;
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, m.save, 0 };
    struct hth_blob_id plan = hth_restore_plan_id(ctx, 1);
    static uint32_t rank_node[NODES] = { 0, 1, 2 };
    unsigned char bytes[1024];
    size_t len;

    p->node[0].epoch.world = NODES;
    p->node[0].epoch.rank_node = rank_node;
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_manifest_decode(&read, bytes, hth_manifest_bytes(&m), NULL));
    must(hth_blob_serve(ctx, &id, bytes, hth_manifest_bytes(&m), NULL));
    for (uint32_t n = 0; n < NODES; n++)
        say_manifest(n, &read);
    hth_choice_tick(choice, p->now_ms);
    cr_assert(ne(ptr, (void *)(uintptr_t)hth_blob_find(ctx, &plan, &len), NULL));
    hth_manifest_fini(&read);
    p->node[0].epoch.rank_node = NULL;
}
