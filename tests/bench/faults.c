/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_faults: from the third save on no page is touched for the first time, neither by a rank
 * that writes, nor by an engine that checksums, serves, receives and verifies. Two nodes, each
 * with a shard and a replica of the other's.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tmp_root.h"

#define BYTES (UINT64_C(48) << 20)
#define SAVES 8u

static uint64_t engine_faults(const struct job *j, uint32_t node)
{
    struct engine_use use;
    char root[256];

    job_root(j, node, root);
    if (engine_use(engine_pid(root), &use))
        die("the engine under %s is gone", root);
    return use.faults;
}

static int save_and_count(struct job *j, uint64_t step)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), most = BYTES / page / 100, before[NODES_MAX];
    struct said said[NODES_MAX];
    int bad = 0;

    for (uint32_t n = 0; n < j->nodes; n++)
        before[n] = engine_faults(j, n);
    job_all(j, ORDER_SAVE, step, said);
    nap_ms(50); /* the replica of the older save is on its way out */
    for (uint32_t n = 0; n < j->nodes; n++) {
        uint64_t engine = engine_faults(j, n) - before[n];

        printf("save %llu, node %u: %llu faults in the rank, %llu in the engine, of %llu pages\n",
                (unsigned long long)step, n, (unsigned long long)said[n].faults,
                (unsigned long long)engine, (unsigned long long)(BYTES / page));
        if (step >= 3)
            bad |= said[n].faults > most || engine > most;
    }
    return bad;
}

int main(void)
{
    struct job j = { .nodes = 2, .copies = 1, .bytes = { BYTES, BYTES } };
    struct said said[NODES_MAX];
    char root[256];
    int bad = 0;

    alarm(100);
    if (!(j.base = tmp_root(UINT64_C(1) << 30)))
        die("no tmpfs for the test");
    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    for (uint32_t n = 0; n < j.nodes; n++) {
        job_root(&j, n, root);
        engine_settle(root);
    }
    for (uint64_t step = 1; step <= SAVES; step++)
        bad |= save_and_count(&j, step);
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < j.nodes; n++)
        job_lose(&j, n);
    tmp_root_remove(j.base);
    if (bad)
        die("a save after the second one touched more than 1 %% of its pages for the first time");
    return 0;
}
