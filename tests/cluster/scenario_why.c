/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One culprit is planted under a save, and `hearth why` has to name it on the coordinator's machine
 * and on another one. Which machine it is goes by the number of the run, so `--only why-names
 * --times 20` plants it on each of them.
 */
#include "cluster.h"

#include <signal.h>
#include <string.h>

#define NODES   3u
#define LATE_MS 1000u

static uint32_t culprit_of(const struct world *w)
{
    return w->id % NODES;
}

/* The second line of the answer has all of the parts, on the coordinator's machine and on the last
 * one. */
static int is_named(struct world *w, uint64_t step, const char *first, const char *second)
{
    char text[4000], line[1000];

    for (uint32_t k = 0; k < NODES; k += NODES - 1) {
        const char *at;

        TRY(node_why(w, k, step, text, sizeof(text)));
        at = strchr(text, '\n');
        snprintf(line, sizeof(line), "%.*s", at ? (int)strcspn(at + 1, "\n") : 0, at ? at + 1 : "");
        if (!strstr(line, first) || !strstr(line, second))
            return lost(
                    w, "%s does not name '%s' and '%s': %s", w->node[k].name, first, second, text);
    }
    return 0;
}

static int all_but(struct world *w, uint32_t rank, const char *line)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (r != rank)
            TRY(rank_post(w, r, line));
    return 0;
}

/* The last rank of the machine begins a second after all others. */
static int late_rank(struct world *w, const char *arg)
{
    uint32_t rank = culprit_of(w) * 2 + 1;
    char part[120];

    (void)arg;
    TRY(world_begin(w, NODES, 2, 2));
    TRY(all_but(w, rank, "save 3 200"));
    nap_ms(LATE_MS);
    TRY(rank_post(w, rank, "save 3 200"));
    TRY(world_answers(w, 15000));
    TRY(world_save_end(w, 3));
    snprintf(part, sizeof(part), "slowest: rank %u on node %s", rank, w->node[culprit_of(w)].name);
    return is_named(w, 3, part, "");
}

/* All begin at once; one rank stands still while it copies into its slot. */
static int slow_copy(struct world *w, const char *arg)
{
    uint32_t rank = culprit_of(w) * 2 + 1;
    char part[120];

    (void)arg;
    TRY(world_begin(w, NODES, 2, 2));
    TRY(world_post(w, "hold 3 200"));
    TRY(world_answers(w, 15000));
    TRY(world_post(w, "fill"));
    if (kill(w->rank[rank].pid, SIGSTOP))
        return lost(w, "rank %u cannot be stopped", rank);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (r != rank)
            TRY(rank_answer(w, r, 15000));
    TRY(all_but(w, rank, "commit"));
    nap_ms(LATE_MS);
    if (kill(w->rank[rank].pid, SIGCONT))
        return lost(w, "rank %u cannot go on", rank);
    TRY(rank_answer(w, rank, 15000));
    TRY(rank_post(w, rank, "commit"));
    TRY(world_answers(w, 15000));
    TRY(world_save_end(w, 3));
    snprintf(part, sizeof(part), "slowest: rank %u on node %s", rank, w->node[culprit_of(w)].name);
    return is_named(w, 3, part, ": write ");
}

/* From the machine to the holder of its rank's object few bytes pass in a second. */
static int slow_link(struct world *w, const char *arg)
{
    uint32_t from = culprit_of(w), to = 0;
    char part[120];

    (void)arg;
    if (!strcmp(w->transport, "ucx"))
        return SKIPPED; /* its pulls stall where packets above the rate are lost: no slow link */
    TRY(world_begin(w, NODES, 1, 2));
    TRY(object_holder(w, 2, from, from, &to));
    TRY(path_slow(w, from, to));
    TRY(world_save(w, 3));
    TRY(path_mend(w));
    snprintf(part, sizeof(part), "slowest: %s -> %s: copy of ", w->node[from].name,
            w->node[to].name);
    return is_named(w, 3, part, "");
}

/* Another program takes all memory of the machine's tmpfs: the save fails, and the reason is in
 * the second line. */
static int no_room(struct world *w, const char *arg)
{
    char part[120];

    (void)arg;
    if (!w->namespaces)
        return SKIPPED; /* it needs a file system of its own */
    w->save_ms = 5000;
    w->common_kib = 100; /* slots have their memory from the start; this needs more for each save */
    TRY(world_begin(w, NODES, 1, 1));
    TRY(tmpfs_fill(w, culprit_of(w), 0));
    TRY(world_save_begin(w, 2));
    if (world_answers_any(w, 15000) < 0)
        return LOST_IT;
    for (uint32_t r = 0; r < w->ranks; r++)
        if (!strcmp(w->rank[r].answer, "ok save"))
            TRY(rank_post(w, r, "wait 2 40 10000"));
    if (world_answers_any(w, 15000) < 0)
        return LOST_IT;
    snprintf(part, sizeof(part), "node %s", w->node[culprit_of(w)].name);
    TRY(is_named(w, 2, part, "o room"));
    tmpfs_unfill(w, culprit_of(w));
    return world_save(w, 3);
}

const struct scenario scenarios_why[] = { { "why-names-late-rank", late_rank, NULL },
    { "why-names-slow-copy", slow_copy, NULL }, { "why-names-slow-link", slow_link, NULL },
    { "why-names-no-room", no_room, NULL }, { 0 } };
