/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves of some of the ranks: they alone begin, write and wait; what they have saved survives the
 * loss of their machine as any save does, and all ranks recover it.
 */
#include "cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define ROWS 4608u

/* Each of the ranks in `list`, "0,2,4". */
static int post_to(struct world *w, const char *list, const char *line)
{
    char *end;

    for (; *list; list = *end ? end + 1 : end)
        TRY(rank_post(w, (uint32_t)strtoul(list, &end, 10), line));
    return 0;
}

static int answers_of(struct world *w, const char *list, unsigned ms)
{
    char *end;

    for (; *list; list = *end ? end + 1 : end)
        TRY(rank_answer(w, (uint32_t)strtoul(list, &end, 10), ms));
    return 0;
}

static int save_begin(struct world *w, uint64_t step, const char *list)
{
    char line[120];

    w->tags++;
    w->step_of[w->tags] = step;
    w->newest = step;
    snprintf(line, sizeof(line), "save %lu %lu %s", (unsigned long)step, (unsigned long)w->tags,
            list);
    TRY(post_to(w, list, line));
    return answers_of(w, list, 15000);
}

/* Until it is PROTECTED, far within its deadline: no other rank is waited for. */
static int save_of(struct world *w, uint64_t step, const char *list)
{
    char line[120];

    TRY(save_begin(w, step, list));
    snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)step, PROTECTED, w->save_ms / 2);
    TRY(post_to(w, list, line));
    TRY(answers_of(w, list, w->save_ms));
    w->protected = step;
    w->protected_tag = w->tags;
    note(w, "step %lu is saved by ranks %s", (unsigned long)step, list);
    return 0;
}

static int lose(struct world *w, uint32_t k)
{
    TRY(node_kill(w, k));
    TRY(node_up(w, k));
    TRY(world_restart(w, w->protected));
    return world_protected(w);
}

/* Rank 0 of eight, on four machines: its machine is lost, then one whose ranks saved nothing, then
 * one of a set with a rank on each machine; in between all save. */
static int rank_0_alone(struct world *w, const char *arg)
{
    (void)arg;
    w->rows = w->whole = ROWS;
    w->mib = 512;
    w->keep = 2;
    TRY(world_begin(w, 4, 2, 1));
    TRY(save_of(w, 2, "0"));
    TRY(lose(w, 0));
    TRY(save_of(w, 3, "0"));
    TRY(lose(w, 2));
    TRY(save_of(w, 4, "0"));
    TRY(world_save(w, 4)); /* all, the same step */
    TRY(world_save(w, 5));
    TRY(save_of(w, 6, "5")); /* none of the coordinator's */
    TRY(save_of(w, 7, "0,2,4,6"));
    TRY(lose(w, 1));
    return world_save(w, 8);
}

/* The engine of the machine whose rank saves, or the coordinator's, is killed under its ranks when
 * the save was handed over. In time the rank learns that the save is PROTECTED, or that it has
 * failed; the next one then is PROTECTED. */
static int engine_killed(struct world *w, const char *arg)
{
    uint32_t k = (uint32_t)strtoul(arg, NULL, 10);
    char line[80];

    w->rows = w->whole = ROWS;
    w->mib = 512;
    w->keep = 2;
    w->loses_engines = 1;
    TRY(world_begin(w, 3, 2, 1));
    for (uint64_t step = 2; step < 8; step += 2) {
        TRY(save_begin(w, step, "2"));
        TRY(node_engine_signal(w, k, SIGKILL));
        TRY(node_engine_start(w, k, NULL, NULL));
        snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)step, PROTECTED, w->save_ms);
        TRY(rank_post(w, 2, line));
        if (!rank_poll(w, 2, w->save_ms + 2000))
            return lost(w, "rank 2 hears nothing of step %lu", (unsigned long)step);
        TRY(save_of(w, step + 1, "2"));
    }
    return lose(w, 1);
}

const struct scenario scenarios_some[] = { { "rank-0-alone", rank_0_alone, NULL },
    { "rank-alone-engine-killed", engine_killed, "1" },
    { "rank-alone-coordinator-killed", engine_killed, "0" }, { 0 } };
