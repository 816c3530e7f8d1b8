/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A large job: thousands of engines, and what one of them holds, receives and computes.
 *
 *   scale --nodes N [--ranks R] [--copies C] [--saves S] [--flap] [--memory MIB] [--trace]
 *
 * The job recovers from nothing, its engines give each other the ranks' table once more, it saves S
 * times, is started again and recovers the last save. With --flap one node in a hundred is then
 * silent and back three times, while the ranks go on saving, and the coordinator's engine is killed
 * and started again under its ranks in the middle. What engines have alike is in memory once
 * (tests/support/alike.h); the coordinator's engine makes its own of everything, as in a process by
 * itself, and the processor time that this takes is counted. Exit status 0: the promises held,
 * nothing was larger than it may be, and (--flap) no save took longer than BOUND_MS to be
 * PROTECTED.
 */
#include "alike.h"
#include "scale/join.h"
#include "script.h"
#include "world_parts.h"

#include "replication/held/holdings.h"

#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define SAVE_MS  9000u /* a save's deadline */
#define FLAP_MS  3000u /* silent, and then back, for so long each: dead_ms is 2000 */
#define FLAPS    3u
#define AGAIN_MS 7500u /* since the first silence: the coordinator's engine dies */
#define DOWN_MS  300u  /* and is away for so long */

/* The longest time from one PROTECTED save to the next while nodes come and go: one save that fails
 * by its deadline, the time until the ranks have learnt of it, and one save that succeeds. */
#define BOUND_MS (2 * SAVE_MS + 4 * 2000u)

struct spent {                                 /* by the coordinator's engine */
    uint64_t thread_ns, worker_ns, longest_ns; /* longest: of one turn of its own thread */
    uint64_t messages;                         /* that it has received */
};

static struct spent spent;
static uint64_t began_ns;

static uint64_t cpu_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void on_watch(uint32_t machine, int runs, int worker)
{
    uint64_t ns;

    if (machine)
        return;
    alike_alone(runs);
    ns = cpu_ns();
    if (runs) {
        began_ns = ns;
        return;
    }
    ns -= began_ns;
    *(worker ? &spent.worker_ns : &spent.thread_ns) += ns;
    if (!worker && ns > spent.longest_ns)
        spent.longest_ns = ns;
}

/* The time and messages that the coordinator's engine took since the last call. */
static struct spent look_at_coordinator(struct world *w)
{
    static uint64_t heard;
    struct hth_node *node = world_node(w, 0);
    uint64_t now = node ? hth_session_messages(hth_node_ctx(node)->session) : 0;
    struct spent s = spent;

    s.messages = now < heard ? now : now - heard;
    heard = now;
    spent = (struct spent){ 0 };
    return s;
}

static void say(struct world *w, const char *what, uint32_t times)
{
    struct spent s = look_at_coordinator(w);

    printf("%-9s messages %.0f, thread %.1f ms (one turn at most %.1f), workers %.1f ms\n", what,
            (double)s.messages / times, (double)s.thread_ns / times / 1e6,
            (double)s.longest_ns / 1e6, (double)s.worker_ns / times / 1e6);
    fflush(stdout);
}

/* ---- What one engine holds
 * ------------------------------------------------------------------------- */

struct most {
    uint32_t connections, objects;
    size_t manifest;
};

static struct most look_at_all(struct world *w)
{
    struct most most = { 0 };

    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        struct hth_ctx *ctx = hth_node_ctx(world_node(w, i));
        struct hth_held_save *s = hth_holdings_first(ctx);
        uint32_t n = hth_session_connections(ctx->session);

        most.connections = n > most.connections ? n : most.connections;
        if (s && s->has_manifest && s->manifest_len > most.manifest) {
            most.manifest = s->manifest_len;
            most.objects = s->manifest.objects;
        }
    }
    return most;
}

