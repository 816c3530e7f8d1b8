/* SPDX-License-Identifier: Apache-2.0 */
/* Which nodes the coordinator calls lost or returned, and the maps that follow. Three nodes, one
 * copy each. */
#include "coordinator.h"

enum { NODES = 3, OFTEN_MS = 600000 };

static void begin(void)
{
    coordinator_open(NODES);
    engine_start();
}

TestSuite(maps, .init = begin, .fini = coordinator_close);

static void lose(uint32_t node)
{
    hth_commit_peer_down(commit, node);
    hth_commit_tick(commit);
}

static void find(uint32_t node)
{
    hth_commit_peer_up(commit, node);
    hth_commit_tick(commit);
}

static void pass(uint64_t ms)
{
    p->now_ms += ms;
    hth_commit_tick(commit);
}

/* Places that are not where placement puts them. */
static uint32_t moved(void)
{
    struct hth_places map;
    uint32_t n = 0;

    (void)on_record(&map);
    for (uint32_t i = 0; i < map.moves; i++)
        n += map.move[i].node != map.move[i].was;
    hth_places_fini(&map);
    return n;
}

static uint64_t well_ms(void)
{
    return 2 * (uint64_t)ctx->opts.dead_ms;
}

/* No other node has room for its copies in more than one save. */
Test(maps, a_node_that_returns_has_all_its_places_at_once_however_often_it_was_lost)
{
    for (int i = 0; i < 4; i++) {
        lose(1);
        cr_assert(eq(u32, moved(), 2), "its own, and the copy that it held");
        pass(100);
        find(1);
        cr_assert(zero(u32, moved()));
    }
}

static uint64_t back_ms;

static uint64_t wall_back_ms(void *self)
{
    const struct pair *of = self;

    return UINT64_C(1700000000000) + of->now_ms - back_ms;
}

static void set_wall_back(uint64_t ms)
{
    back_ms = ms;
    ctx->clock.wall_ms = wall_back_ms;
}

/* ---- Places of others ------------------------------------------------------------------------ */

static void begin_four(void)
{
    coordinator_open(NODES + 1);
    engine_start();
}

TestSuite(others, .init = begin_four, .fini = coordinator_close);

/* Node 1 has the copy of rank 0. When it is lost, node 2 is given that copy, or else node 3. */
static int node_2_is_given_it(void)
{
    struct hth_places map;
    int given = 0;

    lose(1);
    (void)on_record(&map);
    for (uint32_t i = 0; i < map.moves; i++)
        given |= map.move[i].rank == 0 && map.move[i].node == 2;
    hth_places_fini(&map);
    find(1);
    return given;
}

/* And not a millisecond earlier. */
static void places_are_given_in(uint64_t ms)
{
    pass(ms - 1);
    cr_assert(zero(int, node_2_is_given_it()));
    pass(1);
    cr_assert(eq(int, node_2_is_given_it(), 1));
}

Test(others, a_node_that_has_returned_is_given_places_of_others_when_it_is_well)
{
    cr_assert(eq(int, node_2_is_given_it(), 1));
    lose(2);
    pass(100);
    find(2);
    places_are_given_in(well_ms());
}

Test(others, a_node_that_is_lost_again_within_ten_minutes_is_given_none_for_that_long)
{
    lose(2);
    find(2);
    pass(well_ms());
    lose(2);
    find(2);
    places_are_given_in(OFTEN_MS);
}

/* The loss is in the future by that clock. */
Test(others, a_wall_clock_that_is_set_back_bars_no_node_for_longer)
{
    lose(2);
    find(2);
    pass(well_ms());
    lose(2);
    find(2);
    set_wall_back(3600000);
    places_are_given_in(OFTEN_MS);
}

Test(others, an_engine_that_is_new_does_not_know_since_when_a_node_has_been_well)
{
    lose(2);
    pass(100);
    find(2);
    pass(well_ms() - 1);
    engine_again();
    hth_commit_tick(commit);
    places_are_given_in(well_ms());
}

/* ---- What is said to nodes ------------------------------------------------------------------- */

Test(maps, who_is_back_before_anything_was_decided_is_not_called_lost)
{
    hth_commit_peer_down(commit, 1);
    hth_commit_peer_up(commit, 1);
    hth_commit_tick(commit);
    lose(2);
    cr_assert(zero(u32, ctx->lost[1]));
    cr_assert(eq(u32, ctx->lost[2], 1));
    cr_assert(eq(u64, on_record(NULL).position, 1));
}

/* The node may know nothing of its loss: the first head that says so goes to all but lost nodes. */
Test(maps, a_node_that_is_lost_and_silent_is_told_the_newest_head_again)
{
    uint32_t before;

    lose(1);
    pair_run(p, 300);
    before = p->node[1].heard[HTH_KIND_HEAD];
    pass(well_ms());
    cr_assert(pair_until(p, &p->node[1].heard[HTH_KIND_HEAD], before + 1, 1000));
}

