/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one node: rank 0 sends the table to one of them, and the others receive it from what
 * stands for their node's engine here; or these receive it from each other. */
#include "check.h"
#include "port.h"
#include "rank.h"

#include "client/bootstrap/rendezvous.h"
#include <hearth/hearth.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define WORLD 8
#define NODES 4
#define LEN   512

static const unsigned char job_key[1][HTH_KEY] = { "the job's" };

struct engine { /* of one node */
    pthread_mutex_t lock;
    pthread_cond_t brought;
    uint32_t round;
    size_t len;
    unsigned char *table; /* NULL: none */
    int brings, meets;
    int loses;          /* it takes a table and has it no more */
    int bends;          /* the table that it gives is another one */
    int fetches, gives; /* tables that it asked another engine for, and gave to one */
    int dead;           /* it gives none */
};

static struct engine engines[NODES];

static int engine_bring(void *self, uint32_t round, const void *packed, size_t len)
{
    struct engine *e = self;

    pthread_mutex_lock(&e->lock);
    e->brings++;
    if (!e->loses) {
        free(e->table);
        e->table = malloc(len);
        memcpy(e->table, packed, len);
        e->table[len - 1] ^= (unsigned char)e->bends;
        e->len = len;
        e->round = round;
    }
    pthread_cond_broadcast(&e->brought);
    pthread_mutex_unlock(&e->lock);
    return HEARTH_OK;
}

static int engine_meet(void *self, uint32_t round, uint64_t wait_ms, void *out, size_t len)
{
    struct engine *e = self;
    struct timespec until;
    int rc = HEARTH_ETIMEOUT;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(wait_ms / 1000) + 1;
    pthread_mutex_lock(&e->lock);
    e->meets++;
    while ((!e->table || e->round != round) && !e->loses &&
            !pthread_cond_timedwait(&e->brought, &e->lock, &until))
        continue;
    if (e->table && e->round == round && e->len == len) {
        memcpy(out, e->table, len);
        rc = HEARTH_OK;
    }
    pthread_mutex_unlock(&e->lock);
    return rc;
}

/* From the engine that the ticket names, if it has the table. */
static int engine_fetch(void *self, uint32_t round, uint64_t wait_ms,
        const unsigned char ticket[HTH_TICKET], void *out, size_t len)
{
    struct engine *e = self, *from;
    struct hth_ticket t;
    int rc = HEARTH_ENOENT;

    (void)wait_ms;
    must(hth_ticket_decode(&t, ticket));
    from = &engines[t.at.store];
    pthread_mutex_lock(&from->lock);
    if (!from->dead && from->table && from->round == round && from->len == len) {
        memcpy(out, from->table, len);
        from->gives++;
        rc = HEARTH_OK;
    }
    pthread_mutex_unlock(&from->lock);
    pthread_mutex_lock(&e->lock);
    e->fetches++;
    pthread_mutex_unlock(&e->lock);
    if (rc)
        return rc;
    engine_bring(self, round, out, len);
    ((unsigned char *)out)[len - 1] ^= (unsigned char)e->bends;
    return HEARTH_OK;
}

/* Of the rank whose row it is. */
static int engine_place(void *self, const void *row, struct hth_member *out)
{
    (void)self;
    *out = (struct hth_member){ .node = "n", .addr_len = 1 };
    out->store = *(const unsigned char *)row / 16 % NODES;
    return HEARTH_OK;
}

static int unlike;

static int engines_alike(void *self, const void *table, uint32_t world)
{
    (void)self;
    (void)table;
    return unlike || world != WORLD ? HEARTH_EINVAL : HEARTH_OK;
}

static uint64_t tree_from; /* 0: a job as small as this one has no tree */

struct one {
    uint32_t rank;
    uint16_t port;
    struct engine *engine; /* NULL: none */
    unsigned keys;         /* 0: it has none */
    int rounds, rc;
    struct hearth_error err;
};

