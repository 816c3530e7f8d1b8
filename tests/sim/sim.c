/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seeded worlds of real engines in virtual time (tests/support/world.h).
 *
 *   sim --back NODES [--two [--with NODE]] [--degree D] [--copies C] [--ranks R]
 *   sim --seeds N [--first S] [--nodes MOST] [--faults LIST] [--break RULE] [--shrink] [--trace] ...
 *   sim --world seed=S,nodes=N,... [--shrink] [--trace]
 *
 * Runs seeds S .. S+N-1 on all processors or in --jobs processes, each in a world of its own in all
 * that no option fixes. Prints what happened in numbers; a seed that breaks a promise is printed
 * with the command that replays it, with --shrink also the smallest world of that kind that still
 * does. With --break RULE the engines leave that rule out, and the run succeeds if the judge
 * noticed it.
 */
#include "world_shrink.h"

#include <getopt.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Breaks that last are noticed only if faults last too, and if the job is not restarted
 * afterwards. */
#define AWAY                                                                                      \
    (WORLD_BIT(NET) | WORLD_BIT(SILENCE) | WORLD_BIT(STOP) | WORLD_BIT(FLAP) | WORLD_BIT(CRASH) | \
            WORLD_BIT(SLOW) | WORLD_BIT(GOON))

/* ... or moves without end, where there is little room. */
#define TIGHT                                                                      \
    (WORLD_BIT(ROOM) | WORLD_BIT(RENUMBER) | WORLD_BIT(SHRINK) | WORLD_BIT(GROW) | \
            WORLD_BIT(KILL) | WORLD_BIT(RANK) | WORLD_BIT(SLOW))

#define JOBS 256

static const struct {
    const char *name;
    uint64_t rule;
    uint64_t kinds;
} rules[] = {
    { "verify", HTH_BREAK_VERIFY, WORLD_FIRST },
    { "free-early", HTH_BREAK_FREE_EARLY, WORLD_FIRST },
    { "epoch", HTH_BREAK_EPOCH, WORLD_FIRST },
    { "fence", HTH_BREAK_FENCE, WORLD_FIRST },
    { "keep-chosen-only", HTH_BREAK_KEEP_CHOSEN, WORLD_FIRST },
    { "deadline", HTH_BREAK_DEADLINE | HTH_BREAK_STEPS, WORLD_FIRST },
    { "register", HTH_BREAK_REGISTER, WORLD_FIRST },
    { "serial-in-memory", HTH_BREAK_SERIAL, AWAY },
    { "promise-by-number", HTH_BREAK_NUMBER | HTH_BREAK_SERIAL, AWAY },
    { "head-not-on-record", HTH_BREAK_RECORD, AWAY },
    { "cancelled-unrecorded", HTH_BREAK_CANCELLED, AWAY },
    { "freed-by-cancelled", HTH_BREAK_CANCEL_FREES,
            AWAY | WORLD_BIT(TWICE) | WORLD_BIT(APART) | WORLD_BIT(GROUPS) },
    { "found-not-told", HTH_BREAK_RETURNED, AWAY },
    { "moved-not-freed", HTH_BREAK_MOVED, AWAY },
    { "begin-by-bytes", HTH_BREAK_BYTES, AWAY | WORLD_BIT(GIVEUP) },
    { "late-grant-dropped", WORLD_BREAK_GRANT, WORLD_BIT(GIVEUP) | WORLD_BIT(GOON) },
    { "lent-while-written", HTH_BREAK_WRITER, WORLD_BIT(CUT) | WORLD_BIT(CRASH) | WORLD_BIT(GOON) },
    { "mapped-for-ever", WORLD_BREAK_MAPS, WORLD_BIT(CRASH) | WORLD_BIT(ROOM) | WORLD_BIT(GOON) },
    { "room-unchecked", HTH_BREAK_ROOM, TIGHT },
    { "common-unpromised", HTH_BREAK_COMMON, WORLD_FIRST },
    { "kept-not-first", HTH_BREAK_KEPT_FIRST, TIGHT | AWAY },
    { "some-wait-for-all", HTH_BREAK_SET_DONE, WORLD_FIRST },
    { "unreached-not-told", HTH_BREAK_UNREACHABLE,
            WORLD_BIT(NET) | WORLD_BIT(APART) | WORLD_BIT(GOON) },
    { "holders-are-sources", HTH_BREAK_SOURCE, WORLD_BIT(GROUPS) | WORLD_BIT(GOON) },
    { "lent-while-read", HTH_BREAK_READER, WORLD_BIT(READ) | WORLD_BIT(GOON) },
    { "bad-believed", HTH_BREAK_BAD, WORLD_BIT(READ) | WORLD_BIT(GOON) },
    { "pods-unsaid", WORLD_BREAK_PODS, WORLD_BIT(RACK) | WORLD_BIT(GOON) },
    { "domains-shared", HTH_BREAK_DOMAINS, WORLD_BIT(OPTIONS) | WORLD_BIT(GOON) },
    { "options-stay", HTH_BREAK_OPTIONS, WORLD_BIT(OPTIONS) | WORLD_BIT(GOON) },
    { "ruled-out", HTH_BREAK_RULED_OUT, WORLD_BIT(RETURN) | WORLD_BIT(GOON) },
    { "late-promises", HTH_BREAK_LATE, WORLD_BIT(NET) | WORLD_BIT(BLOCK) | WORLD_BIT(LOSS) },
    { "forgotten-epoch", HTH_BREAK_FORGOT, WORLD_BIT(RECORD) | WORLD_BIT(CRASH) | WORLD_BIT(GOON) },
    { "moved-for-ever", HTH_BREAK_HOME,
            WORLD_BIT(HOURS) | WORLD_BIT(SILENCE) | WORLD_BIT(STOP) | WORLD_BIT(FLAP) |
                    WORLD_BIT(GOON) },
    { "silence-vouched", HTH_BREAK_VOUCH,
            WORLD_BIT(STOP) | WORLD_BIT(SILENCE) | WORLD_BIT(CRASH) | WORLD_BIT(GOON) },
    { "stalled-not-told", HTH_BREAK_STALLED, WORLD_BIT(MTU) | WORLD_BIT(GOON) },
};

