/* SPDX-License-Identifier: Apache-2.0 */
/* Raw objects: put by a rank, from node to node, and when they cannot be written. */
#include "check.h"
#include "content.h"
#include "pair.h"
#include "raws.h"
#include "store_mem.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"
#include <stdlib.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)
#define LEN (35 * MIB + 7) /* three pieces, nine pulls */

static const struct hth_save_id save = { 7, 77, 40, 1 };
static struct pair *p;
static unsigned char *bytes;

static struct {
    int calls, code;
    char text[HEARTH_ERROR_TEXT];
} end;

static void open_nodes(uint32_t nodes)
{
    uint64_t seed = 1;

    alarm(60);
    p = pair_open(nodes);
    bytes = malloc(LEN);
    for (size_t i = 0; i + 8 <= LEN; i += 8) {
        uint64_t v = hth_splitmix64(&seed);

        memcpy(bytes + i, &v, 8);
    }
    memset(bytes + LEN - 7, 9, 7);
}

static void close_nodes(void)
{
    if (p)
        pair_close(p);
    free(bytes);
}

TestSuite(raw, .fini = close_nodes);

static void on_put(void *self, struct hth_held_save *s, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    (void)self, (void)s, (void)held;
    end.calls++;
    end.code = code;
    if (code)
        strcpy(end.text, err->text);
}

static struct hth_object object(uint64_t len)
{
    struct hth_object o = { .id = 6, .kind = HTH_OBJECT_RAW, .data_len = len, .name = ".metadata" };

    hth_digest(o.digest, bytes, len);
    return o;
}

static struct hth_held *put(uint32_t node, struct hth_content *content)
{
    struct hth_ctx *c = &p->node[node].ctx;
    struct hth_held_save *s = hth_holdings_get(c, save);
    struct hth_object o = object(content->len);
    struct hth_held *h;

    memset(o.digest, 0, sizeof(o.digest));
    h = hth_held_add(s, &o, HTH_HELD_LENT, NULL);
    must(hth_raw_put(c, s, h, content, on_put, NULL, NULL));
    return h;
}

/* Its nodes know the manifest. */
static void know(uint32_t node, const struct hth_object *o)
{
    struct hth_ctx *c = &p->node[node].ctx;
    struct hth_object copy = *o;
    struct hth_manifest m = {
        .save = save, .world = 1, .nodes = 1, .job = "pair", .objects = 1, .object = &copy
    };
    unsigned char *record = malloc(hth_manifest_bytes(&m));

    must(hth_manifest_encode(&m, record, NULL));
    must(hth_held_set_manifest(c, hth_holdings_get(c, save), record, hth_manifest_bytes(&m), NULL));
}

static const struct hth_blob_id id = { HTH_BLOB_RAW, { 7, 77, 40, 1 }, 6 };

static int has(uint32_t node, uint64_t len)
{
    struct hth_held *h = pair_held(p, node, save, 6);

    return h && h->state == HTH_HELD_SEALED && h->verified &&
           raw_is(p->node[node].store, save, ".metadata", bytes, len);
}

/* ---- Put ------------------------------------------------------------------------------------- */

Test(raw, what_a_rank_puts_is_copied_and_digested_a_piece_at_a_time)
{
    struct hth_held *h;
    struct hth_object o;
    int works = 0;

    open_nodes(1);
    h = put(0, content_of(bytes, LEN));
    cr_assert(eq(int, (int)h->state, HTH_HELD_SEALING));
    for (; p->works; works++)
        pair_step(p);
    cr_assert(eq(int, works, 4), "three pieces, and the end of the content");
    cr_assert(eq(int, end.calls, 1));
    cr_assert(eq(int, end.code, HEARTH_OK));
    cr_assert(has(0, LEN));
    o = object(LEN);
    cr_assert(zero(int, memcmp(o.digest, h->object.digest, HTH_DIGEST)));
}

Test(raw, one_of_no_bytes_can_be_put)
{
    open_nodes(1);
    put(0, content_of("", 0));
    pair_run(p, 1);
    cr_assert(has(0, 0));
}

