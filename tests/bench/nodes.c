/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_nodes: between engines on loopback.
 *
 *     replicate   2 nodes, one shard: commit ─► SEALED ─► PROTECTED
 *     both        the same with a shard on each node, so that bytes go both ways at once
 *     unsaid      the same without object_bytes: the second save, and later ones
 *     recover     3 nodes, 2 copies: the owner's machine is lost, a fresh one pulls the shard from both
 *
 *     commit      4 nodes that save at once: how long commit alone takes
 *     idle        12 nodes, nothing to do: CPU of the engines
 *
 * The limit in the same rounds is a raw pull through the same backend without anything above it;
 * what limits that is bench_pulls' to say. A recovery stands also beside one into memory that is
 * made for it, as a fresh node's is. Beside `tcp` there are sockets, too: send() and sendfile(),
 * the faster one counts, and with a key the same cipher in records of the same size.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define LITTLE  (UINT64_C(64) << 10)
#define PAUSE   1000u /* ms, as training would go on */
#define QUIET_S 10

static struct {
    const char *base, *backend, *json, *memory;
    uint64_t mib;
    unsigned rounds;
    unsigned parts;
} arg = { .backend = "ofi:tcp", .mib = 256, .rounds = 5 };

#define MADE_AFRESH 6 /* shards' worth of pages that a fresh node makes, at most */

struct recoveries {
    struct series pull, all, raw, into_new, share, cpu[2];
};

static struct {
    struct {
        struct peers pair[2]; /* [ways] */
        const char *name;
        struct series rate, cpu;
    } kind[2];
    unsigned kinds; /* 0: the backend is not over sockets of ours */
    unsigned ways;
    double want;
} wires;

static uint64_t bytes;
static int low;

static double rate(double seconds)
{
    return (double)bytes / seconds / 1e9;
}

static void show(const char *name, const struct series *a, const char *limit_name,
        const struct series *limit, const struct series cpu[2], double want)
{
    low |= row_say(&(struct row){ .name = name,
            .limit_name = limit_name,
            .rate = a,
            .limit = limit,
            .cpu = cpu ? &cpu[0] : NULL,
            .limit_cpu = cpu ? &cpu[1] : NULL,
            .unit = "GB/s",
            .want = want });
}

/* Of the engines, so far; of those that have ended nothing. */
static double engines_cpu_s(const struct job *j)
{
    char root[256];
    double sum = 0;

    for (uint32_t n = 0; n < j->nodes; n++) {
        pid_t pid;

        job_root(j, n, root);
        pid = engine_pid(root);
        sum += pid ? cpu_of(pid) : 0;
    }
    return sum;
}

/* cpu[0]: engines, cpu[1]: the raw pull beside; in seconds per GB of the shard. */
static void cpu_add(struct series cpu[2], double engines_s, struct took raw)
{
    series_add(&cpu[0], engines_s / ((double)bytes / 1e9));
    series_add(&cpu[1], raw.cpu_s / ((double)bytes / 1e9));
}

/* ways 2: a pair for each direction. */
static void wires_start(unsigned ways)
{
    struct pull_job job = { .base = arg.base, .bytes = bytes };
    struct backend b = backend_of(arg.backend);

    memset(&wires, 0, sizeof(wires));
    wires.ways = ways;
    if (strcmp(b.transport, "tcp") != 0)
        return;
    wires.kinds = b.keyed ? 1 : 2;
    wires.want = b.keyed ? 0.85 : 0.9;
    for (unsigned i = 0; i < wires.kinds; i++) {
        wires.kind[i].name = b.keyed ? "same cipher, CRC32C"
                             : i     ? "sendfile, CRC32C"
                                     : "send, CRC32C";
        job.wire = b.keyed ? WIRE_SEALED : i ? WIRE_SENDFILE : WIRE_SEND;
        for (unsigned way = 0; way < ways; way++) {
            wire_start(&wires.kind[i].pair[way], &job);
            if (ways == 1)
                peers_place(&wires.kind[i].pair[way]);
        }
    }
}

