/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank receives the ranks' table from where, as rank 0 decides it: no sockets, any number. */
#include "check.h"

#include "client/bootstrap/share.h"
#include "core/format/rows.h"
#include "transport/session/frame.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct hth_share *share;
static uint32_t world;
static struct hth_handing order[1 << 17]; /* as they were answered */
static uint32_t answered;
static uint32_t at[HTH_TABLE_WHERES]; /* how often */
static uint32_t children[1 << 17];    /* of each source */

TestSuite(share, .timeout = 60);

static void open_share(uint32_t ranks, uint32_t each, int brought, int tree)
{
    uint64_t *node = calloc(ranks, sizeof(*node));

    world = ranks;
    for (uint32_t r = 0; r < ranks; r++)
        node[r] = 1 + r / each;
    share = hth_share_open(node, ranks);
    hth_share_begin(share, brought, tree);
    free(node);
    for (uint32_t r = 1; r < ranks; r++)
        hth_share_waits(share, r);
}

static void hand_on(void)
{
    struct hth_handing h;

    while (hth_share_next(share, &h)) {
        order[answered++] = h;
        at[h.where]++;
        if (h.where == HTH_TABLE_AT_OTHER)
            children[h.source]++;
    }
}

/* All that are answered have it, and so on. Returns how many steps that takes. */
static uint32_t run(void)
{
    uint32_t steps = 0, done = 0, end;

    for (hand_on(); done < answered; steps++) {
        for (end = answered; done < end; done++)
            hth_share_has(share, order[done].rank);
        hand_on();
    }
    hth_share_close(share);
    return steps;
}

Test(share, a_small_job_receives_it_from_rank_0_once_a_node)
{
    open_share(8, 2, 1, 0);
    run();
    cr_expect(eq(u32, answered, 7));
    cr_expect(eq(u32, at[HTH_TABLE_FOR_NODE], 3));
    cr_expect(eq(u32, at[HTH_TABLE_AT_NODE], 4));
}

Test(share, a_rank_that_is_alone_on_its_node_keeps_it)
{
    open_share(3, 1, 0, 0);
    run();
    cr_expect(eq(u32, at[HTH_TABLE_HERE], 2));
}

Test(share, in_a_large_job_each_node_receives_it_once_from_one_that_has_it)
{
    uint32_t steps;

    open_share(1 << 17, 8, 1, 1);
    steps = run();
    cr_expect(eq(u32, answered, (1 << 17) - 1));
    cr_expect(eq(u32, at[HTH_TABLE_AT_OTHER], (1 << 14) - 1));
    cr_expect(eq(u32, at[HTH_TABLE_AT_NODE], 7 << 14));
    cr_expect(zero(u32, at[HTH_TABLE_FOR_NODE] + at[HTH_TABLE_HERE]));
    for (uint32_t r = 0; r < world; r++) {
        cr_assert(le(u32, children[r], HTH_SHARE_CHILDREN));
        cr_assert(r % 8 == 0 || !children[r]);
    }
    cr_expect(le(u32, steps, 12), "%u", steps);
}

/* Packed, of 8 ranks a node that have not much in common. */
static uint64_t table_bytes(uint32_t ranks)
{
    unsigned char *rows = malloc((size_t)ranks * HTH_GATHER), *packed;
    uint64_t len;

    for (uint32_t r = 0; r < ranks; r++) {
        uint64_t node = r / 8 * UINT64_C(0x9e3779b97f4a7c15);
        struct hth_gather g = { .job = "job",
            .store = node,
            .highest_epoch = 1795966233400,
            .wall_ms = 1795966233400 + node % 5000,
            .random = node * 31,
            .domain = { node % 512 },
            .machine = node * 17,
            .loopback = (uint32_t)node | HTH_LOOPBACK_LISTENS,
            .copies = 1,
            .min_copies = 1,
            .keep = 1,
            .transport = "tcp",
            .addr_len = 20,
            .rank = r,
            .world = ranks };

        snprintf(g.node, sizeof(g.node), "node-%05u.cluster.example", r / 8);
        memcpy(g.addr + 4, &node, sizeof(node));
        hth_gather_encode(&g, rows + (size_t)r * HTH_GATHER);
        hth_gather_prove(rows + (size_t)r * HTH_GATHER, (const unsigned char[HTH_KEY]){ 1 });
    }
    packed = malloc((size_t)hth_rows_most(HTH_GATHER, ranks));
    len = hth_rows_pack(packed, rows, HTH_GATHER, ranks);
    free(packed);
    free(rows);
    return len;
}

/* 64 MiB is what may go out of any node for a rendezvous. */
static void count_bytes(uint32_t nodes)
{
    uint32_t ranks = nodes * 8, most = 0;
    uint64_t len = table_bytes(ranks), parts = (len + 7999) / 8000, engine, rank_0;
    int tree = nodes * len > UINT64_C(16) << 20;

    answered = 0;
    memset(at, 0, sizeof(at));
    memset(children, 0, sizeof(children));
    open_share(ranks, 8, 1, tree);
    run();
    for (uint32_t r = 8; r < ranks; r++)
        most = children[r] > most ? children[r] : most;
    engine = len + parts * (HTH_FRAME_HEAD + 16);
    rank_0 = (uint64_t)(ranks - 1) * (HTH_CHALLENGE + HTH_ANSWER) +
             at[HTH_TABLE_AT_OTHER] * (uint64_t)HTH_TICKET + at[HTH_TABLE_FOR_NODE] * len +
             children[0] * engine;
    cr_log_info("%u x 8: table %lu bytes; out of rank 0's node %.1f MiB, out of another at most "
                "%.1f MiB in %lu messages",
            nodes, (unsigned long)len, (double)rank_0 / (1 << 20),
            (double)(most * engine) / (1 << 20), (unsigned long)(most * parts));
    cr_expect(le(u64, rank_0, UINT64_C(64) << 20), "%u nodes", nodes);
    cr_expect(le(u64, most * engine, UINT64_C(64) << 20), "%u nodes", nodes);
}

