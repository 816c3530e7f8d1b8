/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of objects: a bad copy mended, a half one completed, ranges read by many at once. */
#include "forge.h"
#include "transfers.h"

#include "replication/transfer/transfer_parts.h"

TestSuite(ranges, .init = begin, .fini = end);

Test(ranges, a_repair_pulls_only_what_is_wrong_and_puts_the_bad_copy_aside)
{
    struct hth_held *held = two(30 * HTH_CHUNK), *mine;
    struct hth_fetch_want want = want_of(held, 2);
    uint64_t a, b;

    mine = pair_seal(p, 0, save, 5, 30 * HTH_CHUNK, 1);
    mine->slot->base[HTH_BLOCK + 7 * HTH_CHUNK + 9] ^= 1;
    mine->slot->base[HTH_BLOCK + 29 * HTH_CHUNK + 9] ^= 1;
    mine->verified = 0;
    must(fetch(&want));
    arrived_whole(0);
    served(&a, &b);
    cr_assert(lt(u64, a + b, 2 * HTH_CHUNK + MIB));
}

Test(ranges, a_repair_finds_bytes_forged_under_their_crc_where_integrity_is_strong)
{
    struct hth_fetch_want want;
    struct hth_held *mine;

    for (uint32_t i = 0; i < p->nodes; i++)
        p->node[i].ctx.opts.strong = 1;
    want = want_of(two(3 * HTH_CHUNK), 2);
    mine = pair_seal(p, 0, save, 5, 3 * HTH_CHUNK, 1);
    forge(mine->slot->base + HTH_BLOCK + HTH_CHUNK + 9);
    mine->verified = 0;
    must(fetch(&want));
    arrived_whole(0);
}

Test(ranges, a_repair_of_what_is_right_changes_nothing)
{
    struct hth_held *held = two(3 * HTH_CHUNK), *mine;
    struct hth_fetch_want want = want_of(held, 2);
    struct hth_slot *slot;
    uint64_t a, b;

    mine = pair_seal(p, 0, save, 5, 3 * HTH_CHUNK, 1);
    mine->verified = 0;
    slot = mine->slot;
    must(fetch(&want));
    arrived_whole(0);
    cr_assert(eq(ptr, pair_held(p, 0, save, 5)->slot, slot));
    served(&a, &b);
    cr_assert(lt(u64, a + b, MIB));
}

Test(ranges, a_repair_that_fails_leaves_the_bad_copy_for_the_next_try)
{
    struct hth_held *held = two(3 * HTH_CHUNK), *mine;
    struct hth_fetch_want want = want_of(held, 1);
    struct hth_slot *slot;

    mine = pair_seal(p, 0, save, 5, 3 * HTH_CHUNK, 1);
    mine->slot->base[HTH_BLOCK] ^= 1;
    slot = mine->slot;
    mine->verified = 0;
    net.fault = HTH_LOOP_FLIP;
    net.from = 1;
    net.first = 1;
    net.last = 1000;
    must_fail(fetch(&want), HEARTH_ELOST);
    mine = pair_held(p, 0, save, 5);
    cr_assert(eq(ptr, mine->slot, slot));
    cr_assert(eq(int, mine->state, HTH_HELD_SEALED));
    cr_assert(eq(int, mine->verified, 0));
    no_leases();
    net.last = 0;
    out.ended = 0;
    mine->verified = 0;
    must(fetch(&want));
    arrived_whole(0);
}

static struct {
    const struct hth_store_ops *real;
    struct hth_slot *slot; /* its file is gone; until the store has told it */
    uint32_t condemned;    /* slots */
} removal;

static struct hth_slot *one_removed(struct hth_store *store, struct hearth_error *why)
{
    struct hth_slot *slot = removal.slot;

    (void)store;
    removal.slot = NULL;
    hth_fail(why, HEARTH_ECORRUPT, 0, "removed by another program");
    return slot;
}

static void one_condemned(struct hth_store *store, struct hth_slot *slot, const char *why)
{
    removal.condemned++;
    removal.real->condemn(store, slot, why);
}

/* Node 0 replaces a bad copy, and meanwhile another program removes the file of that copy. Node
 * 1 gives wrong bytes in its pulls up to `wrong`. */
