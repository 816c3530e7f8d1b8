/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The faults that last for a time: each has its end, below dead_ms or well above. Some last so long
 * that some nodes notice them and others do not.
 */
#include "replication/tree/tree.h"
#include "world_parts.h"

#include <stdlib.h>

int ill_is_for_hours(const struct world *w)
{
    return w->now_ms < w->hours_until_ms && !w->quiet;
}

int ill_any(const struct world *w)
{
    for (uint32_t i = 0; i < WORLD_ILLS; i++)
        if (w->ill[i].until_ms)
            return 1;
    return 0;
}

static uint32_t ill_hours_left_ms(const struct world *w)
{
    return (uint32_t)(w->hours_until_ms - w->now_ms);
}

uint32_t ill_cut_ms(struct world *w)
{
    return 1 + world_roll(w, ill_is_for_hours(w) ? ill_hours_left_ms(w) : 2 * w->opts.dead_ms);
}

/* Heartbeats go on meanwhile, so jobs that are large have minutes only. */
void ill_hours(struct world *w)
{
    static const uint8_t long_ones[] = { WORLD_KIND_STOP, WORLD_KIND_SILENCE, WORLD_KIND_PAIR,
        WORLD_KIND_ONEWAY, WORLD_KIND_PARTITION, WORLD_KIND_FLAP, WORLD_KIND_CRASH };
    uint32_t doublings = w->opts.nodes > 6 ? 4 : 8;
    uint64_t for_ms = (UINT64_C(45000) << fault_roll(w, doublings)) + fault_roll(w, 30000);
    enum world_kind kind = long_ones[fault_roll(w, sizeof(long_ones))];

    if (ill_is_for_hours(w) || w->hours_ms || w->opts.nodes > 16)
        return;
    w->hits[WORLD_KIND_HOURS]++;
    w->hours_until_ms = w->now_ms + for_ms;
    w->hours_every_ms = 1000 + for_ms / (2 + fault_roll(w, 10));
    w->hours_ms = for_ms;
    w->rest_ms += for_ms;
    world_say(w, "for %llu s few saves are begun", (unsigned long long)for_ms / 1000);
    if (fault_is_on(w, kind))
        ill_begin(w, kind);
}

/* A third each: hardly to be noticed, about as long as it takes to be noticed, long. */
static uint32_t ill_lasts_ms(struct world *w, enum world_kind kind)
{
    uint32_t dead = w->opts.dead_ms, die = fault_roll(w, 3);

    /* A coordinator that cannot write decides nothing, for as long as that is. */
    if (ill_is_for_hours(w) && kind != WORLD_KIND_WRITE)
        return 1 + fault_roll(w, ill_hours_left_ms(w));
    if (die == 0)
        return 1 + fault_roll(w, dead / 2);
    return die == 1 ? dead / 2 + fault_roll(w, dead) : dead + fault_roll(w, 3 * dead);
}

static struct world_ill *ill_new(struct world *w, enum world_kind kind)
{
    for (uint32_t i = 0; i < WORLD_ILLS; i++)
        if (!w->ill[i].until_ms) {
            w->ill[i] = (struct world_ill){ .kind = kind,
                .until_ms = w->now_ms + ill_lasts_ms(w, kind),
                .a = fault_machine(w),
                .b = w->member[fault_roll(w, w->opts.nodes)] };
            return &w->ill[i];
        }
    return NULL;
}

/* Messages between the two sides are lost. */
static void ill_part(struct world *w, const struct world_ill *l, int on)
{
    for (uint32_t a = 0; a < w->machines; a++)
        for (uint32_t b = 0; b < w->machines; b++)
            if (l->part[a] != l->part[b])
                world_mute(w, a, b, on);
}

static int ill_begin_part(struct world *w, struct world_ill *l)
{
    uint32_t some = 1 + fault_roll(w, w->opts.nodes / 2);

    l->part = calloc(w->machines, 1);
    if (!l->part)
        abort();
    for (uint32_t i = 0; i < some; i++)
        l->part[w->member[fault_roll(w, w->opts.nodes)]] = 1;
    ill_part(w, l, 1);
    return 1;
}

