/* SPDX-License-Identifier: Apache-2.0 */
/* Objects from node to node, with everything that can go wrong on the way. */
#include "store_mem.h"
#include "transfers.h"

#include "replication/commit/release.h"
#include "replication/transfer/tally.h"

TestSuite(transfer, .init = begin, .fini = end);

/* ---- Offers
 * ------------------------------------------------------------------------------------- */

static void offer(struct hth_held *held)
{
    must(hth_transfer_offer(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save), held, 0,
            on_offered, NULL, NULL));
}

Test(transfer, an_offer_ends_as_a_sealed_verified_copy_and_a_receipt)
{
    offer(pair_seal(p, 1, save, 5, 9 * MIB + 5, 1));
    cr_assert(pair_until(p, &offered.ended, 1, 2000));
    must(offered.code);
    cr_assert(eq(u32, p->node[0].sealed, 1));
    arrived_whole(0);
    cr_assert(eq(u64, hth_transfer_due_ms(&p->node[1].ctx), HTH_NEVER), "nothing is repeated");
}

/* The node that has no slot decides what to do; the node that offers goes on offering. */
Test(transfer, an_offer_for_which_there_is_no_slot_is_told_here_and_there_until_there_is_one)
{
    hth_store_mem_room(p->node[0].store, MIB);
    offer(pair_seal(p, 1, save, 5, 9 * MIB, 1));
    cr_assert(pair_until(p, &p->node[0].no_rooms, 3, 2000));
    cr_assert(eq(int, p->node[0].no_room_code, HEARTH_ENOSPC));
    cr_assert(ge(u32, offered.ended, 2));
    cr_assert(eq(int, offered.code, HEARTH_ENOSPC));
    hth_store_mem_room(p->node[0].store, 100 * MIB);
    cr_assert(pair_until(p, &p->node[0].sealed, 1, 2000));
    pair_run(p, 1000);
    must(offered.code);
    arrived_whole(0);
}

#ifdef HEARTH_POINTS
Test(transfer, passes_offer_pull_and_verify)
{
    static const char *const points[] = { "chunk", "seal", "offer", "verify", "pull", "arrived" };

    offer(pair_seal(p, 1, save, 5, MIB, 1));
    cr_assert(pair_until(p, &offered.ended, 1, 2000));
    cr_assert(eq(u32, p->point_count, 6));
    for (int i = 0; i < 6; i++)
        must_say(p->points[i], points[i]);
}
#endif

Test(transfer, an_object_without_bytes_is_an_object)
{
    offer(pair_seal(p, 1, save, 5, 0, 1));
    cr_assert(pair_until(p, &offered.ended, 1, 2000));
    arrived_whole(0);
}

Test(transfer, an_offer_survives_lost_doubled_and_late_messages)
{
    for (int doubled = 0; doubled < 2; doubled++) {
        for (uint16_t type = HTH_MSG_OFFER; type <= HTH_MSG_NAK; type++) {
            struct hth_held *held = pair_seal(p, 1, save, type, MIB, type);

            offered.ended = 0;
            net.message = doubled ? HTH_LOOP_DUPLICATE : HTH_LOOP_DROP;
            net.type = type;
            net.messages = 0;
            net.until = 3;
            net.delay_ms = doubled ? 30 : 0;
            offer(held);
            cr_assert(pair_until(p, &offered.ended, 1, 10000), "type %d", type);
            must(offered.code);
            cr_assert(eq(int, pair_equal(p, 0, 1, save, type), 1));
            pair_run(p, 1000);
        }
        cr_assert(eq(u32, offered.ended, 1));
        hth_save_release(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save));
        hth_save_release(&p->node[0].ctx, hth_holdings_find(&p->node[0].ctx, save));
    }
}

