/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is registered by workers, who waits for it, and what becomes of it. */
#include "core/format/record.h" /* before names of ours that it has too */
#include "transfers.h"

#include "replication/commit/release.h"
#include "replication/held/region.h"
#include "replication/held/slots.h"
#include <string.h>

#define LONG_MS 3000u /* to register; longer than dead_ms */

TestSuite(region, .init = begin, .fini = end);

static struct {
    uint32_t ended;
    int code;
    struct hth_region *region;
    struct hearth_error err;
} heard;

static void on_ready(struct hth_reg_wait *wait, struct hth_region *region, int code,
        const struct hearth_error *err)
{
    (void)wait;
    heard.ended++;
    heard.code = code;
    heard.region = region;
    if (code)
        heard.err = *err;
}

static struct hth_reg_wait wait = { .ready = on_ready };

static void offer_to(struct hth_held *held, uint32_t node)
{
    must(hth_transfer_offer(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save), held, node,
            on_offered, NULL, NULL));
}

static void nobody_was_lost(void)
{
    for (uint32_t i = 0; i < p->nodes; i++)
        cr_assert(eq(u32, p->node[i].peer_downs, 0), "node %u", i);
    cr_assert(eq(u32, p->regs_by_engine, 0));
}

Test(region, a_slot_is_registered_once_and_keeps_it_through_its_saves)
{
    struct hth_ctx *c = &p->node[0].ctx;
    struct hth_held *held = pair_seal(p, 0, save, 5, MIB, 1);
    struct hth_slot *slot = held->slot, *again;
    struct hth_region *a = NULL, *b = NULL;

    must_fail(hth_slot_region(c, slot, &wait, &a, NULL), HEARTH_EBUSY);
    must_fail(hth_slot_region(c, slot, &wait, &a, NULL), HEARTH_EBUSY);
    cr_assert(eq(u32, heard.ended, 0));
    cr_assert(pair_until(p, &heard.ended, 1, 100));
    must(heard.code);
    must(hth_slot_region(c, slot, &wait, &a, NULL));
    cr_assert(eq(ptr, a, heard.region));
    hth_held_drop(c, hth_holdings_find(c, save), held);
    must(c->store->ops->take(c->store, MIB, &again, NULL));
    cr_assert(eq(ptr, again, slot));
    must(hth_slot_region(c, again, NULL, &b, NULL));
    cr_assert(eq(ptr, a, b));
    cr_assert(eq(u32, p->regs, 1));
    c->store->ops->lease(c->store, slot);
    hth_slot_condemn(c, slot, "test");
    cr_assert(zero(ptr, slot->user));
    cr_assert(eq(u32, slot->leases, 1), "its region holds it no more, we do");
    c->store->ops->unlease(c->store, slot);
    nobody_was_lost();
}

Test(region, a_slot_that_is_put_aside_stays_until_its_worker_is_done)
{
    struct hth_ctx *c = &p->node[0].ctx;
    struct hth_held *held = pair_seal(p, 0, save, 5, MIB, 1);
    struct hth_slot *slot = held->slot;
    struct hth_region *none = NULL;

    p->reg_ms = LONG_MS;
    must_fail(hth_slot_region(c, slot, &wait, &none, NULL), HEARTH_EBUSY);
    pair_run(p, 10);
    hth_held_condemn(c, hth_holdings_find(c, save), held, "test");
    cr_assert(eq(u32, slot->leases, 1));
    cr_assert(pair_until(p, &heard.ended, 1, 2 * LONG_MS));
    must_fail(heard.code, HEARTH_ECANCELED);
    cr_assert(zero(ptr, c->regs));
}

Test(region, who_does_not_wait_any_more_hears_nothing)
{
    struct hth_ctx *c = &p->node[0].ctx;
    struct hth_held *held = pair_seal(p, 0, save, 5, MIB, 1);
    struct hth_region *none = NULL;

    must_fail(hth_slot_region(c, held->slot, &wait, &none, NULL), HEARTH_EBUSY);
    hth_reg_leave(&wait);
    hth_reg_leave(&wait);
    pair_run(p, 100);
    cr_assert(eq(u32, heard.ended, 0));
    must(hth_slot_region(c, held->slot, &wait, &none, NULL));
}

/* Both sides register, one after the other, each for longer than a silence may last. */
Test(region, an_offer_and_a_fetch_wait_for_it_and_heartbeats_go_on)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, 9 * MIB, 1);
    uint64_t began = p->now_ms;

    p->reg_ms = LONG_MS;
    offer_to(held, 0);
    pair_run(p, LONG_MS - 100);
    cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 5)),
            "it was offered before it could be pulled");
    cr_assert(pair_until(p, &offered.ended, 1, 4 * LONG_MS));
    must(offered.code);
    cr_assert(ge(u64, p->now_ms - began, 2 * LONG_MS));
    arrived_whole(0);
    cr_assert(eq(u32, p->regs_large, 2));
    nobody_was_lost();
}

