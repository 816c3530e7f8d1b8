/* SPDX-License-Identifier: Apache-2.0 */
/* A few bytes of an object of another node: what is moved, and what is found wrong. */
#include "core/format/record.h"

#include "replication/held/spans.h"
#include "transfers.h"

#include "replication/transfer/transfer_parts.h"
#include "transport/session/session_parts.h"

TestSuite(slices, .init = begin, .fini = end);

#define KIB UINT64_C(1024)

/* Bytes [at, at + len) of the data, from nodes 1 and 2, or node 1 alone. */
static struct hth_fetch_want slice_of(
        const struct hth_held *held, uint32_t sources, uint64_t at, uint64_t len)
{
    struct hth_fetch_want want = want_of(held, sources);

    want.class = HTH_FETCH_READ;
    want.off = HTH_BLOCK + at;
    want.len = len;
    want.slice = 1;
    out.ended = 0;
    return want;
}

/* The slice comes with the bytes that node `right` has. */
static void slice_is_read(uint32_t right, uint32_t sources, uint64_t at, uint64_t len)
{
    const struct hth_held *held = pair_held(p, right, save, 5);
    struct hth_fetch_want want = slice_of(held, sources, at, len);

    must(fetch(&want));
    cr_assert(zero(int, memcmp(hth_fetch_bytes(out.fetch), held->slot->base + want.off, len)));
    hth_fetch_release(out.fetch);
    pair_run(p, 200);
    no_leases();
}

static uint64_t pulled(void)
{
    uint64_t total;

    hth_transfer_pulled(&p->node[0].ctx, &total, NULL);
    return total;
}

Test(slices, of_64_KiB_and_1_MiB_move_themselves_and_nothing_else)
{
    struct hth_held *held = two(5 * HTH_CHUNK + 100);

    slice_is_read(1, 2, 3 * HTH_CHUNK - 1000, 64 * KIB); /* of two chunks */
    cr_assert(eq(u64, pulled(), 64 * KIB));
    slice_is_read(1, 2, 12345, MIB);
    cr_assert(eq(u64, pulled(), 64 * KIB + MIB));
    slice_is_read(1, 2, 5 * HTH_CHUNK + 99, 1); /* the last byte */
    cr_assert(eq(u64, pulled(), 64 * KIB + MIB + 1));
    cr_assert(ne(u64, held->object.data_len, 0));
}

Test(slices, all_of_a_short_chunk_is_compared_with_the_table)
{
    two(5 * HTH_CHUNK + 100);
    slice_is_read(1, 2, 5 * HTH_CHUNK, 100);
    cr_assert(gt(u64, pulled(), 100), "the table came too");
    cr_assert(eq(ptr, pair_held(p, 1, save, 5)->spans, NULL));
}

Test(slices, are_whole_chunks_where_integrity_is_strong)
{
    for (uint32_t i = 0; i < p->nodes; i++)
        p->node[i].ctx.opts.strong = 1;
    two(3 * HTH_CHUNK);
    slice_is_read(1, 2, HTH_CHUNK + 10, 64 * KIB);
    cr_assert(ge(u64, pulled(), HTH_CHUNK));
}

Test(slices, a_holder_compares_each_chunk_once)
{
    struct hth_held *held = pair_seal(p, 1, save, 5, 3 * HTH_CHUNK, 1);
    const uint32_t *span;

    slice_is_read(1, 1, HTH_CHUNK + 10, 64 * KIB);
    span = hth_spans_of(held, 1);
    cr_assert(ne(ptr, span, NULL));
    cr_assert(eq(ptr, hth_spans_of(held, 0), NULL));
    /* from here on a slice touches its own spans only: others may be anything */
    held->slot->base[HTH_BLOCK + 2 * HTH_CHUNK - 1] ^= 1;
    slice_is_read(1, 1, HTH_CHUNK + 100 * KIB, 64 * KIB);
    cr_assert(eq(ptr, hth_spans_of(held, 1), span));
    cr_assert(zero(int, pair_logged(p, 0, "bad-chunk")));
}

/* A bit that tips in node 1's copy, in the second of the two chunks that the slice touches. */
static void tipped(uint64_t bit_at)
{
    uint64_t a, b;

    pair_held(p, 1, save, 5)->slot->base[HTH_BLOCK + bit_at] ^= 1;
    slice_is_read(2, 2, 2 * HTH_CHUNK - 32 * KIB, 64 * KIB);
    cr_assert(eq(int, pair_logged(p, 0, "bad-chunk"), 1));
    cr_assert(ne(ptr, strstr(p->node[0].last, "from node 1: chunk 2 is wrong"), NULL), "%s",
            p->node[0].last);
    served(&a, &b);
    cr_assert(eq(u64, b, 64 * KIB));
    cr_assert(zero(u64, a));
}

