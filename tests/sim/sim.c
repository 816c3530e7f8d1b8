/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded worlds of real engines in virtual time (tests/support/world.h).
 *
 *   sim --seeds N --nodes M [--first S] [--break RULE] [--trace] [--copies C] [--keep K] [--ranks R]
 *
 * Runs seeds S .. S+N-1. Prints what happened in numbers; a seed that breaks a promise is printed
 * with the command that replays it. With --break RULE the engines leave that rule out, and the run
 * succeeds when somebody noticed.
 */
#include "world.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint32_t rule;
} rules[] = {
    { "verify", HTH_BREAK_VERIFY },
    { "free-early", HTH_BREAK_FREE_EARLY },
    { "epoch", HTH_BREAK_EPOCH },
    { "fence", HTH_BREAK_FENCE },
    { "keep-chosen-only", HTH_BREAK_KEEP_CHOSEN },
    { "deadline", HTH_BREAK_DEADLINE },
};

struct args {
    uint64_t seeds, first;
    struct world_opts world;
    const char *rule;
    int twice;
};

static int usage(const char *what)
{
    fprintf(stderr,
            "sim: %s\nusage: sim --seeds N --nodes M [--first S] [--break RULE] [--trace] [--copies C]\n"
            "           [--keep K] [--ranks R] [--faults F] [--twice]\nrules:",
            what);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        fprintf(stderr, " %s", rules[i].name);
    fputc('\n', stderr);
    return 2;
}

static int parse(int argc, char **argv, struct args *a)
{
    static const struct option options[] = { { "seeds", 1, NULL, 's' }, { "nodes", 1, NULL, 'n' },
        { "first", 1, NULL, 'f' }, { "break", 1, NULL, 'b' }, { "trace", 0, NULL, 't' },
        { "copies", 1, NULL, 'c' }, { "keep", 1, NULL, 'k' }, { "ranks", 1, NULL, 'r' },
        { "faults", 1, NULL, 'a' }, { "twice", 0, NULL, '2' }, { NULL, 0, NULL, 0 } };
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        uint64_t v = optarg ? strtoull(optarg, NULL, 10) : 0;

        switch (c) {
        case 's':
            a->seeds = v;
            break;
        case 'n':
            a->world.nodes = (uint32_t)v;
            break;
        case 'f':
            a->first = v;
            break;
        case 't':
            a->world.loud = 1;
            break;
        case 'c':
            a->world.copies = (uint32_t)v;
            break;
        case 'k':
            a->world.keep = (uint32_t)v;
            break;
        case 'r':
            a->world.ranks_per_node = (uint32_t)v;
            break;
        case 'a':
            a->world.faults = (uint32_t)v;
            break;
        case '2':
            a->twice = 1;
            break;
        case 'b':
            a->rule = optarg;
            for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
                if (strcmp(rules[i].name, optarg) == 0)
                    a->world.breaks = rules[i].rule;
            if (!a->world.breaks)
                return usage("unknown rule");
            break;
        default:
            return usage("unknown option");
        }
    }
    return a->world.nodes < 2 || a->world.copies >= a->world.nodes ? usage("too few nodes") : 0;
}

/* Runs one seed; 1 when something was broken. */
static int run(const struct args *a, uint64_t seed, uint64_t *count, uint64_t *out_trace)
{
    struct world_opts opts = a->world;
    struct world w;
    int broken;

    opts.seed = seed;
    world_open(&w, &opts);
    world_run(&w);
    broken = w.why[0] != '\0';
    *out_trace = w.trace;
    for (int i = 0; i < WORLD_EVENTS; i++)
        count[i] += w.count[i];
    if (broken)
        printf("seed %" PRIu64 ": %s\n  replay: tests/sim/run --seeds 1 --first %" PRIu64
               " --nodes %u --copies %u --keep %u --ranks %u --faults %u%s%s --trace\n",
                seed, w.why, seed, opts.nodes, opts.copies, opts.keep, opts.ranks_per_node,
                opts.faults, a->rule ? " --break " : "", a->rule ? a->rule : "");
    world_close(&w);
    return broken;
}

int main(int argc, char **argv)
{
    struct args a = { .seeds = 100,
        .first = 1,
        .world = { .nodes = 4,
                .ranks_per_node = 1,
                .copies = 1,
                .keep = 1,
                .faults = 6,
                .run_ms = 12000,
                .data_max = 3000 } };
    uint64_t count[WORLD_EVENTS] = { 0 };
    uint64_t broken = 0;
    uint64_t all = 0;
    int rc = parse(argc, argv, &a);

    if (rc)
        return rc;
    for (uint64_t s = a.first; s < a.first + a.seeds; s++) {
        uint64_t trace;
        uint64_t again;
        uint64_t unused[WORLD_EVENTS];

        broken += (uint64_t)run(&a, s, count, &trace);
        all = (all ^ trace) * 0x100000001b3u;
        if ((a.twice || s == a.first) && !a.world.loud) {
            (void)run(&a, s, unused, &again);
            if (again != trace) {
                printf("seed %" PRIu64 ": two runs differ\n", s);
                return 1;
            }
        }
        if (broken && a.rule)
            break;
    }
    for (int i = 0; i < WORLD_EVENTS; i++)
        printf("%s%s %" PRIu64, i ? ", " : "", world_event_name[i], count[i]);
    printf("\n%" PRIu64 " seeds, %" PRIu64 " violations, trace %016" PRIx64 "\n", a.seeds, broken,
            all);
    if (a.rule) {
        printf("without the rule `%s`: %s\n", a.rule, broken ? "noticed" : "NOT noticed");
        return broken ? 0 : 1;
    }
    return broken ? 1 : 0;
}
