/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `hearth upgrade` of an engine under its ranks: it is asked, chooses its moment, and when it hands
 * over the next engine is there at once. Where nothing else goes wrong in a world, no save fails by
 * that.
 */
#include "world_parts.h"

#include "engine/state/build.h"

#include <string.h>

#define COMMAND 0xfffe0000u /* a client that no rank is */
#define WAIT_MS 40000u      /* beyond what an engine waits for a recovery */

static int same_build(void *self, char *out, size_t size, struct hearth_error *err)
{
    struct hth_build build;
    char text[HTH_BUILD_TEXT];

    (void)self, (void)err;
    hth_build_this(&build);
    hth_build_print(&build, text);
    memcpy(out, text, size < sizeof(text) ? size : sizeof(text));
    return HEARTH_OK;
}

const struct hth_successor *upgrade_successor(void)
{
    static const struct hth_successor same = { .trial = same_build };

    return &same;
}

void upgrade_begin(struct world *w)
{
    struct hth_local_head m = { sizeof(m), HTH_LOCAL_UPGRADE, 1, 0 };
    struct machine *x = &w->machine[fault_machine(w)];

    if (w->upgrade.until_ms || !x->node)
        return;
    w->hits[WORLD_KIND_UPGRADE]++;
    w->upgrade.machine = x->index;
    w->upgrade.ends = x->ends;
    w->upgrade.until_ms = w->now_ms + WAIT_MS;
    world_say(w, "machine %u: its engine is asked to hand over", x->index);
    machine_ask(x, COMMAND, &m, sizeof(m), NULL, 0);
}

static void upgrade_hand_over(struct world *w, uint32_t m)
{
    world_say(w, "the engine of machine %u hands over", m);
    machine_kill(w, m);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m)
            rank_leave(&w->rank[r]);
    world_come(w, m);
}

void upgrade_act(struct world *w)
{
    struct machine *x = &w->machine[w->upgrade.machine];

    if (!w->upgrade.until_ms)
        return;
    if (!x->node || x->ends != w->upgrade.ends || w->now_ms > w->upgrade.until_ms) {
        w->upgrade.until_ms = 0;
        return;
    }
    if (!hth_node_hands_over(x->node))
        return;
    w->upgrade.until_ms = 0;
    w->upgrade.done++;
    upgrade_hand_over(w, x->index);
}

int upgrade_alone(const struct world *w)
{
    return fault_is_on(w, WORLD_KIND_UPGRADE) &&
           !(w->opts.kinds & ~(WORLD_BIT(UPGRADE) | WORLD_BIT(GOON)));
}

void upgrade_judge(struct world *w, uint32_t rank, const char *why)
{
    if (w->upgrade.done && upgrade_alone(w) && !w->opts.some)
        world_broken(w, "P4: a save of rank %u failed by an upgrade: %s", rank, why);
}
