/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of one node: rank 0 sends the table to one of them, and the others receive it from what
 * stands for their node's engine here. */
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
    int loses; /* it takes a table and has it no more */
    int bends; /* the table that it gives is another one */
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
    struct hth_mates mates = { .self = o->engine, .bring = engine_bring, .meet = engine_meet };

    mates.node = o->engine ? 77 + (uint64_t)(o->engine - engines) : 0;
    o->rc = hearth_bootstrap_tcp("127.0.0.1", o->port, o->rank, WORLD, 20000, &b, &o->err);
    if (!o->rc) {
        hth_bootstrap_tell(b, "job", job_key, o->keys, 0);
        hth_bootstrap_mates(b, &mates);
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