Test(share, at_most_64_mib_go_out_of_any_node)
{
    must(hth_auth_init(NULL));
    for (uint32_t nodes = 2; nodes < 1 << 14; nodes = nodes * 3 / 2 + 1)
        count_bytes(nodes);
    count_bytes(1 << 14);
}

Test(share, without_an_engine_of_rank_0_its_first_node_is_served_by_rank_0)
{
    open_share(4096, 4, 0, 1);
    run();
    cr_expect(eq(u32, answered, 4095));
    cr_expect(eq(u32, at[HTH_TABLE_FOR_NODE], 1)); /* rank 0's house */
}

Test(share, where_a_rank_fails_another_rank_of_its_node_fetches_from_elsewhere)
{
    struct hth_handing first, second;

    open_share(16, 2, 1, 1);
    hand_on();
    first = order[1]; /* order[0] is of rank 0's node */
    cr_assert(eq(int, first.where, HTH_TABLE_AT_OTHER));
    hth_share_gone(share, first.rank);
    for (uint32_t i = 0; i < answered; i++)
        if (order[i].rank != first.rank)
            hth_share_has(share, order[i].rank);
    answered = 0;
    hand_on();
    second = order[0];
    for (uint32_t i = 0; i < answered; i++)
        if (order[i].rank == (first.rank ^ 1))
            second = order[i];
    cr_assert(eq(u32, second.rank, first.rank ^ 1));
    cr_assert(eq(int, second.where, HTH_TABLE_AT_OTHER));
    hth_share_waits(share, first.rank); /* it comes again, and waits for the other */
    for (uint32_t i = 0; i < answered; i++)
        hth_share_has(share, order[i].rank);
    answered = 0;
    hand_on();
    for (uint32_t i = 0; i < answered; i++)
        if (order[i].rank == first.rank)
            cr_expect(eq(int, order[i].where, HTH_TABLE_AT_NODE));
    hth_share_close(share);
}

Test(share, a_rank_whose_engine_has_it_and_does_not_give_it_receives_it_from_rank_0)
{
    open_share(2, 2, 1, 1);
    hand_on();
    cr_assert(eq(int, order[0].where, HTH_TABLE_AT_NODE));
    hth_share_gone(share, 1);
    hth_share_waits(share, 1);
    hand_on();
    cr_assert(eq(u32, answered, 2));
    cr_assert(eq(int, order[1].where, HTH_TABLE_HERE));
    hth_share_close(share);
}

/* Engines reach no other engine: rank 0 sends the table to all, after few tries. */
Test(share, where_no_fetch_succeeds_rank_0_sends_it_to_each_node)
{
    uint32_t rounds = 0, done = 0, end;

    open_share(4096, 4, 1, 1);
    for (hand_on(); done < answered; rounds++) {
        for (end = answered; done < end; done++)
            if (order[done].where == HTH_TABLE_AT_OTHER) {
                hth_share_gone(share, order[done].rank);
                hth_share_waits(share, order[done].rank);
            } else {
                hth_share_has(share, order[done].rank);
            }
        hand_on();
    }
    cr_expect(eq(u32, at[HTH_TABLE_FOR_NODE], 1023));
    cr_expect(le(u32, at[HTH_TABLE_AT_OTHER], 16));
    cr_expect(le(u32, rounds, 8), "%u", rounds);
    hth_share_close(share);
}

/* One node in ten fails in each fetch, one source in ten is dead. */
Test(share, in_any_order_of_failures_each_rank_has_it_in_the_end_and_few_from_rank_0)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t x = seed;
        uint32_t have = 1, done = 0;

        answered = 0;
        memset(at, 0, sizeof(at));
        memset(children, 0, sizeof(children));
        open_share(2000, 4, 1, 1);
        for (hand_on(); done < answered; hand_on()) {
            const struct hth_handing *h = &order[done++];
            int fails;

            x = x * 6364136223846793005u + 1442695040888963407u;
            fails = h->where == HTH_TABLE_AT_OTHER &&
                    (h->source / 4 % 10 == 3 || h->rank / 4 % 10 == 7 || (x >> 60) == 0);
            fails |= h->where != HTH_TABLE_HERE && (x >> 56 & 15) == 0;
            if (fails) {
                hth_share_gone(share, h->rank);
                hth_share_waits(share, h->rank);
            } else {
                hth_share_has(share, h->rank);
                have++;
            }
        }
        cr_assert(eq(u32, have, 2000), "seed %lu", (unsigned long)seed);
        cr_assert(le(u32, at[HTH_TABLE_FOR_NODE], 100), "%u", at[HTH_TABLE_FOR_NODE]);
        for (uint32_t r = 0; r < world; r++)
            cr_assert(le(u32, children[r], HTH_SHARE_CHILDREN));
        hth_share_close(share);
    }
}
