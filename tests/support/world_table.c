/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In one of four worlds engines receive the ranks' table from each other before their ranks
 * join, as in a large job: rank 0 brings it to its engine, the first rank of each other node has a
 * ticket for an engine that may have it, or may not, or is gone, and the others wait for theirs. A
 * rank that does not receive it has it from rank 0 after some tries, and joins as in the other
 * worlds.
 */
#include "world_parts.h"

#include "core/format/rows.h"
#include "core/format/ticket.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_TRIES 3u
#define TABLE_DONE  99u
#define TABLE_MS    400u /* for one of them */

static int table_is_given(const struct world *w)
{
    return w->opts.seed % 4 == 3 && w->ranks > 1;
}

/* Dice of its own, so that nothing else of the world moves. */
static uint64_t table_dice(const struct rank_state *r)
{
    uint64_t x = r->world->opts.seed ^ r->lineage << 32 ^ (uint64_t)r->rank << 8 ^ r->tries;

    return hth_splitmix64(&x) >> 16;
}

static void table_pack(struct world *w, const unsigned char *table)
{
    if (w->packed)
        return;
    w->packed = malloc((size_t)hth_rows_most(HTH_GATHER, w->ranks));
    if (!w->packed)
        abort();
    w->packed_len = hth_rows_pack(w->packed, table, HTH_GATHER, w->ranks);
}

static uint32_t table_round(const struct rank_state *r)
{
    return (uint32_t)r->lineage;
}

static void table_bring(struct rank_state *r)
{
    struct hth_local_meet m = { .head = { sizeof(m), HTH_LOCAL_BRING, ++r->request, 0 },
        .round = table_round(r) };

    r->tries = TABLE_TRIES;
    rank_send(r, &m, sizeof(m), r->world->packed, r->world->packed_len);
}

static void table_meet(struct rank_state *r)
{
    struct hth_local_meet m = { .head = { sizeof(m), HTH_LOCAL_MEET, ++r->request, 0 },
        .round = table_round(r),
        .wait_ms = TABLE_TRIES * TABLE_MS };

    r->tries = TABLE_TRIES;
    rank_send(r, &m, sizeof(m), NULL, 0);
}

static void table_fetch(struct rank_state *r)
{
    const struct world *w = r->world;
    const struct rank_state *from = &w->rank[table_dice(r) % r->rank];
    struct hth_local_fetch m = { .head = { sizeof(m), HTH_LOCAL_FETCH, ++r->request, 0 },
        .round = table_round(r),
        .wait_ms = TABLE_MS };
    struct hth_ticket t = { .len = w->packed_len,
        .at = { .store = from->gathered.store, .addr_len = from->gathered.addr_len } };

    snprintf(t.at.node, sizeof(t.at.node), "m%u", from->machine);
    memcpy(t.at.addr, from->gathered.addr, sizeof(t.at.addr));
    hth_digest(t.digest, w->packed, w->packed_len);
    hth_ticket_encode(&t, m.ticket);
    r->tries++;
    rank_send(r, &m, sizeof(m), NULL, 0);
}

int table_ask(struct rank_state *r, const unsigned char *table)
{
    struct world *w = r->world;
    uint32_t first = w->machine[r->machine].first_rank;

    if (!table_is_given(w) || r->tries >= TABLE_TRIES || r->lineage != w->lineage)
        return 0;
    table_pack(w, table);
    rank_wait(r, w->opts.recover_ms);
    if (!r->rank)
        table_bring(r);
    else if (r->rank == first)
        table_fetch(r);
    else
        table_meet(r);
    r->tabling = r->request;
    return 1;
}

int table_heard(struct rank_state *r, const struct letter *l)
{
    const struct hth_local_head *head = (const void *)l->bytes;

    if (!r->tabling || head->request != r->tabling)
        return 0;
    r->tabling = 0;
    if (r->step != R_JOIN)
        return 1;
    if (head->type == HTH_LOCAL_BYTES) {
        r->world->count[WORLD_TICKET] += r->rank == r->world->machine[r->machine].first_rank;
        r->tries = TABLE_DONE;
    }
    rank_due(r, r->world->now_ms + 1 + table_dice(r) % 40);
    return 1;
}