/* An object that an engine before this one sealed is registered when a node asks for it. */
Test(region, who_wants_an_adopted_object_hears_that_it_is_not_ready_and_then_gets_it)
{
    struct hth_held *held = two(5 * MIB);
    struct hth_fetch_want want = want_of(held, 1);

    pair_node_close(p, 1);
    pair_node_open(p, 1);
    p->regs_large = 0;
    p->reg_ms = LONG_MS;
    must(fetch(&want));
    arrived_whole(0);
    cr_assert(eq(u32, p->regs_large, 2));
    nobody_was_lost();
}

/* Two objects at one node, and the memory of none is shared with the other. */
Test(region, several_nodes_read_under_grants_of_one_region)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, 9 * MIB, 1);

    offer_to(held, 0);
    offer_to(held, 2);
    offer_to(held, 3);
    cr_assert(pair_until(p, &offered.ended, 3, 5000));
    for (uint32_t i = 0; i < 4; i++)
        cr_assert(i == 1 || pair_equal(p, i, 1, save, 5), "node %u", i);
    cr_assert(eq(u32, p->regs_large, 4));
    no_leases();
}

static void says_what_to_do(const char *text, const char *node)
{
    cr_assert(ne(ptr, (void *)strstr(text, node), NULL), "%s", text);
    cr_assert(ne(ptr, (void *)strstr(text, "bytes (errno 12)"), NULL), "%s", text);
    cr_assert(ne(ptr, (void *)strstr(text, "ulimit -l"), NULL), "%s", text);
}

Test(region, a_holder_that_cannot_register_says_so_and_the_offer_is_over)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, 5 * MIB, 1);

    p->reg_node = 1;
    p->reg_code = HEARTH_ENOMEM;
    offer_to(held, 0);
    cr_assert(pair_until(p, &offered.ended, 1, 1000));
    must_fail(offered.code, HEARTH_EIO);
    says_what_to_do(offered.text, "node 1");
    pair_run(p, 5000);
    cr_assert(eq(u32, offered.ended, 1));
    cr_assert(eq(u32, p->regs_large, 1), "it is tried again by itself");
    cr_assert(zero(ptr, held->slot->user));
    p->reg_code = 0; /* the limit was raised: the next one that wants it succeeds */
    offer_to(held, 0);
    cr_assert(pair_until(p, &offered.ended, 2, 5000));
    must(offered.code);
    arrived_whole(0);
}

Test(region, a_receiver_that_cannot_register_tells_the_holder)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, 5 * MIB, 1);

    p->reg_node = 0;
    p->reg_code = HEARTH_ENOMEM;
    offer_to(held, 0);
    cr_assert(pair_until(p, &offered.ended, 1, 1000));
    must_fail(offered.code, HEARTH_EIO);
    says_what_to_do(offered.text, "node 0");
    cr_assert(zero(ptr, (void *)hth_holdings_first(&p->node[0].ctx)), "an empty save is left");
}

Test(region, a_fetch_ends_with_what_kept_its_memory_from_being_registered)
{
    struct hth_held *held = two(5 * MIB);
    struct hth_fetch_want want = want_of(held, 2);

    p->reg_node = 0;
    p->reg_code = HEARTH_ENOMEM;
    must_fail(fetch(&want), HEARTH_EIO);
    says_what_to_do(out.err.text, "node 0");
    no_leases();
}

Test(region, a_source_that_cannot_register_is_left_out_with_its_reason)
{
    struct hth_held *held = two(5 * MIB);
    struct hth_fetch_want want = want_of(held, 1);

    p->reg_node = 1;
    p->reg_code = HEARTH_ENOMEM;
    must_fail(fetch(&want), HEARTH_ELOST);
    cr_assert(ne(ptr, (void *)strstr(out.err.text, "cannot register"), NULL), "%s", out.err.text);
    no_leases();
}

Test(region, a_save_freed_while_it_is_registered_leaves_nothing_behind)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, 5 * MIB, 1);
    struct hth_slot *slot = held->slot;

    p->reg_ms = LONG_MS;
    offer_to(held, 0);
    pair_run(p, 100);
    hth_save_release(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save));
    pair_run(p, 2 * LONG_MS);
    cr_assert(eq(u32, offered.ended, 0));
    cr_assert(eq(u32, slot->leases, 0));
    cr_assert(ne(ptr, slot->user, NULL), "the slot keeps it for its next save");
    cr_assert(eq(u64, hth_transfer_due_ms(&p->node[1].ctx), HTH_NEVER));
}