Test(slices, a_chunk_that_is_wrong_at_its_holder_is_named_and_another_holder_is_asked)
{
    struct hth_fetch_want want;

    two(4 * HTH_CHUNK);
    tipped(2 * HTH_CHUNK + 3 * MIB);
    want = slice_of(pair_held(p, 2, save, 5), 1, 2 * HTH_CHUNK + 7, 100);
    must_fail(fetch(&want), HEARTH_ELOST);
    cr_assert(ne(ptr, strstr(out.err.text, "node 1: its copy is wrong"), NULL), "%s", out.err.text);
}

Test(slices, bytes_that_go_wrong_after_their_chunk_was_compared_are_found)
{
    two(4 * HTH_CHUNK);
    slice_is_read(1, 1, 2 * HTH_CHUNK, 64 * KIB);
    slice_is_read(1, 1, HTH_CHUNK, 64 * KIB);
    out.ended = 0;
    hth_tally_reset(&p->node[0].ctx.transfer->tally);
    tipped(2 * HTH_CHUNK + 11);
}

static void wrong_on_the_way(int crc)
{
    two(4 * HTH_CHUNK);
    net.fault = HTH_LOOP_FLIP;
    net.from = 1;
    net.last = 1;
    if (crc)
        hth_loop_net_sums(p->net);
    slice_is_read(1, 1, HTH_CHUNK + 9, 64 * KIB);
    cr_assert(eq(int, pair_logged(p, 0, "bad-chunk"), 1));
    cr_assert(eq(u64, pulled(), 128 * KIB));
}

Test(slices, bytes_that_go_wrong_on_their_way_are_pulled_again)
{
    wrong_on_the_way(0);
}

Test(slices, bytes_that_go_wrong_on_their_way_are_found_by_the_checksum_that_comes_with_them)
{
    wrong_on_the_way(1);
}

Test(slices, go_on_when_their_messages_are_lost)
{
    two(4 * HTH_CHUNK);
    net.message = HTH_LOOP_DROP;
    for (uint16_t type = HTH_MSG_SUM_WANT; type <= HTH_MSG_SUM; type++) {
        net.type = type;
        net.messages = 0;
        net.until = 2;
        slice_is_read(1, 1, HTH_CHUNK + 9, 64 * KIB);
        cr_assert(ge(u32, net.messages, 2));
    }
}

Test(slices, go_on_when_a_pull_stalls_or_its_connection_breaks)
{
    static const enum hth_loop_fault fault[] = { HTH_LOOP_STALL, HTH_LOOP_DROP, HTH_LOOP_CUT };

    two(4 * HTH_CHUNK);
    net.from = 1;
    for (int i = 0; i < 3; i++) {
        net.fault = fault[i];
        net.pulls[1] = 0;
        net.last = 1;
        slice_is_read(1, 1, HTH_CHUNK + 9, 64 * KIB);
    }
}

Test(slices, a_holder_that_dies_while_it_compares_is_replaced)
{
    struct hth_fetch_want want;
    struct hth_fetch *f;

    two(4 * HTH_CHUNK);
    want = slice_of(pair_held(p, 2, save, 5), 2, HTH_CHUNK + 9, 64 * KIB);
    net.delay_ms = 5;
    net.pull_ms = 50;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    while (!net.pulls[1] && !net.pulls[2])
        cr_assert(pair_step(p));
    pair_node_close(p, net.pulls[1] ? 1 : 2);
    cr_assert(pair_until(p, &out.ended, 1, 30000));
    must(out.code);
    hth_fetch_release(out.fetch);
}

Test(slices, a_silent_holder_ends_in_the_deadline_by_name)
{
    struct hth_fetch_want want;

    two(4 * HTH_CHUNK);
    want = slice_of(pair_held(p, 2, save, 5), 1, HTH_CHUNK + 9, 64 * KIB);
    want.deadline_ms = 1500;
    net.message = HTH_LOOP_DROP;
    net.type = HTH_MSG_SUM;
    net.until = UINT32_MAX;
    must_fail(fetch(&want), HEARTH_ETIMEOUT);
    cr_assert(ne(ptr, strstr(out.err.text, "waiting for node 1"), NULL), "%s", out.err.text);
    no_leases();
}

