/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_nodes: between engines on loopback.
 *
 *     replicate   2 nodes, one shard: commit ─► SEALED ─► PROTECTED
 *     unsaid      the same without object_bytes: the second save, and later ones
 *     recover     3 nodes, 2 copies: the owner's machine is lost, a fresh one pulls the shard from both
 *
 * The machine's limits in the same rounds: the transport's own benchmark (a script), and a raw pull
 * through our transport without anything above it.
 */
#include "bench.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#define LITTLE (UINT64_C(64) << 10)
#define PAUSE  1000u /* ms, as training would go on */

static struct {
    const char *base, *transport, *json, *memory, *limit;
    uint64_t mib;
    unsigned rounds;
} arg = { .transport = "ofi", .mib = 256, .rounds = 5 };

static uint64_t bytes;
static int low;

static double rate(double seconds)
{
    return (double)bytes / seconds / 1e9;
}

/* What `limit TRANSPORT MIB` prints; 0: the tool is not here. */
static double tool_rate(void)
{
    char command[600], text[64] = "";
    FILE *f;

    if (!arg.limit)
        return 0;
    snprintf(command, sizeof(command), "'%.400s' %.16s %llu", arg.limit, arg.transport,
            (unsigned long long)arg.mib);
    f = popen(command, "re");
    if (f) {
        if (!fgets(text, sizeof(text), f))
            text[0] = '\0';
        pclose(f);
    }
    return strtod(text, NULL);
}

static void show(const char *name, const struct series *a, const char *limit_name,
        const struct series *limit, const char *unit, double want)
{
    low |= row_say(&(struct row){ .name = name,
            .limit_name = limit_name,
            .rate = a,
            .limit = limit,
            .unit = unit,
            .want = want });
}

static void show_both(const char *name, const struct series *a, const struct series *tool,
        const struct series *raw, double want)
{
    const char *tool_name =
            strcmp(arg.transport, "ucx") != 0 ? "fi_pingpong msg tcp" : "ucx_perftest am_bw tcp";

    if (series_median(tool) > 0)
        show(name, a, tool_name, tool, "GB/s", want);
    show(name, a, "raw pull, own transport", raw, "GB/s", want);
}

static void settle(const struct job *j)
{
    char root[256];

    for (uint32_t n = 0; n < j->nodes; n++) {
        job_root(j, n, root);
        engine_settle(root);
    }
}

static void replicate(struct raw *r)
{
    struct job j = { .base = arg.base,
        .transport = arg.transport,
        .nodes = 2,
        .copies = 1,
        .bytes = { bytes, LITTLE } };
    struct series pull = { 0 }, after = { 0 }, tool = { 0 }, raw = { 0 };
    struct said said[NODES_MAX];

    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    settle(&j);
    for (unsigned i = 1; i <= arg.rounds + 2; i++) {
        double a = i > 2 ? tool_rate() : 0, b = raw_pull_s(r);

        job_all(&j, ORDER_SAVE, i, said);
        if (i <= 2)
            continue; /* warm-up: every slot of both nodes once */
        series_add(&tool, a);
        series_add(&raw, rate(b));
        series_add(&pull, rate(said[0].protected_s - said[0].sealed_s));
        series_add(&after, rate(said[0].protected_s));
    }
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < j.nodes; n++)
        job_lose(&j, n);
    show_both("replicate: sealed to PROTECTED", &pull, &tool, &raw, 0.40);
    show_both("replicate: commit to PROTECTED", &after, &tool, &raw, 0.40);
}

static void unsaid(void)
{
    struct job j = { .base = arg.base,
        .transport = arg.transport,
        .nodes = 2,
        .copies = 1,
        .bytes = { bytes, bytes },
        .unsaid = 1 };
    struct series blocked[2] = { 0 }, after[2] = { 0 };
    struct said said[NODES_MAX];

    for (unsigned i = 0; i < arg.rounds; i++) {
        job_start(&j);
        job_all(&j, ORDER_RECOVER, 0, said);
        for (unsigned save = 1; save <= 5; save++) {
            job_all(&j, ORDER_SAVE, save, said);
            if (save == 2 || save == 5) {
                series_add(&blocked[save == 5], rate(said[0].blocked_s));
                series_add(&after[save == 5], rate(said[0].protected_s));
            }
            nap_ms(PAUSE);
        }
        job_end(&j, ORDER_KEEP);
        for (uint32_t n = 0; n < j.nodes; n++)
            job_lose(&j, n);
    }
    show("second save, object_bytes not given", &blocked[0], "a steady one", &blocked[1], "GB/s",
            0.40);
    show("  its commit to PROTECTED", &after[0], "a steady one", &after[1], "GB/s", 0.40);
}

