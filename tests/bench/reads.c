/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_reads: slices of a tensor that lies on other nodes.
 *
 *     3 nodes, one copy: nodes 0 and 1 hold the shard, rank 2 reads slices of it
 *
 * A row is the bytes that the rank asked for, as a part of all bytes that loopback carried
 * meanwhile: tables, messages and heartbeats, too. Beside it stand packets of loopback and ms for
 * 1,000 slices. Bytes and packets mean something only on a loopback that carries nothing else, as
 * tests/bench/run makes one.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define LITTLE (UINT64_C(64) << 10)

static struct {
    const char *base, *backend, *json, *memory;
    uint64_t mib;
    unsigned rounds;
} arg = { .backend = "ofi:tcp", .mib = 256, .rounds = 5 };

static const struct length {
    uint64_t bytes;
    const char *name;
    double want;
    enum order order;
} length[] = { { 64 << 10, "slices of 64 KiB: asked / moved", 1 / 1.1, ORDER_READ },
    { 64 << 10, "1,000 of 64 KiB in a call: asked / moved", 0, ORDER_READ_CALL },
    { 4 << 10, "1,000 of 4 KiB in a call: asked / moved", 0, ORDER_READ_CALL },
    { 1 << 20, "slices of 1 MiB: asked / moved", 1 / 1.02, ORDER_READ },
    { 8 << 20, "slices of 8 MiB: asked / moved", 0, ORDER_READ } };

/* Bytes that loopback has carried, and packets. */
static double carried(double *out_packets)
{
    char line[512];
    double bytes = -1;
    FILE *f = fopen("/proc/self/net/dev", "re");

    while (f && fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, " lo:");

        if (at) {
            char *packets;

            bytes = strtod(at + 4, &packets);
            *out_packets = strtod(packets, NULL);
        }
    }
    if (f)
        fclose(f);
    if (bytes < 0)
        die("/proc/self/net/dev has no lo");
    return bytes;
}

static int measure(struct job *j, const struct length *l)
{
    struct series asked = { 0 }, moved = { 0 };
    struct said said[NODES_MAX];
    double took = 0, slices = 0, packets = 0;

    for (unsigned i = 0; i < arg.rounds; i++) {
        const struct said *reader = &said[j->nodes - 1];
        double first, last, before = carried(&first);

        job_all(j, l->order, l->bytes, said);
        series_add(&moved, (carried(&last) - before) / 1e6);
        series_add(&asked, (double)reader->asked / 1e6);
        took += reader->read_s;
        slices += (double)reader->slices;
        packets += last - first;
    }
    printf("  %.2f MB/s, of 1,000 slices %.1f ms and %.0f packets\n",
            asked.value[0] * arg.rounds / took, 1e6 * took / slices, 1000 * packets / slices);
    return row_say(&(struct row){ .name = l->name,
            .limit_name = "moved",
            .rate = &asked,
            .limit = &moved,
            .unit = "MB",
            .want = l->want });
}

static void take_args(int argc, char **argv)
{
    static const struct flag known[] = { { "--base", .text = &arg.base },
        { "--json", .text = &arg.json }, { "--memory", .text = &arg.memory },
        { "--mib", .number = &arg.mib }, { "--backend", .text = &arg.backend },
        { "--rounds", .count = &arg.rounds }, { 0 } };

    flags_take(known, argc, argv);
    if (!arg.base || !arg.mib || !arg.rounds || arg.rounds > ROUNDS_MAX)
        die("usage: bench_reads --base TMPFS [--mib N] [--rounds 1..%d] [--backend NAME] "
            "[--json FILE] [--memory KIND]",
                ROUNDS_MAX);
}

int main(int argc, char **argv)
{
    struct said said[NODES_MAX];
    struct job j = { .nodes = 3, .copies = 1 };
    int low = 0;

    take_args(argc, argv);
    rows_open(arg.json, arg.memory, arg.mib << 20);
    j.base = arg.base, j.backend = arg.backend;
    j.bytes[0] = arg.mib << 20;
    j.bytes[1] = j.bytes[2] = LITTLE;
    job_start(&j);
    job_all(&j, ORDER_RECOVER, 0, said);
    job_all(&j, ORDER_SAVE, 1, said);
    for (size_t i = 0; i < sizeof(length) / sizeof(length[0]); i++)
        low |= measure(&j, &length[i]);
    job_end(&j, ORDER_KEEP);
    for (uint32_t n = 0; n < j.nodes; n++)
        job_lose(&j, n);
    return low ? 3 : 0;
}
