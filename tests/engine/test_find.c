/* SPDX-License-Identifier: Apache-2.0 */
/* Which save a rank may read, asked of an engine in virtual time that has not received all
 * messages. */
#include "ours.h"

#include "replication/tree/tree.h"
#include "transport/session/frame.h"
#include <hearth/read.h>

#define NODE    1u /* where it asks */
#define WAIT_MS 1500u

static uint16_t unheard; /* kind of word that does not come to node `deaf`; 0: all do */
static uint32_t deaf;

static struct hth_loop_verdict cut(void *arg, enum hth_loop_kind kind, uint32_t from, uint32_t to,
        const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };
    struct hth_frame f;

    (void)arg, (void)from;
    if (!unheard || kind != HTH_LOOP_MESSAGE || to != w.machine[deaf].port ||
            hth_frame_decode(&f, bytes, len, NULL))
        return v;
    if ((f.type == HTH_MSG_DOWN && hth_get16(f.body) == unheard) ||
            ((f.type == HTH_MSG_TO || f.type == HTH_MSG_UP) && hth_get16(f.body + 4) == unheard))
        v.fault = HTH_LOOP_DROP;
    return v;
}

static int all_wait(void)
{
    for (uint32_t r = 0; r < w.ranks; r++)
        if (w.rank[r].step != R_WAIT)
            return 0;
    return 1;
}

/* Once the save under way has come to its end the ranks go on with step 1. */
static void again(void)
{
    while (!w.why[0] && !all_wait())
        world_advance(&w, w.now_ms + 1);
    for (uint32_t r = 0; r < w.ranks; r++)
        w.rank[r].next = 0;
}

static void start(void)
{
    struct world_opts o = { .seed = 1,
        .nodes = 2,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = 60000,
        .data_max = 100 };

    alarm(60);
    world_open(&w, &o);
    hth_loop_net_script(w.net, cut, NULL);
    again();
    while (!w.why[0] && w.count[WORLD_PROTECTED] < w.ranks)
        world_advance(&w, w.now_ms + 1);
    attach(NODE);
}

TestSuite(find, .init = start, .fini = end);

/* Step 1, which is PROTECTED, is saved again. Only the first node learns that it is PROTECTED
 * again. */
static void save_again(void)
{
    deaf = NODE;
    unheard = HTH_KIND_HEAD;
    while (!w.why[0] && w.newest.id.attempt < 2)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(u64, w.newest.id.step, 1));
}

/* The same, but the save stays undecided: the other node's promise does not reach the first
 * node. */
static void save_again_undecided(void)
{
    deaf = 0;
    unheard = HTH_KIND_PROMISE;
    while (!w.why[0] && !(all_wait() && w.rank[NODE].save.attempt == 2))
        world_advance(&w, w.now_ms + 1);
    world_advance(&w, w.now_ms + 100);
    cr_assert(eq(u32, w.newest.id.attempt, 1));
}

static void find(uint64_t step, uint32_t wait_ms)
{
    struct hth_local_find m = { .step = step, .wait_ms = wait_ms };

    say(&m, sizeof(m), HTH_LOCAL_FIND);
}

static void find_attempt(uint32_t attempt, uint32_t wait_ms)
{
    struct hth_local_find m = { .wait_ms = wait_ms };

    m.save = hth_local_save_of(w.newest.id);
    m.save.step = 1;
    m.save.attempt = attempt;
    say(&m, sizeof(m), HTH_LOCAL_FIND);
}

static void found(uint32_t attempt)
{
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_FOUND), "%s",
            heard.head.type == HTH_LOCAL_ERROR ? heard.error.text : "nothing was heard");
    cr_assert(eq(u64, heard.found.save.step, 1));
    cr_assert(eq(u32, heard.found.save.attempt, attempt));
}

static void refused(int code, const char *says)
{
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_ERROR));
    cr_assert(eq(int, heard.error.code, code), "%s", heard.error.text);
    cr_assert(ne(ptr, strstr(heard.error.text, says), NULL), "%s", heard.error.text);
}