static void *gather(void *arg)
{
    struct one *o = arg;
    struct hearth_bootstrap *b = NULL;
    unsigned char mine[LEN], *all = calloc(WORLD, LEN);
    struct hth_mates mates = { .self = o->engine,
        .bring = engine_bring,
        .meet = engine_meet,
        .fetch = engine_fetch,
        .place = engine_place,
        .alike = engines_alike };

    mates.node = o->engine ? 77 + (uint64_t)(o->engine - engines) : 0;
    o->rc = hearth_bootstrap_tcp("127.0.0.1", o->port, o->rank, WORLD, 20000, &b, &o->err);
    if (!o->rc) {
        hth_bootstrap_tell(b, "job", job_key, o->keys, 0);
        hth_bootstrap_mates(b, &mates);
        hth_bootstrap_tree_from(b, tree_from);
    }
    for (int round = 0; round < o->rounds && !o->rc; round++) {
        memset(mine, (int)(o->rank * 16) + round, LEN);
        o->rc = b->allgather(b->self, mine, LEN, all, &o->err);
        for (uint32_t i = 0; i < WORLD && !o->rc; i++)
            if (all[i * LEN] != i * 16 + (uint32_t)round || all[i * LEN + LEN - 1] != all[i * LEN])
                o->rc = -999;
    }
    hearth_bootstrap_close(b);
    free(all);
    return NULL;
}

static struct one ranks[WORLD];

static void setup(void)
{
    uint16_t port = port_keep();

    alarm(60);
    must(hth_auth_init(NULL));
    for (int i = 0; i < NODES; i++) {
        pthread_mutex_init(&engines[i].lock, NULL);
        pthread_cond_init(&engines[i].brought, NULL);
    }
    for (uint32_t i = 0; i < WORLD; i++)
        ranks[i] = (struct one){
            .rank = i, .port = port, .engine = &engines[i % NODES], .keys = 1, .rounds = 1
        };
}

static void teardown(void)
{
    for (int i = 0; i < NODES; i++)
        free(engines[i].table);
}

TestSuite(mates, .init = setup, .fini = teardown);

static void run(void)
{
    pthread_t t[WORLD];

    for (uint32_t i = 0; i < WORLD; i++)
        pthread_create(&t[i], NULL, gather, &ranks[i]);
    for (uint32_t i = 0; i < WORLD; i++)
        pthread_join(t[i], NULL);
}

static void all_have_gathered(void)
{
    for (uint32_t i = 0; i < WORLD; i++)
        cr_expect(zero(int, ranks[i].rc), "rank %u: %s", i, ranks[i].err.text);
}

Test(mates, rank_0_sends_the_table_to_one_rank_of_each_node)
{
    for (int i = 0; i < WORLD; i++)
        ranks[i].rounds = 5;
    run();
    all_have_gathered();
    for (int i = 0; i < NODES; i++) {
        cr_expect(eq(int, engines[i].brings, 5), "node %d", i);
        cr_expect(eq(int, engines[i].meets, 5), "node %d", i);
    }
}

Test(mates, without_a_key_the_same)
{
    for (int i = 0; i < WORLD; i++)
        ranks[i].keys = 0;
    run();
    all_have_gathered();
    for (int i = 0; i < NODES; i++)
        cr_expect(eq(int, engines[i].meets, 1), "node %d", i);
}

Test(mates, ranks_without_an_engine_receive_the_table_from_rank_0)
{
    for (int i = 0; i < WORLD; i += 3)
        ranks[i].engine = NULL;
    run();
    all_have_gathered();
    cr_expect(zero(int, engines[0].brings + engines[0].meets)); /* ranks 0 and 4: rank 4 is alone */
    cr_expect(eq(int, engines[1].brings, 1));
}

Test(mates, a_rank_whose_engine_does_not_have_the_table_receives_it_from_rank_0)
{
    engines[0].loses = engines[2].loses = 1;
    run();
    all_have_gathered();
    for (int i = 0; i < NODES; i++)
        cr_expect(eq(int, engines[i].meets, 1), "node %d", i);
}

Test(mates, a_table_that_rank_0_did_not_prove_is_not_taken_from_an_engine)
{
    engines[1].bends = 1;
    run();
    cr_expect(eq(int, ranks[5].rc, HEARTH_EAUTH), "%s", ranks[5].err.text);
    cr_expect(zero(int, ranks[1].rc), "%s", ranks[1].err.text);
    cr_expect(zero(int, ranks[6].rc), "%s", ranks[6].err.text);
}

/* ---- engines that fetch it from each other --------------------------------------------- */

static int sum(const int *of_first)
{
    int all = 0;

    for (int i = 0; i < NODES; i++)
        all += *(const int *)(const void *)((const char *)of_first + i * sizeof(engines[0]));
    return all;
}

static void with_tree(int keys, int rounds)
{
    tree_from = 1;
    for (int i = 0; i < WORLD; i++) {
        ranks[i].keys = (unsigned)keys;
        ranks[i].rounds = rounds;
    }
}

