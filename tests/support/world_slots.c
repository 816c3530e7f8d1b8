/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank's process has which slots mapped, and by which open file; and the judge of it: no slot
 * has two writers.
 *
 *     LENT ─► mapped ─► written, SEAL ─► idle ─► unmapped: before the process attaches again, or at LET_GO
 *               └─ cut off: the engine notices it, and the process writes on for a time
 */
#include "world_parts.h"

#include <string.h>

struct slot *slots_find(const struct machine *x, uint64_t id)
{
    struct slot *s = x->store ? mem_of(x->store)->slots : NULL;

    while (s && s->pub.id != id)
        s = s->next;
    return s;
}

void slots_map(struct rank_state *r, uint64_t slot)
{
    struct hth_store *store = r->world->machine[r->machine].store;
    uint32_t i = 0;

    while (i < r->maps && r->map[i].slot != slot)
        i++;
    if (i == RANK_MAPS) {
        memmove(r->map, r->map + 1, (RANK_MAPS - 1) * sizeof(r->map[0]));
        i = RANK_MAPS - 1;
    }
    r->map[i].slot = slot;
    r->map[i].opened = hth_store_mem_opened(store, slot);
    r->maps = i < r->maps ? r->maps : i + 1;
}

void slots_unmap(struct rank_state *r, uint64_t slot)
{
    for (uint32_t i = 0; i < r->maps; i++)
        if (r->map[i].slot == slot && r->writes != slot)
            r->map[i] = r->map[--r->maps];
}

void slots_unmap_all(struct rank_state *r)
{
    if (!(r->world->opts.breaks & WORLD_BREAK_MAPS))
        r->maps = 0;
}

static int has_open(const struct rank_state *r, uint32_t m, uint64_t slot, uint64_t opened)
{
    for (uint32_t i = 0; r->machine == m && i < r->maps; i++)
        if (r->map[i].slot == slot && r->map[i].opened != opened)
            return 1;
    return 0;
}

/* The ranks of a machine follow each other; those of a machine that was replaced alive are
 * apart. */
int slots_elsewhere(void *machine, uint64_t slot, uint64_t opened)
{
    const struct machine *x = machine;
    const struct world *w = x->world;

    const struct rank_state *here = x->first_rank < w->ranks_max ? &w->rank[x->first_rank] : NULL;

    for (uint32_t i = 0; i < w->opts.ranks_per_node; i++)
        if ((here && has_open(&here[i], x->index, slot, opened)) ||
                has_open(&w->stale[i], x->index, slot, opened))
            return 1;
    return reads_elsewhere(x, slot);
}

static void two_writers(struct world *w, const struct rank_state *r, const char *what)
{
    world_broken(w, "P7: machine %u %s slot %llu, into which rank %u still writes", r->machine,
            what, (unsigned long long)r->writes, r->rank);
}

static void judge_lent(const struct rank_state *r, uint32_t m, uint32_t client, uint64_t slot)
{
    if (r->machine == m && r->writes == slot && r->client != client)
        two_writers(r->world, r, "lends");
}

void check_writers(struct machine *x, uint32_t client, uint64_t slot)
{
    struct world *w = x->world;
    const struct rank_state *here = x->first_rank < w->ranks_max ? &w->rank[x->first_rank] : NULL;

    for (uint32_t i = 0; i < w->opts.ranks_per_node; i++) {
        if (here)
            judge_lent(&here[i], x->index, client, slot);
        judge_lent(&w->stale[i], x->index, client, slot);
    }
    reads_lent(x, slot);
}

void slots_cut(struct rank_state *r, uint64_t slot)
{
    struct world *w = r->world;
    uint32_t client = r->client;

    w->count[WORLD_CUT]++;
    world_say(w, "rank %u is cut off from its engine, and writes on into slot %llu", r->rank,
            (unsigned long long)slot);
    r->writes = slot;
    r->client = 0;
    r->step = R_CUT;
    r->follows = 0;
    rank_due(r, w->now_ms + ill_cut_ms(w));
    machine_ask(&w->machine[r->machine], client, NULL, 0, NULL, 0);
}

/* The process ends its writing. If an engine has begun to use the slot for another object, there
 * were two writers. */
void slots_end(struct rank_state *r)
{
    struct world *w = r->world;
    struct slot *s = slots_find(&w->machine[r->machine], r->writes);

    if (s && s->state != GIVEN)
        two_writers(w, r, "uses");
    if (s)
        memset(s->pub.base, 0xee, s->pub.capacity);
    r->writes = 0;
}