Test(find, a_step_saved_again_is_never_the_one_before_once_any_rank_has_seen_it_protected)
{
    save_again();
    find(1, WAIT_MS);
    cr_assert(ne(u32, heard.head.type, HTH_LOCAL_FOUND), "attempt %u", heard.found.save.attempt);
    unheard = 0;
    world_advance(&w, w.now_ms + WAIT_MS);
    found(2);
}

Test(find, what_is_not_decided_in_time_is_named)
{
    save_again();
    find(1, WAIT_MS);
    world_advance(&w, w.now_ms + WAIT_MS + 10);
    refused(HEARTH_ETIMEOUT, "attempt 2 at step 1 is not decided yet: it waits for");
    find(1, 0);
    refused(HEARTH_ETIMEOUT, "attempt 2");
}

Test(find, the_one_before_is_found_when_the_newer_one_has_failed)
{
    struct hth_local_head m = { sizeof(m), HTH_LOCAL_CANCEL, 0, 0 };

    save_again_undecided();
    find(1, WAIT_MS);
    cr_assert(eq(u32, heard.head.type, 0));
    m.token = w.rank[0].token;
    m.request = ++w.rank[0].request;
    rank_send(&w.rank[0], &m, sizeof(m), NULL, 0);
    world_advance(&w, w.now_ms + WAIT_MS / 2);
    found(1);
    find_attempt(2, WAIT_MS);
    refused(HEARTH_EFAILED, "cancelled by a rank");
}

Test(find, what_this_node_has_not_handed_over_is_not_waited_for)
{
    while (!w.why[0] && (w.rank[NODE].step != R_RUN || w.rank[NODE].act_ms == HTH_NEVER))
        world_advance(&w, w.now_ms + 1);
    rank_due(&w.rank[NODE], w.now_ms + 2000);
    while (!w.why[0] && w.rank[0].save.attempt < 2)
        world_advance(&w, w.now_ms + 1);
    world_advance(&w, w.now_ms + 100);
    find(1, WAIT_MS);
    found(1);
}

Test(find, what_is_not_decided_is_not_said_to_be_there)
{
    save_again_undecided();
    find(4711, 0);
    refused(HEARTH_ENOENT, "there is: 1");
    cr_assert(eq(ptr, strstr(heard.error.text, "1, 1"), NULL), "%s", heard.error.text);
}

Test(find, an_id_is_of_one_attempt_alone)
{
    save_again_undecided();
    find_attempt(1, WAIT_MS);
    found(1);
    find_attempt(2, WAIT_MS);
    cr_assert(eq(u32, heard.head.type, 0));
    unheard = 0;
    world_advance(&w, w.now_ms + WAIT_MS);
    found(2);
    find_attempt(1, WAIT_MS);
    refused(HEARTH_ENOENT, "no attempt 1 at step 1");
}

Test(find, the_newest_is_what_is_known_or_after_a_wait_what_was_handed_over)
{
    save_again();
    find(HEARTH_STEP_NEWEST, 0);
    found(1);
    find(HEARTH_STEP_NEWEST, WAIT_MS);
    cr_assert(eq(u32, heard.head.type, 0));
    world_advance(&w, w.now_ms + WAIT_MS + 10);
    found(1);
    find(HEARTH_STEP_NEWEST, WAIT_MS);
    unheard = 0;
    world_advance(&w, w.now_ms + WAIT_MS);
    found(2);
}

Test(find, who_goes_while_it_waits_is_answered_nothing)
{
    save_again();
    find(1, WAIT_MS);
    find(1, WAIT_MS);
    hth_node_client_gone(world_node(&w, NODE), OURS);
    unheard = 0;
    world_advance(&w, w.now_ms + 2 * WAIT_MS);
    cr_assert(eq(u32, heard.head.type, 0));
}

/* The engine's own end frees what waits. */
Test(find, an_engine_ends_while_somebody_waits)
{
    save_again();
    find(1, WAIT_MS);
    find(1, WAIT_MS);
}