static void wires_end(void)
{
    for (unsigned i = 0; i < wires.kinds; i++)
        for (unsigned way = 0; way < wires.ways; way++)
            peers_end(&wires.kind[i].pair[way]);
}

static void wires_pull(int counted)
{
    for (unsigned i = 0; i < wires.kinds; i++) {
        struct took took = peers_pull_all(wires.kind[i].pair, wires.ways);

        if (!counted)
            continue;
        series_add(&wires.kind[i].rate, wires.ways * rate(took.s));
        series_add(&wires.kind[i].cpu, took.cpu_s / (wires.ways * (double)bytes / 1e9));
    }
}

/* Of all rounds, not of each: the faster of two noisy ones is faster than both. */
static unsigned wires_fastest(void)
{
    return wires.kinds == 2 &&
           series_median(&wires.kind[1].rate) > series_median(&wires.kind[0].rate);
}

/* The engine that gives and the engine that takes, and the two ends of a pair, have a processor of
 * their own: left alone the kernel puts both ends of a loopback on one of two at times, for some
 * milliseconds, and idles on the other. */
static void engines_place(const struct job *j, uint32_t taker)
{
    char root[256];

    for (uint32_t n = 0; n < j->nodes; n++) {
        job_root(j, n, root);
        place(engine_pid(root), n == taker);
    }
}

static void settle(const struct job *j)
{
    char root[256];

    for (uint32_t n = 0; n < j->nodes; n++) {
        job_root(j, n, root);
        engine_settle(root);
    }
}

struct replications {
    struct series pull, after, raw, cpu[2], sealing;
    struct series blocked_s, sealed_s, protected_s; /* the last two since commit's return */
};

/* One round, in which PROTECTED took the median. */
static void replicate_timeline(const struct replications *all)
{
    unsigned at = series_middle(&all->protected_s);
    double copied = all->blocked_s.value[at], sealed = copied + all->sealed_s.value[at];

    timeline_say("save", "a save",
            (struct span[]){ { "copied out of the tensors", 0, copied },
                    { "sealed", copied, sealed },
                    { "PROTECTED", sealed, copied + all->protected_s.value[at] } },
            3);
}

static void wires_show(const char *name, const struct replications *all)
{
    for (unsigned i = 0; i < wires.kinds; i++) {
        int counts = i == wires_fastest() && arg.mib >= 16; /* smaller: for pictures */

        low |= row_say(&(struct row){ .name = name,
                .limit_name = wires.kind[i].name,
                .rate = &all->pull,
                .limit = &wires.kind[i].rate,
                .cpu = &all->cpu[0],
                .limit_cpu = &wires.kind[i].cpu,
                .sealing = &all->sealing,
                .unit = "GB/s",
                .want = counts ? wires.want : 0,
                .want_cpu = counts ? 1.15 : 0 });
    }
}

static void replicate_show(const struct replications *all)
{
    low |= row_say(&(struct row){ .name = "replicate: sealed to PROTECTED",
            .limit_name = "raw pull",
            .rate = &all->pull,
            .limit = &all->raw,
            .cpu = &all->cpu[0],
            .limit_cpu = &all->cpu[1],
            .sealing = &all->sealing,
            .unit = "GB/s",
            .want = arg.mib < 16 ? 0 : 0.9 }); /* smaller: for pictures */
    show("replicate: commit to PROTECTED", &all->after, "raw pull", &all->raw, NULL, 0);
    wires_show("replicate: sealed to PROTECTED", all);
    replicate_timeline(all);
}

