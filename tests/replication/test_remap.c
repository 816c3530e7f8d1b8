/* SPDX-License-Identifier: Apache-2.0 */
/* Where places go when nodes are lost, and when they are back. */
#include "check.h"

#include "core/base/env.h"
#include "replication/commit/remap.h"
#include <stdlib.h>
#include <unistd.h>

enum {
    NODES = 8,
    COPIES = 2,
    PLACES = COPIES + 1
}; /* one rank a node; the last place is its own */

static struct hth_member member[NODES];
static uint32_t rank_node[NODES];
static struct hth_epoch epoch;
static struct hth_placement base;
static struct hth_places map; /* the last */
static uint8_t is[NODES];
static struct hth_pair pair[2];
static uint32_t pairs;
static uint32_t moved, stuck;
static int settled;

/* Five racks of two nodes. */
static void begin(void)
{
    alarm(60);
    for (uint32_t n = 0; n < NODES; n++) {
        member[n].domain[0] = 100 + n / 2;
        rank_node[n] = n;
    }
    epoch = (struct hth_epoch){ .epoch = 7,
        .nonce = 77,
        .world = NODES,
        .nodes = NODES,
        .member = member,
        .rank_node = rank_node };
    must(hth_placement_make(&base, &epoch, COPIES, 1, 0, NULL));
    cr_assert(eq(u32, base.level, HTH_LEVEL_MACHINE + 1));
    hth_places_first(&map, epoch.epoch, epoch.nonce);
}

static void end(void)
{
    hth_places_fini(&map);
    hth_placement_fini(&base);
}

TestSuite(remap, .init = begin, .fini = end);

/* The next map is the last one from now on. */
static void remap(void)
{
    struct hth_remap in = { .epoch = &epoch,
        .base = &base,
        .last = &map,
        .settled = settled,
        .reach = is,
        .min_copies = 1,
        .pair = pair,
        .pairs = pairs };
    struct hth_move *move = NULL;
    uint32_t moves = 0;

    must(hth_remap(&in, &move, &moves, &moved, &stuck));
    free(map.move);
    map.move = move;
    map.moves = moves;
}

static uint32_t home_of(uint32_t rank, uint32_t place)
{
    return place == COPIES ? rank : base.holder[rank * COPIES + place];
}

static uint32_t at(uint32_t rank, uint32_t place)
{
    const struct hth_move *m = hth_places_move(&map, rank, place);

    return m ? m->node : home_of(rank, place);
}

static int share_rack(uint32_t a, uint32_t b)
{
    return a / 2 == b / 2;
}

/* No place is at a node that is lost; copies share no rack with each other and with their owner. */
static void must_be_apart(void)
{
    for (uint32_t r = 0; r < NODES; r++)
        for (uint32_t p = 0; p < PLACES; p++) {
            cr_assert(ne(u8, is[at(r, p)], HTH_UNREACHABLE), "place %u of rank %u", p, r);
            if (p < COPIES)
                cr_assert(zero(int, share_rack(at(r, p), r)), "place %u of rank %u", p, r);
            for (uint32_t q = 0; q < p; q++)
                cr_assert(zero(int, share_rack(at(r, p), at(r, q))), "places %u, %u of rank %u", p,
                        q, r);
        }
}

Test(remap, moves_what_a_lost_node_had_to_another_rack_than_the_others)
{
    for (uint32_t lost = 0; lost < NODES; lost++) {
        is[lost] = HTH_UNREACHABLE;
        remap();
        cr_assert(zero(u32, stuck));
        must_be_apart();
        is[lost] = HTH_REACHABLE;
        remap();
    }
}

