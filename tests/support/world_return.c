/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Machines that are replaced, and come back with their older memory when their replacements are
 * lost: what was saved meanwhile is beyond redundancy, and recovery goes back to the save before,
 * which other members know to be outdated.
 *
 *     replaced, one after the other; no rank saves ─► ranks save ─► PROTECTED ─► replacements lost
 *
 * Other faults go on meanwhile. Where one of them uses a machine of these otherwise it is given up.
 */
#include "world_parts.h"

#define LOOK_MS 50u

void returns_end(struct world *w)
{
    w->back.count = w->back.pauses = 0;
    w->back.next_ms = HTH_NEVER;
}

static uint32_t node_of(const struct world *w, uint32_t m)
{
    uint32_t i = 0;

    while (i < w->opts.nodes && w->member[i] != m)
        i++;
    return i; /* opts.nodes: none */
}

int returns_keep(const struct world *w, uint32_t m)
{
    for (uint32_t i = 0; i < w->back.done; i++)
        if (w->back.count && w->back.old[i] == m)
            return 1;
    return 0;
}

void returns_begin(struct world *w)
{
    uint32_t count = 1 + w->opts.copies;

    if (w->back.count || count > RETURNS || count + w->opts.nodes > w->machines ||
            w->opts.nodes <= count || w->stale_machine != UINT32_MAX || w->beyond)
        return;
    w->back.count = count;
    w->back.done = 0;
    w->back.first = fault_roll(w, w->opts.nodes);
    w->back.pauses = 1;
    w->back.next_ms = w->now_ms + 1;
}

/* All ranks run, a save is PROTECTED, none is lost beyond redundancy, and no machine was replaced
 * alive. */
static int is_well(const struct world *w)
{
    return w->recovered == w->ranks && w->restart_ms == HTH_NEVER && !w->beyond && !w->gone &&
           !hth_save_none(w->newest.id) && w->stale_machine == UINT32_MAX &&
           w->opts.nodes > w->back.count;
}

/* Replaces the next machine of the row; its memory stays as it is. */
static void put_aside(struct world *w)
{
    uint32_t node = (w->back.first + w->back.done) % w->opts.nodes, old = w->member[node];

    if (w->back.done && !look_same(w->newest.id, w->back.before.id)) {
        returns_end(w); /* saved meanwhile: there is nothing to come back to */
        return;
    }
    if (!w->machine[old].node || !fault_may_lose(w, 1))
        return;
    w->back.before = w->newest;
    w->back.old[w->back.done++] = old;
    world_say(w, "machine %u (node %u) is put aside with its memory", old, node);
    fault_replace(w, node);
    w->back.fresh[w->back.done - 1] = w->member[node];
    if (w->member[node] == old)
        returns_end(w);
    w->back.pauses = w->back.count && w->back.done < w->back.count;
}

/* 1: each replacement is still the member that it replaced, and no fault has used the machines that
 * were put aside. A replacement may be lost since and stand for another node. */
static int are_there(const struct world *w)
{
    for (uint32_t i = 0; i < w->back.count; i++)
        if (node_of(w, w->back.fresh[i]) != (w->back.first + i) % w->opts.nodes ||
                node_of(w, w->back.old[i]) < w->opts.nodes || !w->machine[w->back.old[i]].store)
            return 0;
    return 1;
}

static void come_back(struct world *w)
{
    w->hits[WORLD_KIND_RETURN]++;
    w->hurt = w->back.count;
    w->hurt_ms = w->now_ms;
    for (uint32_t i = 0; i < w->back.count; i++) {
        uint32_t m = w->back.fresh[i], node = node_of(w, m);

        w->count[WORLD_LOSS]++;
        world_say(w, "machine %u (node %u) is LOST, machine %u is back", m, node, w->back.old[i]);
        fault_ranks_kill(w, m);
        machine_lose(w, m);
        w->member[node] = w->back.old[i];
    }
    check_gone(w, w->back.before);
    world_restart(w, 1 + fault_roll(w, 1500), "machines lost, and others back");
    returns_end(w);
}

void returns_act(struct world *w)
{
    if (w->now_ms < w->back.next_ms)
        return;
    if (w->quiet) {
        returns_end(w);
        return;
    }
    w->back.next_ms = w->now_ms + LOOK_MS;
    if (w->calm || !is_well(w))
        return;
    if (w->back.done < w->back.count)
        put_aside(w);
    else if (!are_there(w))
        returns_end(w);
    else if (!look_same(w->newest.id, w->back.before.id) && !w->hurt)
        come_back(w);
    else if (w->hurt && fault_may_lose(w, 1)) /* the replacements have their copies */
        w->hurt = 0;
}