/* Bytes that the engine of a node has sent on its connections that are open now. */
static double sent_by(const struct job *j, uint32_t node)
{
    char root[256], command[256], text[64] = "";
    FILE *f;

    job_root(j, node, root);
    snprintf(command, sizeof(command),
            "ss -tinpHO 2>/dev/null | grep 'pid=%ld,' | grep -o 'bytes_sent:[0-9]*' | "
            "cut -d: -f2 | paste -sd+ | bc",
            (long)engine_pid(root));
    f = popen(command, "re");
    if (f) {
        if (!fgets(text, sizeof(text), f))
            text[0] = '\0';
        pclose(f);
    }
    return strtod(text, NULL);
}

static void one_loss(struct job *j, uint64_t step, struct said said[NODES_MAX], double share[2])
{
    double before[2], sent[2];

    job_all(j, ORDER_SAVE, step, said);
    job_end(j, ORDER_KEEP);
    job_lose(j, 0);
    for (uint32_t n = 0; n < 2; n++)
        before[n] = sent_by(j, n + 1);
    job_start(j);
    job_all(j, ORDER_RECOVER, 0, said);
    if (said[0].recovery.step != step || said[0].recovery.pulled_bytes < bytes)
        die("step %llu came back with %llu bytes pulled instead of step %llu",
                (unsigned long long)said[0].recovery.step,
                (unsigned long long)said[0].recovery.pulled_bytes, (unsigned long long)step);
    for (uint32_t n = 0; n < 2; n++)
        sent[n] = sent_by(j, n + 1) - before[n];
    for (uint32_t n = 0; n < 2; n++)
        share[n] = sent[0] + sent[1] > 0 ? 100 * sent[n] / (sent[0] + sent[1]) : 0;
}

static void recover(struct raw *r)
{
    struct job j = { .base = arg.base,
        .transport = arg.transport,
        .nodes = 3,
        .copies = 2,
        .bytes = { bytes, LITTLE, LITTLE } };
    struct series pull = { 0 }, all = { 0 }, tool = { 0 }, raw = { 0 }, share = { 0 };
    struct said said[NODES_MAX];

    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    for (unsigned i = 0; i <= arg.rounds; i++) { /* the first one is warm-up */
        double a = i ? tool_rate() : 0, b = raw_pull_s(r), part[2];

        one_loss(&j, 10 + i, said, part);
        if (!i)
            continue;
        series_add(&tool, a);
        series_add(&raw, rate(b));
        series_add(&all, rate(said[0].recover_s));
        series_add(&pull, rate(said[0].recovery.pull_ms * 1e-3));
        series_add(&share, part[0] > part[1] ? part[0] : part[1]);
        printf("  round %u: join %u, inventory %u, plan %u, pull %u, verify %u, vote %u ms; holders "
               "gave %.0f and %.0f %%\n",
                i, said[0].recovery.join_ms, said[0].recovery.inventory_ms,
                said[0].recovery.plan_ms, said[0].recovery.pull_ms, said[0].recovery.verify_ms,
                said[0].recovery.vote_ms, part[0], part[1]);
    }
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < j.nodes; n++)
        job_lose(&j, n);
    show_both("recover: pulling, two holders, fresh node", &pull, &tool, &raw, 0);
    show_both("recover: all of hearth_recover()", &all, &tool, &raw, 0);
    show("recover: larger share of the two holders", &share, NULL, NULL, "%", 0);
    if (series_median(&share) > 60) {
        printf("recover: one holder gave more than 60 %%  LOW\n");
        low = 1;
    }
}

static void take_args(int argc, char **argv)
{
    static const struct option known[] = { { "base", 1, NULL, 'b' }, { "mib", 1, NULL, 'm' },
        { "transport", 1, NULL, 't' }, { "json", 1, NULL, 'j' }, { "memory", 1, NULL, 'k' },
        { "rounds", 1, NULL, 'n' }, { "limit", 1, NULL, 'l' }, { NULL, 0, NULL, 0 } };
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) >= 0) {
        if (c == 'b')
            arg.base = optarg;
        else if (c == 'm')
            arg.mib = strtoull(optarg, NULL, 10);
        else if (c == 't')
            arg.transport = optarg;
        else if (c == 'j')
            arg.json = optarg;
        else if (c == 'k')
            arg.memory = optarg;
        else if (c == 'n')
            arg.rounds = (unsigned)strtoul(optarg, NULL, 10);
        else if (c == 'l')
            arg.limit = optarg;
        else
            exit(2);
    }
    if (!arg.base || arg.mib < 16 || arg.mib > 65536 || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_nodes --base TMPFS [--mib 16..65536] [--rounds 1..%d] [--transport ofi|ucx] "
            "[--limit SCRIPT] [--json LINES] [--memory WORD]",
                ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    struct raw raw;

    take_args(argc, argv);
    rows_open(arg.json, arg.memory);
    bytes = arg.mib << 20;
    raw_start(&raw, arg.transport, NULL, arg.base, bytes);
    raw_pull_s(&raw);
    replicate(&raw);
    unsaid();
    recover(&raw);
    raw_end(&raw);
    return low ? 3 : 0;
}