static void check_small(struct world *w, uint64_t messages, uint32_t saves)
{
    struct most m = look_at_all(w);

    printf("%u x %u: at most %u connections (128 allowed), manifest %zu bytes for %u objects; %" PRIu64
           " messages to the coordinator in one recovery and %u saves\n",
            w->opts.nodes, w->opts.ranks_per_node, m.connections, m.manifest, m.objects, messages,
            saves);
    if (m.connections > 128)
        world_broken(w, "an engine talks to %u others", m.connections);
    if (m.objects < w->ranks || m.manifest > 128 * (size_t)m.objects + 4096)
        world_broken(w, "a manifest of %zu bytes for %u objects", m.manifest, m.objects);
    /* Each node reports three facts of a save; the coordinator may receive half as many messages as
     * there are nodes. */
    if (messages > ((uint64_t)saves + 1) * (w->opts.nodes / 2 + 256))
        world_broken(w, "the coordinator hears %" PRIu64 " messages", messages);
}

static uint64_t coordinator_messages(struct world *w)
{
    return hth_session_messages(hth_node_ctx(world_node(w, 0))->session);
}

/* ---- Phases
 * ------------------------------------------------------------------------------------------ */

static void save(struct world *w, uint32_t saves)
{
    for (uint32_t i = 0; i < saves && !w->why[0]; i++)
        if (!script_save(w, 1, SAVE_MS + 1000))
            world_broken(w, "a save is not PROTECTED (%.200s)", w->heard);
    say(w, "save", saves);
}

static void restart(struct world *w)
{
    struct hth_save_id newest = w->newest.id;

    world_restart(w, 1, "the job is started again");
    world_advance(w, w->now_ms + 3);
    script_rest(w);
    if (hth_save_cmp(w->rank[0].from, newest) != 0)
        world_broken(w, "the job has not recovered its newest save");
    say(w, "recovery", 1);
}

/* One node in a hundred, spread over the tree, and not the coordinator's. */
static void silence(struct world *w, int on)
{
    for (uint32_t node = 50 % w->opts.nodes; node < w->opts.nodes; node += 100)
        if (node)
            script_silence(w, node, on);
}

struct going { /* how saving goes on */
    struct hth_save_id newest;
    uint64_t since_ms, longest_ms;
    uint32_t saves;
};

static void go_look(struct world *w, struct going *g)
{
    uint64_t ms = w->now_ms - g->since_ms;

    g->longest_ms = ms > g->longest_ms ? ms : g->longest_ms;
    if (hth_save_cmp(w->newest.id, g->newest) <= 0)
        return;
    g->newest = w->newest.id;
    g->since_ms = w->now_ms;
    g->saves++;
}

static void go_on(struct world *w, struct going *g, uint64_t ms)
{
    uint64_t until_ms = w->now_ms + ms;

    while (w->now_ms < until_ms && !w->why[0]) {
        world_advance(w, w->now_ms + 20);
        go_look(w, g);
    }
}

/* The coordinator's engine, for a moment. */
static void kill_and_start(struct world *w, uint64_t *again_ms, uint64_t *back_ms)
{
    if (w->now_ms >= *again_ms) {
        world_crash(w, w->member[0]);
        *again_ms = HTH_NEVER;
        *back_ms = w->now_ms + DOWN_MS;
    }
    if (w->now_ms >= *back_ms) {
        world_come(w, w->member[0]);
        *back_ms = HTH_NEVER;
    }
}

static void flap(struct world *w)
{
    uint64_t again_ms = w->now_ms + AGAIN_MS, back_ms = HTH_NEVER, well_ms;
    struct going g = { .newest = w->newest.id, .since_ms = w->now_ms };
    uint32_t saves;

    script_go(w);
    for (uint32_t half = 0; half < 2 * FLAPS && !w->why[0]; half++) {
        silence(w, half % 2 == 0);
        for (uint64_t end_ms = w->now_ms + FLAP_MS; w->now_ms < end_ms && !w->why[0];) {
            go_on(w, &g, 100);
            kill_and_start(w, &again_ms, &back_ms);
        }
    }
    well_ms = w->now_ms;
    g.newest = w->newest.id;
    saves = g.saves;
    g.saves = 0;
    while (!w->why[0] && g.saves < 2 && w->now_ms < well_ms + BOUND_MS)
        go_on(w, &g, 100);
    printf("flapping: %u nodes, %" PRIu64
           " times a rank's save failed, %u saves PROTECTED while they did; 2 "
           "more within %" PRIu64 " ms after; %" PRIu64 " ms at most from one to the next\n",
            w->opts.nodes / 100, w->count[WORLD_FAILED], saves, w->now_ms - well_ms, g.longest_ms);
    if (g.longest_ms > BOUND_MS || g.saves < 2)
        world_broken(
                w, "saving does not go on: %" PRIu64 " ms without a PROTECTED save", g.longest_ms);
    say(w, "flapping", 1);
}

