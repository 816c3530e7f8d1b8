/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_resume: from the loss of a node to the first step saved after it.
 *
 *     3 nodes, a rank and one shard each, one copy; the survivors' processes live on
 *
 *     killed ─► noticed ─► joined ─► recovered ─► handed over ─► PROTECTED
 *             their save    all have   step and     the next       by all
 *             has failed    opened     bytes back   save
 *
 * It is not the coordinator's node: without the coordinator no save is decided, so the survivors'
 * save fails only at its own deadline, and the launcher notices the loss first. There is no rate to
 * compare with: the time is made of heartbeats as much as of bytes. Wanted: 3 s at the median with
 * heartbeat_ms 200, dead_ms 1000 and 256 MiB.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define NODES  3u
#define WANT_S 3.0

enum phase { NOTICED, JOINED, RECOVERED, HANDED, PROTECTED, ALL, PHASES };
static const char *const phase_name[PHASES] = { "noticed by the survivors", "joined again",
    "recovered", "the next step handed over", "it is PROTECTED", "all of it" };

static struct {
    const char *base, *backend, *json, *memory;
    uint64_t mib;
    unsigned rounds;
} arg = { .backend = "ofi:tcp", .mib = 256, .rounds = 11 };

/* Times that engines have called themselves stopped, and given all peers their deadlines anew. */
static unsigned rearmed(const struct job *j)
{
    unsigned n = 0;

    for (uint32_t node = 0; node < j->nodes; node++) {
        char root[256], path[320], line[1024];
        FILE *f;

        job_root(j, node, root);
        snprintf(path, sizeof(path), "%s/bench/.hearth/log", root);
        f = fopen(path, "re");
        while (f && fgets(line, sizeof(line), f))
            n += strstr(line, " paused") != NULL;
        if (f)
            fclose(f);
    }
    return n;
}

static double most(const struct said said[NODES_MAX], double (*of)(const struct said *))
{
    double max = 0;

    for (uint32_t r = 0; r < NODES; r++)
        max = of(&said[r]) > max ? of(&said[r]) : max;
    return max;
}

static double handed_s(const struct said *said)
{
    return said->blocked_s;
}

struct losses {
    struct series took[PHASES];
    struct hearth_recovery fresh[ROUNDS_MAX]; /* as the fresh node's rank has it */
};

/* The round whose whole took the median: what all ranks see, and hearth_recover() on the fresh
 * node. */
static void losses_timeline(const struct losses *all)
{
    static const char *const name[ALL] = { "noticed", "joined", "recovered", "handed over",
        "PROTECTED" };
    unsigned round = series_middle(&all->took[ALL]);
    const struct hearth_recovery *was = &all->fresh[round];
    const uint32_t ms[] = { was->join_ms, was->inventory_ms, was->plan_ms, was->pull_ms,
        was->verify_ms, was->vote_ms };
    struct span seen[ALL], inside[] = { { .name = "join" }, { .name = "inventory" },
        { .name = "plan" }, { .name = "pull" }, { .name = "verify" }, { .name = "vote" } };
    double at = 0, begun;

    for (unsigned p = 0; p < ALL; p++) {
        seen[p] = (struct span){ name[p], at, at + all->took[p].value[round] };
        at = seen[p].end_s;
    }
    begun = seen[RECOVERED].begin_s;
    for (unsigned p = 0; p < sizeof(ms) / sizeof(ms[0]); p++) {
        inside[p].begin_s = begun;
        begun = inside[p].end_s = begun + ms[p] * 1e-3;
    }
    timeline_say("recovery", "the job", seen, ALL);
    timeline_say("recovery", "hearth_recover()", inside, sizeof(ms) / sizeof(ms[0]));
}

static void one_loss(struct job *j, uint64_t step, uint32_t lost, struct losses *all)
{
    struct series *took = all->took;
    struct said said[NODES_MAX] = { 0 };
    struct hearth_recovery was;
    double at[PHASES + 1];

    job_all(j, ORDER_SAVE, step, said);
    job_others(j, lost, ORDER_TRY, step + 1);
    at[0] = now_s();
    job_kill(j, lost);
    job_others_failed(j, lost, said);
    at[1] = now_s();
    job_again(j, lost);
    at[2] = now_s();
    job_all(j, ORDER_RECOVER, 0, said);
    for (uint32_t r = 0; r < NODES; r++)
        if (said[r].recovery.step != step)
            die("rank %u came back with step %llu instead of %llu", r,
                    (unsigned long long)said[r].recovery.step, (unsigned long long)step);
    was = said[lost].recovery;
    at[3] = now_s();
    job_all(j, ORDER_SAVE, step + 2, said);
    at[5] = now_s();
    at[4] = at[3] + most(said, handed_s);
    all->fresh[took[ALL].count] = was;
    for (int p = 0; p < ALL; p++)
        series_add(&took[p], at[p + 1] - at[p]);
    series_add(&took[ALL], at[5] - at[0]);
    printf("  lost node %u: noticed %.2f, joined %.2f, recovered %.2f, handed over %.2f, PROTECTED %.2f: "
           "%.2f s; join %u, inventory %u, plan %u, pull %u, verify %u, vote %u ms\n",
            lost, at[1] - at[0], at[2] - at[1], at[3] - at[2], at[4] - at[3], at[5] - at[4],
            at[5] - at[0], was.join_ms, was.inventory_ms, was.plan_ms, was.pull_ms, was.verify_ms,
            was.vote_ms);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int show(struct series took[PHASES])
{
    int low = 0;

    for (int p = 0; p < PHASES; p++) {
        struct series *s = &took[p];

        qsort(s->value, s->count, sizeof(s->value[0]), compare);
        low = p == ALL && s->value[s->count / 2] > WANT_S;
        printf("%-44s %8.2f s at the median, %.2f to %.2f%s\n", phase_name[p],
                s->value[s->count / 2], s->value[0], s->value[s->count - 1],
                low ? "  wanted 3.00  LATE" : "");
    }
    return low;
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--base", .text = &arg.base },
        { "--mib", .number = &arg.mib }, { "--backend", .text = &arg.backend },
        { "--json", .text = &arg.json }, { "--memory", .text = &arg.memory },
        { "--rounds", .count = &arg.rounds }, { 0 } };

    flags_take(known, argc, argv);
    if (!arg.base || !arg.mib || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_resume --base TMPFS [--mib N] [--rounds 1..%d] [--backend NAME] "
            "[--json LINES] [--memory WORD]",
                ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    struct losses all = { 0 };
    struct said said[NODES_MAX];
    struct job j = { .nodes = NODES, .copies = 1, .heartbeat_ms = 200, .dead_ms = 1000 };
    unsigned paused;

    take_args(argc, argv);
    rows_open(arg.json, arg.memory, arg.mib << 20);
    j.base = arg.base, j.backend = arg.backend;
    for (uint32_t n = 0; n < NODES; n++)
        j.bytes[n] = arg.mib << 20;
    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    for (unsigned i = 0; i < arg.rounds; i++)
        one_loss(&j, 10 * (i + 1), 1 + i % (NODES - 1), &all);
    paused = rearmed(&j);
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < NODES; n++)
        job_lose(&j, n);
    printf("deadlines re-armed: %u times\n", paused);
    losses_timeline(&all); /* before show() sorts each phase by itself */
    return show(all.took) ? 3 : 0;
}