/* Its owner's own place is elsewhere, and its rack is its owner's all the same. */
Test(remap, keeps_copies_out_of_the_rack_of_an_owner_that_is_lost)
{
    for (uint32_t r = 0; r < NODES; r++) {
        uint32_t holder = home_of(r, 0);

        is[r] = HTH_UNREACHABLE;
        remap();
        is[holder] = is[holder ^ 1] = HTH_UNREACHABLE;
        remap();
        for (uint32_t p = 0; p < COPIES; p++)
            cr_assert(zero(int, share_rack(at(r, p), r)), "place %u of rank %u", p, r);
        is[r] = is[holder] = is[holder ^ 1] = HTH_REACHABLE;
        remap();
    }
}

Test(remap, gives_to_who_has_least)
{
    uint32_t load[NODES] = { 0 }, most = 0;

    is[0] = HTH_UNREACHABLE;
    remap();
    for (uint32_t r = 0; r < NODES; r++)
        for (uint32_t p = 0; p < PLACES; p++)
            load[at(r, p)]++;
    for (uint32_t n = 1; n < NODES; n++)
        most = load[n] > most ? load[n] : most;
    cr_assert(eq(u32, moved, PLACES), "each node had one place of each kind");
    cr_assert(le(u32, most, PLACES + 1));
}

Test(remap, gives_nothing_to_who_has_only_come_back)
{
    for (uint32_t n = 1; n < NODES; n += 2)
        is[n] = HTH_RETURNED;
    is[2] = HTH_UNREACHABLE;
    remap();
    for (uint32_t i = 0; i < map.moves; i++)
        cr_assert(zero(u32, map.move[i].node % 2), "rank %u", map.move[i].rank);
}

Test(remap, gives_to_who_has_only_come_back_where_too_few_would_be_left)
{
    for (uint32_t n = 1; n < NODES; n++)
        is[n] = HTH_UNREACHABLE;
    is[2] = HTH_RETURNED;
    remap();
    for (uint32_t r = 0; r < NODES; r++) {
        uint32_t here = 0;

        for (uint32_t p = 0; p < PLACES; p++)
            here |= (at(r, p) == 0) | (uint32_t)(at(r, p) == 2) << 1;
        cr_assert(ne(u32, here & 2, 0), "rank %u", r);
    }
}

/* The most places that a node has. */
static uint32_t most_places(void)
{
    uint32_t load[NODES] = { 0 }, most = 0;

    for (uint32_t r = 0; r < NODES; r++)
        for (uint32_t p = 0; p < PLACES; p++)
            load[at(r, p)]++;
    for (uint32_t n = 0; n < NODES; n++)
        most = load[n] > most ? load[n] : most;
    return most;
}

/* Each has what it had as the epoch began, and one place more at most. */
static void must_have_room(void)
{
    cr_assert(le(u32, most_places(), PLACES + 1));
}

/* Nodes 0 and 1 alone were never lost. */
/* Node 1 has three ranks. Both holders of rank 4 are lost, and all others have only come back. */
Test(remap, of_those_who_have_only_come_back_it_gives_to_who_has_least)
{
    static uint32_t uneven[] = { 0, 1, 2, 3, 4, 5, 6, 7, 1, 1 };

    hth_placement_fini(&base);
    epoch.world = sizeof(uneven) / sizeof(uneven[0]);
    epoch.rank_node = uneven;
    must(hth_placement_make(&base, &epoch, COPIES, 1, 0, NULL));
    memset(is, HTH_RETURNED, sizeof(is));
    is[home_of(4, 0)] = is[home_of(4, 1)] = HTH_UNREACHABLE;
    cr_assert(ne(u8, is[1], HTH_UNREACHABLE));
    remap();
    cr_assert(gt(u32, map.moves, 0u));
    for (uint32_t i = 0; i < map.moves; i++)
        cr_assert(ne(u32, map.move[i].node, 1u), "place %u of rank %u", map.move[i].place,
                map.move[i].rank);
}

Test(remap, gives_to_who_has_only_come_back_what_others_have_no_room_for)
{
    is[2] = HTH_UNREACHABLE;
    for (uint32_t n = 3; n < NODES; n++)
        is[n] = HTH_RETURNED;
    remap();
    must_have_room();
    cr_assert(zero(u32, stuck));
}

