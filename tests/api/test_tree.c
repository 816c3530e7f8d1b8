/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks on several nodes with hearthd itself: engines receive the ranks' table from each other. */
#include "check.h"
#include "engines.h"
#include "port.h"
#include "rank.h"
#include "tmp_root.h"

#include "client/bootstrap/tcp.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { NODES = 6, EACH = 2, WORLD = NODES * EACH };

static char roots[64], root[NODES][128], node[NODES][16], hearthd[512];

struct one {
    struct hearth_opts opts;
    struct hearth_bootstrap *b;
    struct hearth *h;
    int rc;
    struct hearth_error err;
};

static struct one one[WORLD];
static atomic_int opened, may_come;

static void start(void)
{
    uint16_t port = port_keep();

    alarm(100);
    strcpy(roots, "/dev/shm/hearth-api-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(roots), NULL));
    snprintf(hearthd, sizeof(hearthd), "%s/hearthd", getenv("HEARTH_TEST_BIN"));
    for (uint32_t i = 0; i < NODES; i++) {
        snprintf(root[i], sizeof(root[i]), "%s/%u", roots, i);
        snprintf(node[i], sizeof(node[i]), "n%u", i);
        cr_assert(zero(int, mkdir(root[i], 0700)));
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        struct hearth_opts *o = &one[r].opts;

        *o = (struct hearth_opts)HEARTH_OPTS_INIT;
        o->root = root[r / EACH];
        o->node = o->machine = node[r / EACH];
        o->job = "job";
        o->rank = r;
        o->world = WORLD;
        o->engine = hearthd;
        o->transport = "tcp";
        o->open_ms = 40000;
        o->linger_s = 20; /* a test that is killed leaves no engine for long */
        must(hearth_bootstrap_tcp("127.0.0.1", port, r, WORLD, 20000, &one[r].b, NULL));
        hth_bootstrap_tree_from(one[r].b, 1);
        o->bootstrap = one[r].b;
    }
}

static void end(void)
{
    for (uint32_t r = 0; r < WORLD; r++) {
        hearth_close(one[r].h, HEARTH_KEEP);
        hearth_bootstrap_close(one[r].b);
    }
    cr_assert(ge(int, engines_signal(roots, NULL, SIGKILL), 0));
    tmp_root_remove(roots);
}

TestSuite(tree, .init = start, .fini = end);

static void *recover_one(void *arg)
{
    struct one *o = arg;
    struct hearth_checkpoint *ckpt = NULL;

    o->rc = hearth_recover(o->h, NULL, &ckpt, &o->err);
    return NULL;
}

static void *open_one(void *arg)
{
    struct one *o = arg;

    o->rc = hearth_open(&o->opts, &o->h, &o->err);
    atomic_fetch_add(&opened, 1);
    return o->rc ? NULL : recover_one(o);
}

/* Its engine may hang in the epoch, too. Recovery reports that node lost. */
static void *open_alone(void *arg)
{
    struct one *o = arg;

    o->rc = hearth_open(&o->opts, &o->h, &o->err);
    atomic_fetch_add(&opened, 1);
    return NULL;
}

/* In each rank at once; `then` meanwhile. */
static void all(void *(*do_one)(void *), void (*then)(void))
{
    pthread_t t[WORLD];

    for (uint32_t r = 0; r < WORLD; r++)
        pthread_create(&t[r], NULL, do_one, &one[r]);
    if (then)
        then();
    for (uint32_t r = 0; r < WORLD; r++)
        pthread_join(t[r], NULL);
    for (uint32_t r = 0; r < WORLD; r++)
        cr_assert(zero(int, one[r].rc), "rank %u: %s", r, one[r].err.text);
}

/* How many lines of its engine's log have this. */
static int log_has(uint32_t k, const char *text)
{
    char path[256], line[1024];
    int count = 0;
    FILE *f;

    snprintf(path, sizeof(path), "%s/job/.hearth/log", root[k]);
    f = fopen(path, "r");
    while (f && fgets(line, sizeof(line), f))
        count += strstr(line, text) != NULL;
    if (f)
        fclose(f);
    return count;
}

Test(tree, each_engine_receives_the_table_from_another_one_and_again_in_the_next_epoch)
{
    all(open_one, NULL);
    for (uint32_t i = 0; i < NODES; i++)
        cr_expect(eq(int, log_has(i, "table-received"), i != 0), "node %u", i);
    all(recover_one, NULL); /* all ranks meet again, while their engines are in an epoch */
    for (uint32_t i = 0; i < NODES; i++)
        cr_expect(eq(int, log_has(i, "table-received"), 2 * (i != 0)), "node %u", i);
}

static int not_received(void)
{
    int count = 0;

    for (uint32_t i = 0; i < NODES; i++)
        count += log_has(i, "table-not-received") != 0;
    return count;
}

/* The node that received the table last could not fetch it from an engine that hangs. */
static void let_go_on(void)
{
    struct timespec nap = { .tv_nsec = 20000000 };

    while (!not_received())
        nanosleep(&nap, NULL);
    while (atomic_load(&opened) < WORLD) {
        cr_assert(ge(int, engines_signal(roots, NULL, SIGCONT), 0));
        nanosleep(&nap, NULL);
    }
}

/* The engine of rank 0's node, the host, from a job of this rank alone. */
static void engine_of_host(void)
{
    struct one alone = one[0];

    alone.opts.world = 1;
    alone.opts.allow_degraded = 1;
    must(hearth_bootstrap_tcp("127.0.0.1", 1, 0, 1, 10000, &alone.b, NULL));
    alone.opts.bootstrap = alone.b;
    must(hearth_open(&alone.opts, &alone.h, NULL));
    hearth_close(alone.h, HEARTH_KEEP);
    hearth_bootstrap_close(alone.b);
}

Test(tree, where_an_engine_that_gives_the_table_hangs_it_comes_from_elsewhere)
{
    engine_of_host();
    setenv("HEARTH_STOP_POINT", "table", 1); /* each other engine, when it is asked */
    all(open_alone, let_go_on);
    for (uint32_t i = 1; i < NODES; i++)
        cr_expect(eq(int, log_has(i, "joined epoch"), 1), "node %u", i);
}

/* A rank whose engine ends while it meets the others comes again with the next engine's row. */
static void end_engines(void)
{
    struct timespec nap = { .tv_nsec = 150000000 };

    for (int i = 0; i < 4; i++) {
        nanosleep(&nap, NULL);
        engines_signal(root[1 + i % 2], NULL, SIGKILL);
    }
    engines_signal(root[0], NULL, SIGKILL); /* the host's */
    atomic_store(&may_come, 1);
}

static void *open_late(void *arg)
{
    struct timespec nap = { .tv_nsec = 10000000 };

    while (arg == &one[WORLD - 1] && !atomic_load(&may_come))
        nanosleep(&nap, NULL);
    return open_one(arg);
}

Test(tree, ranks_whose_engine_ends_while_it_meets_the_others_join_with_the_next)
{
    all(open_late, end_engines);
}