/* Node 1 is gone, and what it owned and held is with the others. */
Test(maps, places_of_a_lost_node_count_where_they_are_now)
{
    struct hth_head h;

    done_and_held();
    lose(1);
    h = on_record(NULL);
    promise(0, h.map);
    cr_assert(zero(u32, on_record(NULL).keep.saves));
    promise(2, h.map);
    h = on_record(NULL);
    cr_assert(eq(u32, h.keep.saves, 1));
    cr_assert(zero(u32, h.keep.degraded));
    cr_assert(eq(int, h.settled, 1));
}

Test(maps, a_promise_of_other_memory_than_the_members_does_not_count)
{
    struct hth_head h = on_record(NULL);

    done_and_held();
    promise(0, h.map);
    promise(1, h.map);
    promise_of(2, p->member[2].store + 100, h.map);
    cr_assert(zero(u32, on_record(NULL).keep.saves));
    promise(2, h.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 1));
}

/* Node 2 sent the promise first, and it came by a longer way. */
Test(maps, a_promise_that_comes_after_it_was_said_to_be_void_does_not_count)
{
    unsigned char store[8];
    struct hth_head h = on_record(NULL);

    done_and_held();
    promise(0, h.map);
    promise(1, h.map);
    hth_put64(store, p->member[2].store);
    hth_commit_sign_of_life(commit, 2, 1, 11);
    fact(2, HTH_KIND_COPY_LOST, store, sizeof(store));
    hth_commit_sign_of_life(commit, 2, 1, 10);
    promise(2, h.map);
    cr_assert(zero(u32, on_record(NULL).keep.saves));
    hth_commit_sign_of_life(commit, 2, 1, 12);
    promise(2, h.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 1));
}

Test(maps, who_promises_and_is_lost_is_told_that_it_is)
{
    uint32_t before;

    done_and_held();
    lose(1);
    pair_run(p, 300);
    before = p->node[1].heard[HTH_KIND_HEAD];
    promise(1, on_record(NULL).map);
    cr_assert(pair_until(p, &p->node[1].heard[HTH_KIND_HEAD], before + 1, 1000));
}

Test(maps, who_was_away_for_a_moment_and_who_is_late_are_told_the_newest_head)
{
    struct hth_head h = on_record(NULL);
    uint32_t before;

    done_and_held();
    for (uint32_t n = 0; n < NODES; n++)
        promise(n, h.map);
    pair_run(p, 300);
    before = p->node[1].heard[HTH_KIND_HEAD];
    find(1);
    cr_assert(pair_until(p, &p->node[1].heard[HTH_KIND_HEAD], before + 1, 1000));
    promise(1, h.map); /* of what is decided */
    cr_assert(pair_until(p, &p->node[1].heard[HTH_KIND_HEAD], before + 2, 1000));
}

/* As SIGSTOP and SIGCONT, or a virtual machine that is moved: its session notices it. */
static void stand_still(void)
{
    pair_run(p, 300);
    p->now_ms += ctx->opts.dead_ms;
    hth_session_tick(ctx->session);
}

/* For less than dead_ms: the coordinator takes no node for lost because of it. */
static void be_busy(void)
{
    pair_run(p, 300);
    pair_busy(p, ctx->opts.dead_ms * 2 / 3);
    hth_session_tick(ctx->session);
}

/* Node 2's promise lay here meanwhile, and node 2 may be gone. */
static void what_was_promised_before_is_asked_for_again(void (*late)(void))
{
    struct hth_head h;

    done_and_held();
    h = on_record(NULL);
    promise(0, h.map);
    promise(1, h.map);
    late();
    promise(2, h.map);
    cr_assert(zero(u32, on_record(NULL).keep.saves));
    cr_assert(zero(u32, moved()));
    h = on_record(NULL);
    for (uint32_t n = 0; n < NODES; n++)
        promise(n, h.map);
    cr_assert(eq(u32, on_record(NULL).keep.saves, 1));
    cr_assert(eq(int, on_record(NULL).settled, 1));
}

Test(maps, what_was_promised_before_this_machine_stood_still_does_not_count_after_it)
{
    uint32_t still, busy;

    what_was_promised_before_is_asked_for_again(stand_still);
    hth_session_late(ctx->session, &still, &busy);
    cr_assert(eq(u32, still, 1));
}

Test(maps, what_was_promised_before_this_engine_was_busy_for_long_does_not_count_after_it)
{
    uint32_t still, busy;

    what_was_promised_before_is_asked_for_again(be_busy);
    hth_session_late(ctx->session, &still, &busy);
    cr_assert(zero(u32, still));
    cr_assert(eq(u32, busy, 1));
}

