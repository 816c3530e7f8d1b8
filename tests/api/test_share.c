/* SPDX-License-Identifier: Apache-2.0 */
/* Which node receives the ranks' table from where, as the host decides it: no sockets, any
 * number. */
#include "check.h"

#include "core/format/rows.h"
#include "meeting/share.h"
#include "meeting/wire.h"
#include "transport/session/frame.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST (1u << 14)

static struct hth_share *share;
static uint32_t nodes;
static struct hth_handing order[4 * MOST]; /* as they were answered */
static uint32_t answered, direct;          /* direct: by the host itself */
static uint32_t children[MOST];            /* of each source */

TestSuite(share, .timeout = 60);

/* alone: every so many nodes one has no engine; 0: none. */
static void open_share(uint32_t count, int tree, uint32_t alone)
{
    unsigned char *fetches = calloc(count, 1);

    nodes = count;
    answered = direct = 0;
    memset(children, 0, sizeof(children));
    for (uint32_t i = 0; i < count; i++)
        fetches[i] = !alone || i % alone != 1;
    share = hth_share_open(count, fetches, tree);
    free(fetches);
    for (uint32_t i = 0; i < count; i++)
        hth_share_waits(share, i);
}

static void hand_on(void)
{
    struct hth_handing h;

    while (hth_share_next(share, &h)) {
        order[answered++] = h;
        direct += h.source == HTH_SHARE_HOST;
        if (h.source != HTH_SHARE_HOST)
            children[h.source]++;
    }
}

/* All that are answered have it, and so on. Returns how many steps that takes. */
static uint32_t run(void)
{
    uint32_t steps = 0, done = 0, end;

    for (hand_on(); done < answered; steps++) {
        for (end = answered; done < end; done++)
            hth_share_has(share, order[done].node);
        hand_on();
    }
    hth_share_close(share);
    return steps;
}

Test(share, in_a_small_job_the_host_sends_it_to_each_node)
{
    open_share(8, 0, 0);
    cr_expect(eq(u32, run(), 1));
    cr_expect(eq(u32, direct, 8));
}

Test(share, in_a_large_job_each_node_receives_it_once_from_one_that_has_it)
{
    uint32_t steps;

    open_share(MOST, 1, 0);
    steps = run();
    cr_expect(eq(u32, answered, MOST));
    cr_expect(eq(u32, direct, 1)); /* the host's own node */
    cr_expect(zero(u32, order[0].node));
    for (uint32_t i = 0; i < nodes; i++)
        cr_assert(le(u32, children[i], HTH_SHARE_CHILDREN));
    cr_expect(le(u32, steps, 12), "%u", steps);
}

Test(share, a_node_without_an_engine_receives_it_from_the_host_and_gives_it_to_none)
{
    open_share(100, 1, 10);
    run();
    cr_expect(eq(u32, answered, 100));
    cr_expect(eq(u32, direct, 11));
    for (uint32_t i = 1; i < nodes; i += 10)
        cr_expect(zero(u32, children[i]));
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
static void count_bytes(uint32_t count)
{
    uint32_t most = 0;
    uint64_t len = table_bytes(count * 8), parts = (len + 7999) / 8000, engine, host;
    int tree = count * len > UINT64_C(16) << 20;

    open_share(count, tree, 0);
    run();
    for (uint32_t i = 1; i < count; i++)
        most = children[i] > most ? children[i] : most;
    engine = len + parts * (HTH_FRAME_HEAD + 16);
    host = (uint64_t)count * (HTH_CHALLENGE + HTH_MEET_FRAME + HTH_TICKET) + (direct - 1) * len +
           children[0] * engine;
    cr_log_info("%u x 8: table %lu bytes; out of rank 0's node %.1f MiB, out of another at most "
                "%.1f MiB in %lu messages",
            count, (unsigned long)len, (double)host / (1 << 20),
            (double)(most * engine) / (1 << 20), (unsigned long)(most * parts));
    cr_expect(le(u64, host, UINT64_C(64) << 20), "%u nodes", count);
    cr_expect(le(u64, most * engine, UINT64_C(64) << 20), "%u nodes", count);
}

Test(share, at_most_64_mib_go_out_of_any_node)
{
    must(hth_auth_init(NULL));
    for (uint32_t count = 2; count < MOST; count = count * 3 / 2 + 1)
        count_bytes(count);
    count_bytes(MOST);
}

/* Engines reach no other engine: the host sends the table to all, after few tries. */
Test(share, where_no_fetch_succeeds_the_host_sends_it_to_each_node)
{
    uint32_t rounds = 0, done = 0, end;

    open_share(1024, 1, 0);
    for (hand_on(); done < answered; rounds++) {
        for (end = answered; done < end; done++)
            if (order[done].source != HTH_SHARE_HOST)
                hth_share_waits(share, order[done].node); /* it could not fetch it */
            else
                hth_share_has(share, order[done].node);
        hand_on();
    }
    cr_expect(eq(u32, direct, 1024));
    cr_expect(le(u32, answered - direct, 16));
    cr_expect(le(u32, rounds, 8), "%u", rounds);
    hth_share_close(share);
}

/* One node in ten fails in each fetch, one source in ten is dead, and some lose their connection
 * and come again later. */
Test(share, in_any_order_of_failures_each_node_has_it_in_the_end_and_few_from_the_host)
{
    for (uint64_t seed = 1; seed <= 50; seed++) {
        uint64_t x = seed;
        uint32_t have = 0, done = 0, away = UINT32_MAX;

        open_share(500, 1, 0);
        for (hand_on(); done < answered; hand_on()) {
            const struct hth_handing *h = &order[done++];
            int fails;

            x = x * 6364136223846793005u + 1442695040888963407u;
            fails = h->source != HTH_SHARE_HOST &&
                    (h->source % 10 == 3 || h->node % 10 == 7 || (x >> 60) == 0);
            fails |= (x >> 56 & 15) == 0;
            if (away != UINT32_MAX)
                hth_share_waits(share, away);
            away = UINT32_MAX;
            if (fails && (x >> 50 & 1)) {
                hth_share_gone(share, h->node);
                away = h->node;
            } else if (fails) {
                hth_share_waits(share, h->node);
            } else {
                hth_share_has(share, h->node);
                have++;
            }
            if (done == answered && away != UINT32_MAX) {
                hth_share_waits(share, away);
                away = UINT32_MAX;
            }
        }
        cr_assert(eq(u32, have, 500), "seed %lu: %u", (unsigned long)seed, have);
        cr_assert(le(u32, direct, 100), "%u", direct);
        for (uint32_t i = 0; i < nodes; i++)
            cr_assert(le(u32, children[i], HTH_SHARE_CHILDREN));
        hth_share_close(share);
    }
}
