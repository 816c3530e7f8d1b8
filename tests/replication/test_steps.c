/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that name different steps in one save, which otherwise would never end on any node. */
#include "coordinator.h"

#include <stdio.h>

enum { NODES = 3 };

static uint32_t failed; /* FAILED that the engine of node 0 has sent */
static unsigned char failed_fact[HTH_TREE_MAX + 1];

/* The coordinator receives the facts of its own node as it receives those of the others. */
static void hear(struct pair_node *n)
{
    unsigned char bytes[HTH_TREE_MAX];
    size_t len = n->len;

    memcpy(bytes, n->fact, len);
    if (n->kind == HTH_KIND_FAILED) {
        failed++;
        memcpy(failed_fact, bytes, len);
        failed_fact[len] = '\0';
    }
    hth_commit_deliver(commit, 0, n->kind, bytes, len);
}

static void begin(void)
{
    failed = 0;
    coordinator_open(NODES);
    p->node[0].on_fact = hear;
    engine_start();
}

TestSuite(steps, .init = begin, .fini = coordinator_close);

static void done(uint32_t origin, uint64_t step)
{
    save.step = step;
    say_done(origin);
}

/* The last one, with both names. */
static void must_fail_naming(const char *one, const char *other)
{
    const char *why = (const char *)failed_fact + SAVE + 4;

    cr_assert(ge(u32, failed, 1));
    cr_assert(eq(i32, (int)hth_get32(failed_fact + SAVE),
            strstr(why, ", which ") ? HEARTH_EINVAL : HEARTH_ESTATE));
    cr_assert(ne(ptr, strstr(why, one), NULL), "%s", why);
    cr_assert(ne(ptr, strstr(why, other), NULL), "%s", why);
}

static void must_not_fail(void)
{
    cr_assert(zero(u32, failed), "%s", (const char *)failed_fact + SAVE + 4);
}

static void pass(uint64_t ms)
{
    for (uint64_t end_ms = p->now_ms + ms; p->now_ms < end_ms; p->now_ms += ctx->opts.retry_ms)
        hth_commit_tick(commit);
    hth_commit_tick(commit);
}

static struct hth_save_id begun(uint32_t rank, uint64_t step)
{
    struct hth_save_id id;

    must(hth_commit_begin(commit, rank, step, NULL, &id, NULL));
    return id;
}

/* A save that ranks of other nodes have begun, as AWAITED names it. */
static struct hth_save_id offered_of(uint64_t step, const struct hth_ranks *ranks)
{
    struct hth_save_id id = { EPOCH, NONCE, step, (ranks ? hth_ranks_bits(ranks) : 0) + 1 };
    unsigned char body[SAVE + HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];

    hth_put64(body, id.epoch);
    hth_put64(body + 8, id.nonce);
    hth_put64(body + 16, id.step);
    hth_put64(body + 24, id.attempt);
    if (ranks)
        hth_ranks_encode(ranks, body + SAVE);
    hth_commit_deliver(
            commit, 0, HTH_KIND_AWAITED, body, SAVE + (ranks ? hth_ranks_bytes(ranks) : 0));
    return id;
}

static struct hth_save_id offered(uint64_t step)
{
    return offered_of(step, NULL);
}

static int has_manifest(uint64_t step)
{
    const struct hth_save_id id = { EPOCH, NONCE, step, 1 };
    const struct hth_held_save *s = hth_holdings_find(ctx, id);

    return s && s->has_manifest;
}

/* ---- The rank has passed it ---------------------------------------------------------------- */

/* Two threads of each rank write a save each. */
Test(steps, two_saves_that_all_ranks_have_begun_are_done_in_any_order)
{
    (void)begun(0, 5);
    (void)begun(0, 6);
    done(1, 5);
    done(2, 6);
    pass(4 * (uint64_t)ctx->opts.dead_ms);
    must_not_fail();
    done(0, 6);
    done(1, 6);
    done(2, 5);
    pass(4 * (uint64_t)ctx->opts.dead_ms);
    done(0, 5);
    hth_commit_tick(commit);
    must_not_fail();
    cr_assert(ne(i32, has_manifest(5), 0));
    cr_assert(ne(i32, has_manifest(6), 0));
}

Test(steps, a_save_that_a_rank_of_this_node_has_passed_fails_at_once)
{
    (void)begun(0, 6);
    (void)offered(5);
    hth_commit_tick(commit);
    must_fail_naming("rank 0 (node0) is at step 6", "has not begun step 5");
}

