/* SPDX-License-Identifier: Apache-2.0 */
/* What goes wrong in a simulated world besides its net, and when. */
#include "world_parts.h"

#include <string.h>

/* ---- Who is there ------------------------------------------------------------------------------ */

static int is_member(const struct world *w, uint32_t m)
{
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (w->member[i] == m)
            return 1;
    return 0;
}

static uint32_t spare(struct world *w)
{
    uint32_t first = world_roll(w, w->machines);

    for (uint32_t i = 0; i < w->machines; i++) {
        uint32_t m = (first + i) % w->machines;

        if (!is_member(w, m) && m != w->stale_machine)
            return m;
    }
    return UINT32_MAX;
}

/* ---- Losses, restarts ----------------------------------------------------------------------- */

#define NOTICED_MS 2500u /* dead_ms and what it takes to say so */

/* One loss at a time: the next only after this one was noticed, since what is called PROTECTED until
 * then may count on what is lost, and after what is protected has all its copies again. */
static int may_lose(struct world *w)
{
    check_decisions(w);
    if (w->hurt && w->now_ms < w->hurt_ms + NOTICED_MS)
        return 0;
    if (w->hurt && !hth_save_none(w->newest.id) &&
            !check_whole(w, w->newest.id, w->opts.copies + 1, UINT32_MAX))
        return 0;
    w->hurt = 1;
    w->hurt_ms = w->now_ms;
    return 1;
}

static void replace(struct world *w, uint32_t node, const char *why)
{
    uint32_t m = spare(w);

    if (m == UINT32_MAX)
        return;
    w->member[node] = m;
    world_restart(w, 1 + world_roll(w, 1500), why);
}

static void fault_loss(struct world *w)
{
    uint32_t node = world_roll(w, w->opts.nodes);
    uint32_t m = w->member[node];

    if (!may_lose(w))
        return;
    w->count[WORLD_LOSS]++;
    world_say(w, "machine %u (node %u) is LOST", m, node);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m)
            rank_kill(&w->rank[r]);
    machine_lose(w, m);
    check_always(w, "after a loss");
    replace(w, node, "machine lost");
}

static void fault_kill(struct world *w)
{
    uint32_t m = w->member[world_roll(w, w->opts.nodes)];

    if (!w->machine[m].node)
        return;
    w->count[WORLD_KILL]++;
    world_say(w, "the engine of machine %u is killed", m);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m)
            rank_kill(&w->rank[r]);
    machine_stop(w, m);
    world_restart(w, 1 + world_roll(w, 1000), "an engine was killed");
}

/* Replaced while it lives: it goes on in its old epoch, and may be a member again later. */
static void fault_stale(struct world *w)
{
    uint32_t node = world_roll(w, w->opts.nodes);
    uint32_t m = w->member[node];
    uint32_t k = 0;

    if (w->stale_machine != UINT32_MAX) {
        for (uint32_t i = 0; i < w->opts.ranks_per_node; i++)
            rank_kill(&w->stale[i]);
        w->stale_machine = UINT32_MAX; /* a spare with full memory from now on */
        return;
    }
    if (!may_lose(w))
        return;
    w->count[WORLD_STALE]++;
    world_say(w, "machine %u (node %u) is replaced alive", m, node);
    replace(w, node, "machine replaced");
    if (is_member(w, m))
        return;
    w->stale_machine = m;
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m) {
            w->stale[k++] = w->rank[r];
            w->rank[r].step = R_NONE; /* the launcher's no more */
            w->rank[r].client = 0;
        }
}

/* Half of the faults come at any time, half so many events after a rank has begun a save. */
void faults_plan(struct world *w)
{
    w->next_fault_ms =
            w->now_ms + 1 + world_roll(w, (uint32_t)(2 * w->opts.run_ms / w->opts.faults));
    w->fault_saves = world_roll(w, 2) ? w->count[WORLD_SAVE] + 1 + world_roll(w, 4 * w->ranks) : 0;
    w->fault_events = world_roll(w, 60 * w->opts.nodes);
}

static int fault_is_due(struct world *w)
{
    if (w->fault_saves && w->count[WORLD_SAVE] >= w->fault_saves) {
        w->fault_saves = 0;
        w->next_fault_ms = HTH_NEVER;
        w->fault_events += w->events;
        w->armed = 1;
    }
    return w->armed ? w->events >= w->fault_events : w->next_fault_ms <= w->now_ms;
}

static void fault(struct world *w)
{
    uint32_t die = world_roll(w, 10);

    w->armed = 0;
    faults_plan(w);
    if (die < 4)
        fault_loss(w);
    else if (die < 6)
        fault_kill(w);
    else if (die < 8)
        world_restart(w, 1 + world_roll(w, 500), "just so");
    else
        fault_stale(w);
}

/* ---- An engine that dies under ranks that recover, and is started again by them ----------------- */

/* Half of the launches have one: so many events after the first rank has asked to recover. Nothing
 * else goes wrong until all have recovered, so they have to. */
