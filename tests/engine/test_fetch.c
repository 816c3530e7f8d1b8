/* SPDX-License-Identifier: Apache-2.0 */
/* A node's engine receives the ranks' table from another node's. */
#include "check.h"
#include "played_meeting.h"
#include "saving.h"

#include "core/format/ticket.h"
#include "transport/session/session_parts.h"
#include <stdlib.h>

#define LEN 1000003u

static struct world w;
static struct played_meeting meeting; /* of node 1 */
static struct hth_buf *table;

static void run(uint64_t ms)
{
    machine_touch(&w, 0);
    machine_touch(&w, 1);
    for (uint64_t end_ms = w.now_ms + ms; w.now_ms < end_ms;)
        world_advance(&w, w.now_ms + 1);
}

static void start(void)
{
    unsigned char *bytes = malloc(LEN);

    saving_open(&w, 1, 1);
    played_meeting_begin(&meeting, &w, 1);
    for (uint32_t node = 0; node < 2; node++) { /* no rank saves any more */
        hth_node_client_gone(world_node(&w, node), w.rank[node].client);
        rank_due(&w.rank[node], HTH_NEVER);
    }
    for (size_t i = 0; i < LEN; i++)
        bytes[i] = (unsigned char)(i * i >> 5);
    table = hth_buf_of(bytes, LEN);
    free(bytes);
}

static void end(void)
{
    world_close(&w);
    played_meeting_end(&meeting);
    hth_buf_put(table);
}

TestSuite(fetch, .init = start, .fini = end);

static void give(uint32_t node, uint32_t round)
{
    hth_node_table(world_node(&w, node), round, table);
}

static struct hth_ticket ticket(void)
{
    struct hth_ctx *ctx = hth_node_ctx(world_node(&w, 0));
    struct hth_ticket t = { .len = LEN, .at = ctx->epoch->member[ctx->epoch->self] };

    memcpy(t.digest, table->digest, HTH_DIGEST);
    return t;
}

static void fetch(uint32_t round, const struct hth_ticket *t, uint32_t wait_ms)
{
    hth_node_ticket(world_node(&w, 1), round, wait_ms, t);
}

static int table_is_here(uint32_t round)
{
    return meeting.table && meeting.round == round && meeting.table->len == LEN &&
           !memcmp(meeting.table->at, table->at, LEN);
}

Test(fetch, the_table_comes_from_the_other_engine)
{
    struct hth_ticket t = ticket();
    struct hth_save_id newest = w.newest.id;

    give(0, 7);
    fetch(7, &t, 5000);
    cr_assert(zero(u32, meeting.tables + meeting.lacks));
    run(1000);
    cr_assert(eq(u32, meeting.tables, 1));
    cr_assert(zero(u32, meeting.lacks));
    cr_assert(table_is_here(7));
    cr_assert(zero(int, hth_save_cmp(newest, w.newest.id))); /* nothing of the epoch was touched */
    cr_assert(zero(int, w.why[0]), "%s", w.why);
}

Test(fetch, an_engine_that_has_another_table_says_so_at_once)
{
    struct hth_ticket t = ticket();

    give(0, 8);
    fetch(7, &t, 5000);
    run(200);
    cr_assert(eq(u32, meeting.lacks, 1));
    cr_assert(eq(u32, meeting.round, 7));
    fetch(8, &t, 5000);
    run(1000);
    cr_assert(table_is_here(8));
}

Test(fetch, bytes_that_the_host_did_not_name_are_not_taken)
{
    struct hth_ticket t = ticket();

    t.digest[3] ^= 1;
    give(0, 7);
    fetch(7, &t, 5000);
    run(1000);
    cr_assert(eq(u32, meeting.lacks, 1));
    t = ticket();
    t.len--; /* of a shorter table the last part is not what it should be */
    fetch(7, &t, 5000);
    run(1000);
    cr_assert(eq(u32, meeting.lacks, 2));
    cr_assert(zero(u32, meeting.tables));
}

Test(fetch, an_engine_that_dies_on_the_way_or_is_not_there_is_an_end_in_time)
{
    struct hth_ticket t = ticket();

    give(0, 7);
    fetch(7, &t, 20000);
    run(4); /* the first parts */
    cr_assert(zero(u32, meeting.tables + meeting.lacks));
    world_crash(&w, 0);
    run(1000);
    cr_assert(eq(u32, meeting.lacks, 1));
    fetch(7, &t, 300);
    run(200);
    cr_assert(eq(u32, meeting.lacks, 1));
    run(200);
    cr_assert(eq(u32, meeting.lacks, 2));
    cr_assert(zero(u32, meeting.tables));
}

Test(fetch, an_engine_that_cannot_be_asked_is_an_end)
{
    struct hth_ticket t = ticket();

    t.at.addr_len = 1;
    fetch(7, &t, 5000);
    run(6000);
    cr_assert(eq(u32, meeting.lacks, 1));
    cr_assert(eq(u32, meeting.round, 7));
}

Test(fetch, a_table_for_which_there_is_no_memory_is_an_end_at_once)
{
    struct hth_ticket t = ticket();

    t.len = UINT64_MAX;
    fetch(7, &t, 5000);
    cr_assert(eq(u32, meeting.lacks, 1));
    cr_assert(eq(u32, meeting.round, 7));
}

/* Connections of node 1's engine that are of no epoch. */
static unsigned visits(void)
{
    const struct hth_session *s = hth_node_ctx(world_node(&w, 1))->session;
    unsigned count = 0;

    for (const struct peer *p = s->peers; p; p = p->next)
        count += p->node >= HTH_OUTSIDE && !p->over;
    return count;
}

/* The fetch by the older ticket ends without a result, and nothing of it is left. */
Test(fetch, a_newer_ticket_counts)
{
    struct hth_ticket t = ticket(), nowhere = t;

    nowhere.at.store++;
    give(0, 7);
    fetch(7, &nowhere, 20000);
    run(10);
    fetch(7, &t, 20000);
    cr_assert(eq(u32, visits(), 1));
    run(1000);
    cr_assert(zero(u32, visits()));
    cr_assert(eq(u32, meeting.tables, 1));
    cr_assert(table_is_here(7));
    run(20000);
    cr_assert(eq(u32, meeting.tables, 1));
    cr_assert(zero(u32, meeting.lacks));
}

Test(fetch, a_table_goes_on_to_a_third_engine_only_in_its_own_round)
{
    struct hth_ticket t = ticket();

    give(0, 7);
    give(0, 8); /* the newest one is kept */
    fetch(7, &t, 5000);
    run(1000);
    cr_assert(eq(u32, meeting.lacks, 1));
    fetch(8, &t, 5000);
    run(1000);
    cr_assert(table_is_here(8));
}
