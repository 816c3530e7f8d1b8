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
    hth_tally_reset(&p->node[0].ctx.transfer->tally, 0);
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

/* Node 1 speaks this version at most, with all from here on. */
static void older(uint32_t version)
{
    struct hth_session *session = p->node[1].ctx.session;

    session->opts.version_high = version;
    for (uint32_t i = 0; i < p->nodes; i++)
        if (i != 1)
            hth_session_drop(session, i);
    pair_run(p, 10000);
}

Test(slices, go_on_when_their_messages_are_lost)
{
    static const uint16_t type[] = { HTH_MSG_SLICES_WANT, HTH_MSG_SLICES, HTH_MSG_SUM_WANT,
        HTH_MSG_SUM };

    two(4 * HTH_CHUNK);
    net.message = HTH_LOOP_DROP;
    for (int i = 0; i < 6; i++) {
        if (i == 4)
            older(HTH_VERSION_SLICES - 1);
        net.type = type[i < 2 ? i : i - 2];
        net.messages = 0;
        net.until = 2;
        slice_is_read(1, 1, HTH_CHUNK + 9, i < 2 ? 4 * KIB : 64 * KIB);
        cr_assert(ge(u32, net.messages, 2), "%d", i);
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
    net.type = HTH_MSG_SLICES;
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
    (void)hth_sum_begin(ctx, 0, &w, 0);
    w.off = UINT64_MAX - 5;
    (void)hth_sum_begin(ctx, 0, &w, 0);
    w.off = HTH_BLOCK;
    w.id = 6;
    (void)hth_sum_begin(ctx, 0, &w, 0);
    cr_assert(eq(ptr, ctx->transfer->sums, NULL));
    points = p->point_count;
    w.id = 5;
    (void)hth_sum_begin(ctx, 0, &w, 0);
    (void)hth_sum_begin(ctx, 0, &w, 0); /* once more: the first is being answered */
    cr_assert(ne(ptr, ctx->transfer->sums, NULL));
    cr_assert(eq(u32, p->point_count, points + 1));
    pair_run(p, 100);
    cr_assert(eq(ptr, ctx->transfer->sums, NULL));
}

/* ---- Many of one call ------------------------------------------------------------------------ */

enum { OBJECTS = 10, OF_EACH = 100 };

static struct came {
    uint64_t off, len;
    uint32_t object;
    int ended, code;
    struct hearth_error err;
} came[OBJECTS * OF_EACH];
static uint32_t ended, wrong;

static void on_came(void *self, struct hth_fetch *f, int code, const struct hearth_error *err)
{
    struct came *c = self;
    const struct hth_held *held = pair_held(p, 2, save, c->object);

    ended++;
    c->ended++;
    c->code = code;
    c->err = *err;
    if (code)
        return;
    wrong += memcmp(hth_fetch_bytes(f), held->slot->base + c->off, c->len) != 0;
    hth_fetch_release(f);
}

/* The same objects at nodes 1 and 2, which are connected with the reader. */
static void ten(void)
{
    two(2 * HTH_CHUNK);
    slice_is_read(1, 2, 13, 4 * KIB);
    net.sent = net.pulls[1] = net.pulls[2] = 0;
    hth_tally_reset(&p->node[0].ctx.transfer->tally, 0);
    for (uint32_t i = 0; i < OBJECTS; i++) {
        pair_seal(p, 1, save, 100 + i, 2 * HTH_CHUNK, i);
        pair_seal(p, 2, save, 100 + i, 2 * HTH_CHUNK, i);
    }
}

static struct hth_fetch *one_of_many(uint32_t i, uint64_t len)
{
    struct came *c = &came[i];
    struct hth_fetch_want want = want_of(pair_held(p, 2, save, 100 + i % OBJECTS), 2);
    struct hth_fetch *f;

    *c = (struct came){ HTH_BLOCK + i / OBJECTS * 70 * KIB + 13, len, 100 + i % OBJECTS, 0, 0,
        { 0 } };
    want.class = HTH_FETCH_READ;
    want.off = c->off;
    want.len = len;
    want.slice = 1;
    want.done = on_came;
    want.self = c;
    must(hth_fetch_start(&p->node[0].ctx, &want, &f, NULL));
    return f;
}

/* A reader asks for 32 slices of each object ahead. */
static void many(uint64_t len)
{
    uint32_t begun = 0;

    ended = 0;
    while (ended < OBJECTS * OF_EACH) {
        while (begun < OBJECTS * OF_EACH && begun - ended < OBJECTS * 32)
            (void)one_of_many(begun++, len);
        cr_assert(pair_step(p));
    }
    pair_run(p, 500);
    cr_assert(zero(u32, wrong));
}

static void of_all(int code, uint32_t count)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < OBJECTS * OF_EACH; i++)
        n += came[i].ended == 1 && came[i].code == code;
    cr_assert(eq(u32, n, count));
}