Test(mates, engines_fetch_the_table_from_each_other_and_rank_0_sends_it_to_none)
{
    with_tree(1, 5);
    run();
    all_have_gathered();
    cr_expect(eq(int, engines[0].brings, 5));
    cr_expect(eq(int, sum(&engines[0].fetches), 5 * (NODES - 1)));
    cr_expect(eq(int, sum(&engines[0].gives), 5 * (NODES - 1)));
    cr_expect(eq(int, sum(&engines[0].meets), 5 * (WORLD - NODES)));
}

Test(mates, without_a_key_engines_fetch_it_the_same)
{
    with_tree(0, 2);
    run();
    all_have_gathered();
    cr_expect(eq(int, sum(&engines[0].gives), 2 * (NODES - 1)));
}

Test(mates, a_small_job_and_one_of_unlike_engines_have_no_tree)
{
    run();
    all_have_gathered();
    with_tree(1, 1);
    unlike = 1;
    run();
    all_have_gathered();
    cr_expect(zero(int, sum(&engines[0].fetches)));
    cr_expect(eq(int, sum(&engines[0].brings), 2 * NODES));
}

Test(mates, a_node_whose_source_has_died_receives_the_table_from_rank_0_in_the_end)
{
    with_tree(1, 1);
    engines[0].dead = 1; /* rank 0's own */
    run();
    all_have_gathered();
    cr_expect(ge(int, sum(&engines[0].brings), 2));
}

Test(mates, an_engine_without_a_table_to_give_is_passed_over)
{
    with_tree(1, 1);
    engines[1].dead = engines[2].loses = 1;
    run();
    all_have_gathered();
}

Test(mates, a_table_that_the_ticket_does_not_prove_is_not_taken_and_the_rank_asks_again)
{
    with_tree(1, 1);
    engines[1].bends = 1;
    run();
    cr_expect(zero(int, ranks[2].rc), "%s", ranks[2].err.text);
    cr_expect(ge(int, engines[1].fetches, 2));
}

Test(mates, ranks_without_an_engine_receive_it_from_rank_0_beside_a_tree)
{
    with_tree(1, 1);
    for (int i = 2; i < WORLD; i += 3)
        ranks[i].engine = NULL;
    run();
    all_have_gathered();
    with_tree(1, 1);
    ranks[0].engine = NULL; /* rank 0 has none */
    run();
    all_have_gathered();
}

/* ---- ranks that open ------------------------------------------------------------------------- */

struct opening {
    struct hearth_opts opts;
    uint16_t port;
    int rc;
    struct hearth *h;
    struct hearth_error err;
};

static void *open_one(void *arg)
{
    struct opening *o = arg;
    struct hearth_bootstrap *b = NULL;

    o->rc = hearth_bootstrap_tcp(
            "127.0.0.1", o->port, o->opts.rank, o->opts.world, 20000, &b, &o->err);
    o->opts.bootstrap = b;
    if (!o->rc)
        o->rc = hearth_open(&o->opts, &o->h, &o->err);
    hearth_close(o->h, HEARTH_KEEP);
    hearth_bootstrap_close(b);
    return NULL;
}

static struct fake_counts open_three(struct rank *r)
{
    struct opening o[3];
    struct fake_counts counts;
    uint16_t port = port_keep();
    pthread_t t[3];

    for (uint32_t i = 0; i < 3; i++) {
        o[i] = (struct opening){ .opts = r->opts, .port = port };
        o[i].opts.rank = i;
        o[i].opts.world = 3;
        pthread_create(&t[i], NULL, open_one, &o[i]);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(t[i], NULL);
        cr_expect(zero(int, o[i].rc), "rank %d: %s", i, o[i].err.text);
    }
    counts = fake_counts(r->fake);
    rank_end(r);
    return counts;
}

Test(mates, ranks_that_open_bring_the_table_to_their_engine_once)
{
    struct fake_counts counts;
    struct rank r;

    rank_start(&r);
    counts = open_three(&r);
    cr_expect(eq(u32, counts.brings, 1));
    cr_expect(eq(u32, counts.meets, 2));
}

/* As one of an older version does. */
Test(mates, ranks_open_with_an_engine_that_knows_no_meeting)
{
    struct fake_counts counts;
    struct rank r;

    rank_start(&r);
    fake_refuse(r.fake, HTH_LOCAL_MEET, HEARTH_EPROTO, "never heard of");
    counts = open_three(&r);
    cr_expect(zero(u32, counts.meets));
}
