/* SPDX-License-Identifier: Apache-2.0 */
#include "script.h"
#include "world_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_MS 1000000000u
#define SMALL   7u /* nodes of a world that is looked at all the time */

/* From the next save on, no rank begins one. */
static void rest(struct world *w)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].step == R_RUN)
            rank_due(&w->rank[r], HTH_NEVER);
}

static int all_rest(const struct world *w)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].step != R_RUN || w->rank[r].act_ms != HTH_NEVER)
            return 0;
    return 1;
}

/* A millisecond at a time, so that a rank that comes to rest stays there. */
static int run_to_rest(struct world *w, uint64_t ms)
{
    uint64_t until_ms = w->now_ms + ms;

    for (rest(w); !all_rest(w) && !w->why[0] && w->now_ms < until_ms; rest(w))
        world_advance(w, w->now_ms + 1);
    return all_rest(w);
}

void script_open(struct world *w, const struct world_opts *opts)
{
    struct world_opts o = *opts;

    o.faults = 0;
    o.run_ms = LONG_MS;
    o.data_max = o.data_max ? o.data_max : 500;
    o.keep = o.keep ? o.keep : 1;
    world_open(w, &o);
    world_advance(w, 1);
    script_rest(w);
}

void script_rest(struct world *w)
{
    if (!run_to_rest(w, w->opts.recover_ms + 8000))
        world_broken(w, "the job has not recovered");
}

/* No memory is ever lost here, so at every instant a save that is PROTECTED has as many copies as
 * that requires. */
void script_run(struct world *w, uint64_t ms)
{
    uint64_t until_ms = w->now_ms + ms;

    while (w->now_ms < until_ms && !w->why[0]) {
        world_advance(w, w->opts.nodes > SMALL ? until_ms : w->now_ms + 1);
        if (w->opts.nodes <= SMALL && !hth_save_none(w->newest.id) &&
                script_copies(w) < 1 + w->opts.min_copies)
            world_broken(
                    w, "an object of the newest PROTECTED step is on %u nodes", script_copies(w));
    }
}

void script_go(struct world *w)
{
    uint64_t step = 0;

    for (uint32_t r = 0; r < w->ranks; r++)
        step = w->rank[r].next > step ? w->rank[r].next : step;
    for (uint32_t r = 0; r < w->ranks; r++) {
        w->rank[r].next = step;
        rank_due(&w->rank[r], w->now_ms + 1);
    }
}

/* All ranks save the same step. No rank was saving before, so a rank that was away has missed no
 * save. */
static int save_once(struct world *w, uint64_t each_ms)
{
    struct hth_save_id before = w->newest.id;
    uint64_t step;

    script_go(w);
    step = w->rank[0].next;
    world_advance(w, w->now_ms + 3);
    return run_to_rest(w, each_ms) && hth_save_cmp(w->newest.id, before) > 0 &&
           w->newest.id.step == step;
}

int script_save(struct world *w, uint32_t saves, uint64_t each_ms)
{
    while (saves-- && !w->why[0])
        if (!save_once(w, each_ms))
            return 0;
    return !w->why[0];
}

void script_silence(struct world *w, uint32_t node, int silent)
{
    world_say(w, "node %u is %s", node, silent ? "silent" : "back");
    hth_loop_net_silence(w->net, w->machine[w->member[node]].port, silent);
}

void script_silent(struct world *w, uint32_t node, uint64_t ms)
{
    script_silence(w, node, 1);
    script_run(w, ms);
    script_silence(w, node, 0);
}

void script_kill(struct world *w, uint32_t node)
{
    uint32_t m = w->member[node];

    world_say(w, "the engine of node %u is killed under its ranks", node);
    machine_kill(w, m);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m) {
            rank_due(&w->rank[r], HTH_NEVER);
            w->rank[r].client = 0;
        }
}

void script_start(struct world *w, uint32_t node)
{
    uint32_t m = w->member[node];

    machine_start(w, m);
    for (uint32_t r = 0; r < w->ranks; r++)
        if (w->rank[r].machine == m) {
            rank_connect(&w->rank[r]);
            w->rank[r].step = R_BACK;
            rank_due(&w->rank[r], w->now_ms + 1);
        }
    if (!run_to_rest(w, 20000))
        world_broken(w, "the ranks of node %u do not find their engine again", node);
}

void script_again(struct world *w, uint32_t node)
{
    script_kill(w, node);
    script_run(w, 50);
    script_start(w, node);
}

/* ---- What is there
 * -------------------------------------------------------------------------------- */

struct count {
    struct hth_save_id save; /* epoch 0: any */
    uint32_t objects;
    uint32_t *of; /* [ranks] NULL: not asked */
    uint32_t ranks;
};

static void on_found(void *arg, const struct hth_store_found *f)
{
    struct count *c = arg;
    struct hth_block b;

    if (f->tmp || !f->slot || (c->save.epoch && hth_save_cmp(f->save, c->save) != 0) ||
            hth_block_decode(&b, f->slot->base, HTH_BLOCK, f->slot->capacity, NULL) || !b.own)
        return;
    c->objects++;
    if (c->of && b.owner < c->ranks)
        c->of[b.owner]++;
}

uint32_t script_objects(struct world *w, uint32_t node, struct hth_save_id save)
{
    struct count c = { .save = save };

    if (w->machine[w->member[node]].store)
        hth_store_mem_each(w->machine[w->member[node]].store, on_found, &c);
    return c.objects;
}

uint32_t script_all_objects(struct world *w, uint32_t node)
{
    return script_objects(w, node, (struct hth_save_id){ 0 });
}

uint32_t script_slots(struct world *w, uint32_t node)
{
    struct hth_store *s = w->machine[w->member[node]].store;
    uint32_t slots = 0;

    for (const struct slot *slot = s ? mem_of(s)->slots : NULL; slot; slot = slot->next)
        slots++;
    return slots;
}

uint32_t script_copies(struct world *w)
{
    uint32_t *of = calloc(w->ranks, sizeof(*of));
    struct count c = { .save = w->newest.id, .of = of, .ranks = w->ranks };
    uint32_t least = UINT32_MAX;

    if (!of)
        abort();
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (w->machine[w->member[i]].store)
            hth_store_mem_each(w->machine[w->member[i]].store, on_found, &c);
    for (uint32_t r = 0; r < w->ranks; r++)
        least = of[r] < least ? of[r] : least;
    free(of);
    return least;
}
