/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks that a node pulls while a rank of another node still writes the object. */
#include "core/format/record.h"

#include "replication/transfer/transfer_parts.h"
#include "store_mem.h"
#include "transport/session/session_parts.h"

#include "transfers.h" /* last: it has variables of short names */

TestSuite(early, .init = begin, .fini = end);

#define BYTES (5 * HTH_CHUNK + 77)

static struct hth_held *held;
static struct hth_slot *copy; /* for it, on node 0 */
static uint64_t items_len;

static void on_sealed(void *self, struct hth_held_save *s, struct hth_held *h, int code,
        const struct hearth_error *err)
{
    (void)s, (void)h, (void)err;
    must(code);
    ++*(uint32_t *)self;
}

/* Node 0 has a free slot for the copy, and node 1 a rank that has written all and said nothing. */
static void written(void)
{
    struct hth_store *store = p->node[0].store;

    must(store->ops->take(store, BYTES + MIB, &copy, NULL));
    store->ops->give(store, copy);
    hth_session_send(p->node[1].ctx.session, 0, HTH_MSG_TO, "", 0); /* makes a connection */
    pair_run(p, 500);
    held = pair_write(p, 1, save, 5, BYTES, 1, &items_len);
    held->object.owner = 0;
}

static void writing_of(const struct hth_save_id *of, const struct hth_held *h, uint32_t chunks)
{
    struct hth_object object = h->object;

    object.data_len = BYTES + MIB;
    hth_transfer_writing(&p->node[1].ctx, *of, &object, h->slot, chunks, 0);
}

static void writing(uint32_t chunks)
{
    writing_of(&save, held, chunks);
}

static void sealed_and_offered(void)
{
    struct hth_ctx *c = &p->node[1].ctx;
    uint32_t sealed = 0;

    must(hth_seal_start(c, hth_holdings_find(c, save), held,
            &(struct hth_seal_part){ .items = 1, .items_len = items_len }, on_sealed, &sealed,
            NULL));
    cr_assert(pair_until(p, &sealed, 1, 1000));
    must(hth_transfer_offer(c, hth_holdings_find(c, save), held, 0, on_offered, NULL, NULL));
    cr_assert(pair_until(p, &offered.ended, 1, 5000));
    must(offered.code);
}

static uint64_t pulled(void)
{
    uint64_t total;

    hth_transfer_pulled(&p->node[0].ctx, &total, NULL);
    return total;
}

static uint64_t free_bytes(void)
{
    struct hth_store *store = p->node[0].store;

    return (uint64_t)store->ops->ready(store, BYTES + MIB);
}

Test(early, chunks_that_are_complete_are_pulled_while_others_are_written_and_once_only)
{
    written();
    writing(2);
    pair_run(p, 300);
    cr_assert(eq(u64, pulled(), 2 * HTH_CHUNK));
    cr_assert(zero(ptr, (void *)hth_holdings_find(&p->node[0].ctx, save)), "it counts already");
    writing(4);
    pair_run(p, 300);
    cr_assert(eq(u64, pulled(), 4 * HTH_CHUNK));
    sealed_and_offered();
    arrived_whole(0);
    cr_assert(lt(u64, pulled(), hth_object_file_bytes(&held->object) + 1));
}

Test(early, an_offer_that_comes_while_chunks_are_pulled_waits_for_them)
{
    net.pull_ms = 80;
    written();
    writing(5);
    pair_run(p, 20);
    sealed_and_offered();
    arrived_whole(0);
    cr_assert(lt(u64, pulled(), hth_object_file_bytes(&held->object) + 1));
}

Test(early, the_time_of_its_pulls_counts)
{
    const struct hth_tally_node *row;
    uint32_t count;

    net.pull_ms = 80;
    written();
    writing(3);
    pair_run(p, 1000);
    row = hth_transfer_peers(&p->node[0].ctx, &count);
    cr_assert(eq(u32, count, 1));
    cr_expect(ge(u64, hth_tally_pull_ms(row, p->now_ms), 80));
    cr_expect(le(u64, hth_tally_pull_ms(row, p->now_ms), 3 * 100));
}

/* As a rank would that fills places which were offered too early. */
Test(early, a_chunk_that_is_written_again_after_it_was_pulled_is_pulled_again)
{
    written();
    writing(3);
    pair_run(p, 300);
    held->slot->base[HTH_BLOCK + HTH_CHUNK + 9] ^= 1;
    sealed_and_offered();
    arrived_whole(0);
    cr_assert(gt(u64, pulled(), hth_object_file_bytes(&held->object)));
    cr_assert(zero(int, pair_logged(p, 0, "bad-chunk")));
}

/* Until its rank has written the others. */
Test(early, a_bit_that_changes_in_a_chunk_that_waits_is_found)
{
    written();
    writing(3);
    pair_run(p, 300);
    cr_assert(eq(u64, pulled(), 3 * HTH_CHUNK));
    copy->base[HTH_BLOCK + HTH_CHUNK + 9] ^= 1;
    sealed_and_offered();
    arrived_whole(0);
    cr_assert(gt(u64, pulled(), hth_object_file_bytes(&held->object)));
}

