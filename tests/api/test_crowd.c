/* SPDX-License-Identifier: Apache-2.0 */
/* 512 ranks on 64 nodes with hearthd itself, and no process may have more than 256 descriptors. */
#include "check.h"
#include "engines.h"
#include "port.h"
#include "tmp_root.h"

#include <hearth/hearth.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NODES = 64, EACH = 8, WORLD = NODES * EACH };

static char roots[64];

/* One rank, in a process of its own. */
static int join(uint32_t rank, uint16_t port, const char *engine)
{
    struct hearth_opts o = HEARTH_OPTS_INIT;
    struct hearth_error err = { 0 };
    struct hearth_bootstrap *b = NULL;
    struct hearth *h = NULL;
    char root[128], node[16];
    int rc;

    snprintf(root, sizeof(root), "%s/%u", roots, rank / EACH);
    snprintf(node, sizeof(node), "n%u", rank / EACH);
    o.root = root;
    o.node = o.machine = node;
    o.job = "job";
    o.rank = rank;
    o.world = WORLD;
    o.engine = engine;
    o.transport = "tcp";
    o.open_ms = 100000;
    o.linger_s = 5;
    rc = hearth_bootstrap_tcp("127.0.0.1", port, rank, WORLD, 100000, &b, &err);
    o.bootstrap = b;
    rc = rc ? rc : hearth_open(&o, &h, &err);
    if (rc)
        fprintf(stderr, "rank %u: %s\n", rank, err.text);
    hearth_close(h, HEARTH_KEEP);
    hearth_bootstrap_close(b);
    return rc != 0;
}

Test(crowd, ranks_of_64_nodes_join_with_256_descriptors_a_process, .timeout = 200)
{
    const struct rlimit few = { 256, 256 };
    uint16_t port = port_keep();
    char engine[512], root[128];
    int status, wrong = 0;

    strcpy(roots, "/dev/shm/hearth-api-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(roots), NULL));
    snprintf(engine, sizeof(engine), "%s/hearthd", getenv("HEARTH_TEST_BIN"));
    cr_assert(zero(int, setrlimit(RLIMIT_NOFILE, &few)));
    for (uint32_t i = 0; i < NODES; i++) {
        snprintf(root, sizeof(root), "%s/%u", roots, i);
        cr_assert(zero(int, mkdir(root, 0700)));
    }
    for (uint32_t r = 0; r < WORLD; r++) {
        pid_t pid = fork();

        cr_assert(ge(int, pid, 0));
        if (!pid)
            _exit(join(r, port, engine));
    }
    for (uint32_t r = 0; r < WORLD; r++)
        wrong += wait(&status) < 0 || status != 0;
    cr_expect(zero(int, wrong));
    cr_assert(ge(int, engines_signal(roots, NULL, SIGKILL), 0));
    tmp_root_remove(roots);
}
