/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded worlds of real engines in virtual time (tests/support/world.h).
 *
 *   sim --scale NODES
 *   sim --back NODES [--two] [--copies C] [--ranks R]
 *   sim --seeds N --nodes M [--first S] [--break RULE] [--trace] [--copies C] [--keep K] [--ranks R]
 *
 * Runs seeds S .. S+N-1 on all processors. Prints what happened in numbers; a seed that breaks a promise is printed
 * with the command that replays it. With --break RULE the engines leave that rule out, and the run
 * succeeds when somebody noticed.
 */
#include "world.h"

#include "replication/held/holdings.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

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
    { "register", HTH_BREAK_REGISTER },
};

struct args {
    uint64_t seeds, first;
    struct world_opts world;
    const char *rule;
    int twice, scale, back, two;
};

static int usage(const char *what)
{
    fprintf(stderr,
            "sim: %s\nusage: sim --seeds N --nodes M [--first S] [--break RULE] [--trace] [--copies C]\n"
            "           [--keep K] [--ranks R] [--faults F] [--twice]\n"
            "       sim --scale NODES | --back NODES [--two] [--copies C] [--ranks R]\nrules:",
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
        { "faults", 1, NULL, 'a' }, { "twice", 0, NULL, '2' }, { "scale", 1, NULL, 'S' },
        { "back", 1, NULL, 'B' }, { "two", 0, NULL, 'T' }, { NULL, 0, NULL, 0 } };
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
        case 'S':
            a->scale = 1;
            a->world.nodes = (uint32_t)v;
            break;
        case 'B':
            a->back = 1;
            a->world.nodes = (uint32_t)v;
            break;
        case 'T':
            a->two = 1;
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

/* What one process found, sent to the one that asked. */
struct tally {
    uint64_t count[WORLD_EVENTS];
    uint64_t broken, trace;
    int differs;
};

/* Every jobs-th seed from `first` on. */
static void run_share(const struct args *a, uint64_t first, uint64_t jobs, struct tally *t)
{
    for (uint64_t s = first; s < a->first + a->seeds; s += jobs) {
        uint64_t unused[WORLD_EVENTS] = { 0 };
        uint64_t trace;
        uint64_t again;
        int broken = run(a, s, t->count, &trace);

        t->broken += (uint64_t)broken;
        t->trace ^= trace * (2 * s + 1); /* the same sum for any number of processes */
        if ((a->twice || s == a->first) && !a->world.loud && !broken) {
            (void)run(a, s, unused, &again);
            if (again != trace) {
                printf("seed %" PRIu64 ": two runs differ\n", s);
                t->differs = 1;
            }
        }
        if (broken && a->rule)
            break;
    }
}

static void run_all(const struct args *a, struct tally *total)
{
    long jobs = a->world.loud || a->seeds < 8 ? 1 : sysconf(_SC_NPROCESSORS_ONLN);
    struct tally part;
    int fd[2];

    if (jobs < 2 || pipe(fd)) {
        run_share(a, a->first, 1, total);
        return;
    }
    fflush(stdout);
    for (long j = 0; j < jobs; j++) {
        if (fork() != 0)
            continue;
        part = (struct tally){ 0 };
        run_share(a, a->first + (uint64_t)j, (uint64_t)jobs, &part);
        fflush(stdout);
        _exit(write(fd[1], &part, sizeof(part)) == (ssize_t)sizeof(part) ? 0 : 1);
    }
    close(fd[1]);
    while (read(fd[0], &part, sizeof(part)) == (ssize_t)sizeof(part)) {
        for (int i = 0; i < WORLD_EVENTS; i++)
            total->count[i] += part.count[i];
        total->broken += part.broken;
        total->trace ^= part.trace;
        total->differs |= part.differs;
        jobs--;
    }
    while (wait(NULL) > 0)
        ;
    if (jobs) {
        printf("%ld processes died\n", jobs);
        total->broken++;
    }
}

/* A job of many nodes, without faults: what one engine holds and talks to stays small. */
static int scale(const struct args *a)
{
    struct world_opts opts = a->world;
    uint32_t connections = 0;
    size_t manifest = 0;
    uint32_t objects = 0;
    struct world w;
    int bad;

    opts.faults = 0;
    opts.run_ms = 1500;
    opts.data_max = 64;
    world_open(&w, &opts);
    world_run(&w);
    for (uint32_t i = 0; i < opts.nodes; i++) {
        struct hth_ctx *ctx = hth_node_ctx(world_node(&w, i));
        struct hth_held_save *s = hth_holdings_first(ctx);
        uint32_t n = hth_session_connections(ctx->session);

        connections = n > connections ? n : connections;
        if (s && s->has_manifest && s->manifest_len > manifest) {
            manifest = s->manifest_len;
            objects = s->manifest.objects;
        }
    }
    bad = w.why[0] || connections > 128 || objects < opts.nodes ||
          manifest > 128 * (size_t)objects + 4096;
    printf("%u nodes: at most %u connections (128 allowed), manifest %zu bytes for %u objects%s%s\n",
            opts.nodes, connections, manifest, objects, w.why[0] ? ": " : "", w.why);
    world_close(&w);
    return bad;
}

/* One world with one engine killed under ranks that recover, and started again by them: the recovery
 * goes on and succeeds. *out_came: it was killed. */
static int back_once(const struct world_opts *opts, const char *when, int *out_came)
{
    struct world w;
    int bad;

    world_open(&w, opts);
    world_run(&w);
    *out_came = w.count[WORLD_BACK] != 0;
    bad = w.why[0] || w.count[WORLD_RESTART] != 2 || !w.count[WORLD_RECOVERED];
    if (bad)
        printf("node %u, %s: %s\n", opts->back_node - 1, when,
                w.why[0] ? w.why : "the job was restarted");
    world_close(&w);
    return bad;
}

/* One engine, or two at once, after each event from the first request to the last answer, and at
 * named points. *points: at how many of these it came to that. */
static int back_node(struct world_opts *opts, uint32_t *out_points)
{
    static const char *const points[] = { "join", "inventory", "plan", "free", "retrieve", "vote",
        "running", "go" };
    char when[60], with[24] = "";
    uint64_t event;
    int came = 1, bad = 0;

    if (opts->back_also)
        snprintf(with, sizeof(with), " with node %u", opts->back_also - 1);
    opts->back_point = NULL;
    for (event = 0; came && !bad; event++) {
        opts->back_event = event;
        snprintf(when, sizeof(when), "event %" PRIu64 "%s", event, with);
        bad = back_once(opts, when, &came);
    }
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]) && !bad; i++) {
        opts->back_point = points[i];
        snprintf(when, sizeof(when), "%s%s", points[i], with);
        bad = back_once(opts, when, &came);
        *out_points += (uint32_t)came;
    }
    printf("node %u%s: killed after each of %" PRIu64 " events\n", opts->back_node - 1, with,
            event - 1);
    return bad || event < 20; /* a recovery has more */
}

