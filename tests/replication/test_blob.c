/* SPDX-License-Identifier: Apache-2.0 */
/* Large blobs that every node needs, down the tree. */
#include "check.h"
#include "core/base/bytes.h"
#include "pair.h"

#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#define MIB UINT64_C(1048576)

static const struct hth_blob_id id = { HTH_BLOB_MANIFEST, { 7, 77, 40, 1 }, 0 };
static struct pair *p;
static unsigned char *bytes;
static size_t len = 9 * MIB + 5;

static struct {
    enum hth_loop_fault fault;
    uint32_t first, last, pulls;
    uint32_t served[PAIR_NODES];
    uint32_t delay_ms;
    int apart; /* pulls of node 2 from node 0 stall */
} net;

static struct hth_loop_verdict script(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *message, size_t n)
{
    struct hth_loop_verdict v = { .delay_ms = net.delay_ms };

    (void)arg, (void)message, (void)n;
    if (kind != HTH_LOOP_PULL)
        return v;
    net.served[to]++;
    if (net.pulls >= net.first && net.pulls < net.last)
        v.fault = net.fault;
    net.pulls++;
    if (net.apart && from == 2 && to == 0)
        v.fault = HTH_LOOP_STALL;
    return v;
}

static void open_nodes(uint32_t nodes)
{
    uint64_t seed = 1;

    alarm(60);
    p = pair_open(nodes);
    hth_loop_net_script(p->net, script, NULL);
    bytes = malloc(len);
    for (size_t i = 0; i + 8 <= len; i += 8) {
        uint64_t v = hth_splitmix64(&seed);

        memcpy(bytes + i, &v, 8);
    }
}

static void end(void)
{
    if (p)
        pair_close(p);
    free(bytes);
}

TestSuite(blob, .fini = end);

static int has(uint32_t node)
{
    size_t n = 0;
    const unsigned char *at = hth_blob_find(&p->node[node].ctx, &id, &n);

    return at && n == len && !memcmp(at, bytes, len);
}

static void all_have(uint64_t ms)
{
    pair_run(p, ms);
    for (uint32_t i = 1; i < p->nodes; i++) {
        if (!p->node[i].open)
            continue;
        cr_assert(eq(int, has(i), 1), "node %u", i);
        cr_assert(eq(u32, p->node[i].arrived, 1), "node %u", i);
    }
}

Test(blob, everybody_gets_it_from_the_parent_and_only_once)
{
    len = 5 * MIB;
    open_nodes(70);
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    all_have(500);
    cr_assert(eq(u32, p->node[0].arrived, 0));
    cr_assert(eq(u32, net.served[0], 64)); /* two parts to each of 32 children */
    cr_assert(eq(u32, net.served[1], 64));
    cr_assert(eq(u32, net.served[2], 10)); /* 65 .. 69 */
    cr_assert(eq(u64, hth_blobs_due_ms(&p->node[0].ctx), HTH_NEVER), "it goes on offering");
}

Test(blob, one_of_no_bytes_arrives)
{
    len = 0;
    open_nodes(3);
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    all_have(500);
}

static void survives(enum hth_loop_fault fault)
{
    open_nodes(3);
    net.fault = fault;
    net.first = 1;
    net.last = 4;
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    all_have(10000);
}

Test(blob, survives_broken_connections)
{
    survives(HTH_LOOP_DROP);
}

Test(blob, survives_stalls)
{
    survives(HTH_LOOP_STALL);
}

/* Messages of the parent come all the while. */
Test(blob, comes_from_another_where_pulls_from_the_parent_stall)
{
    len = 4096;
    open_nodes(4);
    net.apart = 1;
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    all_have(4000);
}

Test(blob, is_pulled_again_when_a_byte_came_wrong)
{
    survives(HTH_LOOP_FLIP);
    cr_assert(gt(int, pair_logged(p, 1, "blob-bad") + pair_logged(p, 2, "blob-bad"), 0));
}

Test(blob, children_of_a_lost_parent_get_it_from_the_next)
{
    len = 3 * MIB;
    open_nodes(70);
    pair_node_close(p, 2); /* before it could give on */
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    pair_run(p, 1000);
    cr_assert(eq(int, has(69), 0));
    for (uint32_t i = 0; i < 70; i++)
        p->node[i].lost[2] = 1; /* as the coordinator's word would do */
    all_have(1000);
}

Test(blob, a_child_whose_parent_dies_under_way_goes_on_with_the_next)
{
    open_nodes(34); /* 33 is a child of 1 */
    net.delay_ms = 20;
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    while (net.served[1] < 2)
        cr_assert(pair_step(p));
    pair_node_close(p, 1);
    all_have(10000);
    cr_assert(eq(u32, p->node[33].peer_downs, 1));
}

Test(blob, may_start_elsewhere)
{
    open_nodes(70);
    must(hth_blob_serve(&p->node[69].ctx, &id, bytes, len, NULL));
    must(hth_blob_fetch(&p->node[0].ctx, &id, 69, NULL));
    pair_run(p, 2000);
    for (uint32_t i = 0; i < 70; i++)
        cr_assert(eq(int, has(i), 1), "node %u", i);
    cr_assert(eq(u32, p->node[0].arrived, 1));
    cr_assert(eq(u32, p->node[69].arrived, 0), "it had it");
}