static void replicate_add(
        struct replications *all, const struct said *said, double used_s, struct took raw)
{
    series_add(&all->sealing, said->sealing_cpu_s / ((double)bytes / 1e9));
    cpu_add(all->cpu, used_s, raw);
    series_add(&all->raw, rate(raw.s));
    series_add(&all->pull, rate(said->protected_s - said->sealed_s));
    series_add(&all->after, rate(said->protected_s));
    series_add(&all->blocked_s, said->blocked_s);
    series_add(&all->sealed_s, said->sealed_s);
    series_add(&all->protected_s, said->protected_s);
}

static void replicate(const struct peers *r)
{
    struct job j = { .base = arg.base,
        .backend = arg.backend,
        .nodes = 2,
        .copies = 1,
        .bytes = { bytes, LITTLE } };
    struct replications all = { 0 };
    struct said said[NODES_MAX];

    wires_start(1);
    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    settle(&j);
    engines_place(&j, 1);
    for (unsigned i = 1; i <= arg.rounds + 2; i++) {
        struct took took = peers_pull(r);
        double used;

        wires_pull(i > 2);
        used = -engines_cpu_s(&j);
        job_all(&j, ORDER_SAVE, i, said);
        used += engines_cpu_s(&j) - said[0].sealing_cpu_s;
        if (i > 2) /* before: warm-up, every slot of both nodes once */
            replicate_add(&all, &said[0], used, took);
    }
    wires_end(); /* their files are as large as the shard */
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < j.nodes; n++)
        job_lose(&j, n);
    replicate_show(&all);
}

/* The later of two nodes that have the same to send counts. */
static void both_add(struct replications *all, const struct said said[2], double used_s)
{
    double took = 0, sealing = said[0].sealing_cpu_s + said[1].sealing_cpu_s;

    for (unsigned n = 0; n < 2; n++)
        if (said[n].protected_s - said[n].sealed_s > took)
            took = said[n].protected_s - said[n].sealed_s;
    series_add(&all->pull, 2 * rate(took));
    series_add(&all->cpu[0], (used_s - sealing) / (2 * (double)bytes / 1e9));
    series_add(&all->sealing, sealing / (2 * (double)bytes / 1e9));
}

static void both(void)
{
    struct job j = {
        .base = arg.base, .backend = arg.backend, .nodes = 2, .copies = 1, .bytes = { bytes, bytes }
    };
    struct replications all = { 0 };
    struct said said[NODES_MAX];

    wires_start(2);
    if (!wires.kinds)
        return; /* nothing to stand beside */
    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    settle(&j);
    for (unsigned i = 1; i <= arg.rounds + 2; i++) {
        double used;

        wires_pull(i > 2);
        used = -engines_cpu_s(&j);
        job_all(&j, ORDER_SAVE, i, said);
        used += engines_cpu_s(&j);
        if (i > 2) /* before: warm-up */
            both_add(&all, said, used);
    }
    wires_end();
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < j.nodes; n++)
        job_lose(&j, n);
    wires_show("replicate both ways: sealed to PROTECTED", &all);
}