/* A file of another's container may be unlinked with its slot. */
Test(region, what_is_dropped_of_another_container_is_deregistered)
{
    struct hth_ctx *c = &p->node[0].ctx;
    struct hth_held_save *theirs = hth_holdings_get(c, hth_save_of_foreign(40));
    struct hth_object object = { .id = 9, .kind = HTH_OBJECT_FOREIGN, .data_len = MIB };
    struct hth_region *none = NULL;
    struct hth_held *held;
    struct hth_slot *slot;

    must(c->store->ops->take(c->store, MIB, &slot, NULL));
    held = hth_held_add(theirs, &object, HTH_HELD_SEALED, slot);
    must_fail(hth_slot_region(c, slot, NULL, &none, NULL), HEARTH_EBUSY);
    pair_run(p, 10);
    cr_assert(ne(ptr, slot->user, NULL));
    hth_held_drop(c, theirs, held);
    cr_assert(zero(ptr, slot->user));
    cr_assert(zero(ptr, c->regs));
    cr_assert(eq(u32, slot->leases, 0));
}

static uint32_t works(void)
{
    uint32_t n = 0;

    for (const struct hth_work *work = p->works; work; work = work->next)
        n++;
    return n;
}

Test(region, two_large_ones_run_at_once_and_small_ones_do_not_wait_for_them)
{
    static unsigned char memory[5][2 * MIB];
    struct hth_ctx *c = &p->node[0].ctx;
    struct hth_reg *reg[5];

    for (int i = 0; i < 4; i++)
        cr_assert(ne(ptr, reg[i] = hth_reg_begin(c, memory[i], 2 * MIB, NULL), NULL));
    cr_assert(eq(u32, works(), 2));
    cr_assert(ne(ptr, reg[4] = hth_reg_begin(c, memory[4], 4096, NULL), NULL));
    cr_assert(eq(u32, works(), 3));
    must_fail(hth_reg_drop(reg[3]), HEARTH_EBUSY);
    pair_run(p, 10);
    cr_assert(eq(u32, p->regs, 5));
    for (int i = 0; i < 5; i++)
        must(hth_reg_drop(reg[i]));
    cr_assert(zero(ptr, c->regs));
}

static uint32_t gone, pulled;

static void on_gone(void *self)
{
    (void)self;
    gone++;
}

static void on_pulled(struct hth_session_pull *pull, int code)
{
    (void)pull;
    must(code);
    pulled++;
}

/* Its memory is the caller's again when nothing writes it any more. */
Test(region, what_is_pulled_into_ends_after_the_pull)
{
    static unsigned char memory[MIB];
    struct hth_ctx *c = &p->node[0].ctx;
    struct hth_held *held = pair_seal(p, 1, save, 5, 2 * MIB, 1);
    struct hth_session_pull pull = { .done = on_pulled };
    struct hth_region *from = NULL;
    struct hth_grant grant;
    struct hth_reg *reg;

    p->node[0].wanted = HEARTH_EBUSY;
    offer_to(held, 0); /* for its connection, and its region */
    reg = hth_reg_begin(c, memory, MIB, &wait);
    cr_assert(pair_until(p, &heard.ended, 1, 100));
    pair_run(p, 100);
    must(hth_slot_region(&p->node[1].ctx, held->slot, NULL, &from, NULL));
    must(hth_session_grant(p->node[1].ctx.session, 0, from, 0, MIB, &grant, NULL));
    net.delay_ms = 200;
    must(hth_session_pull(c->session, 1, &grant, 0, heard.region, 0, MIB, &pull));
    must_fail(hth_reg_drop(reg), HEARTH_EBUSY);
    hth_reg_end(reg, on_gone, NULL);
    pair_run(p, 150);
    cr_assert(eq(u32, gone, 0));
    cr_assert(pair_until(p, &gone, 1, 200));
    cr_assert(eq(u32, pulled, 1));
}

/* ---- Grants
 * -------------------------------------------------------------------------------------- */

/* A range is granted, and cannot be pulled for longer than the lease: its memory is not ready. */
static void wanted_for_long(void)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, 5 * MIB, 1);
    struct hth_fetch_want want = want_of(held, 1);

    must(hth_transfer_offer(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save), held, 2,
            NULL, NULL, NULL)); /* registered there */
    pair_run(p, 1000);
    p->reg_ms = 150000;
    want.deadline_ms = 300000;
    want.len = 3 * MIB;
    must(hth_fetch_start(&p->node[0].ctx, &want, &out.fetch, NULL));
    cr_assert(pair_until(p, &out.ended, 1, 300000));
    must(out.code);
    hth_fetch_release(out.fetch);
    pair_run(p, 100);
    no_leases();
}

