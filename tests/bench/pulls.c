/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_pulls BASE MIB ROUNDS TRANSPORT[:PROVIDER]...
 *
 * What pulls through the transports reach between two processes, each against the machine's copy of
 * as many bytes in the same round; and how often the two slept for a GiB.
 */
#include "bench.h"

#include <stdlib.h>
#include <string.h>

#define SIDES_MAX 8

struct candidate {
    const char *name;
    char transport[32];
    const char *provider;
    struct raw raw;
    struct series rate;
    double sleeps;
};

static void candidate_open(struct candidate *c, const char *name, const char *base, uint64_t bytes)
{
    const char *colon = strchr(name, ':');

    c->name = name;
    snprintf(c->transport, sizeof(c->transport), "%.*s",
            (int)(colon ? colon - name : (ptrdiff_t)strlen(name)), name);
    c->provider = colon ? colon + 1 : NULL;
    raw_start(&c->raw, c->transport, c->provider, base, bytes);
    raw_pull_s(&c->raw); /* pages and paths of the first time */
}

static void candidate_round(struct candidate *c, uint64_t bytes)
{
    uint64_t before = raw_sleeps(&c->raw);

    series_add(&c->rate, (double)bytes / raw_pull_s(&c->raw) / 1e9);
    c->sleeps += (double)(raw_sleeps(&c->raw) - before) * (1 << 30) / (double)bytes;
}

int main(int argc, char **argv)
{
    static struct candidate candidate[SIDES_MAX];
    struct series copy = { 0 };
    int count = argc - 4, rounds = argc > 3 ? atoi(argv[3]) : 0;
    uint64_t bytes = argc > 2 ? strtoull(argv[2], NULL, 10) << 20 : 0;
    void *src, *dst;

    if (count < 1 || count > SIDES_MAX || rounds < 1 || rounds > ROUNDS_MAX || !bytes)
        die("usage: bench_pulls BASE MIB ROUNDS TRANSPORT[:PROVIDER]... (up to %d)", SIDES_MAX);
    for (int i = 0; i < count; i++)
        candidate_open(&candidate[i], argv[4 + i], argv[1], bytes);
    src = file_memory(argv[1], "src", bytes);
    dst = file_memory(argv[1], "dst", bytes);
    for (int round = 0; round < rounds; round++) {
        series_add(&copy, (double)bytes / copy_s(dst, src, bytes, 1) / 1e9);
        for (int i = 0; i < count; i++)
            candidate_round(&candidate[i], bytes);
    }
    for (int i = 0; i < count; i++) {
        char name[64];

        snprintf(name, sizeof(name), "pull %.24s, %.0f sleeps a GiB", candidate[i].name,
                candidate[i].sleeps / rounds);
        row_say(&(struct row){ .name = name,
                .limit_name = "copy, one thread",
                .rate = &candidate[i].rate,
                .limit = &copy,
                .unit = "GB/s" });
        raw_end(&candidate[i].raw);
    }
    return 0;
}
