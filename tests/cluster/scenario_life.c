/* SPDX-License-Identifier: Apache-2.0 */
/* A job that lives on: steps again, restarts, stale machines, processes stopped. */
#include "cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static int step_twice(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 3, 1, 2));
    TRY(world_save(w, 2));
    if (w->protected_tag != 3)
        return lost(w, "the second save of step 2 has tag %lu", (unsigned long)w->protected_tag);
    TRY(world_restart(w, 2));
    TRY(node_kill(w, 1));
    TRY(node_up(w, 1));
    TRY(world_restart(w, 2)); /* world_recover() refuses the older tag */
    return world_save(w, 3);
}

/* Restarts, with the engines' processes and without, leave what is sealed as it is, to the
 * inode. */
static int restart_twice(struct world *w, const char *arg)
{
    uint64_t before, after;

    (void)arg;
    w->keep = 2;
    TRY(world_begin(w, 3, 1, 3));
    TRY(step_digest(w, 3, &before));
    for (int i = 0; i < 3; i++) {
        world_stop(w);
        for (uint32_t k = 0; i == 1 && k < w->nodes; k++)
            TRY(node_engine_signal(w, k, SIGTERM));
        for (uint32_t k = 0; i == 2 && k < w->nodes; k++)
            TRY(node_engine_signal(w, k, SIGKILL));
        TRY(world_start(w));
        TRY(world_recover(w, 3));
        TRY(world_protected(w));
        TRY(step_digest(w, 3, &after));
        if (after != before)
            return lost(w, "the files of step 3 are not what they were, restart %d", i + 1);
    }
    TRY(world_save(w, 4));
    TRY(step_digest(w, 3, &after)); /* keep 2: still there */
    return after == before ? 0 : lost(w, "step 3 was altered by the save of step 4");
}

/* Machine 2 has an unprotected step 3 and is off; the others go back to step 2 and save another
 * step 3; it comes back. */
static int stale_machine(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 3, 1, 2));
    TRY(rank_post(w, 2, "save 3 200"));
    TRY(rank_answer(w, 2, 10000));
    world_stop(w);
    TRY(node_engine_signal(w, 2, SIGKILL)); /* off, with its memory */
    TRY(node_up(w, 3));
    w->seat[2] = 3;
    TRY(world_start(w));
    TRY(world_recover(w, 2));
    TRY(world_save(w, 3));
    TRY(node_kill(w, 3));
    w->seat[2] = 2;
    TRY(world_restart(w, 3));
    TRY(world_save(w, 4));
    return world_restart(w, 4);
}

/* A stopped engine is named when the time is over, and the next save works. */
static int stopped_engine(struct world *w, const char *arg)
{
    char part[64];

    (void)arg;
    w->save_ms = 5000;
    TRY(world_begin(w, 3, 1, 1));
    TRY(node_engine_signal(w, 2, SIGSTOP));
    w->newest = 2;
    for (uint32_t r = 0; r < 2; r++)
        TRY(rank_post(w, r, "save 2 200"));
    for (uint32_t r = 0; r < 2; r++)
        TRY(rank_answer(w, r, 15000));
    snprintf(part, sizeof(part), "node %s", w->node[2].name);
    TRY(rank_post(w, 0, "wait 2 40 4000"));
    TRY(rank_refusal(w, 0, 6000, part));
    TRY(rank_post(w, 1, "wait 2 40 20000"));
    TRY(rank_refusal(w, 1, 25000, part));
    TRY(node_engine_signal(w, 2, SIGCONT));
    return world_save(w, 3);
}

/* `hearth why` of the step begins its second line so on each node. */
static int each_node_names(struct world *w, uint64_t step, const char *verdict)
{
    char text[4000];

    for (uint32_t k = 0; k < w->nodes; k++) {
        const char *line;

        TRY(node_why(w, k, step, text, sizeof(text)));
        line = strstr(text, "\nslowest: ");
        if (!line || strncmp(line + strlen("\nslowest: "), verdict, strlen(verdict)) != 0)
            return lost(w, "%s does not name '%s': %s", w->node[k].name, verdict, text);
        if (!strstr(text, "\nsealed "))
            return lost(w, "%s has no reports of all nodes: %s", w->node[k].name, text);
    }
    return 0;
}