/* All ranks on the first of four nodes. */
static void begin_uneven(void)
{
    static uint32_t on_first[] = { 0, 0, 0, 0 };

    coordinator_open(4);
    p->node[0].epoch.rank_node = on_first;
    engine_start();
}

TestSuite(uneven, .init = begin_uneven, .fini = coordinator_close);

/* Each map voids what was promised under the one before. */
Test(uneven, who_is_well_again_and_gets_nothing_for_it_is_no_reason_for_a_map)
{
    uint64_t position;

    lose(1);
    lose(3);
    find(3);
    position = on_record(NULL).position;
    cr_assert(gt(u32, moved(), 0));
    pass(well_ms());
    pass(1);
    cr_assert(eq(u64, on_record(NULL).position, position));
}

/* ---- Pairs ----------------------------------------------------------------------------------- */

static void report(uint32_t origin, uint32_t node, uint32_t what)
{
    unsigned char body[8];

    hth_put32(body, node);
    hth_put32(body + 4, what);
    hth_commit_deliver(commit, origin, HTH_KIND_UNREACHABLE, body, sizeof(body));
    hth_commit_tick(commit);
}

/* -1: the map does not have the pair of nodes 1 and 2. */
static int unreachable_on_record(void)
{
    struct hth_places map;
    const struct hth_pair_note *a;
    int what;

    (void)on_record(&map);
    a = hth_places_pair(&map, 2, 1);
    what = a ? (int)a->unreachable : -1;
    hth_places_fini(&map);
    return what;
}

/* All that live ping. */
static void hear(void)
{
    pair_run(p, 100);
    hth_commit_tick(commit);
}

/* Node 1 needs node 2, and reports that for as long as it cannot reach it. */
static void part(void)
{
    report(1, 2, 1);
    pair_run(p, 100); /* a connection with it */
    pass(ctx->opts.dead_ms);
    report(1, 2, 1);
    hear();
}

/* Each for itself: bytes may go one way and not the other. */
static void can_again(void)
{
    report(1, 2, 0);
    report(2, 1, 0);
}

Test(maps, a_pair_can_again_when_both_say_so)
{
    part();
    for (int i = 0; i < 3; i++) {
        report(1, 2, 0);
        pass(100);
    }
    cr_assert(eq(int, unreachable_on_record(), 1));
    report(2, 1, 2);
    report(2, 1, 0);
    cr_assert(eq(int, unreachable_on_record(), 1),
            "node 2 has reported the pair unreachable since node 1 reported it reachable");
    report(1, 2, 0);
    cr_assert(zero(int, unreachable_on_record()));
}

/* A node that it cannot reach is lost; one that it cannot pull from, or that cannot pull from
 * it, is half of a pair. */
Test(maps, the_coordinator_is_half_of_a_pair_where_pulls_stall)
{
    for (int i = 0; i < 2; i++) {
        report(1, 0, 2);
        pair_run(p, 100);
        pass(ctx->opts.dead_ms);
        report(1, 0, 2);
    }
    cr_assert(eq(u32, ctx->pairs, 1));
    cr_assert(eq(int, hth_tree_is_unreachable(ctx, 0, 1), 1));
    cr_assert(eq(u32, moved(), 1));
    cr_assert(zero(u32, ctx->lost[1]));
}

Test(maps, a_pair_is_cut_when_it_was_said_for_dead_ms_and_both_live)
{
    uint64_t since_ms = p->now_ms;

    report(1, 2, 1);
    pair_run(p, 100);
    cr_assert(lt(u64, p->now_ms, since_ms + ctx->opts.dead_ms));
    pass(since_ms + ctx->opts.dead_ms - 1 - p->now_ms);
    report(1, 2, 1);
    cr_assert(eq(int, unreachable_on_record(), -1));
    pass(1);
    report(1, 2, 1);
    hear();
    cr_assert(eq(int, unreachable_on_record(), 1));
    cr_assert(eq(u32, moved(), 1), "node 1's copy");
    cr_assert(eq(int, pair_logged(p, 0, "peers-apart"), 1));
}

Test(maps, who_cannot_be_reached_by_the_coordinator_is_no_half_of_a_pair)
{
    pair_node_close(p, 2);
    part();
    pass(1);
    report(1, 2, 1);
    cr_assert(eq(int, unreachable_on_record(), -1));
}

/* Its connection stands, and nothing comes by it: it is about to be called lost. */
Test(maps, a_node_that_is_silent_to_all_is_no_half_of_a_pair)
{
    report(1, 2, 1);
    pair_run(p, 100);
    pass(ctx->opts.dead_ms);
    report(1, 2, 1);
    cr_assert(eq(int, hth_session_is_connected(ctx->session, 2), 1));
    cr_assert(eq(int, unreachable_on_record(), -1));
    lose(2);
    cr_assert(eq(int, unreachable_on_record(), -1));
    find(2);
    hear();
    cr_assert(eq(int, unreachable_on_record(), -1));
}