Test(transfer, a_receiver_that_cannot_now_is_offered_again_and_one_that_never_will_is_not)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, MIB, 1);

    p->node[0].wanted = HEARTH_EBUSY;
    offer(held);
    pair_run(p, 1000);
    cr_assert(eq(u32, offered.ended, 0));
    p->node[0].wanted = 0;
    cr_assert(pair_until(p, &offered.ended, 1, 1000));
    must(offered.code);
    arrived_whole(0);

    p->node[3].wanted = HEARTH_EDENIED;
    must(hth_transfer_offer(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save), held, 3,
            on_offered, NULL, NULL));
    cr_assert(pair_until(p, &offered.ended, 2, 1000));
    must_fail(offered.code, HEARTH_EDENIED);
    cr_assert(eq(u64, hth_transfer_due_ms(&p->node[1].ctx), HTH_NEVER));
    no_leases();
}

Test(transfer, a_receiver_without_room_takes_it_once_there_is)
{
    struct hth_store *store = p->node[0].store;
    uint64_t bytes = 2 * MIB;
    struct hth_slot *slot;

    must(store->ops->reserve(store, &bytes, 1, NULL));
    must(store->ops->take(store, bytes, &slot, NULL));
    offer(pair_seal(p, 1, save, 5, MIB, 1));
    pair_run(p, 2000);
    cr_assert(eq(int, offered.code, HEARTH_ENOSPC));
    cr_assert(eq(int, p->node[0].no_room_code, HEARTH_EBUSY), "another has it");
    cr_assert(zero(ptr, (void *)hth_holdings_first(&p->node[0].ctx)), "an empty save is left");
    store->ops->give(store, slot);
    cr_assert(pair_until(p, &p->node[0].sealed, 1, 2000));
    pair_run(p, 1000);
    must(offered.code);
    arrived_whole(0);
}

/* The last object that this rank saved was smaller, and the store has not been given sizes. */
Test(transfer, free_slots_of_other_sizes_make_way_for_a_copy)
{
    struct hth_store *store = p->node[0].store;
    struct hth_slot *slot[2];

    for (int i = 0; i < 2; i++)
        must(store->ops->take(store, MIB, &slot[i], NULL));
    for (int i = 0; i < 2; i++)
        store->ops->give(store, slot[i]);
    hth_store_mem_room(store, 7 * MIB);
    offer(pair_seal(p, 1, save, 5, 5 * MIB, 1));
    cr_assert(pair_until(p, &offered.ended, 1, 2000));
    must(offered.code);
    arrived_whole(0);
}

Test(transfer, another_object_under_the_same_id_is_refused_by_name)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, MIB, 1);

    pair_seal(p, 0, save, 5, MIB, 2);
    offer(held);
    cr_assert(pair_until(p, &offered.ended, 1, 2000));
    must_fail(offered.code, HEARTH_EEXIST);
    cr_assert(eq(int, pair_equal(p, 0, 1, save, 5), 0), "the one that is here stays");
}

/* Of two that offer at once the first one's bytes come. */
Test(transfer, another_object_under_the_id_of_one_that_is_being_fetched_is_refused_by_name)
{
    struct hth_held *other = pair_seal(p, 2, save, 5, 5 * MIB, 2);

    offer(pair_seal(p, 1, save, 5, 5 * MIB, 1));
    while (!pair_held(p, 0, save, 5) && pair_step(p))
        continue;
    must(hth_transfer_offer(&p->node[2].ctx, hth_holdings_find(&p->node[2].ctx, save), other, 0,
            on_offered, NULL, NULL));
    cr_assert(pair_until(p, &offered.ended, 1, 2000));
    must_fail(offered.code, HEARTH_EEXIST);
    cr_assert(pair_until(p, &offered.ended, 2, 2000));
    must(offered.code);
    arrived_whole(0);
}

Test(transfer, a_copy_from_before_a_restart_is_verified_before_it_counts)
{
    struct hth_held *held = two(5 * MIB);

    pair_node_close(p, 2);
    pair_node_open(p, 2);
    cr_assert(eq(int, pair_held(p, 2, save, 5)->verified, 0));
    must(hth_transfer_offer(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save), held, 2,
            on_offered, NULL, NULL));
    cr_assert(pair_until(p, &offered.ended, 1, 2000));
    must(offered.code);
    cr_assert(eq(u32, net.pulls[1], 0), "nothing was pulled for it");
    arrived_whole(2);

    pair_node_close(p, 2);
    pair_node_open(p, 2);
    pair_held(p, 2, save, 5)->slot->base[HTH_BLOCK + 77] ^= 1;
    must(hth_transfer_offer(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save), held, 2,
            on_offered, NULL, NULL));
    cr_assert(pair_until(p, &offered.ended, 2, 5000));
    must(offered.code);
    arrived_whole(2);
    cr_assert(gt(u32, net.pulls[1], 0));
}