/* Until the job is restarted, also when no fault comes any more. */
static int ill_lasts(const struct world_ill *l)
{
    return l->until_ms && (l->kind == WORLD_KIND_APART || l->kind == WORLD_KIND_GROUPS ||
                                  l->kind == WORLD_KIND_MTU);
}

int ill_any_lasts(const struct world *w)
{
    for (uint32_t i = 0; i < WORLD_ILLS; i++)
        if (ill_lasts(&w->ill[i]))
            return 1;
    return 0;
}

static uint32_t ills_of(const struct world *w, enum world_kind kind)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < WORLD_ILLS; i++)
        n += w->ill[i].until_ms && w->ill[i].kind == kind;
    return n;
}

/* A block's end has been seen on the clock of its engine. */
static int ill_has_its_time(const struct world_ill *l)
{
    return ill_lasts(l) || l->kind == WORLD_KIND_BLOCK;
}

/* A node that pulls neither from the coordinator nor from others has no way left to any bytes. */
static int is_first_mtu(const struct world *w, const struct world_ill *l)
{
    return l->until_ms && l->kind == WORLD_KIND_MTU &&
           (l->a == w->member[0] || l->b == w->member[0]);
}

static int ills_with_first(const struct world *w)
{
    for (uint32_t i = 0; i < WORLD_ILLS; i++)
        if (is_first_mtu(w, &w->ill[i]))
            return 1;
    return 0;
}

static void ill_apart(struct world *w, const struct world_ill *l, int on)
{
    world_mute(w, l->a, l->b, on);
    if (l->times == 2)
        world_mute(w, l->b, l->a, on);
}

/* Both sides are some of the nodes; the others receive messages from all. */
static void ill_groups(struct world *w, const struct world_ill *l, int on)
{
    for (uint32_t a = 0; a < w->machines; a++)
        for (uint32_t b = 0; b < w->machines && l->part[a]; b++)
            if (l->part[b] && l->part[a] != l->part[b])
                world_mute(w, a, b, on);
}

/* At most three nodes a side, and none of them the coordinator, which calls a node lost that it
 * cannot reach. */
static int ill_begin_groups(struct world *w, struct world_ill *l)
{
    uint32_t nodes = w->opts.nodes, sides[2] = { 1 + fault_roll(w, 3), 1 + fault_roll(w, 3) };

    if (nodes < 4 || w->restart_ms != HTH_NEVER || ills_of(w, WORLD_KIND_GROUPS) > 2 ||
            ills_with_first(w))
        return 0;
    l->part = calloc(w->machines, 1);
    if (!l->part)
        abort();
    for (uint8_t side = 0; side < 2; side++)
        for (uint32_t i = 0; i < sides[side]; i++)
            l->part[w->member[1 + fault_roll(w, nodes - 1)]] = (uint8_t)(side + 1);
    l->until_ms = HTH_NEVER - 1;
    ill_groups(w, l, 1);
    return 1;
}

/* Small transfers pass: messages, and pulls of at most 1,000 bytes (world_net.c). */
static int ill_begin_mtu(struct world *w, struct world_ill *l)
{
    uint32_t nodes = w->opts.nodes, a, b;

    if (nodes < 4 || w->restart_ms != HTH_NEVER || ills_of(w, WORLD_KIND_MTU) > 1)
        return 0;
    a = fault_roll(w, nodes);
    b = fault_roll(w, nodes - 1);
    l->a = w->member[a];
    l->b = w->member[b + (b >= a)];
    l->times = 1 + fault_roll(w, 2);
    l->until_ms = HTH_NEVER - 1;
    return !is_first_mtu(w, l) || !(ills_of(w, WORLD_KIND_APART) || ills_of(w, WORLD_KIND_GROUPS));
}

int ill_stalls(const struct world *w, uint32_t puller, uint32_t owner)
{
    for (uint32_t i = 0; i < WORLD_ILLS; i++) {
        const struct world_ill *l = &w->ill[i];

        if (l->until_ms && l->kind == WORLD_KIND_MTU &&
                ((l->a == puller && l->b == owner) ||
                        (l->times == 2 && l->b == puller && l->a == owner)))
            return 1;
    }
    return 0;
}

/* The coordinator calls a child in the tree lost that it cannot reach, so if it is one of the two
 * the other is further down. One pair at a time. */