/* The engine of machine 2 stands still for a while in a save. The save is PROTECTED all the same,
 * and `hearth why` names that node on each machine. Where the coordinator's engine stands still,
 * `hearth why` reports that. */
static int slow_node_is_named(struct world *w, const char *arg)
{
    char text[4000], part[120];

    (void)arg;
    TRY(world_begin(w, 3, 1, 2));
    TRY(world_save_begin(w, 3));
    TRY(world_answers(w, 15000));
    TRY(world_save_end(w, 3));
    TRY(node_engine_signal(w, 2, SIGSTOP));
    for (uint32_t r = 0; r < 2; r++)
        TRY(rank_post(w, r, "save 4 200"));
    for (uint32_t r = 0; r < 2; r++)
        TRY(rank_answer(w, r, 15000));
    nap_ms(1000);
    TRY(node_engine_signal(w, 2, SIGCONT));
    TRY(rank_post(w, 2, "save 4 200"));
    TRY(rank_answer(w, 2, 15000));
    TRY(world_save_end(w, 4));
    snprintf(part, sizeof(part), "rank 2 on node %s: began late; sealed ", w->node[2].name);
    TRY(each_node_names(w, 4, part));
    TRY(node_engine_signal(w, 0, SIGSTOP));
    TRY(node_why(w, 1, 4, text, sizeof(text)));
    TRY(node_engine_signal(w, 0, SIGCONT));
    snprintf(part, sizeof(part), "The coordinator, node %s, does not answer: node %s ",
            w->node[0].name, w->node[0].name);
    return strstr(text, part) ? 0 : lost(w, "the coordinator is not named: %s", text);
}

static int printed(
        struct world *w, uint32_t k, const char *const args[], int want, const char *const parts[])
{
    static char text[1 << 16];
    int status;

    TRY(node_hearth(w, k, args, text, sizeof(text), &status));
    if (status != want)
        return lost(
                w, "hearth %s on %s: status %d, not %d", args[0], w->node[k].name, status, want);
    for (size_t i = 0; parts[i]; i++)
        if (!strstr(text, parts[i]))
            return lost(w, "hearth %s on %s does not print '%s': %s", args[0], w->node[k].name,
                    parts[i], text);
    return 0;
}

/* From machine 1: the trace of a save has each node, and events of all nodes have lines of each.
 * An engine that stands still is missing, which is status 1. */
static int all_nodes_are_shown(struct world *w, const char *arg)
{
    char lines[3][100], names[3][100], third[80];
    const char *const trace[] = { "trace", "--save", "2", "job", NULL };
    const char *const all[] = { "events", "--all", "job", NULL };
    const char *const of_two[] = { "events", "--node", third, "job", NULL };
    const char *const recovery[] = { "why", "--recovery", "job", NULL };
    const char *const each[] = { lines[0], lines[1], lines[2], " save protected step 2", NULL };
    const char *const processes[] = { names[0], names[1], names[2], "\"promise\"", NULL };
    const char *const two[] = { names[0], names[1], NULL };
    const char *const inventory[] = { "\ninventory 3 of 3; last: ", "\nvote", NULL };
    const char *const one[] = { " save protected step 2", NULL };

    (void)arg;
    TRY(world_begin(w, 3, 1, 2));
    snprintf(third, sizeof(third), "%s", w->node[2].name);
    for (uint32_t k = 0; k < 3; k++) {
        snprintf(lines[k], sizeof(lines[k]), "Z %s info save ", w->node[k].name);
        snprintf(names[k], sizeof(names[k]), "\"name\": \"%s\"", w->node[k].name);
    }
    TRY(printed(w, 1, trace, 0, processes));
    TRY(printed(w, 1, all, 0, each));
    TRY(printed(w, 1, of_two, 0, one));
    TRY(printed(w, 1, recovery, 0, inventory));
    TRY(node_engine_signal(w, 2, SIGSTOP));
    TRY(printed(w, 1, trace, 1, two));
    return node_engine_signal(w, 2, SIGCONT);
}