Test(slices, a_save_that_is_freed_while_its_chunks_are_compared_leaves_nothing)
{
    struct hth_ctx *ctx = &p->node[1].ctx;
    struct hth_fetch_want want;
    struct hth_fetch *f;

    two(4 * HTH_CHUNK);
    want = slice_of(pair_held(p, 2, save, 5), 1, HTH_CHUNK + 9, 64 * KIB);
    p->work_ms = 50;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    while (!ctx->transfer->sums)
        cr_assert(pair_step(p));
    hth_transfer_forget(ctx, save);
    hth_holdings_free_save(ctx, hth_holdings_find(ctx, save));
    cr_assert(pair_until(p, &out.ended, 1, 30000));
    must_fail(out.code, HEARTH_ELOST);
    pair_run(p, 200); /* its work ends */
    cr_assert(eq(ptr, ctx->transfer->sums, NULL));
}

Test(slices, of_a_holder_with_an_older_version_are_refused_as_such)
{
    struct hth_fetch_want want;

    p->node[1].ctx.session->opts.version_high = HTH_VERSION_SUMS - 1;
    two(4 * HTH_CHUNK);
    want = slice_of(pair_held(p, 2, save, 5), 1, HTH_CHUNK + 9, 64 * KIB);
    must_fail(fetch(&want), HEARTH_EUNSUPPORTED);
    want.slice = 0;
    out.ended = 0;
    must(fetch(&want));
    hth_fetch_release(out.fetch);
    cr_assert(zero(int, pair_logged(p, 0, "fetch-failed")));
}

Test(slices, messages_with_hostile_numbers_are_refused)
{
    static const uint64_t hostile[][2] = { { 0, 1 }, { HTH_BLOCK - 1, 1 }, { HTH_BLOCK, 0 },
        { HTH_BLOCK, HTH_SLICE_MAX + 1 }, { UINT64_MAX, 1 }, { UINT64_MAX - 1, 2 },
        { HTH_BLOCK, UINT64_MAX } };
    unsigned char body[80] = { 0 };
    struct hth_writer at = { .at = body, .cap = sizeof(body) };
    struct hth_wire w;

    hth_write_save(&at, save);
    body[32] = 5;
    hth_put64(body + 40, HTH_BLOCK);
    hth_put64(body + 48, HTH_SLICE_MAX);
    must(hth_wire_decode(&w, HTH_MSG_SUM_WANT, body, 56));
    must(hth_wire_decode(&w, HTH_MSG_SUM, body, 72));
    for (size_t len = 0; len <= sizeof(body); len++) {
        if (len != 56)
            must_fail(hth_wire_decode(&w, HTH_MSG_SUM_WANT, body, len), HEARTH_EPROTO);
        if (len != 72)
            must_fail(hth_wire_decode(&w, HTH_MSG_SUM, body, len), HEARTH_EPROTO);
    }
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        hth_put64(body + 40, hostile[i][0]);
        hth_put64(body + 48, hostile[i][1]);
        must_fail(hth_wire_decode(&w, HTH_MSG_SUM_WANT, body, 56), HEARTH_EPROTO);
        must_fail(hth_wire_decode(&w, HTH_MSG_SUM, body, 72), HEARTH_EPROTO);
    }
}

/* Of objects that are not there, or shorter; and answers that nobody asked for. */
Test(slices, messages_about_what_is_not_there_are_ignored)
{
    struct hth_ctx *ctx = &p->node[1].ctx;
    struct hth_wire w = { .save = save, .id = 5, .off = HTH_BLOCK + 3 * HTH_CHUNK - 1, .len = 2 };
    uint32_t points;

    pair_seal(p, 1, save, 5, 3 * HTH_CHUNK, 1);
    hth_sum_message(ctx, 0, &w);
    w.off = UINT64_MAX - 5;
    hth_sum_message(ctx, 0, &w);
    w.off = HTH_BLOCK;
    w.id = 6;
    hth_sum_message(ctx, 0, &w);
    cr_assert(eq(ptr, ctx->transfer->sums, NULL));
    points = p->point_count;
    w.id = 5;
    hth_sum_message(ctx, 0, &w);
    hth_sum_message(ctx, 0, &w); /* once more: the first is being answered */
    cr_assert(ne(ptr, ctx->transfer->sums, NULL));
    cr_assert(eq(u32, p->point_count, points + 1));
    pair_run(p, 100);
    cr_assert(eq(ptr, ctx->transfer->sums, NULL));
}