static int ill_begin_apart(struct world *w, struct world_ill *l)
{
    uint32_t nodes = w->opts.nodes, degree = w->opts.degree ? w->opts.degree : HTH_TREE_DEGREE, a,
             b;

    if (ills_of(w, WORLD_KIND_APART) > 1 || ills_with_first(w))
        return 0;
    if (nodes < 3 || w->restart_ms != HTH_NEVER)
        return 0;
    a = 1 + fault_roll(w, nodes - 1);
    b = 1 + fault_roll(w, nodes - 2);
    b += b >= a;
    if (nodes > degree + 1 && !fault_roll(w, 4)) {
        a = 0;
        b = degree + 1 + fault_roll(w, nodes - degree - 1);
    }
    l->times = 1 + fault_roll(w, 4);
    l->a = w->member[l->times > 2 ? b : a];
    l->b = w->member[l->times > 2 ? a : b];
    l->times = 1 + l->times % 2;
    l->until_ms = HTH_NEVER - 1;
    ill_apart(w, l, 1);
    return 1;
}

static int ill_begin_flap(struct world *w, struct world_ill *l)
{
    l->times = 2 * (2 + fault_roll(w, 6));
    l->on_ms = w->opts.dead_ms / 2 + fault_roll(w, w->opts.dead_ms);
    l->off_ms = 1 + fault_roll(w, w->opts.dead_ms);
    if (ill_is_for_hours(w))
        l->off_ms = 1 + fault_roll(w, 2 * ill_hours_left_ms(w) / l->times);
    l->until_ms = w->now_ms + l->on_ms;
    world_silence(w, l->a, 1);
    return 1;
}

static int ill_begin_room(struct world *w, struct world_ill *l)
{
    struct hth_store *s = w->machine[l->a].store;

    if (!s || !world_room(w))
        return 0;
    l->bytes = 1 + world_room(w) / 100 * fault_roll(w, 100);
    hth_store_mem_room(s, l->bytes < world_room(w) ? world_room(w) - l->bytes : 1);
    return 1;
}

static int ill_begin_crash(struct world *w, struct world_ill *l)
{
    world_crash(w, l->a);
    if (w->machine[l->a].node)
        return 0;
    l->until_ms = w->now_ms + 1 + fault_roll(w, 3 * w->opts.dead_ms / 2);
    return 1;
}

static int ill_begins(struct world *w, struct world_ill *l)
{
    struct machine *x = &w->machine[l->a];

    switch ((int)l->kind) {
    case WORLD_KIND_STOP:
        if (!x->node || x->stopped)
            return 0;
        world_stop(w, l->a, 1);
        return 1;
    case WORLD_KIND_BLOCK:
        if (!x->node || x->stopped || x->block_at)
            return 0;
        world_block(w, l->a, 1 + fault_roll(w, 20), l->until_ms, (int)fault_roll(w, 2));
        return 1;
    case WORLD_KIND_SILENCE:
        world_silence(w, l->a, 1);
        return 1;
    case WORLD_KIND_PAIR:
        world_mute(w, l->b, l->a, 1);
        world_mute(w, l->a, l->b, 1);
        return l->a != l->b;
    case WORLD_KIND_ONEWAY:
        world_mute(w, l->a, l->b, 1);
        return l->a != l->b;
    case WORLD_KIND_PARTITION:
        return ill_begin_part(w, l);
    case WORLD_KIND_APART:
        return ill_begin_apart(w, l);
    case WORLD_KIND_GROUPS:
        return ill_begin_groups(w, l);
    case WORLD_KIND_MTU:
        return ill_begin_mtu(w, l);
    case WORLD_KIND_FLAP:
        return ill_begin_flap(w, l);
    case WORLD_KIND_CRASH:
        return ill_begin_crash(w, l);
    case WORLD_KIND_ROOM:
        return ill_begin_room(w, l);
    case WORLD_KIND_WRITE:
        if (x->store)
            hth_store_mem_no_records(x->store, 1);
        said_changed(x);
        return x->store != NULL;
    case WORLD_KIND_SLOW:
        x->slow_ms = 1 + fault_roll(w, w->opts.dead_ms);
        return 1;
    default:
        return 0;
    }
}