/* Each engine by itself; or the coordinator's with each other one. */
static int back(const struct args *a)
{
    struct world_opts opts = a->world;
    uint32_t at = 0, runs = 0;
    int bad = 0;

    opts.faults = 0;
    opts.run_ms = 1500;
    for (uint32_t node = 1 + (uint32_t)a->two; node <= opts.nodes && !bad; node++, runs++) {
        opts.back_node = a->two ? 1 : node;
        opts.back_also = a->two ? node : 0;
        bad = back_node(&opts, &at);
    }
    printf("and at %u named points\n", at);
#ifdef HEARTH_POINTS
    bad |= at < 5 * runs; /* not everybody frees or says GO */
#endif
    return bad;
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
    struct tally t = { 0 };
    int few = 0;
    int rc = parse(argc, argv, &a);

    if (rc)
        return rc;
    if (a.scale)
        return scale(&a);
    if (a.back)
        return back(&a);
    run_all(&a, &t);
    for (int i = 0; i < WORLD_EVENTS; i++) {
        printf("%s%s %" PRIu64, i ? ", " : "", world_event_name[i], t.count[i]);
        few |= a.seeds >= 1000 && !a.rule && t.count[i] < 100;
    }
    printf("\n%" PRIu64 " seeds, %" PRIu64 " violations, trace %016" PRIx64 "\n", a.seeds, t.broken,
            t.trace);
    if (few)
        puts("some kind of event happened less than 100 times");
    if (a.rule) {
        printf("without the rule `%s`: %s\n", a.rule, t.broken ? "noticed" : "NOT noticed");
        return t.broken ? 0 : 1;
    }
    return t.broken || t.differs || few;
}