Test(transfer, a_save_freed_under_way_ends_both_sides_and_its_slots_come_back)
{
    struct hth_ctx *c = &p->node[0].ctx;
    struct hth_slot *slot, *again;

    net.delay_ms = 50;
    offer(pair_seal(p, 1, save, 5, 40 * MIB, 1));
    while (net.pulls[1] < 3)
        cr_assert(pair_step(p));
    slot = pair_held(p, 0, save, 5)->slot;
    hth_save_release(c, hth_holdings_find(c, save));
    must(c->store->ops->take(c->store, 40 * MIB, &again, NULL));
    cr_assert(ne(ptr, again, slot), "pulls still write that slot");
    c->store->ops->give(c->store, again);
    hth_save_release(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save));
    p->node[0].wanted = HEARTH_EDENIED;
    pair_run(p, 1000);
    cr_assert(eq(u32, slot->leases, 0));
    cr_assert(eq(u32, offered.ended, 0));
    cr_assert(zero(ptr, (void *)hth_holdings_first(c)));
}

Test(transfer, a_save_that_was_freed_is_offered_to_nobody_any_more)
{
    struct hth_ctx *c = &p->node[1].ctx;

    p->node[0].wanted = HEARTH_EBUSY;
    offer(pair_seal(p, 1, save, 5, MIB, 1));
    pair_run(p, 500);
    cr_assert(ne(u64, hth_transfer_due_ms(c), HTH_NEVER));
    hth_save_release(c, hth_holdings_find(c, save));
    cr_assert(eq(u64, hth_transfer_due_ms(c), HTH_NEVER));
    cr_assert(zero(u32, offered.ended));
}

/* ---- Fetches
 * -------------------------------------------------------------------------------------- */

Test(transfer, two_holders_serve_about_half_each)
{
    struct hth_held *held = two(256 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 2);
    uint64_t a, b;

    must(fetch(&want));
    arrived_whole(0);
    served(&a, &b);
    cr_assert(ge(u64, a * 10, (a + b) * 4), "%u MiB of %u", (unsigned)(a / MIB),
            (unsigned)((a + b) / MIB));
    cr_assert(le(u64, a * 10, (a + b) * 6), "%u MiB of %u", (unsigned)(a / MIB),
            (unsigned)((a + b) / MIB));
    cr_assert(lt(u64, a + b, 257 * HTH_CHUNK), "some chunk came twice");
}

Test(transfer, never_pulls_more_at_once_than_the_budget)
{
    struct hth_held *held = two(32 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 2);

    p->node[0].ctx.opts.inflight_bytes = 3 * HTH_CHUNK;
    net.delay_ms = 10;
    must(fetch(&want));
    arrived_whole(0);
    cr_assert(ge(u32, net.count, 34));
    for (uint32_t i = 3; i < net.count; i++) /* each takes more than 10 ms */
        cr_assert(ge(u64, net.when[i], net.when[i - 3] + 10), "pull %u", i);
}

Test(transfer, a_chunk_that_was_wrong_waits_for_another_source)
{
    struct hth_held *held = two(8 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 2);

    held->slot->base[HTH_BLOCK + 2 * HTH_CHUNK + 5] ^= 1; /* at node 1 */
    net.fault = HTH_LOOP_STALL;
    net.from = 2; /* which has its first pulls to do again, later */
    net.last = 4;
    must(fetch(&want));
    cr_assert(eq(int, pair_equal(p, 0, 2, save, 5), 1));
    cr_assert(eq(int, pair_logged(p, 0, "bad-chunk"), 1));
    cr_assert(eq(int, pair_logged(p, 0, "bad-peer"), 0),
            "the chunk was pulled again from the node that gave it wrongly");
}

