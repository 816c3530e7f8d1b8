/* SPDX-License-Identifier: Apache-2.0 */
/* Two engines in virtual time: chunks that are pulled while a rank writes the others. */
#include "packets.h"

#include "replication/transfer/transfer_parts.h"
#include "store_mem.h"

/* With it, objects of the first save are small, and rank 0's of the second has two whole chunks. */
#define DATA_MAX 9340274u

/* Two nodes, and on node 1 slots for a rank and for the copy of a large object. */
static void start(void)
{
    struct hth_store *store;
    struct hth_slot *slot[3];
    struct world_opts o = { .seed = 1,
        .nodes = 2,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 3,
        .run_ms = 600000,
        .data_max = DATA_MAX };

    alarm(120);
    world_open(&w, &o);
    while (!w.why[0] && hth_save_none(w.newest.id))
        world_advance(&w, w.now_ms + 1);
    at_machine = w.rank[1].machine;
    node = world_node(&w, 1);
    store = hth_node_ctx(node)->store;
    for (int i = 0; i < 3; i++)
        must(store->ops->take(store, DATA_MAX + HTH_CHUNK, &slot[i], NULL));
    for (int i = 0; i < 3; i++)
        store->ops->give(store, slot[i]);
}

TestSuite(written, .init = start, .fini = end);

static struct hth_ctx *ctx_of(uint32_t n)
{
    return hth_node_ctx(world_node(&w, n));
}

/* Bytes that node 1 has pulled from node 0. */
static uint64_t pulled(void)
{
    uint64_t from[2] = { 0, 0 };

    hth_transfer_pulled(ctx_of(1), NULL, from);
    return from[0];
}

/* Until rank 0 has written a part of its next large object and reported it, and node 1 has pulled
 * chunks of it. Returns how many. */
static uint64_t half_written(void)
{
    uint64_t before = pulled();

    while (!w.why[0] && w.now_ms < 300000) {
        if (w.rank[0].writing && !ctx_of(1)->transfer->in_flight && pulled() > before)
            break;
        before = w.rank[0].writing ? before : pulled();
        world_advance(&w, w.now_ms + 1);
    }
    cr_assert(zero(int, w.why[0]), "%s", w.why);
    cr_assert(eq(int, (int)w.rank[0].step, R_BEGUN), "its object is sealed");
    return (pulled() - before) / HTH_CHUNK;
}

static void must_be_protected(uint64_t step)
{
    while (!w.why[0] && w.newest.id.step < step && w.now_ms < 600000)
        world_advance(&w, w.now_ms + 1);
    cr_assert(zero(int, w.why[0]), "%s", w.why); /* the world compares the bytes of all copies */
    cr_assert(ge(u64, w.newest.id.step, step));
}

static void nothing_is_left(void)
{
    for (uint32_t n = 0; n < 2; n++) {
        cr_assert(eq(ptr, (void *)ctx_of(n)->transfer->early, NULL), "node %u", n);
        cr_assert(eq(ptr, (void *)ctx_of(n)->transfer->writings, NULL), "node %u", n);
    }
}

/* Free slots of node 1 that are as large as a large object's first chunks. */
static uint32_t free_slots(void)
{
    struct hth_store *store = ctx_of(1)->store;
    struct hth_slot *slot[64];
    uint32_t count = 0;

    while (count < 64 && store->ops->ready(store, 2 * HTH_CHUNK))
        must(store->ops->take(store, 2 * HTH_CHUNK, &slot[count++], NULL));
    for (uint32_t i = 0; i < count; i++)
        store->ops->give(store, slot[i]);
    return count;
}

Test(written, a_peer_pulls_before_the_seal_and_the_save_is_protected)
{
    cr_assert(gt(u64, half_written(), 0));
    must_be_protected(w.rank[0].next);
    nothing_is_left();
}

