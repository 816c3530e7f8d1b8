/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In one of four worlds engines receive the ranks' table from each other before their ranks
 * join, as in a large job. This file is the ranks' meeting of each machine (env.meeting): the
 * engine of rank 0's machine has the table at once, and each other one gets a ticket for an engine
 * that may have it, or may not, or is gone. A rank whose engine does not receive it comes again,
 * and after some tries joins as in the other worlds.
 */
#include "world_parts.h"

#include "core/base/buf.h"
#include "core/format/rows.h"
#include "core/format/ticket.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE_TRIES 3u
#define TABLE_DONE  99u
#define TABLE_MS    400u /* for one of them */

struct comer {
    struct comer *next;
    uint32_t rank;
    uint64_t lineage;
};

/* Dice of its own, so that nothing else of the world moves. */
static uint64_t table_dice(const struct rank_state *r)
{
    uint64_t x = r->world->opts.seed ^ r->lineage << 32 ^ (uint64_t)r->rank << 8 ^ r->tries;

    return hth_splitmix64(&x) >> 16;
}

/* ---- a machine's meeting --------------------------------------------------------------------- */

static int table_come(void *self, uint32_t rank, uint32_t world, const struct hth_local_meet *m,
        struct hearth_error *err)
{
    struct machine *x = self;
    struct comer *c;

    if (x->meeting)
        return x->meeting->come(x->meeting->self, rank, world, m, err);
    c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    c->rank = rank;
    memcpy(&c->lineage, m->token, sizeof(c->lineage));
    c->next = x->comers;
    x->comers = c;
    return HEARTH_OK;
}

static void table_gone(void *self, uint32_t rank)
{
    struct machine *x = self;
    struct comer **at = &x->comers, *c;

    if (x->meeting) {
        x->meeting->gone(x->meeting->self, rank);
        return;
    }
    while ((c = *at))
        if (c->rank == rank) {
            *at = c->next;
            free(c);
        } else {
            at = &c->next;
        }
}

/* Those that came in this launch, or in all others. */
static void table_met(struct machine *x, uint64_t lineage, int of_others, int code)
{
    for (struct comer **at = &x->comers, *c; (c = *at);) {
        if ((c->lineage == lineage) == of_others) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        hth_node_met(x->node, c->rank, (uint32_t)c->lineage, code, "no table was received");
        free(c);
    }
}

static void table_fetched(void *self, uint32_t round, struct hth_buf *table)
{
    struct machine *x = self;

    if (x->meeting) {
        x->meeting->fetched(x->meeting->self, round, table);
        return;
    }
    if (round != x->fetches)
        return;
    x->fetches = 0;
    if (table) {
        x->has_table = round;
        x->world->count[WORLD_TICKET]++;
        hth_node_table(x->node, round, table);
    }
    table_met(x, round, 0, table ? HEARTH_OK : HEARTH_ENOENT);
}

struct hth_node_meeting table_hands(struct machine *x)
{
    return (struct hth_node_meeting){
        .come = table_come, .gone = table_gone, .fetched = table_fetched, .self = x
    };
}

static void table_is_here(struct machine *x, uint32_t round)
{
    struct hth_buf *table = hth_buf_of(x->world->packed, x->world->packed_len);

    if (!table)
        abort();
    x->has_table = round;
    hth_node_table(x->node, round, table);
    hth_buf_put(table);
}

/* By the dice of the rank that came last. */
static void table_fetch(struct machine *x, uint32_t round)
{
    const struct world *w = x->world;
    uint64_t dice = table_dice(&w->rank[x->comers->rank]);
    const struct rank_state *from = &w->rank[dice % x->first_rank];
    struct hth_ticket t = { .len = w->packed_len,
        .at = { .store = from->gathered.store, .addr_len = from->gathered.addr_len } };

    snprintf(t.at.node, sizeof(t.at.node), "m%u", from->machine);
    memcpy(t.at.addr, from->gathered.addr, sizeof(t.at.addr));
    hth_digest(t.digest, w->packed, w->packed_len);
    x->fetches = round;
    hth_node_ticket(x->node, round, TABLE_MS, &t);
}

void table_turn(struct machine *x)
{
    uint32_t round = (uint32_t)x->world->lineage;

    if (!x->comers)
        return;
    table_met(x, x->world->lineage, 1, HEARTH_ECANCELED);
    if (!x->comers)
        return;
    if (!x->first_rank && x->has_table != round)
        table_is_here(x, round);
    if (x->has_table == round)
        table_met(x, round, 0, HEARTH_OK);
    else if (x->fetches != round)
        table_fetch(x, round);
}

void table_forget(struct machine *x)
{
    struct comer *c;

    while ((c = x->comers)) {
        x->comers = c->next;
        free(c);
    }
    x->fetches = x->has_table = 0;
}

/* ---- a rank ---------------------------------------------------------------------------------- */

static void table_pack(struct world *w, const unsigned char *table)
{
    if (w->packed)
        return;
    w->packed = malloc((size_t)hth_rows_most(HTH_GATHER, w->ranks));
    if (!w->packed)
        abort();
    w->packed_len = hth_rows_pack(w->packed, table, HTH_GATHER, w->ranks);
}

int table_ask(struct rank_state *r, const unsigned char *table)
{
    struct world *w = r->world;
    struct hth_local_meet m = { .head = { sizeof(m), HTH_LOCAL_MEET, r->request + 1, 0 } };

    if (w->opts.seed % 4 != 3 || w->ranks < 2 || r->tries >= TABLE_TRIES ||
            r->lineage != w->lineage)
        return 0;
    table_pack(w, table);
    r->tries++;
    r->tabling = ++r->request;
    memcpy(m.token, &r->lineage, sizeof(r->lineage));
    memcpy(m.row, table + (size_t)r->rank * HTH_GATHER, HTH_GATHER);
    rank_wait(r, w->opts.recover_ms);
    rank_send(r, &m, sizeof(m), NULL, 0);
    return 1;
}

static void table_check(const struct rank_state *r, const struct letter *l)
{
    struct world *w = r->world;

    if (r->lineage == w->lineage && (l->attached != w->packed_len ||
                                            memcmp(l->bytes + l->len, w->packed, l->attached) != 0))
        world_broken(w, "P2: rank %u received another table than the ranks have", r->rank);
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
        table_check(r, l);
        r->tries = TABLE_DONE;
    }
    rank_due(r, r->world->now_ms + 1 + table_dice(r) % 40);
    return 1;
}