void ill_begin(struct world *w, enum world_kind kind)
{
    struct world_ill *l = ill_new(w, kind);

    if (!l)
        return;
    if (!ill_begins(w, l)) {
        l->until_ms = 0;
        return;
    }
    w->hits[kind] += kind != WORLD_KIND_CRASH && kind != WORLD_KIND_BLOCK;
    world_say(w, "machine %u (%u): %s for %llu ms", l->a, l->b, world_kind_name[kind].name,
            ill_lasts(l) ? 0ull : (unsigned long long)(l->until_ms - w->now_ms));
}

static void ill_ends(struct world *w, struct world_ill *l)
{
    struct machine *x = &w->machine[l->a];

    switch ((int)l->kind) {
    case WORLD_KIND_STOP:
        world_stop(w, l->a, 0);
        break;
    case WORLD_KIND_BLOCK:
        world_unblock(w, l->a);
        break;
    case WORLD_KIND_SILENCE:
    case WORLD_KIND_FLAP:
        world_silence(w, l->a, 0);
        break;
    case WORLD_KIND_PAIR:
        world_mute(w, l->b, l->a, 0);
        world_mute(w, l->a, l->b, 0);
        break;
    case WORLD_KIND_ONEWAY:
        world_mute(w, l->a, l->b, 0);
        break;
    case WORLD_KIND_PARTITION:
        ill_part(w, l, 0);
        break;
    case WORLD_KIND_APART:
        ill_apart(w, l, 0);
        break;
    case WORLD_KIND_GROUPS:
        ill_groups(w, l, 0);
        break;
    case WORLD_KIND_CRASH:
        world_come(w, l->a);
        break;
    case WORLD_KIND_ROOM:
        if (x->store)
            hth_store_mem_room(x->store, world_room(w));
        break;
    case WORLD_KIND_WRITE:
        if (x->store)
            hth_store_mem_no_records(x->store, 0);
        said_changed(x);
        break;
    case WORLD_KIND_SLOW:
        x->slow_ms = 0;
        break;
    default:
        break;
    }
}

/* Begins the next half of a flap; 0: that was its last, or it is another fault. */
static int ill_goes_on(struct world *w, struct world_ill *l)
{
    if (l->kind != WORLD_KIND_FLAP || l->times == 0)
        return 0;
    l->times--;
    l->off = !l->off;
    l->until_ms = w->now_ms + (l->off ? l->off_ms : l->on_ms);
    world_silence(w, l->a, !l->off);
    return 1;
}

static void ill_again(struct world *w, const struct world_ill *l)
{
    if (l->until_ms && l->kind == WORLD_KIND_APART)
        ill_apart(w, l, 1);
    else if (l->until_ms && l->kind == WORLD_KIND_GROUPS)
        ill_groups(w, l, 1);
}

static void ill_end(struct world *w, struct world_ill *l)
{
    world_say(w, "machine %u: %s is over", l->a, world_kind_name[l->kind].name);
    l->until_ms = 0;
    ill_ends(w, l);
    free(l->part);
    l->part = NULL;
    for (uint32_t i = 0; i < WORLD_ILLS; i++)
        ill_again(w, &w->ill[i]); /* it may have been of the same two */
    w->well_ms = w->now_ms;
}

void ill_act(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_ILLS; i++) {
        struct world_ill *l = &w->ill[i];

        if (l->until_ms && l->until_ms <= w->now_ms && !ill_goes_on(w, l))
            ill_end(w, l);
    }
}

uint64_t ill_due_ms(const struct world *w)
{
    uint64_t due = HTH_NEVER;

    for (uint32_t i = 0; i < WORLD_ILLS; i++)
        if (w->ill[i].until_ms && w->ill[i].until_ms < due)
            due = w->ill[i].until_ms;
    return due;
}

void ill_end_all(struct world *w, int lasting)
{
    for (uint32_t i = 0; i < WORLD_ILLS; i++)
        if (w->ill[i].until_ms && (lasting || !ill_has_its_time(&w->ill[i])))
            ill_end(w, &w->ill[i]);
}

void ill_restarted(struct world *w)
{
    for (uint32_t i = 0; i < WORLD_ILLS; i++)
        if (ill_lasts(&w->ill[i]))
            ill_end(w, &w->ill[i]);
}
