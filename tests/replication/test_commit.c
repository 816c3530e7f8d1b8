/* SPDX-License-Identifier: Apache-2.0 */
/* A member's facts about a save, as the coordinator receives them, and when they end the loss of a
 * member. */
#include "check.h"
#include "pair.h"

#include "core/base/bytes.h"
#include "replication/commit/commit.h"
#include <string.h>
#include <unistd.h>

#define TEXT_AT 36u /* of FAILED: behind the save and the code */

static const struct hth_save_id save = { 7, 77, 5, 1 };
static struct pair *p;
static struct hth_commit *commit; /* of node 1; of node 0 where the coordinator is tested */
static uint32_t self;

static void on_level(void *none, struct hth_save_id id, uint32_t rank, enum hearth_level level,
        int degraded, int code, const char *text)
{
    (void)none, (void)id, (void)rank, (void)level, (void)degraded, (void)code, (void)text;
}

static void begin_at(uint32_t node)
{
    static uint32_t rank_node[2] = { 0, 1 };
    struct hth_commit_events events = { .on_level = on_level };

    alarm(60);
    p = pair_open(2);
    self = node;
    p->node[self].epoch.rank_node = rank_node;
    must(hth_commit_open(&p->node[self].ctx, &events, &commit, NULL));
    must(hth_commit_join(commit, NULL));
}

static void begin(void)
{
    begin_at(1);
}

static void begin_coordinator(void)
{
    begin_at(0);
}

static void end(void)
{
    hth_commit_close(commit);
    p->node[self].epoch.rank_node = NULL;
    pair_close(p);
}

TestSuite(commit, .init = begin, .fini = end);
TestSuite(coordinator, .init = begin_coordinator, .fini = end);

Test(commit, a_failure_that_is_said_again_has_the_same_reason)
{
    const struct pair_node *coordinator = &p->node[0];
    unsigned char first[HTH_TREE_MAX + 1];
    size_t len;

    hth_commit_fail(commit, save, HEARTH_EIO, "the disk is full");
    cr_assert(pair_until(p, &coordinator->delivered, 1, 1000));
    cr_assert(eq(u16, coordinator->kind, HTH_KIND_FAILED));
    len = coordinator->len;
    memcpy(first, coordinator->fact, len);
    first[len] = '\0';
    cr_assert(ne(ptr, strstr((char *)first + TEXT_AT, "the disk is full"), NULL));
    for (uint32_t n = 2; n <= 4; n++) {
        pair_run(p, 200);
        p->now_ms += 200;
        hth_commit_tick(commit);
        cr_assert(pair_until(p, &coordinator->delivered, n, 1000));
        cr_assert(eq(sz, coordinator->len, len), "said %u times", n);
        cr_assert(zero(int, memcmp(coordinator->fact, first, len)), "said %u times", n);
    }
}

/* The coordinator's ranks begin a save; the other node is lost before it has reported what it
 * holds. */
static void lose_a_member(void)
{
    struct hth_save_id id;

    hth_commit_go(commit, (struct hth_save_id){ 0 });
    must(hth_commit_begin(commit, 0, 5, NULL, &id, NULL));
    hth_commit_peer_down(commit, 1);
}

/* 1: within so long the coordinator received a FAILED, if only from itself. */
static int fails_in(uint64_t ms)
{
    for (uint64_t end_ms = p->now_ms + ms; p->now_ms < end_ms; p->now_ms += 100) {
        hth_commit_tick(commit);
        if (p->node[0].kind == HTH_KIND_FAILED)
            return 1;
    }
    return 0;
}

Test(coordinator, a_save_that_a_lost_node_owes_its_part_of_ends_long_before_its_deadline)
{
    const struct hth_ctx_opts *o = &p->node[0].ctx.opts;
    const char *why = (char *)p->node[0].fact + TEXT_AT;

    lose_a_member();
    cr_assert(zero(int, fails_in(o->dead_ms / 2)), "at once: %s", why);
    cr_assert(fails_in(o->dead_ms));
    cr_assert(ne(ptr, strstr(why, "node1 is lost"), NULL), "%s", why);
}

Test(coordinator, a_node_that_comes_back_soon_costs_no_save)
{
    const struct hth_ctx_opts *o = &p->node[0].ctx.opts;

    lose_a_member();
    for (int i = 0; i < 3; i++) {
        cr_assert(zero(int, fails_in(o->dead_ms / 2)));
        hth_commit_peer_up(commit, 1);
        cr_assert(zero(int, fails_in(2 * o->dead_ms)));
        hth_commit_peer_down(commit, 1);
    }
}

/* Hands the coordinator the last fact that it received or sent, which must be of that kind, as the
 * tree does. */
static void hear_oneself(uint16_t kind)
{
    const struct pair_node *n = &p->node[0];
    unsigned char fact[HTH_TREE_MAX];
    size_t len = n->len;

    cr_assert(eq(u16, n->kind, kind));
    memcpy(fact, n->fact, len);
    hth_commit_deliver(commit, 0, kind, fact, len);
}