Test(transfer, what_is_dropped_under_a_pull_is_not_given_out_while_it_is_granted)
{
    struct hth_held *held = two(20 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 1);
    struct hth_ctx *holder = &p->node[1].ctx;
    struct hth_slot *slot = held->slot, *again;
    struct hth_fetch *f;

    net.delay_ms = 5;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    while (net.pulls[1] < 8)
        cr_assert(pair_step(p));
    hth_held_drop(holder, hth_holdings_find(holder, save), held);
    must(holder->store->ops->take(holder->store, MIB, &again, NULL));
    cr_assert(ne(ptr, again, slot));
    holder->store->ops->give(holder->store, again);
    cr_assert(pair_until(p, &out.ended, 1, 10000));
    must(out.code); /* a grant is good until it is released */
    pair_run(p, 200);
    cr_assert(eq(u32, slot->leases, 0));
}

Test(transfer, every_chunk_that_one_source_gives_wrongly_comes_from_the_other)
{
    struct hth_held *held = two(40 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 2);

    net.fault = HTH_LOOP_FLIP;
    net.from = 1;
    net.last = 1000;
    must(fetch(&want));
    arrived_whole(0);
    cr_assert(ge(int, pair_logged(p, 0, "bad-chunk"), 2));
    cr_assert(eq(int, pair_logged(p, 0, "bad-peer"), 1));
    cr_assert(le(u32, net.pulls[1], 10), "the node with wrong bytes is asked without end");
}

static void a_wrong_chunk_comes(void)
{
    struct hth_held *held = two(3 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 1);

    net.fault = HTH_LOOP_FLIP;
    net.from = 1;
    net.first = 2; /* the table is the first pull */
    net.last = 3;
    must(fetch(&want));
    arrived_whole(0);
    must_say(p->node[0].last, "step 40 (epoch 7, attempt 1) object 'object-5' from node 1: "
                              "chunk 1 has a wrong checksum");
}

Test(transfer, a_wrong_chunk_is_named_and_pulled_again_even_from_the_same_source)
{
    a_wrong_chunk_comes();
}

/* The engine compares the checksum that the transport gives for the bytes with the table, and no
 * worker reads them again. */
Test(transfer, a_wrong_chunk_is_found_by_the_checksum_that_comes_with_it)
{
    hth_loop_net_sums(p->net);
    a_wrong_chunk_comes();
}

/* A bit changes in the owner's memory after its object was sealed, in each chunk of one in turn. */
static void changed_before_the_pull(uint32_t strong)
{
    enum { CHUNKS = 5 };
    uint64_t len = (CHUNKS - 1) * HTH_CHUNK + MIB + 5;
    char says[128];

    for (uint32_t i = 0; i < p->nodes; i++)
        p->node[i].ctx.opts.strong = strong;
    for (uint32_t c = 0; c < CHUNKS; c++) {
        struct hth_held *held = pair_seal(p, 1, save, 10 + c, len, c);
        uint64_t at = c * HTH_CHUNK + hth_chunk_len(len, c) * c / (CHUNKS - 1);

        held->slot->base[HTH_BLOCK + (at < len ? at : len - 1)] ^= 1u << c;
        offered.ended = 0;
        p->node[0].logged[0] = '\0';
        offer(held);
        while (!pair_logged(p, 0, "bad-chunk"))
            cr_assert(pair_step(p));
        snprintf(says, sizeof(says),
                "step 40 (epoch 7, attempt 1) object 'object-%u' from node 1: chunk %u has a wrong "
                "checksum",
                10 + c, c);
        must_say(p->node[0].last, says);
        pair_run(p, 3000);
        cr_assert(eq(u32, offered.ended, 0), "it is offered until its save fails");
        cr_assert(eq(u32, p->node[0].sealed, c), "wrong bytes are never sealed");
        hth_held_drop(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save), held);
        offered.ended = 0;
        offer(pair_seal(p, 1, save, 20 + c, len, c)); /* others go on */
        cr_assert(pair_until(p, &offered.ended, 1, 2000));
        must(offered.code);
        cr_assert(eq(int, pair_equal(p, 0, 1, save, 20 + c), 1));
    }
}