/* Node 2 is silent to all the second time, and the coordinator has not noticed yet. */
Test(maps, what_was_taken_back_does_not_count)
{
    report(1, 2, 1);
    pair_run(p, 100);
    report(1, 2, 0);
    pass(ctx->opts.dead_ms);
    report(1, 2, 1);
    cr_assert(eq(int, unreachable_on_record(), -1));
}

Test(maps, what_was_said_long_ago_does_not_count)
{
    report(1, 2, 1);
    pair_run(p, 100);
    pass(100 * (uint64_t)ctx->opts.dead_ms);
    report(1, 2, 1);
    hear();
    cr_assert(eq(int, unreachable_on_record(), -1));
}

Test(maps, a_pair_that_makes_no_sense_is_none)
{
    static const uint32_t bad[][2] = { { 1, 0 }, { 0, 1 }, { 1, 1 }, { 1, NODES }, { NODES, 1 } };
    uint64_t position = on_record(NULL).position;

    for (uint32_t i = 0; i < 5; i++) {
        report(bad[i][0], bad[i][1], 1);
        pair_run(p, 100);
        pass(ctx->opts.dead_ms);
        report(bad[i][0], bad[i][1], 1);
    }
    cr_assert(eq(u64, on_record(NULL).position, position));
}

/* No other node has room for its copies in more than one save. */
Test(maps, a_pair_that_can_again_has_its_copies_at_once_however_often_it_was_cut)
{
    for (int i = 0; i < 4; i++) {
        part();
        cr_assert(eq(int, unreachable_on_record(), 1));
        cr_assert(eq(u32, moved(), 1));
        pass(100);
        can_again();
        cr_assert(zero(int, unreachable_on_record()));
        cr_assert(zero(u32, moved()));
    }
}

/* Node 3 has the copy of rank 2. When it is lost, node 0 is given that copy if it reaches node 2,
 * or else node 1. */
static int node_0_is_given_it(void)
{
    struct hth_places map;
    int given = 0;

    lose(3);
    (void)on_record(&map);
    for (uint32_t i = 0; i < map.moves; i++)
        given |= map.move[i].rank == 2 && map.move[i].place == 0 && map.move[i].node == 0;
    hth_places_fini(&map);
    find(3);
    return given;
}

/* And not a millisecond earlier. */
static void node_0_is_given_it_in(uint64_t ms)
{
    pass(ms - 1);
    cr_assert(zero(int, node_0_is_given_it()));
    pass(1);
    cr_assert(eq(int, node_0_is_given_it(), 1));
}

/* Pulls between nodes 0 and 2 stall. */
static void part_from_0(void)
{
    report(2, 0, 2);
    pass(ctx->opts.dead_ms);
    report(2, 0, 2);
    cr_assert(eq(int, hth_tree_is_unreachable(ctx, 2, 0), 1));
}

static void can_pull_again(void)
{
    report(2, 0, 0);
    report(0, 2, 0);
    cr_assert(zero(int, hth_tree_is_unreachable(ctx, 2, 0)));
}

Test(others, a_pair_that_can_again_is_given_other_copies_when_it_is_well)
{
    cr_assert(eq(int, node_0_is_given_it(), 1));
    part_from_0();
    cr_assert(zero(int, node_0_is_given_it()));
    can_pull_again();
    node_0_is_given_it_in(well_ms());
}

Test(others, a_pair_that_is_cut_again_within_ten_minutes_is_given_none_for_that_long)
{
    part_from_0();
    can_pull_again();
    pass(well_ms());
    part_from_0();
    can_pull_again();
    node_0_is_given_it_in(OFTEN_MS);
}

Test(maps, an_engine_that_is_new_knows_who_is_cut)
{
    part();
    engine_again();
    cr_assert(eq(u32, ctx->pairs, 1));
    cr_assert(eq(int, hth_tree_is_unreachable(ctx, 2, 1), 1));
}

Test(others, an_engine_that_is_new_does_not_know_since_when_a_pair_can_again)
{
    part_from_0();
    can_pull_again();
    pass(well_ms() - 1);
    engine_again();
    hth_commit_tick(commit);
    node_0_is_given_it_in(well_ms());
}

/* It has missed the map. */
Test(maps, who_says_what_the_map_has_is_told_the_map)
{
    uint32_t before;

    part();
    pair_run(p, 300);
    before = p->node[1].heard[HTH_KIND_HEAD];
    report(1, 2, 1);
    cr_assert(pair_until(p, &p->node[1].heard[HTH_KIND_HEAD], before + 1, 1000));
}
