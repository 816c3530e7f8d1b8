/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_pulls: what pulls through a transport reach between two processes, against the library's
 * own benchmark, a socket on loopback and the machine's copy of as many bytes in the same rounds;
 * how often the two slept for a GiB; and processors' seconds per GB.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define BACKENDS_MAX 8

struct rates {
    struct series rate, cpu;
};

struct candidate {
    struct pull_job job;
    struct peers raw;
    struct rates pull, tooled, tool; /* tooled: the pulls beside which the tool gave an answer */
    double sleeps;
};

static struct {
    const char *base, *json, *memory, *limit;
    uint64_t mib;
    unsigned rounds, backends;
    const char *backend[BACKENDS_MAX];
} arg = { .mib = 256, .rounds = 5 };

static const struct {
    const char *name;
    enum wire wire;
} sockets[] = { { "socket, send(), CRC32C", WIRE_SEND },
    { "socket, sendfile(), CRC32C", WIRE_SENDFILE }, { "socket, sealed, CRC32C", WIRE_SEALED } };
#define SOCKETS (sizeof(sockets) / sizeof(*sockets))

static uint64_t bytes;
static struct rates wires[SOCKETS], copies;

static void rates_add(struct rates *r, struct took took)
{
    series_add(&r->rate, (double)bytes / took.s / 1e9);
    series_add(&r->cpu, took.cpu_s / ((double)bytes / 1e9));
}

static void candidate_round(struct candidate *c)
{
    uint64_t before = peers_sleeps(&c->raw);
    struct took took = peers_pull(&c->raw);
    struct tool_said tool = { 0 };

    c->sleeps += (double)(peers_sleeps(&c->raw) - before) * (1 << 30) / (double)bytes;
    rates_add(&c->pull, took);
    if (arg.limit)
        tool = tool_run(arg.limit, c->job.backend, arg.mib);
    if (tool.rate > 0) {
        series_add(&c->tool.rate, tool.rate);
        series_add(&c->tool.cpu, tool.cpu_per_gb);
        rates_add(&c->tooled, took);
    }
}

static void round_of_all(
        struct candidate *candidate, const struct peers *wire, void *dst, void *src)
{
    struct took copy = { .cpu_s = -cpu_of(0) };

    copy.s = copy_s(dst, src, bytes, 1);
    copy.cpu_s += cpu_of(0);
    rates_add(&copies, copy);
    for (size_t i = 0; i < SOCKETS; i++)
        rates_add(&wires[i], peers_pull(&wire[i]));
    for (unsigned i = 0; i < arg.backends; i++)
        candidate_round(&candidate[i]);
}

static void rates_say(
        const char *name, const struct rates *r, const char *limit_name, const struct rates *limit)
{
    if (r->rate.count)
        row_say(&(struct row){ .name = name,
                .limit_name = limit_name,
                .rate = &r->rate,
                .limit = &limit->rate,
                .cpu = &r->cpu,
                .limit_cpu = &limit->cpu,
                .unit = "GB/s" });
}

static void candidate_say(struct candidate *c)
{
    const char *tool = !strncmp(c->job.backend, "ucx", 3) ? "ucx_perftest am_bw" : "fi_pingpong";
    size_t socket = backend_of(c->job.backend).keyed ? WIRE_SEALED : WIRE_SEND;
    char name[64];

    snprintf(name, sizeof(name), "pull %.24s, %.0f sleeps a GiB", c->job.backend,
            c->sleeps / arg.rounds);
    rates_say(name, &c->tooled, tool, &c->tool);
    rates_say(name, &c->pull, sockets[socket].name, &wires[socket]);
    rates_say(name, &c->pull, "copy, one thread", &copies);
}

static void add_backend(const char *name)
{
    if (arg.backends == BACKENDS_MAX)
        die("--backend at most %d times", BACKENDS_MAX);
    arg.backend[arg.backends++] = name;
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--base", .text = &arg.base },
        { "--mib", .number = &arg.mib }, { "--backend", .take = add_backend },
        { "--json", .text = &arg.json }, { "--memory", .text = &arg.memory },
        { "--rounds", .count = &arg.rounds }, { "--limit", .text = &arg.limit }, { 0 } };

    flags_take(known, argc, argv);
    if (!arg.base || arg.mib < 1 || !arg.rounds || arg.rounds > ROUNDS_MAX || !arg.backends)
        die("usage: bench_pulls --base TMPFS --backend TRANSPORT[:PROVIDER]... (up to %d) [--mib N] "
            "[--rounds 1..%d] [--limit SCRIPT] [--json LINES] [--memory WORD]",
                BACKENDS_MAX, ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    static struct candidate candidate[BACKENDS_MAX];
    struct pull_job job = { 0 };
    struct peers wire[SOCKETS];
    void *src, *dst;

    take_args(argc, argv);
    rows_open(arg.json, arg.memory, arg.mib << 20);
    bytes = arg.mib << 20;
    job = (struct pull_job){ .base = arg.base, .bytes = bytes };
    for (size_t i = 0; i < SOCKETS; i++) {
        job.wire = sockets[i].wire;
        wire_start(&wire[i], &job);
    }
    for (unsigned i = 0; i < arg.backends; i++) {
        candidate[i].job = job;
        candidate[i].job.backend = arg.backend[i];
        raw_start(&candidate[i].raw, &candidate[i].job);
    }
    src = file_memory(arg.base, "src", bytes);
    dst = file_memory(arg.base, "dst", bytes);
    for (unsigned round = 0; round < arg.rounds; round++)
        round_of_all(candidate, wire, dst, src);
    for (size_t i = 0; i < SOCKETS; i++)
        rates_say(sockets[i].name, &wires[i], "copy, one thread", &copies);
    for (unsigned i = 0; i < arg.backends; i++) {
        candidate_say(&candidate[i]);
        peers_end(&candidate[i].raw);
    }
    for (size_t i = 0; i < SOCKETS; i++)
        peers_end(&wire[i]);
    return 0;
}