struct args {
    uint64_t seeds, first;
    struct world_opts world;
    uint32_t most; /* nodes */
    uint32_t jobs; /* processes; 0: as many as there are processors */
    const char *rule;
    uint64_t rule_kinds; /* the faults that it is noticed with */
    uint32_t with;       /* the node whose engine dies with each other one: 0, the coordinator's */
    int twice, back, two, shrink, one, strong, some, large, asks;
};

static int usage(const char *what)
{
    fprintf(stderr,
            "sim: %s\nusage: sim --seeds N [--first S] [--nodes MOST] [--faults LIST] [--break RULE] [--shrink]\n"
            "           [--trace] [--twice] [--copies C] [--keep K] [--ranks R] [--count FAULTS] [--strong] [--some]\n"
            "           [--asks] [--large] [--jobs N]\n"
            "       sim --world seed=S,nodes=N,... [--break RULE] [--shrink] [--trace]\n"
            "       sim --back NODES [--two [--with NODE]] [--degree D] [--copies C] [--ranks R]\n"
            "rules:",
            what);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        fprintf(stderr, " %s", rules[i].name);
    fputs("\nfaults; all of them when nothing is said:\n", stderr);
    for (int i = 0; i < WORLD_KINDS_COUNT; i++)
        fprintf(stderr, "  %-10s %s\n", world_kind_name[i].name, world_kind_name[i].text);
    return 2;
}

static int take_rule(struct args *a, const char *name)
{
    a->rule = name;
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (strcmp(rules[i].name, name) == 0) {
            a->world.breaks = rules[i].rule;
            a->rule_kinds = rules[i].kinds;
        }
    return a->world.breaks ? 0 : usage("unknown rule");
}

static int take_world(struct args *a, const char *text)
{
    a->one = 1;
    return world_parse(text, &a->world) ? usage("that is no world") : 0;
}