static int repair_beside_removal(uint32_t wrong)
{
    struct hth_store *store = p->node[0].ctx.store;
    struct hth_fetch_want want = want_of(two(3 * HTH_CHUNK), 1);
    struct hth_store_ops ops = *store->ops;
    struct hth_held *mine = pair_seal(p, 0, save, 5, 3 * HTH_CHUNK, 1);
    struct hth_fetch *f;

    mine->slot->base[HTH_BLOCK] ^= 1;
    mine->verified = 0;
    net.fault = HTH_LOOP_FLIP;
    net.from = net.first = 1;
    net.last = wrong;
    net.pull_ms = 50;
    removal.real = store->ops;
    ops.broken = one_removed;
    ops.condemn = one_condemned;
    store->ops = &ops;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    while (f->phase != PHASE_DATA)
        cr_assert(pair_step(p));
    removal.slot = f->old;
    hth_held_mend(&p->node[0].ctx, NULL, NULL);
    cr_assert(eq(int, pair_logged(p, 0, "slot-broken"), 1));
    cr_assert(pair_until(p, &out.ended, 1, 100000));
    pair_run(p, 500);
    store->ops = removal.real;
    cr_assert(
            eq(u32, removal.condemned, 1), "%u times: each makes another slot", removal.condemned);
    return out.code;
}

Test(ranges, a_fetch_ends_well_though_the_file_of_the_bad_copy_was_removed)
{
    must(repair_beside_removal(0));
    net.pull_ms = 0;
    arrived_whole(0);
}

Test(ranges, a_fetch_that_fails_leaves_no_copy_whose_file_was_removed)
{
    must_fail(repair_beside_removal(1000), HEARTH_ELOST);
    cr_assert(eq(ptr, pair_held(p, 0, save, 5), NULL));
}

/* Of 30 chunks that node 0 fetches from node 1 at least 12 have come; then its fetch ends. */
static struct hth_fetch_want some_came(uint64_t *out_pulled)
{
    struct hth_fetch_want want = want_of(two(30 * HTH_CHUNK), 1);
    struct hth_fetch *f;
    uint64_t a = 0, b;

    net.pull_ms = 20;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    for (int i = 0; i < 10000 && a < 12 * HTH_CHUNK; i++) {
        pair_run(p, 1);
        served(&a, &b);
    }
    hth_fetch_cancel(f);
    cr_assert(pair_until(p, &out.ended, 1, 20000));
    cr_assert(eq(int, out.code, HEARTH_ECANCELED));
    cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 5)));
    served(out_pulled, &b);
    cr_assert(ge(u64, *out_pulled, 12 * HTH_CHUNK));
    cr_assert(lt(u64, *out_pulled, 30 * HTH_CHUNK));
    out.ended = 0;
    return want;
}

Test(ranges, what_had_come_when_a_fetch_ended_is_not_pulled_again)
{
    uint64_t before, a, b;
    struct hth_fetch_want want = some_came(&before);

    must(fetch(&want));
    arrived_whole(0);
    served(&a, &b);
    cr_assert(lt(u64, a - before, 18 * HTH_CHUNK + MIB));
}

/* The slot was free meanwhile: whatever is wrong in it is pulled. */
Test(ranges, what_had_come_counts_only_where_it_is_right)
{
    struct hth_store *store = p->node[0].ctx.store;
    uint64_t before, a, b;
    struct hth_fetch_want want = some_came(&before);
    struct hth_slot *slot;

    must(store->ops->resume(store, MIB, save, want.object.name, &slot));
    must(store->ops->receive(store, slot, save, want.object.name, NULL));
    for (uint64_t i = 0; i < 30; i++)
        slot->base[HTH_BLOCK + i * HTH_CHUNK + 9] ^= 1;
    store->ops->give(store, slot);
    must(fetch(&want));
    arrived_whole(0);
    served(&a, &b);
    cr_assert(ge(u64, a - before, 30 * HTH_CHUNK));
}

static void range(const struct hth_held *held, uint64_t off, uint64_t len, uint64_t most)
{
    struct hth_fetch_want want = want_of(held, 2);
    uint64_t a, b, c, d;

    served(&a, &b);
    out.ended = 0;
    want.off = off;
    want.len = len;
    want.class = HTH_FETCH_READ;
    must(fetch(&want));
    cr_assert(zero(int, memcmp(hth_fetch_bytes(out.fetch), held->slot->base + off, len)),
            "%u bytes at %u", (unsigned)len, (unsigned)off);
    served(&c, &d);
    cr_assert(le(u64, c + d - a - b, most + MIB));
    hth_fetch_release(out.fetch);
    no_leases();
}