Test(remap, who_has_more_than_there_is_room_for_gives_it_to_who_comes_back)
{
    for (uint32_t n = 1; n < NODES; n++)
        is[n] = HTH_UNREACHABLE;
    remap();
    for (uint32_t n = 1; n < NODES - 1; n++)
        is[n] = HTH_RETURNED;
    remap();
    must_have_room();
    is[NODES - 1] = HTH_RETURNED;
    remap();
    must_be_apart();
    must_have_room();
}

/* While both are lost, a third node has more places than it has room for. */
Test(remap, a_place_that_a_node_has_no_room_for_goes_to_one_of_two_lost_nodes_that_comes_back)
{
    is[0] = is[2] = HTH_UNREACHABLE;
    remap();
    cr_assert(gt(u32, most_places(), PLACES + 1));
    is[0] = HTH_RETURNED;
    remap();
    must_be_apart();
    must_have_room();
}

/* No node then has more places than it has room for in keep + 1 saves. */
Test(remap, all_places_of_a_node_go_home_when_it_is_not_lost)
{
    for (uint32_t n = 1; n < NODES; n++) {
        is[n] = is[NODES - n] = HTH_UNREACHABLE;
        remap();
        is[n] = is[NODES - n] = HTH_RETURNED;
        remap();
        for (uint32_t r = 0; r < NODES; r++)
            for (uint32_t p = 0; p < PLACES; p++)
                cr_assert(eq(u32, at(r, p), home_of(r, p)), "place %u of rank %u", p, r);
    }
}

/* Two losses before any node has settled a map: the bytes are still where they were at first. */
Test(remap, says_who_had_the_bytes_when_a_map_was_settled_last)
{
    uint32_t first = home_of(0, 0), second;

    is[first] = HTH_UNREACHABLE;
    remap();
    second = at(0, 0);
    is[second] = HTH_UNREACHABLE;
    remap();
    cr_assert(eq(u32, hth_places_move(&map, 0, 0)->was, first));
    settled = 1;
    first = at(0, 0);
    is[first] = HTH_UNREACHABLE;
    remap();
    cr_assert(eq(u32, hth_places_move(&map, 0, 0)->was, first));
}