Test(slices, a_thousand_small_ones_of_a_call_are_few_messages_and_no_pull)
{
    ten();
    many(4 * KIB);
    of_all(HEARTH_OK, OBJECTS * OF_EACH);
    cr_assert(le(u32, net.sent, OBJECTS * OF_EACH + 32), "an answer has one slice of 4 KiB");
    cr_assert(zero(u32, net.pulls[1] + net.pulls[2]));
    cr_assert(eq(u64, pulled(), OBJECTS * OF_EACH * 4 * KIB));
}

Test(slices, a_thousand_that_are_pulled_are_few_messages_too)
{
    ten();
    many(64 * KIB);
    of_all(HEARTH_OK, OBJECTS * OF_EACH);
    cr_assert(le(u32, net.sent, OBJECTS * OF_EACH / 4));
    cr_assert(eq(u64, pulled(), OBJECTS * OF_EACH * 64 * KIB));
}

Test(slices, of_a_chunk_that_is_wrong_come_from_another_holder_and_the_others_from_the_first)
{
    uint64_t a, b;

    ten();
    pair_held(p, 1, save, 104)->slot->base[HTH_BLOCK + MIB] ^= 1; /* chunk 0 of one object */
    many(KIB);
    of_all(HEARTH_OK, OBJECTS * OF_EACH);
    served(&a, &b);
    cr_assert(eq(u64, a + b, OBJECTS * OF_EACH * KIB), "none came twice");
    cr_assert(gt(u64, a, 0));
    cr_assert(ge(int, pair_logged(p, 0, "bad-chunk"), 1));
    cr_assert(le(int, pair_logged(p, 0, "bad-chunk"), OF_EACH));
}

Test(slices, that_no_holder_can_give_fail_and_no_others)
{
    ten();
    pair_held(p, 1, save, 104)->slot->base[HTH_BLOCK + MIB] ^= 1;
    pair_held(p, 2, save, 104)->slot->base[HTH_BLOCK + MIB + 1] ^= 1;
    many(KIB);
    for (uint32_t i = 0; i < OBJECTS * OF_EACH; i++) {
        int of_bad = came[i].object == 104 && came[i].off < HTH_BLOCK + HTH_CHUNK;

        cr_assert(eq(int, came[i].code, of_bad ? HEARTH_ELOST : HEARTH_OK), "%u", i);
        if (of_bad)
            cr_assert(ne(ptr, strstr(came[i].err.text, "its copy is wrong"), NULL), "%s",
                    came[i].err.text);
    }
}

Test(slices, of_an_object_that_a_holder_does_not_have_come_from_the_other)
{
    struct hth_held_save *s;
    uint64_t a, b, began_ms;

    ten();
    p->node[0].ctx.opts.retry_ms = 5000;
    began_ms = p->now_ms;
    s = hth_holdings_find(&p->node[1].ctx, save);
    hth_held_drop(&p->node[1].ctx, s, hth_held_find(s, 103));
    many(KIB);
    cr_assert(le(u64, p->now_ms - began_ms, 2000), "it has said so at once");
    of_all(HEARTH_OK, OBJECTS * OF_EACH);
    served(&a, &b);
    cr_assert(gt(u64, a, 0));
    cr_assert(eq(u64, a + b, OBJECTS * OF_EACH * KIB));
}

Test(slices, whose_bytes_come_in_a_message_count_if_they_match_their_checksum)
{
    static unsigned char junk[KIB];
    struct hth_slice_said said = { .bytes = junk };
    struct hth_fetch *f;

    ten();
    f = one_of_many(0, KIB);
    said.w = (struct hth_wire){
        .save = save, .id = 100, .off = came[0].off, .len = KIB, .chunk = HTH_SLICE_RIGHT, .sum = 1
    };
    for (uint32_t i = 0; i < f->sources; i++)
        hth_slice_said(f, &f->source[i], &said); /* one was asked, the other was not */
    cr_assert(eq(int, pair_logged(p, 0, "bad-chunk"), 1));
    while (!ended)
        cr_assert(pair_step(p));
    cr_assert(zero(int, came[0].code));
    cr_assert(zero(u32, wrong));
    pair_run(p, 500);
}

