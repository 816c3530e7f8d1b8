/* SPDX-License-Identifier: Apache-2.0 */
/* A world of a seed's own. Each choice has dice of its own, so that one that is fixed moves no
 * other. */
#include "world.h"

enum choice {
    D_NODES,
    D_RANKS,
    D_COPIES,
    D_MIN_COPIES,
    D_KEEP,
    D_RACKS,
    D_DEGREE,
    D_DEAD,
    D_TIMES,
    D_DATA,
    D_WORK,
    D_ROOM,
    D_KINDS,
    D_SOME,
    D_PODS
};

static uint64_t dice_of(const struct world_opts *o, enum choice choice)
{
    return o->seed * 0x9e3779b97f4a7c15u + (uint64_t)choice * 0x2545f4914f6cdd1du;
}

static uint32_t between(uint64_t *dice, uint32_t low, uint32_t high)
{
    return high <= low ? low : low + (uint32_t)(hth_splitmix64(dice) % (high - low + 1));
}

/* Each doubling as often as the next. */
static uint32_t log_between(uint64_t *dice, uint32_t low, uint32_t high)
{
    uint32_t doublings = 0;

    while (low << (doublings + 1) <= high)
        doublings++;
    low <<= between(dice, 0, doublings);
    return between(dice, low, 2 * low - 1 < high ? 2 * low - 1 : high);
}

#define RANKS_LARGE 4u

static void draw_size(struct world_opts *o, uint32_t most)
{
    uint64_t d = dice_of(o, D_NODES);
    uint32_t few;

    most = o->large && most > RANKS_LARGE ? RANKS_LARGE : most;
    few = most < 8 ? most : 8;

    if (!o->nodes)
        o->nodes = log_between(&d, 2, between(&d, 0, 1) ? few : most);
    d = dice_of(o, D_RANKS);
    if (!o->ranks_per_node)
        o->ranks_per_node = log_between(&d, 1, o->large ? RANKS_LARGE / o->nodes : 8);
    d = dice_of(o, D_COPIES);
    if (!o->copies)
        o->copies = between(&d, 0, 2) ? 1 : between(&d, 1, 3);
    if (o->copies >= o->nodes)
        o->copies = o->nodes - 1;
    d = dice_of(o, D_MIN_COPIES);
    if (!o->min_copies)
        o->min_copies = between(&d, 1, o->copies);
    d = dice_of(o, D_KEEP);
    if (!o->keep)
        o->keep = between(&d, 0, 1) ? 1 : between(&d, 1, 3);
}

static void draw_shape(struct world_opts *o)
{
    uint64_t d = dice_of(o, D_RACKS);

    if (!o->racks && between(&d, 0, 1))
        o->racks = between(&d, o->min_copies + 1, o->nodes);
    d = dice_of(o, D_PODS);
    o->pods |= between(&d, 0, 1);
    if (o->breaks & WORLD_BREAK_PODS) {
        o->pods = 1;
        o->racks = between(&d, o->min_copies + 1, o->nodes - 1);
    }
    d = dice_of(o, D_DEGREE);
    if (!o->degree)
        o->degree = log_between(&d, 2, 32);
    d = dice_of(o, D_DATA);
    if (!o->data_max)
        o->data_max = between(&d, 0, 7) ? 3000 : log_between(&d, 64, 60000);
    if (o->nodes * o->ranks_per_node <= RANKS_LARGE && (between(&d, 0, 31) == 0 || o->large))
        o->data_max = 12u << 20; /* several chunks */
}

/* A save takes the longer to simulate, the more there is of it. */
static void draw_times(struct world_opts *o)
{
    uint32_t ranks = o->nodes * o->ranks_per_node;
    uint64_t d = dice_of(o, D_DEAD);

    if (!o->dead_ms)
        o->dead_ms = between(&d, 1500, 4000);
    if (!o->heartbeat_ms)
        o->heartbeat_ms = o->dead_ms / between(&d, 8, 12);
    d = dice_of(o, D_TIMES);
    if (!o->connect_ms)
        o->connect_ms = o->dead_ms / 2 + between(&d, 0, o->dead_ms);
    if (!o->save_ms)
        o->save_ms = between(&d, 3000, 6000);
    if (!o->recover_ms)
        o->recover_ms = between(&d, 12000, 20000);
    if (!o->every_ms)
        o->every_ms = ranks <= 16 ? 100 : ranks * 6;
    if (o->data_max > 1u << 20)
        o->every_ms = 1500;
    d = dice_of(o, D_WORK);
    if (!o->work_ms && between(&d, 0, 3) == 0)
        o->work_ms = between(&d, 1, 10);
}

/* With these a save may be recovered where nothing of it has its place, or copies move for good,
 * and what is owed is not enough (tests/sim/README.md). */
#define MOVES                                                                       \
    (WORLD_BIT(RENUMBER) | WORLD_BIT(SHRINK) | WORLD_BIT(GROW) | WORLD_BIT(APART) | \
            WORLD_BIT(GROUPS) | WORLD_BIT(MTU) | WORLD_BIT(OPTIONS))

static void draw_kinds(struct world_opts *o)
{
    uint64_t d = dice_of(o, D_KINDS);
    uint64_t kinds = 0;

    for (uint32_t i = 0; i < WORLD_KINDS_COUNT; i++)
        if (between(&d, 0, i == WORLD_KIND_NET ? 7 : 2))
            kinds |= UINT64_C(1) << i;
    if (o->kinds & kinds & ~WORLD_BIT(GOON))
        o->kinds &= kinds;
    d = dice_of(o, D_ROOM);
    if (o->kinds & WORLD_BIT(ROOM) && !o->room)
        o->room = log_between(&d, o->kinds & MOVES && !o->breaks ? 400 : 100, 1600);
    if (o->room) /* a node alone in a rack owes more than its part */
        o->racks = 0;
}

/* A rule that is left out has the worlds that it is for. */
static void draw_some(struct world_opts *o)
{
    uint64_t d = dice_of(o, D_SOME);

    o->some |= o->breaks ? (o->breaks & HTH_BREAK_SET_DONE) != 0 : between(&d, 0, 3) == 0;
}

void world_draw(struct world_opts *o, uint32_t most)
{
    draw_some(o);
    draw_size(o, most);
    draw_shape(o);
    draw_times(o);
    draw_kinds(o);
}
