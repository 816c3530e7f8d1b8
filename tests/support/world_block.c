/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine's thread that is blocked in the middle of its work: by a page that is made, a lock, a
 * slow call. From one reading of its clock to the next its time jumps; the rest of that work is
 * done and sent as of then. Until then its messages and requests queue, its workers go on, and
 * network cards serve pulls of its memory.
 */
#include "world_parts.h"

static const struct machine *running; /* as w->runs: hth_session_opts.busy_ms has no argument */

void machine_enter(struct machine *x)
{
    machine_watch(x, 1, 0);
    x->world->runs = x;
    running = x;
}

void machine_leave(struct machine *x)
{
    x->world->runs = NULL;
    running = NULL;
    machine_watch(x, 0, 0);
    if (x->ahead_ms && x->node && !x->stopped)
        machine_still(x, 1, 1);
}

static void block_begin(struct machine *x)
{
    struct world *w = x->world;

    x->block_at = 0;
    if (x->block_until_ms <= w->now_ms || x->stopped)
        return;
    x->ahead_ms = x->block_until_ms - w->now_ms;
    x->busy_ms += x->block_busy ? x->ahead_ms * x->rate / 1000 : 0;
    w->hits[WORLD_KIND_BLOCK]++;
    world_say(w, "machine %u: its engine's thread is blocked for %llu ms%s", x->index,
            (unsigned long long)x->ahead_ms, x->block_busy ? ", and uses the processor" : "");
}

uint64_t block_clock_ms(struct machine *x, uint64_t its_ms)
{
    if (x->world->runs == x && !x->world->working && x->block_at && --x->block_at == 0)
        block_begin(x);
    return its_ms + x->ahead_ms * x->rate / 1000;
}

uint64_t block_used_ms(void)
{
    return running ? running->busy_ms : 0;
}

uint32_t block_delay_ms(const struct world *w, uint32_t port)
{
    return w->runs && w->runs->port == port ? (uint32_t)w->runs->ahead_ms : 0;
}

void block_forget(struct machine *x)
{
    x->block_at = 0;
    x->ahead_ms = 0;
}

void world_block(struct world *w, uint32_t m, uint32_t at, uint64_t until_ms, int busy)
{
    struct machine *x = &w->machine[m];

    x->block_at = at;
    x->block_until_ms = until_ms;
    x->block_busy = busy;
}

void world_unblock(struct world *w, uint32_t m)
{
    struct machine *x = &w->machine[m];

    if (w->now_ms < x->block_until_ms)
        return; /* of an engine before this one */
    block_forget(x);
    if (x->blocked)
        machine_still(x, 0, 0);
}