Test(region, a_grant_that_is_wanted_again_and_again_lasts)
{
    hth_loop_net_no_revoke(p->net);
    wanted_for_long();
    cr_assert(eq(int, pair_logged(p, 1, "grant-cut"), 0));
    nobody_was_lost();
}

/* Its node asks, and dies in a way that leaves the connection standing. */
static struct hth_slot *wanted_and_forgotten(void)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, MIB, 1);
    unsigned char body[HTH_BODY_MAX];
    struct hth_writer w = { .at = body, .cap = sizeof(body) };

    hth_write_save(&w, save);
    hth_write64(&w, 5);
    hth_write64(&w, 0);
    hth_write64(&w, 0);
    must(hth_session_send(p->node[0].ctx.session, 1, HTH_MSG_WANT, body, w.len));
    pair_run(p, 5000);
    cr_assert(eq(u32, held->slot->leases, 1));
    return held->slot;
}

Test(region, a_lease_that_is_over_ends_the_grant_alone_where_pulls_are_served_here)
{
    struct hth_slot *slot = wanted_and_forgotten();

    pair_run(p, 60000);
    cr_assert(eq(u32, slot->leases, 0));
    cr_assert(eq(int, pair_logged(p, 1, "grant-cut"), 0));
}

Test(region, a_lease_that_is_over_costs_the_connection_where_cards_serve_the_pulls)
{
    struct hth_slot *slot;

    hth_loop_net_no_revoke(p->net);
    slot = wanted_and_forgotten();
    pair_run(p, 60000);
    cr_assert(eq(u32, slot->leases, 0));
    cr_assert(eq(int, pair_logged(p, 1, "grant-cut"), 1));
    nobody_was_lost();
}

/* A card reads on: the bytes stay until the reader has released the save, too. */
Test(region, a_save_freed_under_a_reading_card_keeps_its_slot_until_that_is_through)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, 40 * MIB, 1);
    struct hth_slot *slot = held->slot;

    hth_loop_net_no_revoke(p->net);
    net.delay_ms = 50;
    offer_to(held, 0);
    while (net.pulls[1] < 3)
        cr_assert(pair_step(p));
    hth_save_release(&p->node[1].ctx, hth_holdings_find(&p->node[1].ctx, save));
    cr_assert(eq(u32, slot->leases, 1));
    pair_run(p, 60);
    cr_assert(eq(u32, slot->leases, 1));
    hth_save_release(&p->node[0].ctx, hth_holdings_find(&p->node[0].ctx, save));
    p->node[0].wanted = HEARTH_EDENIED;
    pair_run(p, 1000);
    cr_assert(eq(u32, slot->leases, 0));
    cr_assert(eq(int, pair_logged(p, 1, "grant-cut"), 0));
}

/* ---- Room ------------------------------------------------------------------------------------ */

static int refusal; /* code of the first answer */
static uint32_t reserves;
static struct hth_slot *unwanted; /* NULL: none */

static int refuse_first(
        struct hth_store *s, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    (void)s, (void)bytes, (void)count;
    return reserves++ ? HEARTH_OK : hth_fail(err, refusal, 0, "refused at first");
}

static struct hth_slot *give_unwanted(struct hth_store *s)
{
    struct hth_slot *slot = unwanted;

    (void)s;
    unwanted = NULL;
    return slot;
}

Test(region, a_reservation_is_tried_again_where_slots_that_nothing_wants_made_room_for_it)
{
    struct hth_ctx *c = &p->node[0].ctx;
    struct hth_slot *slot = pair_seal(p, 0, save, 5, MIB, 1)->slot;
    const struct hth_store_ops *own = c->store->ops;
    struct hth_store_ops ops = *own;
    const uint64_t bytes = MIB;

    ops.reserve = refuse_first;
    ops.surplus = give_unwanted;
    c->store->ops = &ops;
    refusal = HEARTH_ENOSPC;
    unwanted = slot;
    must(hth_slots_reserve(c, &bytes, 1, NULL));
    cr_assert(eq(u32, reserves, 2));
    reserves = 0;
    must_fail(hth_slots_reserve(c, &bytes, 1, NULL), HEARTH_ENOSPC);
    reserves = 0;
    refusal = HEARTH_EIO;
    unwanted = slot;
    must_fail(hth_slots_reserve(c, &bytes, 1, NULL), HEARTH_EIO);
    cr_assert(eq(u32, reserves, 1));
    c->store->ops = own;
}
