/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that name different steps in one save, which otherwise would never end on any node. */
#include "coordinator.h"

#include <stdio.h>

enum { NODES = 3 };

static void begin(void)
{
    coordinator_open(NODES);
    engine_start();
}

TestSuite(steps, .init = begin, .fini = coordinator_close);

static void done(uint32_t origin, uint64_t step)
{
    save.step = step;
    say_done(origin);
}

/* The FAILED that this engine sends to itself about the two saves, with both names. */
static void must_fail_naming(const char *one, const char *other)
{
    const char *why = (const char *)p->node[0].fact + SAVE + 4;

    cr_assert(ge(u32, p->node[0].heard[HTH_KIND_FAILED], 1));
    cr_assert(eq(i32, (int)hth_get32(p->node[0].fact + SAVE), HEARTH_EINVAL));
    cr_assert(ne(ptr, strstr(why, one), NULL), "%s", why);
    cr_assert(ne(ptr, strstr(why, other), NULL), "%s", why);
}

static void must_not_fail(void)
{
    cr_assert(zero(u32, p->node[0].heard[HTH_KIND_FAILED]));
}

static void pass(uint64_t ms)
{
    for (uint64_t end_ms = p->now_ms + ms; p->now_ms < end_ms; p->now_ms += ctx->opts.retry_ms)
        hth_commit_tick(commit);
    hth_commit_tick(commit);
}

Test(steps, two_saves_of_which_each_lacks_the_others_ranks_fail_and_name_both)
{
    done(0, 5);
    done(1, 5);
    done(2, 6);
    pass(ctx->opts.dead_ms + ctx->opts.retry_ms);
    must_fail_naming("rank 0 (node0) step 5", "rank 2 (node2) step 6");
}

/* A fact of node 2 is late, or node 2 is slower than the others. */
Test(steps, a_node_that_has_done_the_earlier_save_too_is_waited_for)
{
    done(0, 5);
    done(1, 5);
    done(2, 6);
    pass(ctx->opts.dead_ms / 2);
    done(2, 5);
    pass(2 * ctx->opts.dead_ms);
    must_not_fail();
}

Test(steps, a_node_that_is_ahead_is_no_other_order)
{
    done(0, 5);
    done(1, 5);
    done(1, 6);
    pass(4 * (uint64_t)ctx->opts.dead_ms);
    done(2, 5);
    pass(ctx->opts.retry_ms);
    must_not_fail();
}

static struct hth_save_id begun(uint32_t rank, uint64_t step)
{
    struct hth_save_id id;

    must(hth_commit_begin(commit, rank, step, NULL, &id, NULL));
    return id;
}

/* Node 0 has three ranks, and sends its coordinator no fact about the saves. */
Test(steps, ranks_of_one_node_are_compared_there)
{
    static uint32_t rank_node[] = { 0, 1, 2, 0, 0 };

    hth_commit_close(commit);
    p->node[0].epoch.rank_node = rank_node;
    p->node[0].epoch.world = 5;
    engine_start();
    hth_commit_rank_done(commit, begun(0, 5), 0);
    hth_commit_rank_done(commit, begun(3, 6), 3);
    hth_commit_rank_done(commit, begun(4, 5), 4);
    pass(ctx->opts.dead_ms + ctx->opts.retry_ms);
    must_fail_naming("rank 0 (node0) step 5", "rank 3 (node0) step 6");
}

/* Rank 0 never begins step 5, whose copies on node 0 take the room of its step 6. */
Test(steps, a_save_that_takes_the_room_of_a_rank_that_has_passed_it_fails_at_once)
{
    const struct hth_save_id five = { EPOCH, NONCE, 5, 1 };

    ctx->opts.keep = 0;
    must(hth_commit_name(commit, five, NULL, NULL));
    cr_assert(ne(ptr, hth_holdings_get(ctx, five), NULL));
    must_fail(hth_commit_room(commit, 0, HTH_STEP_MAX, NULL, NULL), HEARTH_EBUSY);
    must_not_fail();
    must_fail(hth_commit_room(commit, 0, 6, NULL, NULL), HEARTH_EBUSY);
    must_fail_naming("rank 0 (node0) begins step 6", "has not begun step 5");
}

Test(steps, a_save_that_the_rank_has_begun_is_waited_for)
{
    struct hth_save_id five = begun(0, 5);

    ctx->opts.keep = 0;
    cr_assert(ne(ptr, hth_holdings_get(ctx, five), NULL));
    must_fail(hth_commit_room(commit, 0, 6, NULL, NULL), HEARTH_EBUSY);
    must_not_fail();
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
