/* SPDX-License-Identifier: Apache-2.0 */
/* A node's engine receives the ranks' table from another node's. */
#include "check.h"
#include "content.h"
#include "saving.h"

#include "core/format/ticket.h"
#include <stdlib.h>

#define CLIENT 99990u /* on each node one that is no rank of the world */
#define LEN    1000003u

static struct world w;
static unsigned char table[LEN];
static uint32_t answers, last_type; /* to requests of CLIENT at node 1 */
static int last_code;

static void hear(struct world *world, const struct letter *l)
{
    const struct hth_local_error *e = (const void *)l->bytes;

    (void)world;
    if (l->client != CLIENT || l->machine != 1)
        return;
    answers++;
    last_type = e->head.type;
    last_code = e->head.type == HTH_LOCAL_ERROR ? e->code : 0;
}

static void run(uint64_t ms)
{
    machine_touch(&w, 0);
    machine_touch(&w, 1);
    for (uint64_t end_ms = w.now_ms + ms; w.now_ms < end_ms;)
        world_advance(&w, w.now_ms + 1);
}

static void attach(uint32_t node)
{
    struct hth_local_attach m = { .head = { sizeof(m), HTH_LOCAL_ATTACH, 1, 0 },
        .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = node,
        .world = 2,
        .job = "sim" };

    hth_node_client_gone(world_node(&w, node), w.rank[node].client); /* its place is ours */
    hth_node_request(world_node(&w, node), CLIENT, &m, sizeof(m), NULL);
    run(1);
}

static void start(void)
{
    saving_open(&w, 1, 1);
    w.stranger = hear;
    attach(0);
    attach(1);
    for (size_t i = 0; i < LEN; i++)
        table[i] = (unsigned char)(i * i >> 5);
    answers = 0;
}

static void end(void)
{
    world_close(&w);
}

TestSuite(fetch, .init = start, .fini = end);

static void bring(uint32_t node, uint32_t round)
{
    struct hth_local_meet m = { .head = { sizeof(m), HTH_LOCAL_BRING, 2, 0 }, .round = round };

    hth_node_request(
            world_node(&w, node), CLIENT, &m, sizeof(m), content_of((const char *)table, LEN));
    run(1);
}

static struct hth_ticket ticket(uint32_t node)
{
    struct hth_ctx *ctx = hth_node_ctx(world_node(&w, node));
    struct hth_ticket t = { .len = LEN, .at = ctx->epoch->member[ctx->epoch->self] };

    hth_digest(t.digest, table, LEN);
    return t;
}

static void fetch(uint32_t round, const struct hth_ticket *t, uint32_t wait_ms)
{
    struct hth_local_fetch m = {
        .head = { sizeof(m), HTH_LOCAL_FETCH, 3, 0 }, .round = round, .wait_ms = wait_ms
    };

    hth_ticket_encode(t, m.ticket);
    hth_node_request(world_node(&w, 1), CLIENT, &m, sizeof(m), NULL);
}

static void meet(uint32_t round)
{
    struct hth_local_meet m = {
        .head = { sizeof(m), HTH_LOCAL_MEET, 4, 0 }, .round = round, .wait_ms = 5000
    };

    hth_node_request(world_node(&w, 1), CLIENT, &m, sizeof(m), NULL);
}

Test(fetch, the_table_comes_from_the_other_engine_to_all_that_wait_for_it)
{
    struct hth_ticket t = ticket(0);
    struct hth_save_id newest = w.newest.id;

    bring(0, 7);
    meet(7);
    fetch(7, &t, 5000);
    cr_assert(zero(u32, answers));
    run(1000);
    cr_assert(eq(u32, answers, 2));
    cr_assert(eq(u32, last_type, HTH_LOCAL_BYTES));
    meet(7);
    fetch(7, &t, 5000); /* it is here */
    run(10);
    cr_assert(eq(u32, answers, 4));
    cr_assert(eq(u32, last_type, HTH_LOCAL_BYTES));
    cr_assert(zero(int, hth_save_cmp(newest, w.newest.id))); /* nothing of the epoch was touched */
    cr_assert(zero(int, w.why[0]), "%s", w.why);
}