Test(raw, a_save_that_goes_while_it_is_put_leaves_nothing)
{
    open_nodes(1);
    put(0, content_of(bytes, LEN));
    pair_step(p);
    hth_holdings_free_save(&p->node[0].ctx, hth_holdings_find(&p->node[0].ctx, save));
    cr_assert(ge(u64, hth_store_mem_used(p->node[0].store), LEN), "a worker is on it");
    pair_run(p, 1);
    cr_assert(eq(int, end.code, HEARTH_ECANCELED));
    cr_assert(eq(u64, hth_store_mem_used(p->node[0].store), 0));
}

Test(raw, an_engine_that_ends_while_it_is_put_leaves_nothing)
{
    open_nodes(1);
    put(0, content_of(bytes, LEN));
    p->works = NULL; /* as a pool that was stopped */
    p->works_end = &p->works;
    pair_node_close(p, 0);
    cr_assert(eq(int, end.calls, 0));
    cr_assert(eq(u64, hth_store_mem_used(p->node[0].store), 0));
}

static int change(struct hth_content *content, uint64_t off, void *out, size_t len)
{
    return off ? -1 : content_read(content, off, out, len);
}

Test(raw, a_content_that_changes_is_an_error_and_nothing_is_held)
{
    struct hth_content *content;

    open_nodes(1);
    content = content_of(bytes, LEN);
    content->read = change;
    put(0, content);
    pair_run(p, 1);
    cr_assert(eq(int, end.code, HEARTH_EPROTO));
    cr_assert(ne(ptr, strstr(end.text, "'.metadata' changed while it was read"), NULL), "%s",
            end.text);
    cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 6)));
    cr_assert(eq(u64, hth_store_mem_used(p->node[0].store), 0));
}

/* ---- From node to node ----------------------------------------------------------------------- */

static struct hth_object shared(uint32_t nodes)
{
    struct hth_object o;

    open_nodes(nodes);
    o = object(LEN);
    put(nodes - 1, content_of(bytes, LEN));
    pair_run(p, 1);
    for (uint32_t i = 0; i < nodes; i++)
        know(i, &o);
    return o;
}

static uint64_t manifest_bytes(void)
{
    return hth_holdings_find(&p->node[0].ctx, save)->manifest_len;
}

Test(raw, whoever_knows_the_manifest_asks_for_it_and_keeps_one_copy)
{
    shared(4);
    must(hth_blob_fetch(&p->node[0].ctx, &id, 3, NULL));
    for (uint32_t i = 1; i < 3; i++)
        must(hth_blob_fetch(&p->node[i].ctx, &id, HTH_NODE_NONE, NULL));
    pair_run(p, 2000);
    for (uint32_t i = 0; i < 4; i++) {
        cr_assert(has(i, LEN), "node %u", i);
        cr_assert(eq(u64, hth_store_mem_used(p->node[i].store), LEN + manifest_bytes()));
        cr_assert(eq(u64, hth_blobs_due_ms(&p->node[i].ctx), HTH_NEVER), "node %u goes on", i);
    }
    cr_assert(eq(u32, p->node[0].arrived, 1));
    cr_assert(eq(u32, p->node[3].arrived, 0), "it had it");
}

Test(raw, is_served_again_by_an_engine_that_found_it)
{
    struct hth_object o = shared(2);

    pair_node_close(p, 1);
    pair_node_open(p, 1);
    (void)o;
    must(hth_blob_fetch(&p->node[0].ctx, &id, 1, NULL));
    pair_run(p, 5000);
    cr_assert(has(0, LEN));
}

Test(raw, freed_under_way_it_leaves_nothing)
{
    shared(2);
    must(hth_blob_fetch(&p->node[0].ctx, &id, 1, NULL));
    while (hth_store_mem_used(p->node[0].store) <= LEN)
        cr_assert(pair_step(p));
    hth_blobs_forget(&p->node[0].ctx, save);
    hth_holdings_free_save(&p->node[0].ctx, hth_holdings_find(&p->node[0].ctx, save));
    pair_run(p, 2000);
    cr_assert(eq(u64, hth_store_mem_used(p->node[0].store), 0));
    cr_assert(eq(u32, p->node[0].arrived, 0));
}