Test(blob, is_asked_for_until_the_other_has_it)
{
    open_nodes(3);
    must(hth_blob_fetch(&p->node[0].ctx, &id, 2, NULL));
    pair_run(p, 1000);
    must(hth_blob_serve(&p->node[2].ctx, &id, bytes, len, NULL));
    pair_run(p, 1000);
    cr_assert(eq(int, has(0), 1));
    cr_assert(eq(int, has(1), 1));
}

Test(blob, of_a_manifest_that_is_held_comes_from_what_is_held)
{
    struct hth_manifest m = { .save = id.save, .world = 1, .nodes = 1, .job = "pair" };
    struct hth_ctx *holder;
    unsigned char *copy;

    len = hth_manifest_bytes(&m);
    open_nodes(3);
    holder = &p->node[2].ctx;
    must(hth_manifest_encode(&m, bytes, NULL));
    copy = malloc(len);
    memcpy(copy, bytes, len);
    must(hth_held_set_manifest(holder, hth_holdings_get(holder, id.save), copy, len, NULL));
    must(hth_blob_fetch(&p->node[1].ctx, &id, 2, NULL));
    pair_run(p, 1000);
    cr_assert(eq(int, has(1), 1));
}

Test(blob, forgotten_under_way_it_ends_quietly)
{
    open_nodes(3);
    net.delay_ms = 20;
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    while (net.pulls < 2)
        cr_assert(pair_step(p));
    for (uint32_t i = 0; i < 3; i++)
        hth_blobs_forget(&p->node[i].ctx, id.save);
    pair_run(p, 1000);
    for (uint32_t i = 0; i < 3; i++)
        cr_assert(eq(int, has(i), 0));
    cr_assert(eq(u32, p->node[1].arrived + p->node[2].arrived, 0));
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    all_have(1000);
}

/* From node `from` to node 1: other saves' manifests, as long as they may be, and each named
 * once. */
static void flood(uint32_t from, uint32_t count)
{
    unsigned char body[48 + 8 + HTH_DIGEST + 8 + 16];

    for (uint32_t i = 0; i < count; i++) {
        memset(body, 1, sizeof(body));
        memset(body, 0, 48);
        body[0] = HTH_BLOB_MANIFEST;
        hth_put64(body + 8, 7);
        hth_put64(body + 16, 77);
        hth_put64(body + 24, 1000 + i);
        hth_put64(body + 48, 60 * MIB);
        hth_put32(body + 56 + HTH_DIGEST, 16);
        hth_put32(body + 60 + HTH_DIGEST, 0);
        cr_assert(eq(int,
                hth_blobs_message(&p->node[1].ctx, from, HTH_MSG_BLOB, body, sizeof(body)), 1));
    }
}

/* In the heap, or mapped for it. */
static size_t memory(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

Test(blob, what_nobody_asked_for_comes_from_an_ancestor_alone)
{
    size_t before;

    len = MIB;
    open_nodes(3);
    before = memory();
    flood(2, 5000);
    cr_assert(lt(sz, memory(), before + MIB));
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    all_have(500);
}

Test(blob, an_ancestor_that_lies_costs_no_more_than_a_bound_and_no_place_of_what_is_asked_for)
{
    size_t before;

    len = MIB;
    open_nodes(3);
    before = memory();
    flood(0, 5000);
    cr_assert(lt(sz, memory(), before + 1100 * MIB));
    must(hth_blob_serve(&p->node[2].ctx, &id, bytes, len, NULL));
    must(hth_blob_fetch(&p->node[1].ctx, &id, 2, NULL));
    pair_run(p, 2000);
    cr_assert(eq(int, has(1), 1));
}

Test(blob, refuses_more_than_its_bound_and_ignores_nonsense)
{
    unsigned char body[200];
    uint64_t seed = 3;

    len = MIB;
    open_nodes(3);
    must_fail(hth_blob_give(&p->node[0].ctx, &id, bytes, (size_t)65 << 20, NULL), HEARTH_EINVAL);
    must_fail(hth_blob_fetch(&p->node[0].ctx, &id, 3, NULL), HEARTH_EINVAL);
    must_fail(hth_blob_fetch(&p->node[0].ctx, &id, 0, NULL), HEARTH_EINVAL);
    must(hth_blob_give(&p->node[0].ctx, &id, bytes, len, NULL));
    for (int round = 0; round < 20000; round++) {
        size_t n = hth_splitmix64(&seed) % sizeof(body);
        uint16_t type = (uint16_t)(HTH_MSG_BLOB + hth_splitmix64(&seed) % 3);

        for (size_t i = 0; i < n; i++)
            body[i] = (unsigned char)(hth_splitmix64(&seed) % 3);
        cr_assert(eq(int, hth_blobs_message(&p->node[1].ctx, 0, type, body, n), 1));
    }
    cr_assert(eq(int, hth_blobs_message(&p->node[1].ctx, 0, HTH_MSG_UP, body, 10), 0));
    pair_run(p, 1000);
    cr_assert(eq(int, has(1), 1));
}