static int take_faults(struct args *a, const char *list)
{
    return world_kinds_parse(list, &a->world.kinds) ? usage("unknown fault") : 0;
}

/* Takes an option whose argument is words. */
static int take_text(struct args *a, int option)
{
    if (option == 'b')
        return take_rule(a, optarg);
    if (option == 'W')
        return take_world(a, optarg);
    return option == 'a' ? take_faults(a, optarg) : usage("unknown option");
}

static int take_option(struct args *a, int option)
{
    uint64_t v = optarg ? strtoull(optarg, NULL, 10) : 0;
    uint64_t *const long_of[128] = { ['s'] = &a->seeds, ['f'] = &a->first };
    uint32_t *const word_of[128] = { ['n'] = &a->most,
        ['c'] = &a->world.copies,
        ['k'] = &a->world.keep,
        ['r'] = &a->world.ranks_per_node,
        ['C'] = &a->world.faults,
        ['d'] = &a->world.degree,
        ['w'] = &a->with,
        ['j'] = &a->jobs,
        ['B'] = &a->world.nodes };
    int *const flag_of[128] = { ['t'] = &a->world.loud,
        ['2'] = &a->twice,
        ['i'] = &a->strong,
        ['o'] = &a->some,
        ['q'] = &a->asks,
        ['l'] = &a->large,
        ['T'] = &a->two,
        ['B'] = &a->back,
        ['h'] = &a->shrink };

    if (option < 0 || option > 127 || (!long_of[option] && !word_of[option] && !flag_of[option]))
        return take_text(a, option);
    if (long_of[option])
        *long_of[option] = v;
    if (word_of[option])
        *word_of[option] = (uint32_t)v;
    if (flag_of[option])
        *flag_of[option] = 1;
    return 0;
}

/* Worlds that are not drawn are as small as they can be. */
static void be_plain(struct world_opts *o)
{
    o->ranks_per_node += !o->ranks_per_node;
    o->copies += !o->copies;
    o->keep += !o->keep;
    o->data_max = 3000;
}

static int parse(int argc, char **argv, struct args *a)
{
    static const struct option options[] = { { "seeds", 1, NULL, 's' }, { "nodes", 1, NULL, 'n' },
        { "first", 1, NULL, 'f' }, { "break", 1, NULL, 'b' }, { "trace", 0, NULL, 't' },
        { "copies", 1, NULL, 'c' }, { "keep", 1, NULL, 'k' }, { "ranks", 1, NULL, 'r' },
        { "faults", 1, NULL, 'a' }, { "count", 1, NULL, 'C' }, { "twice", 0, NULL, '2' },
        { "back", 1, NULL, 'B' }, { "two", 0, NULL, 'T' }, { "shrink", 0, NULL, 'h' },
        { "degree", 1, NULL, 'd' }, { "with", 1, NULL, 'w' }, { "world", 1, NULL, 'W' },
        { "jobs", 1, NULL, 'j' }, { "strong", 0, NULL, 'i' }, { "some", 0, NULL, 'o' },
        { "asks", 0, NULL, 'q' }, { "large", 0, NULL, 'l' }, { NULL, 0, NULL, 0 } };
    int c, rc = 0;

    while (!rc && (c = getopt_long(argc, argv, "", options, NULL)) != -1)
        rc = take_option(a, c);
    if (rc)
        return rc;
    a->world.strong = (uint32_t)a->strong;
    a->world.some |= (uint32_t)a->some;
    a->world.asks |= (uint32_t)a->asks;
    a->world.large = (uint32_t)a->large;
    if (a->back)
        be_plain(&a->world);
    if (a->most < 2 || (a->world.nodes && a->world.copies >= a->world.nodes))
        return usage("too few nodes");
    return 0;
}

static void say_smallest(struct world_opts o, const char *why, const char *rule)
{
    char text[600];

    o.loud = 0;
    world_shrink(&o, why);
    world_text(&o, text, sizeof(text));
    printf("  smallest: tests/sim/run --world %s%s%s --trace\n", text, rule ? " --break " : "",
            rule ? rule : "");
}

