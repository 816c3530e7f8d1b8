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
#define LAST  12u /* steps saved until the point must have come */

/* "POINT MACHINE [HOW]": whose engine stops, and what has to be for that:
 *
 *     saving   not before a save: the point is met in recovery too, which is why its count is high
 *              and machine 3 is left alone
 *     left     an unfinished save is there to be freed
 *     again    the saves begin with a step that is there
 */
struct stop {
    char point[32], how[16];
    uint32_t victim;
};

static struct stop stop_of(const char *arg)
{
    struct stop s = { .victim = NODES_MAX };

    sscanf(arg, "%31s %u %15s", s.point, &s.victim, s.how);
    return s;
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

/* One rank has written a step and the others have not: a plan frees it. */
static int leave_unfinished(struct world *w, uint32_t rank)
{
    TRY(rank_post(w, rank, "save 3 200"));
    TRY(rank_answer(w, rank, 10000));
    TRY(rank_post(w, rank, "wait 3 10 5000")); /* SEALED */
    return rank_answer(w, rank, 6000);
}

/* 0: the recovered save has its copies again. 1: the victim stands at its point. */
static int protected_or_stop(struct world *w, uint32_t victim)
{
    uint64_t until = now_ms() + 15000;

    for (; !node_stopped(w, victim); nap_ms(5)) {
        if (world_is_protected(w))
            return 0;
        if (now_ms() >= until)
            return lost(w, "not protected again in 15 s, and nobody at the point");
    }
    return 1;
}

/* 1: it stands at its point. */
static int come_to_point(struct world *w, const struct stop *s)
{
    uint64_t first = strcmp(s->how, "again") != 0 ? 3 : 2;

    if (!strcmp(s->how, "left"))
        TRY(leave_unfinished(w, s->victim));
    world_stop(w);
    if (strcmp(s->how, "saving") != 0) {
        TRY(node_kill(w, FRESH));
        TRY(node_up(w, FRESH));
    }
    if (s->victim != FRESH)
        TRY(node_engine_signal(w, s->victim, SIGKILL));
    TRY(node_engine_start(w, s->victim, "HEARTH_STOP_POINT", s->point));
    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    TRY(wait_or_stop(w, s->victim, 20000));
    TRY(world_post(w, "recover"));
    TRY(wait_or_stop(w, s->victim, 20000));
    TRY(protected_or_stop(w, s->victim));
    for (uint64_t step = first; step <= LAST; step++)
        TRY(save_until_stop(w, s->victim, step));
    return lost(w, "the engine of machine %u never came to '%s'", s->victim, s->point);
}

static int is_saving(const struct world *w)
{
    return !strncmp(w->rank[0].asked, "save", 4) || !strncmp(w->rank[0].asked, "wait", 4);
}

static int stop_at(struct world *w, const struct stop *s)
{
    int rc;

    w->copies = 2;
    w->kib = 1024;
    w->save_ms = 8000;
    TRY(world_begin(w, 4, 1, 2));
    w->loses_engines = 1;
    rc = come_to_point(w, s);
    if (rc == 1 && !strcmp(s->how, "saving") && !is_saving(w))
        return lost(w, "'%s' came already when rank 0 was told '%s'", s->point, w->rank[0].asked);
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
    struct stop s = stop_of(arg);

    TRY(stop_at(w, &s));
    TRY(node_engine_signal(w, s.victim, SIGKILL));
    TRY(world_restart(w, STEP_ANY));
    TRY(world_protected(w));
    return goes_on(w);
}

static int lose_at(struct world *w, const char *arg)
{
    struct stop s = stop_of(arg);

    TRY(stop_at(w, &s));
    TRY(node_kill(w, s.victim));
    TRY(node_up(w, s.victim));
    TRY(world_restart(w, STEP_ANY));
    TRY(world_protected(w));
    return goes_on(w);
}

/* The ranks live on: the commands that they have are answered; a recovery that failed is asked for
 * again. */
static int finish_stage(struct world *w)
{
    int saving = is_saving(w), rc;

    if (!strcmp(w->rank[0].asked, "open"))
        TRY(world_answers(w, 25000));
    else if ((rc = world_answers_any(w, 30000)) < 0)
        return rc;
    return saving ? 0 : world_recover(w, STEP_ANY);
}

static int back_at(struct world *w, const char *arg)
{
    struct stop s = stop_of(arg);
    uint64_t step;

    TRY(stop_at(w, &s));
    TRY(node_engine_signal(w, s.victim, SIGKILL));
    TRY(finish_stage(w));
    step = w->newest < 3 ? 3 : w->newest + 1;
    TRY(world_save(w, step));
    TRY(world_restart(w, step));
    return goes_on(w);
}

/* An engine dies in the middle of a plan that names it as the first to have a common object; the
 * next one finds that object damaged and asks the others. Machine 0, which would come first, is
 * new. */
static int back_without_common(struct world *w, const char *arg)
{
    const uint32_t victim = 2;
    char path[400];
    int rc;

    (void)arg;
    w->copies = 2;
    TRY(world_begin(w, 4, 1, 2));
    w->loses_engines = 1;
    world_stop(w);
    TRY(node_kill(w, 0));
    TRY(node_up(w, 0));
    TRY(node_engine_signal(w, victim, SIGKILL));
    TRY(node_engine_start(w, victim, "HEARTH_STOP_POINT", "retrieve"));
    w->launches++;
    for (uint32_t r = 0; r < w->ranks; r++)
        TRY(rank_start(w, r, w->seat[r]));
    TRY(world_answers(w, 20000));
    TRY(world_post(w, "recover"));
    if ((rc = wait_or_stop(w, victim, 20000)) != 1)
        return rc ? rc : lost(w, "nobody came to the point");
    TRY(common_path(w, victim, 2, path, sizeof(path)));
    TRY(file_flip(w, path, 150));
    TRY(node_engine_signal(w, victim, SIGKILL));
    TRY(world_recovered(w, 2));
    return world_save(w, 3);
}

/* Where a point is met in two places or by two roles, it has a line for each. */
#define AT(run, name, arg) \
    {                      \
        name, run, arg     \
    }
#define POINTS(run, at)                                                                         \
    AT(run, at "adopt", "adopt 1"), AT(run, at "join", "join 1"),                               \
            AT(run, at "reserve", "reserve 1"), AT(run, at "inventory", "inventory 1"),         \
            AT(run, at "plan", "plan 0"), AT(run, at "plan-free", "free 1 left"),               \
            AT(run, at "retrieve", "retrieve 3"), AT(run, at "retrieve-verify", "verify 3"),    \
            AT(run, at "retrieve-pull", "pull 3"), AT(run, at "retrieve-chunk", "chunk 1"),     \
            AT(run, at "vote", "vote 1"), AT(run, at "protect-promise", "promise 1"),           \
            AT(run, at "protect-keep", "keep 0"), AT(run, at "protect-member-keep", "keep 1"),  \
            AT(run, at "begin", "begin 1"), AT(run, at "begin-reserve", "reserve:4 1 saving"),  \
            AT(run, at "chunk", "chunk:8 1 saving"), AT(run, at "seal", "seal 1"),              \
            AT(run, at "offer", "offer 1"), AT(run, at "pull", "pull:10 1 saving"),             \
            AT(run, at "verify", "verify:10 1 saving"),                                         \
            AT(run, at "manifest", "manifest 0 saving"),                                        \
            AT(run, at "member-manifest", "manifest 1 saving"),                                 \
            AT(run, at "exchange", "exchange 1 again"),                                         \
            AT(run, at "promise", "promise:6 1 saving"), AT(run, at "keep", "keep:6 0 saving"), \
            AT(run, at "member-keep", "keep:6 1 saving"), AT(run, at "free", "free 1 saving")

const struct scenario scenarios_stop[] = { POINTS(kill_at, "kill-at-"), POINTS(lose_at, "lose-at-"),
    POINTS(back_at, "back-at-"), { "back-without-common", back_without_common, NULL }, { 0 } };