/* It is done on node 1, which offers no copy to node 0. */
Test(steps, a_save_of_which_a_node_has_not_heard_is_named_by_the_coordinator)
{
    (void)begun(0, 6);
    done(1, 5);
    pass(ctx->opts.dead_ms / 2);
    must_not_fail();
    pass(ctx->opts.dead_ms);
    must_fail_naming("rank 0 (node0) is at step 6", "has not begun step 5");
}

Test(steps, a_save_of_which_all_nodes_have_heard_waits_for_a_rank_that_is_slow)
{
    (void)begun(0, 4);
    done(1, 5);
    done(2, 5);
    done(2, 6);
    pass(4 * (uint64_t)ctx->opts.dead_ms);
    must_not_fail();
}

Test(steps, a_save_of_other_ranks_is_not_passed)
{
    const struct hth_ranks others = { .runs = 1, .run = { { 1, 2, 1 } } };
    const struct hth_ranks ours = { .runs = 1, .run = { { 0, 2, 1 } } };

    (void)begun(0, 6);
    (void)offered_of(5, &others);
    (void)offered_of(6, &ours);
    pass(4 * (uint64_t)ctx->opts.dead_ms);
    must_not_fail();
    (void)offered_of(5, &ours);
    hth_commit_tick(commit);
    must_fail_naming("rank 0 (node0) is at step 6", "has not begun step 5");
}

/* The coordinator names the set with the save. */
Test(steps, the_coordinator_names_a_save_of_some_ranks_with_its_ranks)
{
    const struct hth_ranks ours = { .runs = 1, .run = { { 0, 2, 1 } } };
    unsigned char done_of[16 + HTH_RANK_RUN_BYTES] = { 0 };

    (void)begun(0, 6);
    save = (struct hth_save_id){ EPOCH, NONCE, 5, hth_ranks_bits(&ours) + 1 };
    hth_put32(done_of + 4, 1);
    hth_put32(done_of + 12, 1);
    hth_ranks_encode(&ours, done_of + 16);
    fact(1, HTH_KIND_DONE, done_of, sizeof(done_of));
    pass(ctx->opts.dead_ms + ctx->opts.retry_ms);
    must_fail_naming("rank 0 (node0) is at step 6", "has not begun step 5");
}

/* The copies of step 5 take the room of step 6. The rank may have staged step 5, and name it
 * later. */
Test(steps, asking_for_room_fails_no_save)
{
    const struct hth_save_id five = offered(5);

    ctx->opts.keep = 0;
    cr_assert(ne(ptr, hth_holdings_get(ctx, five), NULL));
    must_fail(hth_commit_room(commit, 0, 6, NULL, NULL), HEARTH_EBUSY);
    hth_commit_tick(commit);
    must_not_fail();
    must(hth_commit_begin(commit, 0, 5, NULL, &(struct hth_save_id){ 0 }, NULL));
}

Test(steps, a_rank_that_waits_for_the_room_of_a_later_step_has_passed_the_earlier_one)
{
    const struct hth_save_id five = offered(5);

    ctx->opts.keep = 0;
    cr_assert(ne(ptr, hth_holdings_get(ctx, five), NULL));
    hth_commit_passes(commit, 0, 6);
    hth_commit_tick(commit);
    must_fail_naming("rank 0 (node0) is at step 6", "has not begun step 5");
    must_fail(
            hth_commit_begin(commit, 0, 5, NULL, &(struct hth_save_id){ 0 }, NULL), HEARTH_ESTATE);
}

Test(steps, a_save_that_the_rank_has_begun_is_waited_for)
{
    struct hth_save_id five = begun(0, 5);

    ctx->opts.keep = 0;
    cr_assert(ne(ptr, hth_holdings_get(ctx, five), NULL));
    hth_commit_passes(commit, 0, 6);
    pass(4 * (uint64_t)ctx->opts.dead_ms);
    must_not_fail();
}

/* Before it begins another step it has told this engine what it had begun under the one before. */
Test(steps, what_a_rank_began_before_this_engine_is_not_passed_and_the_rest_is)
{
    const struct hth_save_id five = begun(0, 5);

    (void)begun(0, 6);
    engine_again();
    must(hth_commit_rejoin(commit, 0, five, NULL, NULL));
    (void)offered(6);
    (void)begun(0, 7);
    hth_commit_tick(commit);
    must_fail_naming("rank 0 (node0) is at step 7", "has not begun step 6");
}

/* ---- The ranks of a save that was passed --------------------------------------------------- */