Test(transfer, a_bit_that_changes_before_the_pull_is_found_in_each_chunk)
{
    changed_before_the_pull(0);
}

Test(transfer, a_bit_that_changes_before_the_pull_is_found_in_each_chunk_where_integrity_is_strong)
{
    changed_before_the_pull(1);
}

Test(transfer, with_wrong_bytes_from_everybody_it_is_lost_and_says_who_was_last)
{
    struct hth_held *held = two(3 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 1);

    net.fault = HTH_LOOP_FLIP;
    net.from = 1;
    net.last = 1000;
    must_fail(fetch(&want), HEARTH_ELOST);
    must_say(out.err.text, "step 40 (epoch 7, attempt 1) object 'object-5': all 1 sources failed: "
                           "node 1: its table is not the one wanted");
    cr_assert(zero(int, out.unreached));
    cr_assert(zero(ptr, (void *)hth_holdings_first(&p->node[0].ctx)));
    no_leases();
}

Test(transfer, without_verification_a_wrong_byte_gets_through)
{
    struct hth_held *held = two(3 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 1);

    p->node[0].ctx.opts.breaks = HTH_BREAK_VERIFY;
    net.fault = HTH_LOOP_FLIP;
    net.from = 1;
    net.first = 2;
    net.last = 3;
    must(fetch(&want));
    cr_assert(eq(int, pair_equal(p, 0, 1, save, 5), 0));
}

static struct hth_fetch_want forged_want(uint32_t strong, uint32_t sources)
{
    struct hth_held *held;

    for (uint32_t i = 0; i < p->nodes; i++)
        p->node[i].ctx.opts.strong = strong;
    held = two(3 * HTH_CHUNK);
    cr_assert(eq(u32, held->object.strong, strong));
    net.fault = HTH_LOOP_FORGE;
    net.from = 1;
    net.first = 2;
    net.last = 3;
    return want_of(held, sources);
}

Test(transfer, bytes_forged_on_their_way_get_under_a_crc)
{
    struct hth_fetch_want want = forged_want(0, 1);

    must(fetch(&want));
    cr_assert(eq(int, pair_equal(p, 0, 1, save, 5), 0));
    cr_assert(eq(int, pair_held(p, 0, save, 5)->verified, 1), "nothing tells");
}

Test(transfer, bytes_forged_on_their_way_are_found_where_integrity_is_strong)
{
    struct hth_fetch_want want = forged_want(1, 1);

    must(fetch(&want));
    arrived_whole(0);
    must_say(p->node[0].last, "step 40 (epoch 7, attempt 1) object 'object-5' from node 1: "
                              "chunk 1 has a wrong checksum");
}

Test(transfer, an_object_that_is_not_as_strong_as_it_is_said_to_be_is_not_taken)
{
    struct hth_held *held = two(HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 2);

    want.object.strong = 1;
    must_fail(fetch(&want), HEARTH_ELOST);
    cr_assert(strstr(out.err.text, "it holds another object") != NULL, "%s", out.err.text);
}

static void survives(enum hth_loop_fault fault, uint32_t sources)
{
    struct hth_held *held = two(20 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, sources);

    net.fault = fault;
    net.from = 1;
    net.first = 5;
    net.last = 7;
    must(fetch(&want));
    arrived_whole(0);
}

Test(transfer, goes_on_when_a_connection_breaks)
{
    survives(HTH_LOOP_DROP, 1);
}

Test(transfer, goes_on_when_a_pull_is_cut)
{
    survives(HTH_LOOP_CUT, 1);
}

Test(transfer, goes_on_with_the_only_source_after_a_stall)
{
    survives(HTH_LOOP_STALL, 1);
}

Test(transfer, a_stall_leaves_the_rest_to_the_other_source)
{
    uint64_t a, b;

    survives(HTH_LOOP_STALL, 2);
    served(&a, &b);
    cr_assert(gt(u64, b, a));
}