Test(fetch, an_engine_that_has_another_table_says_so_at_once)
{
    struct hth_ticket t = ticket(0);

    bring(0, 8);
    fetch(7, &t, 5000);
    run(200);
    cr_assert(eq(u32, answers, 1));
    cr_assert(eq(int, last_code, HEARTH_ENOENT));
    fetch(8, &t, 5000);
    run(1000);
    cr_assert(eq(u32, last_type, HTH_LOCAL_BYTES));
}

Test(fetch, bytes_that_rank_0_did_not_send_are_not_taken)
{
    struct hth_ticket t = ticket(0);

    t.digest[3] ^= 1;
    bring(0, 7);
    fetch(7, &t, 5000);
    run(1000);
    cr_assert(eq(u32, answers, 1));
    cr_assert(eq(int, last_code, HEARTH_ECORRUPT));
    t = ticket(0);
    t.len--; /* of a shorter table the last part is not what it should be */
    fetch(7, &t, 5000);
    run(1000);
    cr_assert(eq(int, last_code, HEARTH_ENOENT));
}

Test(fetch, an_engine_that_dies_on_the_way_or_is_not_there_is_an_error_in_time)
{
    struct hth_ticket t = ticket(0);

    bring(0, 7);
    fetch(7, &t, 20000);
    run(4); /* the first parts */
    cr_assert(zero(u32, answers));
    world_crash(&w, 0);
    run(1000);
    cr_assert(eq(u32, answers, 1));
    cr_assert(eq(int, last_code, HEARTH_EPEER));
    fetch(7, &t, 300);
    run(200);
    cr_assert(eq(u32, answers, 1));
    run(200);
    cr_assert(eq(u32, answers, 2));
    cr_assert(eq(int, last_code, HEARTH_ETIMEOUT));
}

Test(fetch, a_newer_ticket_counts_and_so_does_a_table_that_a_rank_brings)
{
    struct hth_ticket t = ticket(0), nowhere = t;

    nowhere.at.store++;
    bring(0, 7);
    fetch(7, &nowhere, 20000);
    run(10);
    fetch(7, &t, 20000);
    run(1000);
    cr_assert(eq(u32, answers, 2));
    cr_assert(eq(u32, last_type, HTH_LOCAL_BYTES));
    fetch(8, &nowhere, 20000);
    bring(1, 8);
    run(10);
    cr_assert(eq(u32, answers, 4));
    cr_assert(ne(u32, last_type, HTH_LOCAL_ERROR));
    run(10000);
    cr_assert(eq(u32, answers, 4));
}

Test(fetch, a_ticket_that_is_not_valid_is_refused)
{
    struct hth_ticket t = ticket(0);

    t.at.addr_len = 0;
    fetch(7, &t, 5000);
    run(2);
    cr_assert(eq(u32, answers, 1));
    cr_assert(eq(int, last_code, HEARTH_EPROTO));
}

/* The table of gather 8 comes while the engine fetches that of gather 7, and stays. */
static void fetch_then_bring(int rank_goes)
{
    struct hth_ticket t = ticket(0);

    bring(0, 7);
    fetch(7, &t, 20000);
    run(4);
    if (rank_goes) {
        hth_node_client_gone(world_node(&w, 1), CLIENT);
        attach(1);
    }
    bring(1, 8);
    run(2000);
    answers = 0;
    meet(8);
    run(500);
    cr_expect(eq(u32, answers, 1));
}

Test(fetch, an_older_fetch_does_not_replace_a_table_that_was_brought_since)
{
    fetch_then_bring(0);
}

Test(fetch, an_older_fetch_whose_rank_has_gone_does_not_either)
{
    fetch_then_bring(1);
}
