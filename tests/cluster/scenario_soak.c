/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A world rolled from a seed: machines, ranks, copies, sizes; then rounds of what may happen to it, never
 * more at once than its copies are for. After each: the newest step that was PROTECTED is there, bit for
 * bit, its copies come back, and the job saves on.
 */
#include "cluster.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#define ROUNDS 6u

struct dice {
    uint64_t state;
};

/* SplitMix64 (Steele, Lea, Flood 2014); 0 to sides - 1. */
static uint32_t dice_roll(struct dice *d, uint32_t sides)
{
    uint64_t z = d->state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t)((z ^ (z >> 31)) % sides);
}

/* Different machines, as many as may be lost at once. */
static uint32_t dice_machines(struct dice *d, const struct world *w, uint32_t out[NODES_MAX])
{
    uint32_t n = 1 + dice_roll(d, w->copies), first = dice_roll(d, w->nodes);

    for (uint32_t i = 0; i < n; i++)
        out[i] = (first + i * (1 + dice_roll(d, 2))) % w->nodes;
    if (n == 2 && out[0] == out[1])
        n = 1;
    return n;
}

static int lose_machines(struct world *w, struct dice *d)
{
    uint32_t at[NODES_MAX], n = dice_machines(d, w, at);

    for (uint32_t i = 0; i < n; i++)
        TRY(node_kill(w, at[i]));
    for (uint32_t i = 0; i < n; i++)
        TRY(node_up(w, at[i]));
    return 0;
}

/* Their memory stays. */
static int kill_engines(struct world *w, struct dice *d)
{
    for (uint32_t k = 0; k < w->nodes; k++)
        if (dice_roll(d, 2) && node_engine(w, k))
            TRY(node_engine_signal(w, k, SIGKILL));
    return 0;
}

static int lose_ranks(struct world *w, struct dice *d)
{
    (void)d;
    world_stop(w);
    return 0;
}

static int lose_all_processes(struct world *w, struct dice *d)
{
    (void)d;
    world_stop(w);
    for (uint32_t k = 0; k < w->nodes; k++)
        if (node_engine(w, k))
            TRY(node_engine_signal(w, k, SIGKILL));
    return 0;
}

static int damage_an_object(struct world *w, struct dice *d)
{
    struct object o;
    uint32_t owner = dice_roll(d, w->ranks);

    world_stop(w);
    if (!w->protected || object_find(w, dice_roll(d, w->nodes), w->protected, owner, &o))
        return 0; /* it is not on that machine */
    return file_flip(w, o.path, 4096 + dice_roll(d, (uint32_t)o.data_len));
}

/* Shorter than what makes a node lost. */
static int hold_an_engine(struct world *w, struct dice *d)
{
    uint32_t k = dice_roll(d, w->nodes);

    if (!node_engine(w, k))
        return 0;
    TRY(node_engine_signal(w, k, SIGSTOP));
    nap_ms(100 + dice_roll(d, 500));
    return node_engine_signal(w, k, SIGCONT);
}

static int (*const happens[])(struct world *, struct dice *) = { lose_machines, kill_engines,
    lose_ranks, lose_all_processes, damage_an_object, hold_an_engine };

/* In the middle of a save, or between two. */
static int round_of(struct world *w, struct dice *d)
{
    uint32_t what = dice_roll(d, sizeof(happens) / sizeof(happens[0]));

    w->why[0] = '\0';
    if (dice_roll(d, 2)) {
        TRY(world_save_begin(w, w->newest + 1));
        nap_ms(dice_roll(d, 120));
    }
    TRY(happens[what](w, d));
    TRY(world_restart(w, STEP_ANY));
    if (w->got)
        TRY(world_protected(w));
    for (uint32_t more = 1 + dice_roll(d, 3); more > 0; more--)
        TRY(world_save(w, w->newest + 1));
    return 0;
}

static int soak(struct world *w, const char *seed)
{
    struct dice d = { strtoull(seed, NULL, 10) };
    uint32_t nodes = 2 + dice_roll(&d, 5), per_node = 1 + dice_roll(&d, 2);

    w->copies = nodes > 2 ? 1 + dice_roll(&d, 2) : 1;
    w->keep = 1 + dice_roll(&d, 2);
    w->kib = 1u << dice_roll(&d, 12);
    w->common_kib = dice_roll(&d, 3) ? 0 : 1u << dice_roll(&d, 11);
    w->loses_engines = 1;
    note(w, "seed %s: %u machines of %u ranks, %u copies, keep %u, %u KiB", seed, nodes, per_node,
            w->copies, w->keep, w->kib);
    TRY(world_begin(w, nodes, per_node, 1 + dice_roll(&d, 2)));
    for (uint32_t i = 0; i < ROUNDS; i++)
        TRY(round_of(w, &d));
    return 0;
}

int soak_world(struct scenario *s, uint64_t seed)
{
    static char names[SOAK_MAX][32];
    static size_t count;

    if (count == SOAK_MAX)
        return -1;
    snprintf(names[count], sizeof(names[0]), "soak-%lu", (unsigned long)seed);
    *s = (struct scenario){ names[count], soak, names[count] + 5 };
    count++;
    return 0;
}