/* Rank 0 sends that of its save, and begins `step` a second later. */
static void ends_its_save(uint32_t type, uint64_t step)
{
    struct rank_state *r = &w.rank[0];
    struct hth_local_head m = { sizeof(m), type, ++r->request, r->lent.head.token };

    rank_send(r, &m, sizeof(m), NULL, 0);
    r->writing = 0;
    r->next = step;
    r->step = R_RUN;
    rank_due(r, w.now_ms + 1000);
    world_advance(&w, w.now_ms + 100);
}

/* The rank gives its save up, and goes on with the next step. */
Test(written, an_abandoned_save_leaves_no_slot_behind)
{
    uint32_t before;

    cr_assert(gt(u64, half_written(), 0));
    before = free_slots();
    ends_its_save(HTH_LOCAL_ABORT, w.rank[0].next + 1);
    nothing_is_left();
    cr_assert(gt(u32, free_slots(), before));
    must_be_protected(w.rank[0].next);
}

Test(written, nor_does_one_that_is_cancelled)
{
    uint32_t before;

    cr_assert(gt(u64, half_written(), 0));
    before = free_slots();
    ends_its_save(HTH_LOCAL_CANCEL, w.rank[0].next + 1);
    nothing_is_left();
    cr_assert(gt(u32, free_slots(), before));
    must_be_protected(w.rank[0].next);
}

Test(written, nor_does_one_whose_step_is_saved_once_more)
{
    cr_assert(gt(u64, half_written(), 0));
    ends_its_save(HTH_LOCAL_ABORT, w.rank[0].next);
    nothing_is_left();
    must_be_protected(w.rank[0].next + 2);
    nothing_is_left();
}

/* The process ends while it writes. */
Test(written, nor_does_a_rank_that_dies)
{
    cr_assert(gt(u64, half_written(), 0));
    rank_kill(&w.rank[0]);
    world_advance(&w, w.now_ms + 100);
    nothing_is_left();
}

/* The engine of the writer goes without a word. */
Test(written, nor_does_an_engine_that_dies)
{
    cr_assert(gt(u64, half_written(), 0));
    machine_stop(&w, w.rank[0].machine);
    world_advance(&w, w.now_ms + w.opts.dead_ms + 2000);
    cr_assert(eq(ptr, (void *)ctx_of(1)->transfer->early, NULL));
}

/* The slot of the writer is not kept for a node that does not read any more. */
Test(written, nor_does_an_engine_that_dies_while_it_pulls)
{
    struct rank_state *r = &w.rank[0];
    const struct hth_slot *slot;

    cr_assert(gt(u64, half_written(), 0));
    slot = hth_node_lent(world_node(&w, 0), r->lent.slot);
    cr_assert(eq(u32, slot->leases, 1));
    machine_stop(&w, w.rank[1].machine);
    world_advance(&w, w.now_ms + w.opts.dead_ms + 2000);
    cr_assert(eq(ptr, (void *)ctx_of(0)->transfer->writings, NULL));
}

/* Node 1 has no slot but that of the chunks: its own rank's next save gets that slot. */
Test(written, a_slot_for_a_rank_comes_before_chunks_that_do_not_count)
{
    struct hth_store *store = ctx_of(1)->store;
    struct hth_local_begin m = { .step = UINT64_MAX, .bytes = 2 * HTH_BLOCK, .name = "further" };
    struct hth_slot *slot;

    must_be_protected(15); /* as many slots as four saves need */
    cr_assert(gt(u64, half_written(), 0));
    hth_store_mem_room(store, hth_store_mem_used(store));
    while (store->ops->ready(store, m.bytes))
        must(store->ops->take(store, m.bytes, &slot, NULL));
    must(ask(w.rank[1].client, &m, sizeof(m), HTH_LOCAL_BEGIN, 0, HTH_LOCAL_LENT));
    cr_assert(eq(ptr, (void *)ctx_of(1)->transfer->early, NULL));
}