/* Its directory, itself, memory for it three times, its name: whatever fails. */
Test(raw, what_cannot_be_written_is_said_once_and_tried_again)
{
    shared(2);
    for (uint32_t n = 1; n <= 6; n++) {
        struct hth_ctx *c = &p->node[0].ctx;
        struct hth_object o = object(LEN);

        p->node[0].blob_failed = 0;
        hth_store_mem_fail_at(p->node[0].store, n);
        must(hth_blob_fetch(c, &id, 1, NULL));
        pair_run(p, 60);
        cr_assert(eq(u32, p->node[0].blob_failed, 1), "allocation %u", n);
        cr_assert(
                ne(ptr, strstr(p->node[0].last, "fails allocation"), NULL), "%s", p->node[0].last);
        cr_assert(zero(ptr, (void *)pair_held(p, 0, save, 6)));
        pair_run(p, 2000);
        cr_assert(has(0, LEN), "allocation %u", n);
        cr_assert(eq(u32, p->node[0].blob_failed, 1), "allocation %u", n);
        hth_blobs_forget(c, save);
        hth_holdings_free_save(c, hth_holdings_find(c, save));
        pair_run(p, 10);
        cr_assert(eq(u64, hth_store_mem_used(p->node[0].store), 0));
        know(0, &o);
    }
}

Test(raw, one_that_went_bad_after_it_came_is_fetched_again)
{
    struct hth_ctx *c;

    shared(2);
    c = &p->node[0].ctx;
    must(hth_blob_fetch(c, &id, 1, NULL));
    pair_run(p, 1000);
    must(raw_put(p->node[0].store, save, ".metadata", "damaged", 7, NULL));
    hth_held_drop(c, hth_holdings_find(c, save), pair_held(p, 0, save, 6));
    must(hth_blob_fetch(c, &id, 1, NULL));
    pair_run(p, 1000);
    cr_assert(has(0, LEN));
}

static void offer(uint64_t object_id, uint64_t len, const unsigned char *digest)
{
    unsigned char body[96 + 40] = { 0 };
    struct hth_writer w = { .at = body, .cap = sizeof(body) };
    static const unsigned char desc[40];

    hth_write32(&w, HTH_BLOB_RAW);
    hth_write32(&w, 0);
    hth_write64(&w, save.epoch);
    hth_write64(&w, save.nonce);
    hth_write64(&w, save.step);
    hth_write32(&w, save.attempt);
    hth_write32(&w, 0);
    hth_write64(&w, object_id);
    hth_write64(&w, len);
    hth_write(&w, digest, HTH_DIGEST);
    hth_write32(&w, sizeof(desc));
    hth_write32(&w, 0);
    hth_write(&w, desc, sizeof(desc));
    cr_assert(eq(int, hth_blobs_message(&p->node[1].ctx, 0, HTH_MSG_BLOB, body, w.len), 1));
}

Test(raw, nobodys_word_but_the_manifests_makes_room)
{
    struct hth_object o;
    unsigned char other[HTH_DIGEST] = { 1 };
    uint64_t before;

    open_nodes(2);
    o = object(LEN);
    before = hth_store_mem_allocations(p->node[1].store);
    offer(6, LEN, o.digest); /* of a save that is not known */
    cr_assert(eq(u64, hth_store_mem_allocations(p->node[1].store), before));
    know(1, &o);
    before = hth_store_mem_allocations(p->node[1].store);
    offer(6, UINT64_C(1) << 62, o.digest);
    offer(6, LEN + 1, o.digest);
    offer(6, LEN, other);
    offer(7, LEN, o.digest);
    cr_assert(eq(u64, hth_store_mem_allocations(p->node[1].store), before));
    offer(6, LEN, o.digest);
    cr_assert(gt(u64, hth_store_mem_allocations(p->node[1].store), before));
}