Test(transfer, a_holder_that_dies_under_way_is_replaced)
{
    struct hth_held *held = two(40 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 2);
    struct hth_fetch *f;

    net.delay_ms = 5;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    while (net.pulls[1] < 8)
        cr_assert(pair_step(p));
    pair_node_close(p, 1);
    cr_assert(pair_until(p, &out.ended, 1, 30000));
    must(out.code);
    cr_assert(eq(int, pair_equal(p, 0, 2, save, 5), 1));
}

Test(transfer, when_the_only_holder_dies_it_is_lost_long_before_the_deadline)
{
    struct hth_held *held = two(40 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 1);
    struct hth_fetch *f;

    net.delay_ms = 5;
    want.deadline_ms = 60000;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    while (net.pulls[1] < 8)
        cr_assert(pair_step(p));
    pair_node_close(p, 1);
    cr_assert(pair_until(p, &out.ended, 1, 10000));
    must_fail(out.code, HEARTH_ELOST);
    cr_assert(strstr(out.err.text, "node 1: the node is gone") != NULL, "%s", out.err.text);
    cr_assert(eq(int, out.unreached, 1), "the lost node may still have the object");
}

Test(transfer, a_silent_holder_ends_in_its_deadline_by_name_and_leaves_nothing)
{
    struct hth_held *held = two(40 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 1);
    struct hth_fetch *f;
    struct hth_slot *slot;

    net.delay_ms = 5;
    want.deadline_ms = 500;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    while (net.pulls[1] < 8)
        cr_assert(pair_step(p));
    slot = hth_fetch_slot(f);
    hth_loop_net_silence(p->net, 1, 1);
    pair_run(p, 600);
    cr_assert(eq(u32, out.ended, 0), "pulls may still write the slot");
    cr_assert(gt(u32, slot->leases, 0));
    cr_assert(pair_until(p, &out.ended, 1, 5000));
    must_fail(out.code, HEARTH_ETIMEOUT);
    cr_assert(strstr(out.err.text, "waiting for node 1") != NULL, "%s", out.err.text);
    cr_assert(eq(u32, slot->leases, 0));
    hth_loop_net_silence(p->net, 1, 0);
}

Test(transfer, a_node_that_does_not_have_it_is_not_waited_for)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, 3 * MIB, 1);
    struct hth_fetch_want want = want_of(held, 2);

    must(fetch(&want)); /* node 2 has nothing */
    arrived_whole(0);
    out.ended = 0;
    want.sources = &both[1];
    want.count = 1;
    hth_held_drop(
            &p->node[0].ctx, hth_holdings_find(&p->node[0].ctx, save), pair_held(p, 0, save, 5));
    must_fail(fetch(&want), HEARTH_ELOST);
    cr_assert(strstr(out.err.text, "node 2: not here") != NULL, "%s", out.err.text);
    cr_assert(zero(int, out.unreached));
}

Test(transfer, cancel_ends_it_once_and_gives_the_slot_back)
{
    struct hth_held *held = two(40 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 2);
    struct hth_fetch *f;

    net.delay_ms = 5;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    must_fail(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL), HEARTH_EEXIST);
    while (net.pulls[1] < 8)
        cr_assert(pair_step(p));
    hth_fetch_cancel(f);
    hth_fetch_cancel(f);
    cr_assert(pair_until(p, &out.ended, 1, 5000));
    must_fail(out.code, HEARTH_ECANCELED);
    pair_run(p, 1000);
    cr_assert(eq(u32, out.ended, 1));
    no_leases();
    out.ended = 0;
    must(fetch(&want));
    arrived_whole(0);
}

Test(transfer, joining_stops_everything_of_the_old_epoch)
{
    struct hth_held *held = two(40 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 2);
    struct hth_fetch *f;

    net.delay_ms = 5;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    while (net.pulls[1] < 8)
        cr_assert(pair_step(p));
    hth_session_join(p->node[0].ctx.session, &p->node[0].epoch);
    hth_transfer_join(&p->node[0].ctx);
    cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 5)));
    out.ended = 0;
    cr_assert(pair_until(p, &out.ended, 1, 5000));
    must_fail(out.code, HEARTH_ECANCELED);
}