/* DONE of node 1 for `id`, with these runs and no object. */
static void done_of_node_1(struct hth_save_id id, const struct hth_ranks *ranks)
{
    unsigned char body[48 + 4 * HTH_RANK_RUN_BYTES] = { 0 };

    hth_put64(body, id.epoch);
    hth_put64(body + 8, id.nonce);
    hth_put64(body + 16, id.step);
    hth_put32(body + 24, id.attempt);
    hth_put32(body + 36, 1); /* parts */
    hth_put32(body + 44, ranks->runs);
    hth_ranks_encode(ranks, body + 48);
    hth_commit_deliver(commit, 1, HTH_KIND_DONE, body, 48 + hth_ranks_bytes(ranks));
}

static const struct hth_ranks of_second = { 1, { { 1, 1, 1 } } };

static int is_manifest_made(struct hth_save_id id)
{
    const struct hth_held_save *s;

    hth_commit_tick(commit);
    s = hth_holdings_find(&p->node[0].ctx, id);
    return s && s->has_manifest;
}

Test(coordinator, a_save_of_some_ranks_waits_for_the_nodes_of_these_alone)
{
    struct hth_save_id id = { 7, 77, 5, hth_ranks_bits(&of_second) | 1 };

    hth_commit_go(commit, (struct hth_save_id){ 0 });
    done_of_node_1(id, &of_second);
    cr_assert(is_manifest_made(id));
}

Test(coordinator, a_save_of_all_ranks_waits_for_all_nodes)
{
    hth_commit_go(commit, (struct hth_save_id){ 0 });
    done_of_node_1(save, &(struct hth_ranks){ 0 });
    cr_assert(zero(int, is_manifest_made(save)));
}

/* 1: the coordinator has given it up, with this in the sentence. */
static int is_cancelled(struct hth_save_id id, const char *why)
{
    struct hth_head head;

    hth_commit_tick(commit);
    head = pair_head(p, 0, NULL);
    return head.cancels == 1 && !hth_save_cmp(head.cancelled[0].save, id) &&
           strstr(head.why, why) != NULL;
}

Test(coordinator, a_save_that_two_members_say_is_of_two_sets_is_cancelled_by_name)
{
    const struct hth_ranks both = { 1, { { 0, 2, 1 } } };
    struct hth_save_id id = { 7, 77, 5, hth_ranks_bits(&of_second) | 1 };

    hth_commit_go(commit, (struct hth_save_id){ 0 });
    p->node[0].epoch.world = 2;
    done_of_node_1(id, &both);
    cr_assert(is_cancelled(id, "is not of the ranks that are named"));
}

Test(coordinator, a_node_that_has_no_rank_in_the_set_is_not_heard_of_it)
{
    const struct hth_ranks first = { 1, { { 0, 1, 1 } } };
    struct hth_save_id id = { 7, 77, 5, hth_ranks_bits(&first) | 1 };

    hth_commit_go(commit, (struct hth_save_id){ 0 });
    done_of_node_1(id, &first);
    cr_assert(is_cancelled(id, "node1 has no rank that takes part"));
}

Test(coordinator, whom_a_save_of_some_ranks_waits_for_is_named)
{
    const struct hth_ranks first = { 1, { { 0, 1, 1 } } };
    char text[300];
    struct hth_save_id id;

    hth_commit_go(commit, (struct hth_save_id){ 0 });
    must(hth_commit_begin(commit, 0, 5, &first, &id, NULL));
    hth_commit_text(commit, text, sizeof(text));
    cr_assert(ne(ptr, strstr(text, "the ranks of node node0"), NULL), "%s", text);
    cr_assert(zero(ptr, strstr(text, "node1")), "%s", text);
}

/* As when a rank that asked and asked goes on, and all it asked for is refused at once. */
Test(coordinator, however_many_have_failed_all_are_decided_without_another_word)
{
    struct hth_save_id id[20];
    enum hearth_level level;
    int degraded, code;
    char text[256];

    hth_commit_go(commit, (struct hth_save_id){ 0 });
    for (int i = 0; i < 20; i++) {
        must(hth_commit_begin(commit, 0, 5, NULL, &id[i], NULL));
        hth_commit_fail(commit, id[i], HEARTH_EIO, "the disk is full");
        hear_oneself(HTH_KIND_FAILED);
    }
    while (hth_commit_due_ms(commit) <= p->now_ms) {
        hth_commit_tick(commit);
        hear_oneself(HTH_KIND_HEAD);
    }
    for (int i = 0; i < 20; i++) {
        must(hth_commit_status(commit, id[i], &level, &degraded, &code, text));
        cr_assert(ne(int, code, 0), "attempt %u is undecided", id[i].attempt);
    }
}