static void unsaid(void)
{
    struct job j = { .base = arg.base,
        .backend = arg.backend,
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
    show("second save, object_bytes not given", &blocked[0], "a steady one", &blocked[1], NULL,
            0.40);
    show("  its commit to PROTECTED", &after[0], "a steady one", &after[1], NULL, 0.40);
}

/* Bytes that the engine of a node has sent on its connections that are open now; shared memory has
 * none. */
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

/* Returns the engines' seconds of processors. */
static double one_loss(struct job *j, uint64_t step, struct said said[NODES_MAX], double share[2])
{
    double before[2], sent[2], cpu;

    job_all(j, ORDER_SAVE, step, said);
    job_end(j, ORDER_KEEP);
    job_lose(j, 0);
    for (uint32_t n = 0; n < 2; n++)
        before[n] = sent_by(j, n + 1);
    cpu = engines_cpu_s(j);
    touch(MADE_AFRESH * bytes);
    job_start(j);
    engines_place(j, 0);
    job_all(j, ORDER_RECOVER, 0, said);
    if (said[0].recovery.step != step || said[0].recovery.pulled_bytes < bytes)
        die("step %llu came back with %llu bytes pulled instead of step %llu",
                (unsigned long long)said[0].recovery.step,
                (unsigned long long)said[0].recovery.pulled_bytes, (unsigned long long)step);
    cpu = engines_cpu_s(j) - cpu;
    for (uint32_t n = 0; n < 2; n++)
        sent[n] = sent_by(j, n + 1) - before[n];
    for (uint32_t n = 0; n < 2; n++)
        share[n] = sent[0] + sent[1] > 0 ? 100 * sent[n] / (sent[0] + sent[1]) : 0;
    return cpu;
}

static void one_recovery(
        struct job *j, unsigned round, const struct peers *r, struct recoveries *out)
{
    struct said said[NODES_MAX];
    struct took took = peers_pull(r), into_new;
    const struct hearth_recovery *was = &said[0].recovery;
    double part[2], cpu;

    touch(MADE_AFRESH * bytes);
    into_new = peers_pull_into_new(r);
    cpu = one_loss(j, 10 + round, said, part);

    if (!round)
        return; /* warm-up */
    cpu_add(out->cpu, cpu, took);
    series_add(&out->raw, rate(took.s));
    series_add(&out->into_new, rate(into_new.s));
    series_add(&out->all, rate(said[0].recover_s));
    series_add(&out->pull, rate(was->pull_ms * 1e-3));
    series_add(&out->share, part[0] > part[1] ? part[0] : part[1]);
    printf("  round %u: join %u, inventory %u, plan %u, pull %u, verify %u, vote %u ms; holders gave "
           "%.0f and %.0f %%\n",
            round, was->join_ms, was->inventory_ms, was->plan_ms, was->pull_ms, was->verify_ms,
            was->vote_ms, part[0], part[1]);
}

static void recover(const struct peers *r)
{
    struct job j = { .base = arg.base,
        .backend = arg.backend,
        .nodes = 3,
        .copies = 2,
        .bytes = { bytes, LITTLE, LITTLE } };
    struct recoveries all = { 0 };
    struct said said[NODES_MAX];

    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    for (unsigned i = 0; i <= arg.rounds; i++)
        one_recovery(&j, i, r, &all);
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < j.nodes; n++)
        job_lose(&j, n);
    show("recover: pulling, two holders, fresh node", &all.pull, "raw pull", &all.raw, all.cpu,
            0.9);
    show("recover: pulling, beside memory made for it", &all.pull, "raw pull, new memory",
            &all.into_new, NULL, 0.9);
    show("recover: all of hearth_recover()", &all.all, "raw pull", &all.raw, NULL, 0);
    if (series_median(&all.share) > 0)
        printf("%-44s %8.0f %%%s\n", "recover: larger share of the two holders",
                series_median(&all.share), series_median(&all.share) > 60 ? "  LOW" : "");
    low |= series_median(&all.share) > 60;
}

/* What engines take that have peers, replicas and ranks, and nothing to do. */
static void idle(void)
{
    struct job j = { .base = arg.base, .backend = arg.backend, .nodes = NODES_MAX, .copies = 1 };
    struct said said[NODES_MAX];
    double before[NODES_MAX], most = 0;
    char root[256];

    for (uint32_t n = 0; n < j.nodes; n++)
        j.bytes[n] = LITTLE;
    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    job_all(&j, ORDER_SAVE, 1, said);
    settle(&j);
    for (uint32_t n = 0; n < j.nodes; n++) {
        job_root(&j, n, root);
        before[n] = cpu_of(engine_pid(root));
    }
    nap_ms(QUIET_S * 1000);
    for (uint32_t n = 0; n < j.nodes; n++) {
        double part;

        job_root(&j, n, root);
        part = 100 * (cpu_of(engine_pid(root)) - before[n]) / QUIET_S;
        most = part > most ? part : most;
    }
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < j.nodes; n++)
        job_lose(&j, n);
    printf("%-44s %8.2f %% of a core, %d s, the busiest of %d%s\n", "idle: an engine with peers",
            most, QUIET_S, NODES_MAX, most > 1 ? "  LOW" : "");
    low |= most > 1;
}