/* Rank 5 hands over its object a second after the others. */
static int slow_rank_is_named(struct world *w, const char *arg)
{
    char part[120];

    (void)arg;
    TRY(world_begin(w, 3, 2, 2));
    for (uint32_t r = 0; r < 5; r++)
        TRY(rank_post(w, r, "save 3 200"));
    nap_ms(1000);
    TRY(rank_post(w, 5, "save 3 200"));
    TRY(world_answers(w, 15000));
    TRY(world_save_end(w, 3));
    snprintf(part, sizeof(part), "rank 5 on node %s: write ", w->node[2].name);
    return each_node_names(w, 3, part);
}

/* A child that the rank forked holds its socket; the engine knows by the process itself. */
static int forked_child(struct world *w, const char *arg)
{
    long child;

    (void)arg;
    TRY(world_begin(w, 2, 1, 1));
    TRY(rank_post(w, 1, "fork"));
    TRY(rank_answer(w, 1, 5000));
    child = strtol(w->rank[1].answer + strlen("ok fork "), NULL, 10);
    rank_kill(w, 1);
    TRY(node_log_wait(w, 1, "its process has ended", 1000));
    TRY(world_restart(w, 1));
    if (!w->node[1].init && child > 1)
        kill((pid_t)child, SIGKILL);
    return world_save(w, 2);
}

/* The engine of machine 1 stands in its first pull; the ranks die; it goes on and finishes. */
static int ranks_killed(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_open(w, 3, 1));
    TRY(node_engine_start(w, 1, "HEARTH_STOP_POINT", "pull"));
    TRY(world_start(w));
    TRY(world_recover(w, 0));
    w->tags = w->step_of[1] = w->newest = 1;
    TRY(rank_post(w, 1, "save 1 1")); /* first, for it is its engine that will stand still */
    TRY(rank_answer(w, 1, 15000));
    for (uint32_t r = 0; r < w->ranks; r += 2)
        TRY(rank_post(w, r, "save 1 1"));
    TRY(world_answers(w, 15000));
    for (int i = 0; !node_stopped(w, 1); i++) {
        if (i == 500)
            return lost(w, "the engine of machine 1 did not come to its point");
        nap_ms(10);
    }
    world_stop(w);
    if (node_log_has(w, 0, "protected step 1"))
        return lost(w, "the step is called PROTECTED, and a copy is not there yet");
    TRY(node_engine_signal(w, 1, SIGCONT));
    TRY(node_log_wait(w, 0, "protected step 1", 15000));
    w->protected = 1;
    w->protected_tag = w->tags;
    TRY(node_kill(w, 2));
    TRY(node_up(w, 2));
    TRY(world_start(w));
    return world_recover(w, 1);
}

#define CHUNKS  8u
#define ARRIVED 5u

/* The engine of machine 1, which is a fresh one, is killed when half of its rank's object has
 * come. The rank starts another engine, which pulls the rest alone. */
static int killed_half_way(struct world *w, const char *arg)
{
    uint64_t most = (uint64_t)(CHUNKS - ARRIVED + 2) << 22, until;
    char point[16];

    (void)arg;
    w->kib = CHUNKS * 4096;
    TRY(world_begin(w, 3, 1, 1));
    world_stop(w);
    TRY(node_kill(w, 1));
    TRY(node_up(w, 1));
    snprintf(point, sizeof(point), "arrived:%u", ARRIVED);
    TRY(node_engine_start(w, 1, "HEARTH_STOP_POINT", point));
    TRY(world_start(w));
    TRY(world_post(w, "recover"));
    for (until = now_ms() + 20000; !node_stopped(w, 1); nap_ms(5))
        if (now_ms() >= until)
            return lost(w, "no %u chunks came", ARRIVED);
    w->loses_engines = 1;
    TRY(node_engine_signal(w, 1, SIGKILL));
    TRY(world_recovered(w, 1));
    note(w, "pulled %lu of %u KiB after the engine's death", (unsigned long)w->pulled >> 10,
            w->kib);
    if (w->pulled > most)
        return lost(w, "%lu bytes were pulled where at most %lu were missing",
                (unsigned long)w->pulled, (unsigned long)most);
    return world_protected(w);
}

