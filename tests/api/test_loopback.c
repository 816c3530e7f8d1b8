/* SPDX-License-Identifier: Apache-2.0 */
/* Two nodes with separate loopbacks, like two machines without a bind address. */
#include "check.h"
#include "engines.h"
#include "rank.h"
#include "tmp_root.h"

#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define NODES 2
#define ROW   512

/* An all-gather of the callers' own, over shared memory. */
struct table {
    pthread_barrier_t both;
    unsigned char row[NODES][ROW];
};

struct node {
    struct rank r;
    struct table *table;
    struct hearth_bootstrap bootstrap;
    char engine[512], name[8];
};

static int gather(void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct node *n = self;

    (void)err;
    memcpy(n->table->row[n->r.opts.rank], mine, len);
    pthread_barrier_wait(&n->table->both);
    memcpy(all, n->table->row, NODES * len);
    pthread_barrier_wait(&n->table->both);
    return 0;
}

static void node_start(struct node *n, uint32_t rank, struct table *table)
{
    rank_start(&n->r);
    fake_stop(n->r.fake);
    n->r.fake = NULL;
    n->table = table;
    n->bootstrap = (struct hearth_bootstrap)HEARTH_BOOTSTRAP_INIT;
    n->bootstrap.allgather = gather;
    n->bootstrap.self = n;
    snprintf(n->engine, sizeof(n->engine), "%s/hearthd", getenv("HEARTH_TEST_BIN"));
    snprintf(n->name, sizeof(n->name), "n%u", rank);
    n->r.opts.node = n->name;
    n->r.opts.start = HEARTH_START_AUTO;
    n->r.opts.engine = n->engine;
    n->r.opts.transport = "tcp";
    n->r.opts.open_ms = 8000;
    n->r.opts.linger_s = 20;
    n->r.opts.rank = rank;
    n->r.opts.world = NODES;
    n->r.opts.bootstrap = &n->bootstrap;
}

static int loopback_up(void)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq lo = { .ifr_name = "lo", .ifr_flags = IFF_UP };
    int rc = fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &lo);

    close(fd);
    return rc;
}

/* Returns 0 if this node's open fails with the error that rank 0 has. */
static int must_be_told(struct node *n)
{
    struct hearth_error err = { 0 };
    int rc = hearth_open(&n->r.opts, &n->r.h, &err);

    if (rc == HEARTH_EINVAL && strstr(err.text, "node 'n0' (rank 0) listens on loopback") &&
            strstr(err.text, "node 'n1' (rank 1)") && strstr(err.text, "set bind (HEARTH_BIND)"))
        return 0;
    fprintf(stderr, "rank %u: %d %s\n", n->r.opts.rank, rc, err.text);
    return 1;
}

Test(loopback, nodes_on_loopbacks_of_their_own_are_told_at_open_on_all_ranks, .timeout = 60)
{
    struct table *table =
            mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static struct node node[NODES];
    pthread_barrierattr_t shared;
    int status = 0, told;
    pid_t other;

    if (geteuid())
        cr_skip_test("only root makes a network of its own");
    pthread_barrierattr_init(&shared);
    pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&table->both, &shared, NODES);
    for (uint32_t i = 0; i < NODES; i++)
        node_start(&node[i], i, table);
    other = fork();
    if (!other)
        _exit(prctl(PR_SET_PDEATHSIG, SIGKILL) || unshare(CLONE_NEWNET) || loopback_up()
                        ? 77
                        : must_be_told(&node[1]));
    told = must_be_told(&node[0]);
    cr_assert(eq(int, waitpid(other, &status, 0), other));
    for (uint32_t i = 0; i < NODES; i++) {
        engines_signal(node[i].r.root, NULL, SIGKILL);
        tmp_root_remove(node[i].r.root);
    }
    cr_assert(zero(int, told));
    cr_assert(zero(int, status));
}