Test(ranges, a_range_brings_its_chunks_and_no_more)
{
    struct hth_held *held = two(10 * HTH_CHUNK + 777);
    uint64_t data_end = HTH_BLOCK + 10 * HTH_CHUNK + 777;
    uint64_t table = HTH_BLOCK + HTH_ALIGN(10 * HTH_CHUNK + 777);

    range(held, HTH_BLOCK + 5 * HTH_CHUNK, 1, HTH_CHUNK);
    range(held, HTH_BLOCK + 5 * HTH_CHUNK - 1, 2, 2 * HTH_CHUNK);
    range(held, HTH_BLOCK, HTH_CHUNK, HTH_CHUNK);
    range(held, 0, 100, 0);
    range(held, 4000, 200, HTH_CHUNK);
    range(held, data_end - 5, 5, 0);
    range(held, data_end - 5, 20, 0);
    range(held, data_end + 1, 2, 0);
    range(held, table, held->object.table_len, 0);
    range(held, table + 8, 40, 0);
    range(held, 0, table + held->object.table_len, 11 * HTH_CHUNK);
    cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 5)), "a range is no copy");
}

Test(ranges, a_range_is_verified_by_all_that_proves_it)
{
    struct hth_fetch_want want;
    unsigned char *at;

    for (uint32_t i = 0; i < p->nodes; i++)
        p->node[i].ctx.opts.strong = 1;
    want = want_of(two(10 * HTH_CHUNK), 2);
    at = pair_held(p, 2, save, 5)->slot->base + HTH_BLOCK + 3 * HTH_CHUNK;
    forge(at); /* at node 2: node 1 gives the table */
    want.off = HTH_BLOCK + 3 * HTH_CHUNK;
    want.len = 100;
    must(fetch(&want));
    cr_assert(eq(int, pair_logged(p, 0, "bad-chunk"), 1));
    forge(at);
    cr_assert(zero(int, memcmp(hth_fetch_bytes(out.fetch), at, 100)));
    hth_fetch_release(out.fetch);
}

Test(ranges, a_range_is_verified_too)
{
    struct hth_held *held = two(10 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 2);

    /* At node 2: node 1 gives the table. */
    pair_held(p, 2, save, 5)->slot->base[HTH_BLOCK + 3 * HTH_CHUNK + 5] ^= 1;
    want.off = HTH_BLOCK + 3 * HTH_CHUNK;
    want.len = 100;
    must(fetch(&want));
    cr_assert(eq(int, pair_logged(p, 0, "bad-chunk"), 1));
    cr_assert(zero(int, memcmp(hth_fetch_bytes(out.fetch), held->slot->base + want.off, 100)));
    hth_fetch_release(out.fetch);
}

Test(ranges, a_whole_fetch_and_ranges_of_one_object_do_not_hinder_each_other)
{
    struct hth_held *held = two(20 * HTH_CHUNK);
    struct hth_fetch_want want = want_of(held, 1), part = want;
    struct hth_fetch *f, *r[3];

    net.delay_ms = 5;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    pair_run(p, 20);
    part.off = HTH_BLOCK + 2 * HTH_CHUNK;
    part.len = 3 * HTH_CHUNK;
    part.class = HTH_FETCH_READ;
    for (int i = 0; i < 3; i++)
        must(hth_fetch_start(&p->node[0].ctx, &part, &r[i], NULL));
    cr_assert(pair_until(p, &out.ended, 4, 20000));
    must(out.code);
    arrived_whole(0);
    for (int i = 0; i < 3; i++) {
        cr_assert(zero(int, memcmp(hth_fetch_bytes(r[i]), held->slot->base + part.off, part.len)));
        hth_fetch_release(r[i]);
    }
    pair_run(p, 200);
    no_leases();
}

/* A load into another world reads so: no grant is taken from under what is being pulled. */
Test(ranges, any_number_of_ranges_of_one_object_are_pulled_at_once_and_once)
{
    enum { RANGES = 8 }; /* as many as have room at once */
    struct hth_held *held = two((uint64_t)RANGES * 3 * HTH_CHUNK);
    struct hth_fetch_want part = want_of(held, 1);
    struct hth_fetch *r[RANGES];

    part.class = HTH_FETCH_READ;
    part.off = HTH_BLOCK;
    part.len = 100;
    cr_assert(
            zero(int, fetch(&part))); /* else the first asks twice: before there is a connection */
    hth_fetch_release(out.fetch);
    out.ended = net.wants = net.pulls[1] = 0;
    net.pull_ms = 200;
    part.len = 3 * HTH_CHUNK;
    for (uint64_t i = 0; i < RANGES; i++) {
        part.off = HTH_BLOCK + i * part.len;
        must(hth_fetch_start(&p->node[0].ctx, &part, &r[i], NULL));
    }
    cr_assert(pair_until(p, &out.ended, RANGES, 20000));
    cr_assert(eq(u32, net.wants, RANGES));
    cr_assert(eq(u32, net.pulls[1], RANGES * 4), "something was pulled again");
    for (uint64_t i = 0; i < RANGES; i++) {
        cr_assert(zero(int, memcmp(hth_fetch_bytes(r[i]),
                                    held->slot->base + HTH_BLOCK + i * part.len, part.len)));
        hth_fetch_release(r[i]);
    }
    pair_run(p, 200);
    no_leases();
}

