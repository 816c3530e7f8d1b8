/* SPDX-License-Identifier: Apache-2.0 */
/* Files without a table, from node to node: nothing but the digest of all of it says what is
 * right. */
#include "check.h"
#include "pair.h"

#include "core/base/auth.h"
#include "core/foreign/foreign.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB  UINT64_C(1048576)
#define NAME "__0__0_src0.distcp"

static struct pair *p;
static uint32_t pulls[8]; /* from each */
static struct {
    uint32_t from, first, last;
    enum hth_loop_fault fault;
} bad;

static struct {
    uint32_t ended;
    int code;
    struct hearth_error err;
} out;

static struct hth_loop_verdict script(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { .delay_ms = 1 };

    (void)arg, (void)from, (void)bytes, (void)len;
    if (kind == HTH_LOOP_PULL) {
        uint32_t n = pulls[to]++;

        if (to == bad.from && n >= bad.first && n < bad.last)
            v.fault = bad.fault;
    }
    return v;
}

static void begin(void)
{
    alarm(100);
    p = pair_open(4);
    hth_loop_net_script(p->net, script, NULL);
}

static void end(void)
{
    pair_close(p);
}

TestSuite(foreign, .init = begin, .fini = end);

/* The file at a node, as if it were the container's own there; content from `seed`. */
static struct hth_held *file(uint32_t node, uint64_t bytes, uint64_t seed)
{
    struct hth_ctx *c = &p->node[node].ctx;
    struct hth_object o = hth_foreign_object(NAME, bytes);
    struct hth_held_save *s = hth_holdings_get(c, hth_save_of_foreign(7));
    struct hth_held *held;
    struct hth_slot *slot;

    must(c->store->ops->take(c->store, bytes, &slot, NULL));
    for (uint64_t at = 0; at < bytes; at++)
        slot->base[at] = (unsigned char)(at * 31 + at / 4096 + seed);
    hth_digest(o.digest, slot->base, bytes);
    held = hth_held_add(s, &o, HTH_HELD_SEALED, slot);
    cr_assert(ne(ptr, held, NULL));
    held->theirs = 1;
    held->verified = 1;
    return held;
}

static void on_fetched(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    (void)self, (void)fetch;
    out.ended++;
    out.code = code;
    out.err = *err;
}

static const uint32_t both[] = { 1, 2 };

static void fetch(const struct hth_object *object, uint32_t sources)
{
    struct hth_fetch *f;
    struct hearth_error err;
    int rc = hth_fetch_start(&p->node[0].ctx,
            &(struct hth_fetch_want){ .save = hth_save_of_foreign(7),
                    .object = *object,
                    .sources = both,
                    .count = sources,
                    .class = HTH_FETCH_RECOVERY,
                    .deadline_ms = 20000,
                    .done = on_fetched },
            &f, &err);

    cr_assert(eq(int, rc, 0), "%s", err.text);
}

static struct hth_held *here(void)
{
    return pair_held(p, 0, hth_save_of_foreign(7), hth_foreign_object(NAME, 1).id);
}

static void came(const struct hth_held *from)
{
    struct hth_held *h;

    cr_assert(pair_until(p, &out.ended, 1, 30000));
    cr_assert(eq(int, out.code, 0), "%s", out.err.text);
    h = here();
    cr_assert(ne(ptr, h, NULL));
    cr_assert(eq(int, (int)h->state, HTH_HELD_SEALED));
    cr_assert(eq(int, h->verified, 1));
    cr_assert(eq(int, h->theirs, 0));
    cr_assert(zero(int, memcmp(h->slot->base, from->slot->base, from->object.data_len)));
}

Test(foreign, a_file_comes_whole_from_one_of_its_holders)
{
    struct hth_held *a = file(1, 33 * MIB + 17, 1), *b = file(2, 33 * MIB + 17, 1);

    fetch(&a->object, 2);
    came(a);
    cr_assert(eq(u32, pulls[1] + pulls[2], 9));
    cr_assert(pulls[1] == 0 || pulls[2] == 0);
    pair_run(p, 200);
    cr_assert(eq(u32, a->slot->leases + b->slot->leases, 0));
}

Test(foreign, a_holder_of_other_bytes_is_left_for_the_next)
{
    struct hth_held *a = file(1, 9 * MIB, 1), *b = file(2, 9 * MIB, 1);

    a->slot->base[5 * MIB] ^= 1; /* since it was digested */
    fetch(&b->object, 2);
    came(b);
    cr_assert(ge(int, pair_logged(p, 0, "bad-chunk"), pulls[1] ? 1 : 0));
    cr_assert(eq(u32, pulls[2], 3));
}

Test(foreign, a_wrong_byte_on_the_way_is_found_and_all_of_it_pulled_again)
{
    struct hth_held *a = file(1, 9 * MIB, 1);

    bad.from = 1;
    bad.first = 1;
    bad.last = 2;
    bad.fault = HTH_LOOP_FLIP;
    fetch(&a->object, 1);
    came(a);
    cr_assert(eq(u32, pulls[1], 6));
    cr_assert(eq(int, pair_logged(p, 0, "bad-chunk"), 1));
}