void faults_launched(struct world *w)
{
    w->back_ms[0] = w->back_ms[1] = HTH_NEVER;
    w->back_armed = 0;
    w->calm = 0;
    if (w->opts.back_node) {
        w->back_planned = w->quiet && !w->count[WORLD_BACK];
        w->back_events = w->opts.back_event;
    } else {
        w->back_planned = !w->quiet && w->opts.faults && world_roll(w, 2);
        w->back_events = world_roll(w, 40 * w->opts.nodes);
    }
    if (w->back_planned)
        w->calm = w->lineage;
}

static int all_recovered(const struct world *w)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (!w->rank[r].recovered)
            return 0;
    return 1;
}

/* None of its ranks has begun to save. */
static int is_in_recovery(const struct world *w, uint32_t m)
{
    for (uint32_t r = 0; r < w->ranks; r++) {
        const struct rank_state *s = &w->rank[r];

        if (s->machine == m && s->step != R_JOIN && s->step != R_RECOVER &&
                !(s->step == R_RUN && s->act_ms != HTH_NEVER))
            return 0;
    }
    return w->machine[m].node != NULL;
}

/* The coordinator's machine is one of the likelier. */
static uint32_t victim(struct world *w)
{
    uint32_t first = world_roll(w, 3) ? world_roll(w, w->opts.nodes) : 0;
    uint32_t m = w->opts.back_node ? w->member[w->opts.back_node - 1] : UINT32_MAX;

    if (w->opts.back_node)
        return is_in_recovery(w, m) ? m : UINT32_MAX;
    for (uint32_t i = 0; i < w->opts.nodes; i++) {
        m = w->member[(first + i) % w->opts.nodes];
        if (is_in_recovery(w, m))
            return m;
    }
    return UINT32_MAX;
}

static void back_kill(struct world *w, uint32_t m, int i)
{
    w->count[WORLD_BACK]++;
    world_say(w, "the engine of machine %u is killed under its ranks", m);
    machine_stop(w, m);
    w->back_machine[i] = m;
    w->back_ms[i] = w->now_ms + 1 + world_roll(w, 500);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m) {
            w->rank[r].act_ms = HTH_NEVER;
            w->rank[r].client = 0;
        }
}

/* One that dies with the first, or UINT32_MAX. */
static uint32_t second(struct world *w, uint32_t first)
{
    uint32_t m;

    if (w->opts.back_node && !w->opts.back_also)
        return UINT32_MAX;
    if (!w->opts.back_node && world_roll(w, 3))
        return UINT32_MAX;
    m = w->opts.back_also ? w->member[w->opts.back_also - 1]
                          : w->member[world_roll(w, w->opts.nodes)];
    return m != first && is_in_recovery(w, m) ? m : UINT32_MAX;
}

static void back_die(struct world *w)
{
    uint32_t m = victim(w), also;

    w->back_armed = 0;
    w->back_planned = 0;
    if (m == UINT32_MAX || all_recovered(w))
        return; /* it is over already */
    also = second(w, m);
    back_kill(w, m, 0);
    if (also != UINT32_MAX)
        back_kill(w, also, 1);
}

static void back_come(struct world *w, int i)
{
    w->back_ms[i] = HTH_NEVER;
    machine_start(w, w->back_machine[i]);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == w->back_machine[i] && !w->rank[r].client) {
            w->rank[r].client = ++w->next_client;
            w->rank[r].step = R_BACK;
            w->rank[r].act_ms = w->now_ms + world_roll(w, 20);
        }
}

int faults_keep(struct machine *m, struct hth_work *work)
{
    struct hth_work **at = &m->world->kept;

    if (!m->keep_next)
        return 0;
    m->keep_next = 0;
    while (*at)
        at = &(*at)->next;
    *at = work;
    return 1;
}

void world_let_go(struct world *w)
{
    struct hth_work *work;

    w->opts.hold_point = NULL;
    while ((work = w->kept)) {
        w->kept = work->next;
        (void)world_work_run(w, work);
        work->done(work);
    }
}

void faults_point(void *machine, const char *point)
{
    struct machine *m = machine;
    struct world *w = m->world;

    if (w->opts.hold_point && !strcmp(point, w->opts.hold_point))
        m->keep_next = 1;
    if (!w->back_planned || !w->opts.back_point || w->member[w->opts.back_node - 1] != m->index ||
            strcmp(point, w->opts.back_point) != 0)
        return;
    m->dying = 1;
    hth_store_mem_fail_at(
            m->store, strcmp(point, "running") == 0); /* it dies before it is written */
    w->back_armed = 1;
    w->back_events = w->events;
}

static void back_act(struct world *w)
{
    if (w->back_planned && !w->opts.back_point && w->restart_ms == HTH_NEVER && !w->back_armed) {
        for (uint32_t r = 0; r < w->ranks && !w->back_armed; r++)
            w->back_armed = w->rank[r].step == R_RECOVER;
        w->back_events += w->back_armed ? w->events : 0;
    }
    if (w->back_armed && w->events >= w->back_events)
        back_die(w);
    for (int i = 0; i < 2; i++)
        if (w->back_ms[i] <= w->now_ms && w->restart_ms == HTH_NEVER)
            back_come(w, i);
}

void faults_act(struct world *w)
{
    back_act(w);
    if (w->calm && w->restart_ms == HTH_NEVER && !all_recovered(w))
        return;
    w->calm = 0;
    if (!w->quiet && w->opts.faults && fault_is_due(w))
        fault(w);
}