Test(early, what_a_rank_gives_up_is_freed_by_its_peers)
{
    written();
    cr_assert(eq(u64, free_bytes(), 1));
    writing(3);
    pair_run(p, 300);
    cr_assert(zero(u64, free_bytes()));
    hth_transfer_not_written(&p->node[1].ctx, save, 5);
    pair_run(p, 300);
    cr_assert(eq(u64, free_bytes(), 1));
    cr_assert(zero(u32, held->slot->leases));
}

Test(early, what_is_freed_silent_or_of_a_lost_node_is_freed)
{
    for (int how = 0; how < 3; how++) {
        if (!how)
            written();
        writing(3 + (uint32_t)how);
        pair_run(p, 300);
        cr_assert(zero(u64, free_bytes()), "%d", how);
        if (how == 0)
            hth_transfer_forget(&p->node[0].ctx, save);
        else if (how == 1)
            p->node[0].wanted = HEARTH_EDENIED;
        else
            pair_node_close(p, 1);
        pair_run(p, 5000);
        cr_assert(eq(u64, free_bytes(), 1), "%d", how);
        p->node[0].wanted = 0;
    }
}

/* Where network cards serve pulls, the slot is not free before the node has answered. */
Test(early, a_slot_that_is_given_up_is_free_soon_though_a_message_is_lost)
{
    static const uint16_t type[] = { HTH_MSG_NAK, HTH_MSG_WRITING };

    hth_loop_net_no_revoke(p->net);
    written();
    for (uint32_t i = 0; i < 2; i++) {
        writing(3 + i);
        pair_run(p, 300);
        cr_assert(eq(u32, held->slot->leases, 1));
        net.message = HTH_LOOP_DROP;
        net.type = type[i];
        net.messages = 0;
        net.until = 1;
        hth_transfer_not_written(&p->node[1].ctx, save, 5);
        pair_run(p, 300);
        cr_assert(eq(u32, held->slot->leases, 1), "no message was lost");
        pair_run(p, 500);
        cr_assert(zero(u32, held->slot->leases));
        cr_assert(eq(u64, free_bytes(), 1));
    }
}

Test(early, a_node_answers_when_its_last_pull_has_ended_and_not_before)
{
    hth_loop_net_no_revoke(p->net);
    net.pull_ms = 900;
    written();
    writing(4);
    pair_run(p, 20);
    cr_assert(eq(int, hth_transfer_make_way(&p->node[0].ctx), 1));
    writing(5);
    while (p->node[0].ctx.transfer->in_flight && pair_step(p))
        cr_assert(eq(u32, held->slot->leases, 1), "other bytes may lie where the node reads");
    pair_run(p, 1000);
    cr_assert(zero(u32, held->slot->leases));
}

/* The node refuses the first message, and pulls for the second before its refusal has come. */
Test(early, a_refusal_that_crosses_the_next_message_frees_no_slot_that_is_read)
{
    hth_loop_net_no_revoke(p->net);
    written();
    net.delay_ms = 20;
    net.pull_ms = 300;
    p->node[0].wanted = HEARTH_EBUSY;
    writing(3);
    pair_run(p, 10);
    writing(4);
    pair_run(p, 12);
    p->node[0].wanted = 0;
    pair_run(p, 60);
    cr_assert(gt(u64, p->node[0].ctx.transfer->in_flight, 0), "nothing is pulled");
    while (p->node[0].ctx.transfer->in_flight && pair_step(p))
        cr_assert(eq(u32, held->slot->leases, 1), "other bytes may lie where the node reads");
    pair_run(p, 1000);
    cr_assert(zero(u32, held->slot->leases));
    cr_assert(eq(u64, free_bytes(), 1));
}

/* What lay in the slot behind the object's bytes was reported and pulled, too. */
Test(early, an_object_that_is_smaller_than_reported_arrives_as_it_is)
{
    struct hth_store *store = p->node[1].store;
    struct hth_slot *slot;

    must(store->ops->take(store, BYTES + 3 * HTH_CHUNK, &slot, NULL));
    store->ops->give(store, slot);
    written();
    cr_assert(eq(ptr, held->slot, slot));
    writing((uint32_t)(BYTES / HTH_CHUNK) + 1);
    pair_run(p, 300);
    cr_assert(gt(u64, pulled(), BYTES - HTH_CHUNK));
    sealed_and_offered();
    arrived_whole(0);
}