/* ---- Messages
 * -------------------------------------------------------------------------------------------- */

Test(transfer, nonsense_of_any_type_and_length_is_ignored)
{
    unsigned char body[400];
    uint64_t seed = 3;

    two(MIB);
    for (int round = 0; round < 20000; round++) {
        size_t len = hth_splitmix64(&seed) % sizeof(body);
        uint16_t type = (uint16_t)(HTH_MSG_OFFER + hth_splitmix64(&seed) % 7);

        for (size_t i = 0; i < len; i++)
            body[i] = (unsigned char)(hth_splitmix64(&seed) % 3);
        cr_assert(eq(int, hth_transfer_message(&p->node[1].ctx, 0, type, body, len), 1));
    }
    cr_assert(eq(int, hth_transfer_message(&p->node[1].ctx, 0, HTH_MSG_BLOB, body, 10), 0));
    pair_run(p, 3000);
    cr_assert(eq(int, pair_equal(p, 2, 1, save, 5), 1));
}

Test(transfer, two_runs_of_one_script_are_the_same_in_every_pull)
{
    uint32_t pulls[2][2];
    uint64_t ended[2];

    for (int run = 0; run < 2; run++) {
        struct hth_held *held = two(40 * HTH_CHUNK);
        struct hth_fetch_want want = want_of(held, 2);

        memset(&net, 0, sizeof(net));
        net.fault = HTH_LOOP_STALL;
        net.from = 2;
        net.first = 3;
        net.last = 5;
        out.ended = 0;
        must(fetch(&want));
        pulls[run][0] = net.pulls[1];
        pulls[run][1] = net.pulls[2];
        ended[run] = p->now_ms;
        pair_close(p);
        begin();
    }
    cr_assert(eq(u32, pulls[0][0], pulls[1][0]));
    cr_assert(eq(u32, pulls[0][1], pulls[1][1]));
    cr_assert(eq(u64, ended[0], ended[1]));
}

/* Of all pulls from node 1 to node 0. */
static uint64_t time_pulled(void)
{
    uint32_t count;
    const struct hth_tally_node *row = hth_transfer_peers(&p->node[0].ctx, &count);

    cr_assert(eq(u32, count, 1));
    cr_assert(eq(u32, row->node, 1));
    return hth_tally_pull_ms(row, p->now_ms);
}

Test(transfer, the_time_of_pulls_counts_once_while_several_are_under_way)
{
    struct hth_held *held = two(8 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 1);
    uint64_t began = p->now_ms, one_by_one, ended;

    net.pull_ms = 50;
    p->node[0].ctx.opts.inflight_bytes = HTH_CHUNK;
    must(fetch(&want));
    arrived_whole(0);
    one_by_one = time_pulled();
    ended = p->now_ms;
    cr_expect(ge(u64, one_by_one, 8 * 50));
    cr_expect(le(u64, one_by_one, ended - began));
    pair_run(p, 1000);
    cr_expect(eq(u64, time_pulled(), one_by_one), "no pull is under way");
    pair_close(p);
    begin();
    held = two(8 * HTH_CHUNK);
    want = want_of(held, 1);
    net.pull_ms = 50;
    out.ended = 0;
    must(fetch(&want));
    arrived_whole(0);
    cr_expect(ge(u64, time_pulled(), 50));
    cr_expect(lt(u64, time_pulled(), one_by_one / 2));
}

Test(transfer, pulls_under_way_count_and_those_of_the_epoch_before_do_not)
{
    struct hth_tally t = { 0 };

    hth_tally_reset(&t, 1000);
    hth_tally_begin(&t, 3, 1000);
    cr_expect(eq(u64, hth_tally_pull_ms(&t.node[0], 1040), 40));
    hth_tally_reset(&t, 2000);
    hth_tally_end(&t, 3, 2010);
    cr_expect(zero(u64, hth_tally_pull_ms(&t.node[0], 2020)));
    hth_tally_fini(&t);
}