Test(foreign, with_wrong_bytes_from_everybody_it_is_lost)
{
    struct hth_held *a = file(1, 5 * MIB, 1), *b = file(2, 5 * MIB, 1);

    a->slot->base[1] ^= 1;
    b->slot->base[2] ^= 1;
    fetch(&a->object, 2);
    cr_assert(pair_until(p, &out.ended, 1, 30000));
    cr_assert(eq(int, out.code, HEARTH_ELOST), "%s", out.err.text);
    cr_assert(ne(ptr, strstr(out.err.text, "the file is not the one wanted"), NULL), "%s",
            out.err.text);
    cr_assert(eq(ptr, here(), NULL));
}

Test(foreign, a_holder_that_dies_under_way_is_replaced_from_the_beginning)
{
    struct hth_held *a = file(1, 60 * MIB, 1), *b = file(2, 60 * MIB, 1);
    uint32_t first;

    fetch(&a->object, 2);
    cr_assert(pair_until(p, &pulls[1], 6, 2000) || pair_until(p, &pulls[2], 6, 1));
    first = pulls[1] ? 1 : 2;
    pair_node_close(p, first);
    came(first == 1 ? b : a);
    cr_assert(eq(u32, pulls[3 - first], 15));
}

Test(foreign, a_part_of_it_cannot_be_asked_for)
{
    struct hth_held *a = file(1, MIB, 1);
    struct hth_fetch *f;
    struct hearth_error err;
    struct hth_fetch_want want = { .save = hth_save_of_foreign(7),
        .object = a->object,
        .sources = both,
        .count = 1,
        .class = HTH_FETCH_READ,
        .off = 0,
        .len = 100,
        .done = on_fetched };

    must_fail(hth_fetch_start(&p->node[0].ctx, &want, &f, &err), HEARTH_EINVAL);
    want.len = 0;
    want.object.data_len = 0;
    must_fail(hth_fetch_start(&p->node[0].ctx, &want, &f, &err), HEARTH_EINVAL);
}

/* ---- What the catalogue does with it
 * ------------------------------------------------------------- */

static void know_manifest(uint32_t node, const struct hth_object *object)
{
    struct hth_ctx *c = &p->node[node].ctx;
    struct hth_object copy = *object;
    struct hth_manifest m = {
        .save = hth_save_of_foreign(7), .world = 1, .nodes = 1, .objects = 1, .object = &copy
    };
    unsigned char *bytes = malloc(hth_manifest_bytes(&m));

    memcpy(m.job, c->opts.job, sizeof(m.job));
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_held_set_manifest(
            c, hth_holdings_get(c, m.save), bytes, hth_manifest_bytes(&m), NULL));
}

Test(foreign, the_next_engine_knows_what_came_by_the_manifest)
{
    struct hth_held *a = file(1, 3 * MIB, 1);

    fetch(&a->object, 1);
    came(a);
    know_manifest(0, &a->object);
    pair_node_close(p, 0);
    pair_node_open(p, 0);
    cr_assert(ne(ptr, here(), NULL));
    cr_assert(eq(int, here()->verified, 0));
    cr_assert(eq(u64, here()->object.data_len, 3 * MIB));
    here()->slot->base[MIB] ^= 1;
    must(hth_digest_start(
            &p->node[0].ctx, hth_holdings_first(&p->node[0].ctx), here(), NULL, NULL, NULL));
    pair_run(p, 10);
    cr_assert(eq(int, here()->verified, 0)); /* it is not what it was */
}

Test(foreign, what_nobody_can_name_any_more_goes_back)
{
    struct hth_held *a = file(1, 3 * MIB, 1);

    fetch(&a->object, 1);
    came(a);
    pair_node_close(p, 0);
    pair_node_open(p, 0);
    cr_assert(eq(ptr, here(), NULL));
}

Test(foreign, freeing_takes_what_came_and_leaves_what_was_there)
{
    struct hth_held *a = file(1, 3 * MIB, 1);
    struct hth_ctx *c = &p->node[1].ctx;
    struct hth_slot *slot = a->slot;

    know_manifest(1, &a->object);
    hth_holdings_free_save(c, hth_holdings_first(c));
    cr_assert(ne(ptr, hth_holdings_first(c), NULL));
    cr_assert(eq(ptr, hth_holdings_first(c)->held, a));
    cr_assert(eq(ptr, a->slot, slot));
    cr_assert(eq(int, hth_holdings_first(c)->has_manifest, 0));
    fetch(&a->object, 1);
    came(a);
    hth_holdings_free_save(&p->node[0].ctx, hth_holdings_first(&p->node[0].ctx));
    cr_assert(eq(ptr, hth_holdings_first(&p->node[0].ctx), NULL));
}
