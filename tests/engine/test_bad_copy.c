/* SPDX-License-Identifier: Apache-2.0 */
/* Copies that went bad after they were looked at, found by whoever reads them, in virtual time. */
#include "raws.h"
#include "reader.h"

#define FAR 2u /* a node that holds nothing of rank 0: copies go to the next node */

TestSuite(bad_copy, .init = start, .fini = end);

static void bad_of(struct hth_save_id save, uint64_t object, uint64_t chunk)
{
    struct hth_local_bad m = { .object = object, .chunk = chunk };

    m.save = hth_local_save_of(save);
    say(&m, sizeof(m), HTH_LOCAL_BAD);
}

static void bad(uint64_t object, uint64_t chunk)
{
    bad_of(w.newest.id, object, chunk);
}

Test(bad_copy, a_chunk_that_a_rank_finds_wrong_is_read_from_a_peer_and_its_copy_brought_back)
{
    struct hth_held *h = shard(1, 1);
    const struct hth_slot *was = h->slot;
    struct hth_object o = h->object;

    attach(1);
    tip(h);
    bad(o.id, 0);
    wait_for(HTH_LOCAL_OK);
    range(&o);
    wait_for(HTH_LOCAL_BYTES);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(int, is_back(1, 1, was), 1)); /* and the old one is no slot of the pool any more */
    cr_assert(ge(u32, look_copies(&w, w.newest.id, UINT32_MAX), 2));
}

Test(bad_copy, a_copy_that_is_right_after_all_stays)
{
    struct hth_held *h = shard(1, 1);
    const struct hth_slot *was = h->slot;

    attach(1);
    bad(h->object.id, 0);
    wait_for(HTH_LOCAL_OK);
    h = shard(1, 1);
    cr_assert(eq(ptr, h->slot, (void *)(uintptr_t)was));
    cr_assert(eq(int, h->verified, 1));
}

Test(bad_copy, a_copy_is_lent_to_nobody_while_it_is_looked_at)
{
    struct hth_held *h = shard(1, 1);

    attach(1);
    w.machine[1].slow_ms = 1000;
    bad(h->object.id, 0);
    world_advance(&w, w.now_ms + 500);
    cr_assert(eq(int, h->verified, 0));
    cr_assert(zero(u32, heard.head.type), "it is answered before it has been looked at");
    wait_for(HTH_LOCAL_OK);
    cr_assert(eq(int, h->verified, 1));
}

/* Rank 0's object of a save that has no manifest there yet, whole at node 1. */
static struct hth_held *undecided(struct hth_save_id *out)
{
    for (struct hth_held_save *s = hth_holdings_first(hth_node_ctx(world_node(&w, 1))); s;
            s = s->next)
        for (struct hth_held *h = s->held; h; h = h->next)
            if (!s->has_manifest && h->object.owner == 0 && h->object.kind == HTH_OBJECT_SHARD &&
                    h->state == HTH_HELD_SEALED && h->verified) {
                *out = s->id;
                return h;
            }
    return NULL;
}

Test(bad_copy, a_copy_that_was_looked_at_while_its_save_came_is_promised_after_all)
{
    const struct hth_keep *keep = &hth_node_ctx(world_node(&w, 0))->keep;
    struct hth_save_id save;
    struct hth_held *h;

    attach(1);
    for (uint32_t r = 0; r < w.ranks; r++)
        rank_due(&w.rank[r], 0);
    while (!(h = undecided(&save)) && !w.why[0])
        world_advance(&w, w.now_ms + 1);
    w.machine[1].slow_ms = 1000;
    bad_of(save, h->object.id, 0);
    w.machine[1].slow_ms = 0;
    for (uint64_t until = w.now_ms + SOON; w.now_ms < until && !hth_keep_has(keep, save);)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, hth_keep_has(keep, save), 1));
}

Test(bad_copy, a_node_that_gave_a_wrong_chunk_to_another_brings_its_copy_back)
{
    struct hth_held *h = shard(1, 0); /* gives the chunk, as its owner gives the table */
    const struct hth_slot *was = h->slot;
    struct hth_object o = h->object;

    cr_assert(eq(ptr, object_at(FAR, 0, HTH_OBJECT_SHARD), NULL));
    attach(FAR);
    tip(h);
    range(&o);
    wait_for(HTH_LOCAL_BYTES); /* the owner's */
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(int, is_back(1, 0, was), 1));
}

Test(bad_copy, a_common_object_is_back_when_its_rank_hears_of_it)
{
    unsigned char want[WORLD_COMMON_MAX];
    uint64_t len = world_common(want, rank_tag(w.lineage, w.newest.id.attempt), w.newest.id.step);

    for (uint32_t at = 0; at < w.opts.nodes; at++) { /* that of the rank that gave it too */
        struct hth_store *store = w.machine[at].store;
        const struct hth_held *h = object_at(at, 0, HTH_OBJECT_RAW);
        struct hth_raw *raw = NULL;

        cr_assert(ne(ptr, (void *)(uintptr_t)h, NULL));
        attach(at);
        must(store->ops->raw_open(store, w.newest.id, WORLD_COMMON, &raw, NULL));
        ((unsigned char *)(uintptr_t)raw->base)[0] ^= 1;
        store->ops->raw_close(store, raw);
        cr_assert(eq(int, raw_is(store, w.newest.id, WORLD_COMMON, want, len), 0));
        bad(h->object.id, HTH_BAD_TABLE);
        wait_for(HTH_LOCAL_OK);
        cr_assert(eq(int, raw_is(store, w.newest.id, WORLD_COMMON, want, len), 1), "node %u", at);
        hth_node_client_gone(world_node(&w, at), OURS);
    }
}

Test(bad_copy, what_is_not_here_is_answered_at_once)
{
    attach(FAR);
    bad(shard(0, 0)->object.id, 0);
    wait_for(HTH_LOCAL_OK);
    bad(UINT64_C(0x123456789), 7);
    wait_for(HTH_LOCAL_OK);
}

Test(bad_copy, who_goes_while_its_copy_is_looked_at_is_answered_nothing)
{
    struct hth_held *h = shard(1, 1);

    attach(1);
    w.machine[1].slow_ms = 1000;
    bad(h->object.id, 0);
    bad(h->object.id, 0);
    hth_node_client_gone(world_node(&w, 1), OURS);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(zero(u32, heard.head.type));
    cr_assert(eq(int, h->verified, 1));
}

/* The engine's own end frees what waits. */
Test(bad_copy, an_engine_ends_while_a_copy_is_looked_at)
{
    attach(1);
    w.machine[1].slow_ms = 60000;
    bad(shard(1, 1)->object.id, 0);
    bad(shard(1, 1)->object.id, 0);
}