#define COMMIT_NODES 4u
#define COMMIT_MS    1.0 /* wanted */

/* Each rank's commit comes while the others still copy and while engines checksum and send. */
static void commits(void)
{
    struct job j = { .base = arg.base, .backend = arg.backend, .nodes = COMMIT_NODES, .copies = 1 };
    struct series middle = { 0 }, slowest = { 0 };
    struct said said[NODES_MAX];

    for (uint32_t n = 0; n < j.nodes; n++)
        j.bytes[n] = bytes / COMMIT_NODES;
    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    settle(&j);
    for (unsigned i = 1; i <= arg.rounds + 2; i++) {
        struct series round = { 0 };
        double most = 0;

        job_all(&j, ORDER_SAVE, i, said);
        for (uint32_t n = 0; n < j.nodes; n++) {
            series_add(&round, said[n].commit_s * 1e3);
            most = said[n].commit_s * 1e3 > most ? said[n].commit_s * 1e3 : most;
        }
        if (i <= 2) /* warm-up */
            continue;
        series_add(&middle, series_median(&round));
        series_add(&slowest, most);
    }
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < j.nodes; n++)
        job_lose(&j, n);
    printf("%-44s %8.2f ms, the slowest of a round %.2f, of %u rounds  wanted %.2f%s\n",
            "commit: 4 nodes at once, median", series_median(&middle), series_median(&slowest),
            arg.rounds, COMMIT_MS, series_median(&middle) > COMMIT_MS ? "  LOW" : "");
    low |= series_median(&middle) > COMMIT_MS;
}

static const char parts[] = "rbucli"; /* replicate, both, unsaid, commit, loss, idle */

static int wanted(char part)
{
    return !arg.parts || arg.parts >> (strchr(parts, part) - parts) & 1;
}

static void add_part(const char *word)
{
    const char *at = strchr(parts, *word);

    if (!at)
        die("--part replicate|both|unsaid|commit|loss|idle, not %s", word);
    arg.parts |= 1u << (at - parts);
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--base", .text = &arg.base },
        { "--mib", .number = &arg.mib }, { "--backend", .text = &arg.backend },
        { "--json", .text = &arg.json }, { "--memory", .text = &arg.memory },
        { "--rounds", .count = &arg.rounds }, { "--part", .take = add_part }, { 0 } };

    flags_take(known, argc, argv);
    if (!arg.base || arg.mib < (arg.parts ? 1 : 16) || arg.mib > 65536 || !arg.rounds ||
            arg.rounds > ROUNDS_MAX)
        die("usage: bench_nodes --base TMPFS [--mib 16..65536] [--rounds 1..%d] [--backend NAME] "
            "[--part replicate|both|unsaid|commit|loss|idle]... [--json LINES] [--memory WORD]; "
            "with --part from 1 MiB",
                ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    struct pull_job pulled;
    struct peers raw;

    take_args(argc, argv);
    bytes = arg.mib << 20;
    rows_open(arg.json, arg.memory, bytes);
    pulled = (struct pull_job){ .backend = arg.backend, .base = arg.base, .bytes = bytes };
    raw_start(&raw, &pulled);
    peers_place(&raw);
    if (wanted('r'))
        replicate(&raw);
    if (wanted('b'))
        both();
    if (wanted('u'))
        unsaid();
    if (wanted('c'))
        commits();
    if (wanted('l'))
        recover(&raw);
    peers_end(&raw);
    if (wanted('i'))
        idle();
    return low ? 3 : 0;
}