/* Rank 1 is at step 6, and its node fails step 5, which rank 0 has begun. */
static void passed(int code)
{
    static const char why[] = "rank 1 is at step 6";
    unsigned char fails[4 + sizeof(why)];

    (void)begun(0, 5);
    done(1, 6);
    save.step = 5;
    hth_put32(fails, (uint32_t)code);
    memcpy(fails + 4, why, sizeof(why));
    fact(1, HTH_KIND_FAILED, fails, sizeof(fails) - 1);
    pass(ctx->opts.dead_ms + ctx->opts.retry_ms); /* step 6 is named */
}

Test(steps, a_later_save_fails_that_the_ranks_of_the_passed_one_leave)
{
    passed(HEARTH_ESTATE);
    must_not_fail();
    pass(ctx->opts.dead_ms + ctx->opts.retry_ms);
    must_fail_naming("rank 0 (node0) is at step 5, which failed for that,", "has not begun step 6");
}

Test(steps, a_later_save_waits_for_the_ranks_that_begin_it)
{
    passed(HEARTH_ESTATE);
    (void)begun(0, 6);
    pass(4 * (uint64_t)ctx->opts.dead_ms);
    must_not_fail();
}

Test(steps, a_later_save_waits_for_ranks_whose_save_failed_for_another_reason)
{
    passed(HEARTH_EFAILED);
    pass(4 * (uint64_t)ctx->opts.dead_ms);
    must_not_fail();
}

static int is_staging(void *none, uint32_t rank)
{
    (void)none;
    return rank == 0;
}

Test(steps, a_later_save_waits_for_a_rank_that_stages_a_save)
{
    const struct hth_commit_events events = { .on_level = on_level, .is_staging = is_staging };

    hth_commit_close(commit);
    must(hth_commit_open(ctx, &events, &commit, NULL));
    must(hth_commit_adopt(commit, NULL));
    must(hth_commit_join(commit, NULL));
    hth_commit_go(commit, chosen);
    passed(HEARTH_ESTATE);
    pass(4 * (uint64_t)ctx->opts.dead_ms);
    must_not_fail();
}

/* The copies of step 6 take the room of step 5, which rank 0 begins first. */
Test(steps, a_later_save_fails_that_takes_the_room_of_a_rank_and_waits_for_it)
{
    const struct hth_save_id six = offered(6);

    ctx->opts.keep = 0;
    hth_commit_passes(commit, 0, 5);
    pass(4 * (uint64_t)ctx->opts.dead_ms); /* it waits for a slot */
    must_not_fail();
    cr_assert(ne(ptr, hth_holdings_get(ctx, six), NULL));
    pass(ctx->opts.dead_ms / 2);
    must_not_fail();
    pass(ctx->opts.dead_ms);
    must_fail_naming("rank 0 (node0) is at step 5, which has no room,", "has not begun step 6");
}

/* Node 0 has three ranks. */
Test(steps, ranks_of_one_node_are_compared_there)
{
    static uint32_t rank_node[] = { 0, 1, 2, 0, 0 };

    hth_commit_close(commit);
    p->node[0].epoch.rank_node = rank_node;
    p->node[0].epoch.world = 5;
    engine_start();
    hth_commit_rank_done(commit, begun(0, 5), 0, 0);
    hth_commit_rank_done(commit, begun(3, 6), 3, 0);
    hth_commit_rank_done(commit, begun(4, 5), 4, 0);
    hth_commit_tick(commit);
    must_fail_naming("rank 3 (node0) is at step 6", "has not begun step 5");
    pass(ctx->opts.dead_ms + 2 * (uint64_t)ctx->opts.retry_ms);
    must_fail_naming("rank 0 (node0) is at step 5", "has not begun step 6");
}

/* The engine ends between record and delivery of step 5's manifest; nodes 1 and 2 repeat what they
 * have said. Its copies take a while, and node 0 is first with step 6. */
Test(steps, a_save_whose_manifest_is_here_is_done_on_all_nodes)
{
    done(0, 5);
    done(1, 5);
    done(2, 5);
    hth_commit_tick(commit);
    engine_again();
    done(1, 5);
    done(2, 5);
    hth_commit_tick(commit);
    for (uint32_t n = 0; n < 3; n++)
        fact(n, HTH_KIND_HELD, NULL, 0);
    hth_commit_tick(commit);
    done(0, 6);
    pass(ctx->opts.dead_ms + ctx->opts.retry_ms);
    must_not_fail();
}
