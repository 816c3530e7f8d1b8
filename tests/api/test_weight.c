/* SPDX-License-Identifier: Apache-2.0 */
/* The memory that a job of two nodes takes, with hearthd itself, is as core/store/need.h says. */
#include "check.h"
#include "engines.h"
#include "port.h"
#include "rank.h"
#include "tmp_root.h"

#include "client/link/mapped.h"
#include "core/store/need.h"
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTES (UINT64_C(7) << 20) /* of a rank's object */
#define OTHER (UINT64_C(1) << 20) /* records, logs and manifests of a node, at most */

enum { NODES = 2, EACH_MOST = 4, MOST = NODES * EACH_MOST, SAVES = 5 };

static const uint64_t told[] = { BYTES };
static char roots[64], root[NODES][128], node[NODES][16], hearthd[512];
static uint32_t world, each;

struct one {
    struct hearth_opts opts;
    struct hearth_bootstrap *b;
    struct hearth *h;
    float *x;
    uint64_t step; /* to be saved */
    int rc;
    struct hearth_error err;
};

static struct one one[MOST];

static void start_one(uint32_t r, uint16_t port)
{
    struct hearth_opts *o = &one[r].opts;

    *o = (struct hearth_opts)HEARTH_OPTS_INIT;
    o->root = root[r / each];
    o->node = o->machine = node[r / each];
    o->job = "job";
    o->rank = r;
    o->world = world;
    o->engine = hearthd;
    o->transport = "tcp";
    o->open_ms = 40000;
    o->linger_s = 20; /* a test that is killed leaves no engine for long */
    o->object_bytes = told;
    o->object_count = 1;
    must(hearth_bootstrap_tcp("127.0.0.1", port, r, world, 20000, &one[r].b, NULL));
    o->bootstrap = one[r].b;
    one[r].x = calloc(1, BYTES);
    cr_assert(ne(ptr, one[r].x, NULL));
}

static void start(uint32_t ranks_per_node)
{
    uint16_t port = port_keep();

    alarm(100);
    each = ranks_per_node;
    world = NODES * each;
    strcpy(roots, "/dev/shm/hearth-api-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(roots), NULL));
    snprintf(hearthd, sizeof(hearthd), "%s/hearthd", getenv("HEARTH_TEST_BIN"));
    for (uint32_t i = 0; i < NODES; i++) {
        snprintf(root[i], sizeof(root[i]), "%s/%u", roots, i);
        snprintf(node[i], sizeof(node[i]), "n%u", i);
        cr_assert(zero(int, mkdir(root[i], 0700)));
    }
    for (uint32_t r = 0; r < world; r++)
        start_one(r, port);
}

static void end(void)
{
    for (uint32_t r = 0; r < world; r++) {
        hearth_close(one[r].h, HEARTH_KEEP);
        hearth_bootstrap_close(one[r].b);
        free(one[r].x);
    }
    cr_assert(ge(int, engines_signal(roots, NULL, SIGKILL), 0));
    tmp_root_remove(roots);
}

TestSuite(weight, .fini = end);

static void *open_one(void *arg)
{
    struct hearth_checkpoint *none = NULL;
    struct one *o = arg;

    o->rc = hearth_open(&o->opts, &o->h, &o->err);
    o->rc = o->rc ? o->rc : hearth_recover(o->h, NULL, &none, &o->err);
    return NULL;
}

static void *save_one(void *arg)
{
    struct one *o = arg;
    int64_t n = (int64_t)((BYTES - 65536) / sizeof(*o->x));
    struct hearth_piece piece = rank_piece("x", o->x, 1, &n);

    rank_fill(o->x, (size_t)n, (float)o->step);
    rank_save(o->h, o->step, &piece, 1, NULL, 0);
    return NULL;
}

static void all(void *(*do_one)(void *))
{
    pthread_t t[MOST];

    for (uint32_t r = 0; r < world; r++)
        pthread_create(&t[r], NULL, do_one, &one[r]);
    for (uint32_t r = 0; r < world; r++)
        pthread_join(t[r], NULL);
    for (uint32_t r = 0; r < world; r++)
        cr_assert(zero(int, one[r].rc), "rank %u: %s", r, one[r].err.text);
}

static uint64_t bytes_found; /* nftw() has no argument of ours */

static int add_bytes(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)path, (void)at;
    if (type == FTW_F)
        bytes_found += (uint64_t)st->st_size;
    return 0;
}

/* copies and keep are 1: each node has slots for two saves of its ranks and of as many copies. */
static void nodes_take(uint32_t slots)
{
    uint64_t slot = hth_need_slot(hth_file_bytes(BYTES));

    for (uint32_t i = 0; i < NODES; i++) {
        bytes_found = 0;
        cr_assert(zero(int, nftw(root[i], add_bytes, 16, FTW_PHYS)));
        cr_assert(ge(u64, bytes_found, slots * slot));
        cr_assert(le(u64, bytes_found, slots * slot + OTHER));
    }
}

static void weigh(uint32_t slots)
{
    all(open_one);
    nodes_take(slots);
    for (uint64_t step = 1; step <= SAVES; step++) {
        for (uint32_t r = 0; r < world; r++)
            one[r].step = step;
        all(save_one);
    }
    nodes_take(slots);
}

Test(weight, two_nodes_with_one_rank_each_have_two_saves_and_a_slot)
{
    start(1);
    weigh(2 * (1 + 1) + 1);
}

Test(weight, two_nodes_with_four_ranks_each_have_two_saves_and_a_slot)
{
    start(4);
    weigh(2 * (4 + 4) + 1);
}