Test(early, two_saves_of_a_step_are_two)
{
    struct hth_save_id second = save;
    struct hth_held *other;
    uint64_t len;

    written();
    other = held;
    writing(3);
    pair_run(p, 300);
    cr_assert(zero(u64, free_bytes()));
    second.attempt++;
    held = pair_write(p, 1, second, 5, BYTES, 2, &len);
    held->object.owner = 0;
    writing_of(&second, held, 5);
    pair_run(p, 300);
    cr_assert(eq(u64, pulled(), 3 * HTH_CHUNK), "there is one slot");
    hth_transfer_not_written(&p->node[1].ctx, save, 5);
    pair_run(p, 300);
    cr_assert(zero(u32, other->slot->leases));
    writing_of(&second, held, 5);
    pair_run(p, 300);
    cr_assert(eq(u64, pulled(), 8 * HTH_CHUNK));
    cr_assert(eq(u32, held->slot->leases, 1));
    hth_transfer_not_written(&p->node[1].ctx, second, 5);
    pair_run(p, 300);
    cr_assert(eq(u64, free_bytes(), 1));
}

Test(early, a_fetch_that_counts_takes_the_slot)
{
    struct hth_fetch_want want;
    struct hth_held *other;

    written();
    hth_store_mem_room(p->node[0].store, hth_store_mem_used(p->node[0].store));
    writing(3);
    pair_run(p, 300);
    cr_assert(zero(u64, free_bytes()));
    cr_assert(eq(u32, held->slot->leases, 1));
    other = pair_seal(p, 1, (struct hth_save_id){ 7, 77, 39, 1 }, 6, BYTES, 2);
    want = want_of(other, 1);
    want.save.step = 39;
    must(fetch(&want));
    cr_assert(zero(u32, held->slot->leases), "the writer's node does not know it");
}

Test(early, a_fetch_waits_for_the_slot_while_chunks_are_pulled_into_it)
{
    struct hth_fetch_want want;
    struct hth_fetch *f;
    struct hearth_error err = { 0 };

    net.pull_ms = 80;
    written();
    hth_store_mem_room(p->node[0].store, hth_store_mem_used(p->node[0].store));
    writing(3);
    pair_run(p, 20);
    want = want_of(pair_seal(p, 1, (struct hth_save_id){ 7, 77, 39, 1 }, 6, BYTES, 2), 1);
    want.save.step = 39;
    must_fail(hth_fetch_start(&p->node[0].ctx, &want, &f, &err), HEARTH_EBUSY);
    pair_run(p, 300);
    must(fetch(&want));
}

/* Its tries to find room are counted, and its save is reported as one that has none. */
Test(early, an_offer_that_waits_for_the_slot_has_room)
{
    struct hth_held *other;
    struct hth_held_save *in;
    const struct hth_save_id second = { 7, 77, 39, 1 };

    net.pull_ms = 300;
    written();
    hth_store_mem_room(p->node[0].store, hth_store_mem_used(p->node[0].store));
    other = pair_seal(p, 2, second, 6, BYTES, 2);
    hth_session_send(p->node[2].ctx.session, 0, HTH_MSG_TO, "", 0); /* makes a connection */
    pair_run(p, 100);
    in = hth_holdings_find(&p->node[2].ctx, second);
    writing(3);
    pair_run(p, 20);
    must(hth_transfer_offer(&p->node[2].ctx, in, other, 0, on_offered, NULL, NULL));
    pair_run(p, 50);
    cr_assert(gt(u64, p->node[0].ctx.transfer->in_flight, 0), "the slot is free");
    cr_assert(pair_until(p, &offered.ended, 1, 5000));
    must(offered.code);
    cr_assert(zero(u32, p->node[0].no_rooms));
}

/* As a begin does that finds no slot ready. */
Test(early, slots_are_given_back_once_nothing_is_pulled_into_them)
{
    struct hth_ctx *c = &p->node[0].ctx;

    cr_assert(zero(int, hth_transfer_make_way(c)));
    net.pull_ms = 80;
    written();
    writing(5);
    pair_run(p, 20);
    cr_assert(eq(int, hth_transfer_make_way(c), 1));
    cr_assert(zero(u64, free_bytes()), "pulls may still write there");
    pair_run(p, 300);
    cr_assert(eq(u64, free_bytes(), 1));
    cr_assert(zero(int, hth_transfer_make_way(c)));
    sealed_and_offered();
    arrived_whole(0);
}

Test(early, a_node_that_has_no_slot_for_it_takes_no_other_and_releases_the_writer)
{
    written();
    hth_store_mem_room(p->node[0].store, 0);
    hth_transfer_writing(&p->node[1].ctx, save,
            &(struct hth_object){
                    .kind = HTH_OBJECT_SHARD, .id = 5, .data_len = 2 * BYTES, .name = "large" },
            held->slot, 3, 0);
    pair_run(p, 300);
    cr_assert(zero(u64, pulled()));
    cr_assert(eq(u64, free_bytes(), 1));
    cr_assert(zero(u32, held->slot->leases));
}

Test(early, a_node_with_an_older_engine_is_sent_nothing_before_the_offer)
{
    p->node[0].ctx.session->opts.version_high = HTH_VERSION_WRITING - 1;
    written();
    writing(3);
    pair_run(p, 1000);
    cr_assert(zero(u64, pulled()));
    sealed_and_offered();
    arrived_whole(0);
}
