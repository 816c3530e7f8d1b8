/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Four machines, two copies. Machine 3 has just been replaced, so that there is something to bring
 * back. One engine stops itself at a named point of joining, recovering or saving; then
 *
 *     kill-at-POINT    it is killed, and the job is started again
 *     lose-at-POINT    its machine is lost, and the job is started again on a fresh one
 *     back-at-POINT    it is killed under living ranks, which start it again and go on
 *
 * What was PROTECTED before is there afterwards, the job saves on, and that survives a loss too.
 */
#include "cluster.h"

#include <signal.h>
#include <string.h>

#define FRESH 3u
#define LAST  5u /* steps saved until the point must have come */

/* "POINT V": the engine of machine V. */
static uint32_t victim_of(const char *arg)
{
    return (uint32_t)(arg[strlen(arg) - 1] - '0');
}

/* All have answered: 0; the victim stands at its point: 1. */
static int wait_or_stop(struct world *w, uint32_t victim, unsigned ms)
{
    uint64_t until = now_ms() + ms;

    for (;;) {
        uint32_t answered = 0;

        for (uint32_t r = 0; r < w->ranks; r++)
            answered += (uint32_t)rank_poll(w, r, 0);
        if (node_stopped(w, victim))
            return 1;
        if (answered == w->ranks)
            break;
        if (now_ms() >= until)
            return lost(w, "no answer from all ranks in %u ms, and nobody at the point", ms);
        nap_ms(5);
    }
    return world_answers(w, 1);
}

static int save_until_stop(struct world *w, uint32_t victim, uint64_t step)
{
    char line[64];

    TRY(world_save_begin(w, step));
    TRY(wait_or_stop(w, victim, 15000));
    snprintf(line, sizeof(line), "wait %lu %u %u", (unsigned long)step, PROTECTED, w->save_ms);
    TRY(world_post(w, line));
    TRY(wait_or_stop(w, victim, w->save_ms + 2000));
    w->protected = step;
    w->protected_tag = w->tags;
    return 0;
}

/* 1: it stands at its point. */
static int come_to_point(struct world *w, const char *arg)
{
    uint32_t victim = victim_of(arg);
    char point[32];

    snprintf(point, sizeof(point), "%.*s", (int)strcspn(arg, " "), arg);
    world_stop(w);
    TRY(node_kill(w, FRESH));
    TRY(node_up(w, FRESH));
    if (victim != FRESH)
        TRY(node_engine_signal(w, victim, SIGKILL));
    TRY(node_engine_start(w, victim, "--stop-point", point));
    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    TRY(wait_or_stop(w, victim, 20000));
    TRY(world_post(w, "recover"));
    TRY(wait_or_stop(w, victim, 20000));
    for (uint64_t step = 3; step <= LAST; step++)
        TRY(save_until_stop(w, victim, step));
    return lost(w, "the engine of machine %u never came to '%s'", victim, point);
}

static int stop_at(struct world *w, const char *arg)
{
    int rc;

    w->copies = 2;
    w->kib = 1024;
    w->save_ms = 8000;
    TRY(world_begin(w, 4, 1, 2));
    w->loses_engines = 1;
    rc = come_to_point(w, arg);
    return rc == 1 ? 0 : rc;
}

static int goes_on(struct world *w)
{
    uint64_t step = w->newest + 1;

    TRY(world_save(w, step));
    TRY(node_kill(w, 2));
    TRY(node_up(w, 2));
    TRY(world_restart(w, step));
    return world_save(w, step + 1);
}

static int kill_at(struct world *w, const char *arg)
{
    TRY(stop_at(w, arg));
    TRY(node_engine_signal(w, victim_of(arg), SIGKILL));
    TRY(world_restart(w, STEP_ANY));
    TRY(world_protected(w));
    return goes_on(w);
}

static int lose_at(struct world *w, const char *arg)
{
    TRY(stop_at(w, arg));
    TRY(node_kill(w, victim_of(arg)));
    TRY(node_up(w, victim_of(arg)));
    TRY(world_restart(w, STEP_ANY));
    TRY(world_protected(w));
    return goes_on(w);
}

/* The ranks live on: what they were told is answered; a recovery that failed is asked for again. */
static int finish_stage(struct world *w)
{
    int saving = !strncmp(w->rank[0].asked, "save", 4) || !strncmp(w->rank[0].asked, "wait", 4);
    int rc;

    if (!strcmp(w->rank[0].asked, "open"))
        TRY(world_answers(w, 25000));
    else if ((rc = world_answers_any(w, 30000)) < 0)
        return rc;
    return saving ? 0 : world_recover(w, STEP_ANY);
}

static int back_at(struct world *w, const char *arg)
{
    uint32_t victim = victim_of(arg);
    uint64_t step;

    TRY(stop_at(w, arg));
    TRY(node_engine_signal(w, victim, SIGKILL));
    TRY(finish_stage(w));
    step = w->newest < 3 ? 3 : w->newest + 1;
    TRY(world_save(w, step));
    TRY(world_restart(w, step));
    return goes_on(w);
}

/* POINT, whose engine. */
#define AT(run, name, point, v, both)             \
    {                                             \
        name "-at-" point, run, point " " v, both \
    }
#define POINTS(run, name)                                                         \
    AT(run, name, "adopt", "1", 0), AT(run, name, "join", "1", 0),                \
            AT(run, name, "reserve", "1", 0), AT(run, name, "inventory", "1", 0), \
            AT(run, name, "plan", "0", 1), AT(run, name, "retrieve", "3", 1),     \
            AT(run, name, "vote", "1", 0), AT(run, name, "begin", "1", 0),        \
            AT(run, name, "chunk", "1", 0), AT(run, name, "seal", "1", 0),        \
            AT(run, name, "offer", "1", 0), AT(run, name, "pull", "1", 1),        \
            AT(run, name, "verify", "1", 0), AT(run, name, "manifest", "0", 0),   \
            AT(run, name, "promise", "1", 1), AT(run, name, "keep", "0", 1),      \
            AT(run, name, "free", "1", 0)

const struct scenario scenarios_stop[] = { POINTS(kill_at, "kill"), POINTS(lose_at, "lose"),
    POINTS(back_at, "back"), { 0 } };