Test(remap, what_nobody_can_take_stays_and_is_counted)
{
    for (uint32_t n = 1; n < NODES; n++)
        is[n] = HTH_UNREACHABLE;
    remap();
    cr_assert(gt(u32, stuck, 0));
    for (uint32_t r = 0; r < NODES; r++)
        cr_assert(eq(u32, at(r, 0) == 0 || at(r, 1) == 0 || at(r, COPIES) == 0, 1), "rank %u", r);
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

static void cut(uint32_t a, uint32_t b, enum hth_reachability how)
{
    pair[0] = (struct hth_pair){ a < b ? a : b, a < b ? b : a, (uint8_t)how };
    pairs = 1;
}

/* Node `a` from both. */
static void cut_both(uint32_t a, uint32_t b, uint32_t c, enum hth_reachability how)
{
    struct hth_pair first;

    cut(a, b, how);
    first = pair[0];
    cut(a, c, how);
    pair[1] = pair[0];
    pair[0] = first;
    if (pair[1].a < first.a || (pair[1].a == first.a && pair[1].b < first.b)) {
        pair[0] = pair[1];
        pair[1] = first;
    }
    pairs = 2;
}

/* One of them moves; the other has the bytes from there. */
Test(remap, copies_that_no_place_can_bring_move_until_their_owner_can)
{
    for (uint32_t r = 0; r < NODES; r++) {
        uint32_t home = home_of(r, 0);

        cut_both(r, home, home_of(r, 1), HTH_UNREACHABLE);
        remap();
        cr_assert(ne(u32, at(r, 0), home), "rank %u", r);
        cr_assert(ne(u32, at(r, 0), home_of(r, 1)), "rank %u", r);
        cr_assert(eq(u32, at(r, 1), home_of(r, 1)), "rank %u", r);
        cr_assert(eq(u32, at(r, COPIES), r));
        cr_assert(zero(u32, stuck));
        must_be_apart();
        remap();
        cr_assert(zero(u32, moved), "it is the same the next time");
        pair[pair[0].a + pair[0].b != r + home].reach = HTH_RETURNED;
        remap();
        cr_assert(eq(u32, at(r, 0), home), "rank %u", r);
        pair[0].reach = pair[1].reach = HTH_RETURNED;
        remap();
        cr_assert(zero(u32, moved), "rank %u", r);
        pair[0].reach = pair[1].reach = HTH_REACHABLE;
        remap();
        cr_assert(zero(u32, moved), "rank %u", r);
    }
}

Test(remap, a_copy_that_another_copy_can_bring_stays)
{
    cut(home_of(0, 0), 0, HTH_UNREACHABLE);
    remap();
    cr_assert(eq(u32, at(0, 0), home_of(0, 0)));
    cr_assert(zero(u32, moved));
    cr_assert(zero(u32, stuck));
}

Test(remap, who_hold_copies_of_one_owner_need_not_reach_each_other)
{
    cut(home_of(0, 0), home_of(0, 1), HTH_UNREACHABLE);
    remap();
    cr_assert(eq(u32, at(0, 0), home_of(0, 0)));
    cr_assert(eq(u32, at(0, 1), home_of(0, 1)));
}

/* It has the owner's place, and pulls from them. */
Test(remap, who_stands_in_for_a_lost_owner_is_somebody_who_reaches_the_copies)
{
    uint32_t first;

    is[3] = HTH_UNREACHABLE;
    remap();
    first = at(3, COPIES);
    cut(first, at(3, 1), HTH_UNREACHABLE);
    remap();
    cr_assert(eq(u32, at(3, COPIES), first), "the other copy is enough");
    cut_both(first, at(3, 0), at(3, 1), HTH_UNREACHABLE);
    remap();
    cr_assert(ne(u32, at(3, COPIES), first));
    cr_assert(eq(u32, at(3, 1), home_of(3, 1)), "what is there stays there");
    must_be_apart();
}

Test(remap, what_nobody_else_can_take_stays_with_whom_its_owner_cannot_reach)
{
    uint32_t only = home_of(0, 0);

    for (uint32_t n = 1; n < NODES; n++)
        is[n] = n == only ? HTH_REACHABLE : HTH_UNREACHABLE;
    remap();
    cut(0, only, HTH_UNREACHABLE);
    remap();
    cr_assert(eq(u32, at(0, 0), only));
    pair[0].reach = HTH_RETURNED;
    remap();
    cr_assert(eq(u32, at(0, 0), only));
}

/* Nodes 0, and two of another rack: without one of them no copy would be left. */
Test(remap, gives_to_whom_the_owner_has_not_long_reached_where_too_few_would_be_left)
{
    uint32_t a = home_of(0, 0), b = a ^ 1;

    for (uint32_t n = 1; n < NODES; n++)
        is[n] = n == a || n == b ? HTH_REACHABLE : HTH_UNREACHABLE;
    remap();
    is[a] = HTH_UNREACHABLE;
    cut(0, b, HTH_RETURNED);
    remap();
    cr_assert(eq(u32, at(0, 0) == b || at(0, 1) == b, 1));
}

/* A map has a pair for ten minutes after the two can again. Two copies of one rank are in each
 * other's way meanwhile, as they are without pairs. */
Test(remap, all_places_go_home_at_once_while_the_map_has_a_pair_that_can_again)
{
    for (uint32_t a = 1; a < NODES; a++)
        for (uint32_t b = 1; b < a; b++) {
            cut(5, 6, HTH_REACHABLE);
            is[a] = is[b] = HTH_UNREACHABLE;
            remap();
            is[a] = is[b] = HTH_RETURNED;
            remap();
            for (uint32_t r = 0; r < NODES; r++)
                for (uint32_t p = 0; p < PLACES; p++)
                    cr_assert(eq(u32, at(r, p), home_of(r, p)), "place %u of rank %u", p, r);
        }
}

/* ---- A large job ----------------------------------------------------------------------------- */

enum { MANY = 240, EACH = 3, MANY_PLACES = 2 }; /* racks of four; one copy */

static uint32_t now[MANY * EACH][MANY_PLACES], load[MANY];
static uint8_t well[MANY];
static uint32_t racks[MANY];

static int may_have(uint32_t rank, uint32_t place, uint32_t node)
{
    return racks[node] != racks[now[rank][1 - place]] &&
           (place || racks[node] != racks[rank / EACH]);
}

/* Of all nodes that are well and may have it, the first with the least load: by looking at each of
 * them. */
static uint32_t least_of_all(uint32_t rank, uint32_t place)
{
    uint32_t best = MANY;

    for (uint32_t n = 0; n < MANY; n++)
        if (well[n] == HTH_REACHABLE && may_have(rank, place, n) &&
                (best == MANY || load[n] < load[best]))
            best = n;
    return best;
}

/* The next map of `e`, and the same worked out place by place. */
static void must_be_the_least(const struct hth_epoch *e, const struct hth_placement *of)
{
    struct hth_remap in = {
        .epoch = e, .base = of, .last = &map, .settled = 1, .reach = well, .min_copies = 1
    };
    struct hth_move *move = NULL;
    uint32_t moves = 0;

    memset(load, 0, sizeof(load));
    for (uint32_t r = 0; r < e->world; r++)
        for (uint32_t p = 0; p < MANY_PLACES; p++) {
            const struct hth_move *m = hth_places_move(&map, r, p);
            uint32_t home = p ? r / EACH : of->holder[r];

            now[r][p] = m && (!p || well[home] == HTH_UNREACHABLE) ? m->node : home;
            load[now[r][p]]++;
        }
    for (uint32_t r = 0; r < e->world; r++)
        for (uint32_t p = 0; p < MANY_PLACES; p++) {
            uint32_t to = well[now[r][p]] == HTH_UNREACHABLE ? least_of_all(r, p) : now[r][p];

            load[now[r][p]]--;
            load[to]++;
            now[r][p] = to;
        }
    must(hth_remap(&in, &move, &moves, &moved, &stuck));
    free(map.move);
    map.move = move;
    map.moves = moves;
    for (uint32_t r = 0; r < e->world; r++)
        for (uint32_t p = 0; p < MANY_PLACES; p++) {
            const struct hth_move *m = hth_places_move(&map, r, p);

            cr_assert(eq(u32,
                              m   ? m->node
                              : p ? r / EACH
                                  : of->holder[r],
                              now[r][p]),
                    "place %u of rank %u", p, r);
        }
}

Test(remap, each_place_goes_to_the_first_of_the_least_loaded_however_many_are_lost)
{
    static struct hth_member members[MANY];
    static uint32_t of_rank[MANY * EACH];
    struct hth_epoch e = { .epoch = 7,
        .nonce = 78,
        .world = MANY * EACH,
        .nodes = MANY,
        .member = members,
        .rank_node = of_rank };
    struct hth_placement of;
    uint64_t seed = 3;

    for (uint32_t n = 0; n < MANY; n++)
        members[n].domain[0] = racks[n] = 1 + n / 4;
    for (uint32_t r = 0; r < e.world; r++)
        of_rank[r] = r / EACH;
    must(hth_placement_make(&of, &e, 1, 1, 0, NULL));
    for (uint32_t round = 0; round < 8; round++) { /* more and more are lost, and none is back */
        for (uint32_t n = 0; n < MANY; n++)
            if (hth_splitmix64(&seed) % 12 == 0)
                well[n] = HTH_UNREACHABLE;
        must_be_the_least(&e, &of);
    }
    hth_placement_fini(&of);
}