Test(slices, of_a_holder_that_ends_come_from_the_other)
{
    ten();
    p->work_ms = 20;
    for (uint32_t i = 0; i < OBJECTS * OF_EACH; i++)
        (void)one_of_many(i, KIB);
    while (!p->node[1].ctx.transfer->sums)
        cr_assert(pair_step(p));
    pair_node_close(p, 1);
    while (ended < OBJECTS * OF_EACH)
        cr_assert(pair_step(p));
    of_all(HEARTH_OK, OBJECTS * OF_EACH);
    cr_assert(zero(u32, wrong));
}

Test(slices, of_a_silent_holder_come_from_the_other_after_one_retry)
{
    uint64_t began_ms;

    ten();
    net.message = HTH_LOOP_DROP;
    net.type = HTH_MSG_SLICES_WANT;
    net.until = 1;
    began_ms = p->now_ms;
    for (uint32_t i = 0; i < 2; i++)
        (void)one_of_many(i * OBJECTS, KIB);
    while (ended < 2)
        cr_assert(pair_step(p));
    cr_assert(eq(u32, net.messages >= 1, 1));
    cr_assert(le(u64, p->now_ms - began_ms, 2 * (uint64_t)p->node[0].ctx.opts.retry_ms));
    pair_run(p, 500);
}

Test(slices, batches_with_hostile_numbers_are_refused)
{
    static const uint64_t hostile[][2] = { { 0, 1 }, { HTH_BLOCK - 1, 1 }, { HTH_BLOCK, 0 },
        { HTH_BLOCK, HTH_SLICE_MAX + 1 }, { UINT64_MAX, 1 }, { HTH_BLOCK, UINT64_MAX } };
    unsigned char body[40 + 40 + 8 + 1] = { 0 };
    struct hth_writer at = { .at = body, .cap = sizeof(body) };
    struct hth_slice_said said;
    struct hth_slices in;

    hth_write_save(&at, save);
    hth_put32(body + 32, 1);
    hth_put64(body + 48, HTH_BLOCK);
    hth_put64(body + 56, 8);
    hth_put64(body + 64, HTH_SLICE_RIGHT);
    hth_put32(body + 76, 8); /* bytes */
    for (size_t len = 0; len <= sizeof(body); len++) {
        int rc = hth_slices_decode(&in, HTH_MSG_SLICES_WANT, body, len);

        cr_assert(eq(int, rc, len == 64 ? HEARTH_OK : HEARTH_EPROTO));
        rc = hth_slices_decode(&in, HTH_MSG_SLICES, body, len);
        cr_assert(eq(int, rc, len >= 40 ? HEARTH_OK : HEARTH_EPROTO));
        cr_assert(eq(int, !rc && hth_slices_next(&in, &said), len >= 88));
        cr_assert(rc || len < 88 || said.bytes == body + 80);
    }
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        hth_put64(body + 48, hostile[i][0]);
        hth_put64(body + 56, hostile[i][1]);
        must(hth_slices_decode(&in, HTH_MSG_SLICES_WANT, body, 64));
        cr_assert(zero(int, hth_slices_next(&in, &said)));
        cr_assert(hth_transfer_message(&p->node[1].ctx, 0, HTH_MSG_SLICES_WANT, body, 64));
        cr_assert(eq(ptr, p->node[1].ctx.transfer->sums, NULL));
    }
    hth_put64(body + 48, HTH_BLOCK);
    hth_put64(body + 56, 9); /* other bytes than the slice has */
    must(hth_slices_decode(&in, HTH_MSG_SLICES, body, 88));
    cr_assert(zero(int, hth_slices_next(&in, &said)));
    hth_put64(body + 56, 8);
    hth_put64(body + 64, 0); /* bytes of a wrong chunk */
    must(hth_slices_decode(&in, HTH_MSG_SLICES, body, 88));
    cr_assert(zero(int, hth_slices_next(&in, &said)));
    hth_put32(body + 32, 0);
    must_fail(hth_slices_decode(&in, HTH_MSG_SLICES, body, 88), HEARTH_EPROTO);
}