/* Each is given back as soon as it is there. */
static void on_range(void *self, struct hth_fetch *f, int code, const struct hearth_error *err)
{
    uint32_t *ended = self;

    (void)err;
    must(code);
    (*ended)++;
    hth_fetch_release(f);
}

Test(ranges, more_than_have_room_wait_for_their_turn)
{
    enum { RANGES = 40 };
    struct hth_held *held = two((uint64_t)RANGES * 3 * HTH_CHUNK);
    struct hth_fetch_want part = want_of(held, 2);
    struct hth_fetch *f;
    uint32_t ended = 0;

    part.class = HTH_FETCH_READ;
    part.len = 3 * HTH_CHUNK;
    part.done = on_range;
    part.self = &ended;
    for (uint64_t i = 0; i < RANGES; i++) {
        part.off = HTH_BLOCK + i * part.len;
        must(hth_fetch_start(&p->node[0].ctx, &part, &f, NULL));
    }
    cr_assert(pair_until(p, &ended, RANGES, 60000));
    cr_assert(le(u64, p->node[0].ctx.transfer->scratches.bytes, HTH_SCRATCH_BYTES));
    pair_run(p, 11000);
    cr_assert(zero(u64, p->node[0].ctx.transfer->scratches.bytes),
            "scratch memory without a user is kept");
    no_leases();
}

Test(ranges, a_range_that_waits_for_room_ends_by_its_deadline)
{
    struct hth_held *held = two(20 * HTH_CHUNK);
    struct hth_fetch_want part = want_of(held, 2);
    struct hth_fetch *all[2], *f;

    part.class = HTH_FETCH_READ;
    part.off = HTH_BLOCK;
    part.len = 12 * HTH_CHUNK; /* 64 MiB of memory */
    for (int i = 0; i < 2; i++)
        must(hth_fetch_start(&p->node[0].ctx, &part, &all[i], NULL));
    cr_assert(pair_until(p, &out.ended, 2, 20000));
    part.len = 1;
    part.deadline_ms = 300;
    must(hth_fetch_start(&p->node[0].ctx, &part, &f, NULL));
    cr_assert(pair_until(p, &out.ended, 3, 5000));
    must_fail(out.code, HEARTH_ETIMEOUT);
    cr_assert(ne(ptr, strstr(out.err.text, "other readers have the memory"), NULL), "%s",
            out.err.text);
    for (int i = 0; i < 2; i++)
        hth_fetch_release(all[i]);
    out.ended = 0;
    must(fetch(&part));
    hth_fetch_release(out.fetch);
}

static int take_nothing(
        struct hth_store *store, uint64_t bytes, struct hth_slot **slot, struct hearth_error *err)
{
    (void)store;
    (void)slot;
    return hth_fail(err, HEARTH_EBUSY, 0, "no free slot of %" PRIu64 " bytes", bytes);
}

Test(ranges, a_range_needs_no_slot_of_the_store)
{
    struct hth_held *held = two(3 * HTH_CHUNK);
    struct hth_fetch_want part = want_of(held, 2);
    struct hth_store *store = p->node[0].ctx.store;
    const struct hth_store_ops *its_own = store->ops;
    struct hth_store_ops full = *its_own;
    struct hth_fetch *f;

    full.take = take_nothing;
    store->ops = &full;
    must_fail(hth_fetch_start(&p->node[0].ctx, &part, &f, NULL), HEARTH_EBUSY);
    part.class = HTH_FETCH_READ;
    part.off = HTH_BLOCK + HTH_ALIGN(held->object.data_len);
    part.len = held->object.table_len;
    must(fetch(&part));
    cr_assert(zero(int, memcmp(hth_fetch_bytes(out.fetch), held->slot->base + part.off, part.len)));
    hth_fetch_release(out.fetch);
    store->ops = its_own;
}
