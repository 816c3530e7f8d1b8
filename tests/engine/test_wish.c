/* SPDX-License-Identifier: Apache-2.0 */
/* Wishes for kept saves, and the list of them, asked of an engine in virtual time that is not the
 * coordinator's, over a net that loses messages on demand. */
#include "saving.h"

#include "ours.h"

#include "core/local/wish.h"
#include "replication/tree/tree.h"
#include "transport/session/frame.h"

enum { NODE = 1 };

static uint32_t lost, to_lose; /* messages with a wish */

static struct hth_loop_verdict lose(void *arg, enum hth_loop_kind kind, uint32_t from, uint32_t to,
        const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };
    struct hth_frame f;

    (void)arg, (void)from, (void)to;
    if (lost < to_lose && kind == HTH_LOOP_MESSAGE && !hth_frame_decode(&f, bytes, len, NULL) &&
            f.type == HTH_MSG_UP && hth_get16(f.body + 4) == HTH_KIND_WISH) {
        v.fault = HTH_LOOP_DROP;
        lost++;
    }
    return v;
}

/* 0: granted; else the code of the refusal; 1: no answer, or another one. */
static int wish(enum hth_wish what, uint64_t step, uint32_t wait_ms)
{
    struct hth_local_wish m = {
        .wish = (uint32_t)what, .wait_ms = wait_ms, .save = { .step = step }
    };

    say(&m, sizeof(m), HTH_LOCAL_WISH);
    for (uint64_t until = w.now_ms + SOON; heard.head.request != request && w.now_ms < until;)
        world_advance(&w, w.now_ms + 1);
    if (heard.head.request == request && heard.head.type == HTH_LOCAL_ERROR)
        return heard.error.code;
    return heard.head.request != request || heard.head.type != HTH_LOCAL_OK;
}

static const struct hth_keep *list(void)
{
    return &hth_node_ctx(world_node(&w, NODE))->keep;
}

static void start(void)
{
    saving_open(&w, 1, 3);
    hth_loop_net_script(w.net, lose, NULL);
    lost = to_lose = 0;
    attach(NODE);
    for (uint64_t until = w.now_ms + SOON; w.now_ms < until && list()->saves < 2;)
        world_advance(&w, w.now_ms + 1);
    cr_assert(ge(u32, list()->saves, 2));
    for (uint32_t r = 0; r < w.ranks; r++)
        rank_due(&w.rank[r], HTH_NEVER);
}

TestSuite(wish, .init = start, .fini = end);

Test(wish, that_was_lost_is_said_again)
{
    to_lose = 2;
    must(wish(HTH_WISH_PIN, list()->save[1].step, 0));
    cr_assert(eq(u32, lost, 2));
    world_advance(&w, w.now_ms + 100);
    cr_assert(eq(u32, list()->pinned & 2, 2));
}

static void say_and_go_on(void)
{
    struct hth_local_wish m = {
        .wish = HTH_WISH_PIN, .wait_ms = SOON, .save = { .step = list()->save[1].step }
    };

    say(&m, sizeof(m), HTH_LOCAL_WISH);
}

Test(wish, of_who_has_gone_is_said_no_more)
{
    to_lose = UINT32_MAX;
    say_and_go_on();
    say_and_go_on();
    hth_node_client_gone(world_node(&w, NODE), OURS);
    lost = 0;
    world_advance(&w, w.now_ms + 2 * SOON);
    cr_assert(zero(u32, lost));
    cr_assert(zero(u32, heard.head.type));
}

/* The engine's own end frees what waits. */
Test(wish, that_is_not_answered_when_its_engine_ends_is_forgotten)
{
    to_lose = UINT32_MAX;
    say_and_go_on();
    say_and_go_on();
}

Test(wish, without_an_answer_ends_when_its_time_is_up)
{
    uint64_t began = w.now_ms;

    to_lose = UINT32_MAX;
    must_fail(wish(HTH_WISH_PIN, list()->save[1].step, 1000), HEARTH_ETIMEOUT);
    cr_assert(le(u64, w.now_ms - began, 1100));
}

Test(wish, that_is_refused_is_an_error_with_the_coordinators_reason)
{
    must_fail(wish(HTH_WISH_RELEASE, 4711, 0), HEARTH_ENOENT);
    cr_assert(ne(ptr, strstr(heard.error.text, "step 4711 is not kept"), NULL), "%s",
            heard.error.text);
}

static void ask_list(void)
{
    struct hth_local_head m;

    ask(&m, sizeof(m), HTH_LOCAL_KEPT, HTH_LOCAL_KEPT_LIST);
}

/* As hth_commit_kept() has it: an engine that has received nothing from the coordinator confirms
 * nothing. */
Test(wish, the_list_says_what_is_pinned_bad_degraded_and_confirmed)
{
    uint64_t step = list()->save[1].step;

    must(wish(HTH_WISH_PIN, step, 0));
    must(wish(HTH_WISH_BAD, step, 0));
    world_advance(&w, w.now_ms + 100);
    ask_list();
    cr_assert(eq(u32, heard.kept.count, list()->saves));
    cr_assert(eq(u64, heard.kept.kept[1].save.step, step));
    cr_assert(eq(u32, heard.kept.kept[0].flags, HTH_KEPT_IS_CONFIRMED));
    cr_assert(eq(u32, heard.kept.kept[1].flags,
            HTH_KEPT_IS_CONFIRMED | HTH_KEPT_IS_PINNED | HTH_KEPT_IS_BAD));
    hth_node_ctx(world_node(&w, NODE))->keep.degraded = 1;
    ask_list();
    cr_assert(eq(u32, heard.kept.kept[0].flags, HTH_KEPT_IS_CONFIRMED | HTH_KEPT_IS_DEGRADED));
    hth_node_ctx(world_node(&w, NODE))->keep.degraded = 0;
    world_silence(&w, 0, 1);
    world_advance(&w, w.now_ms + 4000); /* twice dead_ms */
    ask_list();
    cr_assert(zero(u32, heard.kept.kept[0].flags & HTH_KEPT_IS_CONFIRMED));
}

/* No rank has joined yet. */
static void start_alone(void)
{
    struct world_opts o = {
        .seed = 1, .nodes = 2, .ranks_per_node = 1, .copies = 1, .keep = 1, .run_ms = 60000
    };

    alarm(60);
    world_open(&w, &o);
    while (!w.why[0] && !w.machine[NODE].node)
        world_advance(&w, w.now_ms + 1);
    for (uint32_t r = 0; r < w.ranks; r++)
        rank_due(&w.rank[r], HTH_NEVER);
    attach(NODE);
}

TestSuite(no_job, .init = start_alone, .fini = end);

Test(no_job, no_wish_is_taken_where_no_job_has_recovered)
{
    must_fail(wish(HTH_WISH_PIN, 1, 1000), HEARTH_ESTATE);
}

Test(no_job, nor_before_its_epoch_has_recovered)
{
    for (uint32_t r = 0; r < w.ranks; r++)
        rank_due(&w.rank[r], w.now_ms);
    while (!w.why[0] && !hth_node_ctx(world_node(&w, NODE))->epoch)
        world_advance(&w, w.now_ms + 1);
    must_fail(wish(HTH_WISH_PIN, 1, 1000), HEARTH_ESTATE);
    cr_assert(ne(ptr, strstr(heard.error.text, "no job runs here that has recovered"), NULL), "%s",
            heard.error.text);
}