/* ---- Program
 * ------------------------------------------------------------------------------------------- */

static int usage(void)
{
    fputs("usage: scale --nodes N [--ranks R] [--copies C] [--saves S] [--flap] [--memory MIB] [--trace]\n",
            stderr);
    return 2;
}

struct args {
    struct world_opts world;
    uint32_t saves, memory_mib;
    int flap;
};

static int parse(int argc, char **argv, struct args *a)
{
    static const struct option options[] = { { "nodes", 1, NULL, 'n' }, { "ranks", 1, NULL, 'r' },
        { "copies", 1, NULL, 'c' }, { "saves", 1, NULL, 's' }, { "memory", 1, NULL, 'm' },
        { "flap", 0, NULL, 'f' }, { "trace", 0, NULL, 't' }, { NULL, 0, NULL, 0 } };
    uint32_t *const number[128] = { ['n'] = &a->world.nodes,
        ['r'] = &a->world.ranks_per_node,
        ['c'] = &a->world.copies,
        ['s'] = &a->saves,
        ['m'] = &a->memory_mib };
    int c;

    while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (c == 'f')
            a->flap = 1;
        else if (c == 't')
            a->world.loud = 1;
        else if (c < 128 && number[c])
            *number[c] = (uint32_t)strtoul(optarg, NULL, 10);
        else
            return usage();
    }
    return a->world.nodes > a->world.copies && a->world.ranks_per_node && a->saves ? 0 : usage();
}

int main(int argc, char **argv)
{
    struct args a = { .saves = 2,
        .world = { .seed = 1,
                .ranks_per_node = 1,
                .copies = 1,
                .keep = 1,
                .save_ms = SAVE_MS,
                .recover_ms = 60000,
                .every_ms = 1000,
                .data_max = 64,
                .watch = on_watch } };
    struct rusage use;
    struct world w;
    uint64_t joining;
    int rc = parse(argc, argv, &a);

    if (rc)
        return rc;
    mallopt(M_MMAP_THRESHOLD,
            32 << 20); /* memory that is freed is used again, and not cleared anew */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    mallopt(M_MXFAST,
            0); /* else whoever asks for much puts together first what thousands of engines have freed */
    alike_on();
    script_open(&w, &a.world);
    say(&w, "nothing", 1);
    joining = coordinator_messages(&w);
    scale_join(&w);
    say(&w, "joining", 1);
    joining = coordinator_messages(&w) - joining;
    save(&w, a.saves);
    check_small(&w, coordinator_messages(&w) - joining, a.saves);
    if (!w.why[0])
        restart(&w);
    if (!w.why[0] && a.flap)
        flap(&w);
    getrusage(RUSAGE_SELF, &use);
    printf("%ld MiB, %ld s of a processor, %.1f s of the job's time%s%s\n", use.ru_maxrss >> 10,
            use.ru_utime.tv_sec + use.ru_stime.tv_sec, (double)w.now_ms / 1000,
            w.why[0] ? ": " : "", w.why);
    rc = w.why[0] != '\0';
    if (a.memory_mib && use.ru_maxrss >> 10 > (long)a.memory_mib) {
        printf("more than %u MiB\n", a.memory_mib);
        rc = 1;
    }
    fflush(stdout);
    world_close(&w);
    return rc;
}