static void say_broken(const struct args *a, const struct world_opts *o, const char *why)
{
    char kinds[300] = "";

    world_kinds_text(a->world.kinds, kinds, sizeof(kinds));
    printf("seed %" PRIu64 ": %s\n", o->seed, why);
    if (!a->one) {
        printf("  replay: tests/sim/run --seeds 1 --first %" PRIu64 " --nodes %u --faults %s",
                o->seed, a->most, kinds);
        if (a->world.copies)
            printf(" --copies %u", a->world.copies);
        if (a->world.keep)
            printf(" --keep %u", a->world.keep);
        if (a->world.ranks_per_node)
            printf(" --ranks %u", a->world.ranks_per_node);
        if (a->world.strong)
            printf(" --strong");
        if (a->some)
            printf(" --some");
        if (a->asks)
            printf(" --asks");
        if (a->large)
            printf(" --large");
        printf(" --count %u%s%s --trace\n", a->world.faults, a->rule ? " --break " : "",
                a->rule ? a->rule : "");
    }
    if (a->shrink)
        say_smallest(*o, why, a->rule);
    fflush(stdout);
}

struct tally;
static void count_world(struct tally *t, const struct world *w);

/* Runs one seed; 1 when something was broken. */
static int run(const struct args *a, uint64_t seed, struct tally *t, uint64_t *out_trace)
{
    struct world_opts opts = a->world;
    struct world w;
    int broken;

    if (!a->one) {
        opts.seed = seed;
        world_draw(&opts, a->most);
    }
    world_open(&w, &opts);
    world_run(&w);
    broken = w.why[0] != '\0';
    *out_trace = w.trace;
    if (t)
        count_world(t, &w);
    if (broken)
        say_broken(a, &opts, w.why);
    world_close(&w);
    return broken;
}

/* The results of one process, which it sends to its parent. */
struct tally {
    uint64_t count[WORLD_EVENTS], hits[WORLD_KINDS_COUNT];
    uint64_t broken, trace;
    int differs;
};

static void count_world(struct tally *t, const struct world *w)
{
    for (int i = 0; i < WORLD_EVENTS; i++)
        t->count[i] += w->count[i];
    for (int i = 0; i < WORLD_KINDS_COUNT; i++)
        t->hits[i] += w->hits[i];
}

/* Every jobs-th seed from `first` on. */
static void run_share(const struct args *a, uint64_t first, uint64_t jobs, struct tally *t)
{
    for (uint64_t s = first; s < a->first + a->seeds; s += jobs) {
        uint64_t trace, again;
        int broken = run(a, s, t, &trace);

        t->broken += (uint64_t)broken;
        t->trace ^= trace * (2 * s + 1); /* the same sum for any number of processes */
        if ((a->twice || s == a->first) && !a->world.loud && !broken) {
            (void)run(a, s, NULL, &again);
            if (again != trace) {
                printf("seed %" PRIu64 ": two runs differ\n", s);
                t->differs = 1;
            }
        }
        if (broken && a->rule)
            break;
    }
}

static void add_up(struct tally *total, const struct tally *part)
{
    for (int i = 0; i < WORLD_EVENTS; i++)
        total->count[i] += part->count[i];
    for (int i = 0; i < WORLD_KINDS_COUNT; i++)
        total->hits[i] += part->hits[i];
    total->broken += part->broken;
    total->trace ^= part->trace;
    total->differs |= part->differs;
}

/* A process of its own that writes what it found. */
static pid_t run_share_beside(const struct args *a, uint64_t first, uint64_t jobs, int fd)
{
    struct tally part = { 0 };
    pid_t pid = fork();

    if (pid)
        return pid;
    run_share(a, first, jobs, &part);
    fflush(stdout);
    _exit(write(fd, &part, sizeof(part)) == (ssize_t)sizeof(part) ? 0 : 1);
}

