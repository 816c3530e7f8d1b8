/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_early: from begin to PROTECTED, two jobs of two nodes in turn.
 *
 *     while copied    the peer pulls chunks while the rank copies the others
 *     once copied     it pulls all of them after the commit
 *
 * The limit in the same round is the longer of two: the copy (begin to commit's return) in the
 * second job, and a raw pull of the same bytes through the same backend. Ranks copy by one thread,
 * so that two processors are more than a copy takes. A rank of the second job may run on one
 * processor when it opens the job, so it finds none left, and reports nothing before the commit.
 */
#include "bench.h"
#include "port.h"

#include <sys/stat.h>

#define LITTLE (UINT64_C(64) << 10)

static struct {
    const char *base, *backend, *json, *memory;
    uint64_t mib;
    unsigned rounds;
} arg = { .backend = "tcp", .mib = 1024, .rounds = 7 };

static struct early {
    struct job job;
    char base[256];
    struct series all, blocked;
} jobs[2];

static uint64_t bytes;

static double rate(double seconds)
{
    return (double)bytes / seconds / 1e9;
}

static void early_start(struct early *e, int confined)
{
    struct said said[NODES_MAX];
    char root[256];

    snprintf(e->base, sizeof(e->base), "%.200s/early-%d", arg.base, confined);
    mkdir(e->base, 0700);
    e->job = (struct job){ .base = e->base,
        .backend = arg.backend,
        .nodes = 2,
        .copies = 1,
        .bytes = { bytes, LITTLE },
        .copy_threads = 1,
        .confined = confined };
    job_start(&e->job);
    e->job.port = port_keep();
    job_all(&e->job, ORDER_AGAIN, e->job.port, said);
    job_all(&e->job, ORDER_RECOVER, 0, said);
    for (uint32_t n = 0; n < e->job.nodes; n++) {
        job_root(&e->job, n, root);
        engine_settle(root);
        place(engine_pid(root), n == 1);
    }
}

static void early_end(struct early *e)
{
    job_end(&e->job, ORDER_KEEP);
    for (uint32_t n = 0; n < e->job.nodes; n++)
        job_lose(&e->job, n);
}

/* Returns the seconds of the copy. */
static double early_save(struct early *e, unsigned step, int counted)
{
    struct said said[NODES_MAX];

    job_all(&e->job, ORDER_SAVE, step, said);
    if (counted) {
        series_add(&e->all, rate(said[0].blocked_s + said[0].protected_s));
        series_add(&e->blocked, rate(said[0].blocked_s));
    }
    return said[0].blocked_s;
}

static void show(const char *name, const struct series *a, const char *limit_name,
        const struct series *limit)
{
    row_say(&(struct row){
            .name = name, .limit_name = limit_name, .rate = a, .limit = limit, .unit = "GB/s" });
}

int main(int argc, char **argv)
{
    static const struct flag known[] = { { "--base", .text = &arg.base },
        { "--mib", .number = &arg.mib }, { "--backend", .text = &arg.backend },
        { "--json", .text = &arg.json }, { "--memory", .text = &arg.memory },
        { "--rounds", .count = &arg.rounds }, { 0 } };
    static const char longest[] = "the longer of copy and raw pull";
    struct series limit = { 0 };
    struct pull_job pulled;
    struct peers raw;

    flags_take(known, argc, argv);
    if (!arg.base || arg.mib < 256 || arg.mib > 65536 || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_early --base TMPFS [--mib 256..65536] [--rounds 1..%d] [--backend NAME] "
            "[--json LINES] [--memory WORD]",
                ROUNDS_MAX);
    bytes = arg.mib << 20;
    rows_open(arg.json, arg.memory, bytes);
    pulled = (struct pull_job){ .backend = arg.backend, .base = arg.base, .bytes = bytes };
    raw_start(&raw, &pulled);
    peers_place(&raw);
    early_start(&jobs[0], 0);
    early_start(&jobs[1], 1);
    for (unsigned i = 1; i <= arg.rounds + 2; i++) { /* two: warm-up */
        double pull = peers_pull(&raw).s, copy[2];

        for (unsigned k = 0; k < 2; k++)
            copy[(i + k) % 2] = early_save(&jobs[(i + k) % 2], i, i > 2);
        if (i > 2)
            series_add(&limit, rate(copy[1] > pull ? copy[1] : pull));
    }
    peers_end(&raw);
    early_end(&jobs[0]);
    early_end(&jobs[1]);
    show("begin to PROTECTED, pulled while copied", &jobs[0].all, longest, &limit);
    show("  pulled once copied", &jobs[1].all, longest, &limit);
    show("  blocked, pulled while copied", &jobs[0].blocked, "pulled once copied",
            &jobs[1].blocked);
    return 0;
}