/* All ranks say that the job is over: everything is freed, and the engines end. */
static int dropped(struct world *w, const char *arg)
{
    uint64_t until = now_ms() + 10000, digest;

    (void)arg;
    TRY(world_begin(w, 2, 2, 1));
    TRY(world_post(w, "close drop"));
    TRY(world_answers(w, 10000));
    while (node_engine(w, 0) || node_engine(w, 1)) {
        if (now_ms() >= until)
            return lost(w, "an engine is still there 10 s after the job was dropped");
        nap_ms(20);
    }
    if (!step_digest(w, 1, &digest))
        return lost(w, "step 1 is still there after the job was dropped");
    world_stop(w);
    TRY(world_start(w));
    return world_recover(w, 0);
}

/* Objects of the recovered save that lie on other nodes can still be read when the engines have
 * come back, which have not received the plan. */
static int read_from_new_engines(struct world *w, const char *arg)
{
    (void)arg;
    TRY(world_begin(w, 4, 1, 2));
    TRY(world_restart(w, 2));
    TRY(world_protected(w));
    w->loses_engines = 1;
    for (uint32_t k = 0; k < w->nodes; k++)
        TRY(node_engine_signal(w, k, SIGKILL));
    TRY(world_post(w, "peek"));
    TRY(world_answers(w, 20000));
    return world_save(w, 3);
}

/* Eight ranks of one machine and one each of three others; arg: how often the eight read, all at
 * once, the piece of a rank that no copy of is on their machine. */
static int read_at_once(struct world *w, const char *arg)
{
    const uint32_t readers = 8;
    struct object o;
    char line[64];
    uint32_t r;

    w->kib = 64;
    TRY(world_open(w, 4, 1));
    w->ranks = readers + 3;
    for (r = 0; r < w->ranks; r++)
        w->seat[r] = r < readers ? 0 : r - readers + 1;
    TRY(world_start(w));
    TRY(world_recover(w, 0));
    TRY(world_save(w, 1));
    TRY(world_restart(w, 1));
    TRY(world_protected(w));
    for (r = readers; r < w->ranks && !object_find(w, 0, 1, r, &o); r++)
        continue;
    if (r == w->ranks)
        return lost(w, "machine 0 has a copy of everything");
    snprintf(line, sizeof(line), "read %u %s 1", r, arg);
    for (r = 0; r < readers; r++)
        TRY(rank_post(w, r, line));
    for (r = 0; r < readers; r++)
        TRY(rank_answer(w, r, 60000));
    return world_save(w, 2);
}

const struct scenario scenarios_life[] = { { "read-at-once", read_at_once, "100" },
    { "read-from-new-engines", read_from_new_engines, NULL },
    { "save-a-step-twice", step_twice, NULL }, { "restart-alters-nothing", restart_twice, NULL },
    { "stale-machine-comes-back", stale_machine, NULL },
    { "stopped-engine-is-named", stopped_engine, NULL },
    { "slow-node-is-named", slow_node_is_named, NULL },
    { "slow-rank-is-named", slow_rank_is_named, NULL },
    { "all-nodes-are-shown", all_nodes_are_shown, NULL },
    { "forked-child-lives-on", forked_child, NULL },
    { "ranks-killed-in-mid-replication", ranks_killed, NULL },
    { "engine-killed-half-way", killed_half_way, NULL }, { "drop-ends-everything", dropped, NULL },
    { 0 } };