/* That a rule is missing needs to be noticed once. */
static void run_all(const struct args *a, struct tally *total)
{
    long jobs = a->jobs ? (long)a->jobs : sysconf(_SC_NPROCESSORS_ONLN), left;
    struct tally part;
    pid_t pid[JOBS];
    int fd[2];

    jobs = a->world.loud || a->seeds < 8 ? 1 : jobs < JOBS ? jobs : JOBS;
    if (jobs < 2 || pipe(fd)) {
        run_share(a, a->first, 1, total);
        return;
    }
    fflush(stdout);
    for (left = 0; left < jobs; left++)
        pid[left] = run_share_beside(a, a->first + (uint64_t)left, (uint64_t)jobs, fd[1]);
    close(fd[1]);
    while (left && read(fd[0], &part, sizeof(part)) == (ssize_t)sizeof(part)) {
        add_up(total, &part);
        left = a->rule && part.broken ? 0 : left - 1;
    }
    for (long j = 0; j < jobs && a->rule && !left; j++)
        if (pid[j] > 0)
            kill(pid[j], SIGKILL);
    while (wait(NULL) > 0)
        ;
    if (left) {
        printf("%ld processes died\n", left);
        total->broken++;
    }
}

/* One world with one engine killed under ranks that recover, and started again by them: the
 * recovery goes on and succeeds. *out_came: it was killed. */
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

/* Each engine by itself; or the coordinator's, or that of --with, with each one after it. */
static int back(const struct args *a)
{
    struct world_opts opts = a->world;
    uint32_t at = 0, runs = 0;
    int bad = 0;

    opts.faults = 0;
    opts.run_ms = 1500;
    opts.kinds = WORLD_FIRST; /* those that begin without a fault, too */
    for (uint32_t node = 1 + (a->two ? 1 + a->with : 0); node <= opts.nodes && !bad;
            node++, runs++) {
        opts.back_node = a->two ? 1 + a->with : node;
        opts.back_also = a->two ? node : 0;
        bad = back_node(&opts, &at);
    }
    printf("and at %u named points\n", at);
#ifdef HEARTH_POINTS
    bad |= at < 5 * runs; /* not every engine frees or sends GO */
#endif
    return bad;
}

/* 1: some event or fault happened too seldom to count as tried. */
static int say_tally(const struct args *a, const struct tally *t)
{
    int many = a->seeds >= 1000 && !a->rule, few = 0;
    const char *comma = "";

    for (int i = 0; i < WORLD_EVENTS; i++) {
        printf("%s%s %" PRIu64, i ? ", " : "", world_event_name[i], t->count[i]);
        few |= many && t->count[i] < 100 && i != WORLD_SAID_DEAD; /* sim.said is for that */
    }
    fputs("\nfaults: ", stdout);
    for (int i = 0; i < WORLD_KINDS_COUNT; i++) {
        if (!(a->world.kinds >> i & 1))
            continue;
        printf("%s%s %" PRIu64, comma, world_kind_name[i].name, t->hits[i]);
        comma = ", ";
        few |= many && t->hits[i] < 100;
    }
    printf("\n%" PRIu64 " seeds, %" PRIu64 " violations, trace %016" PRIx64 "\n", a->seeds,
            t->broken, t->trace);
    if (few)
        puts("some kind of event happened less than 100 times");
    return few;
}

int main(int argc, char **argv)
{
    struct args a = { .seeds = 100,
        .first = 1,
        .most = 200,
        .world = { .kinds = WORLD_ALL, .faults = 6, .run_ms = 12000 } };
    struct tally t = { 0 };
    int few, rc = parse(argc, argv, &a);

    if (rc)
        return rc;
    if (a.back)
        return back(&a);
    if (a.one)
        a.seeds = 1;
    if (a.rule && a.world.kinds == WORLD_ALL)
        a.world.kinds = a.rule_kinds;
    run_all(&a, &t);
    few = say_tally(&a, &t);
    if (a.rule) {
        printf("without the rule `%s`: %s\n", a.rule, t.broken ? "noticed" : "NOT noticed");
        return t.broken ? 0 : 1;
    }
    return t.broken || t.differs || few;
}
