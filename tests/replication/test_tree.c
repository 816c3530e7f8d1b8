/* SPDX-License-Identifier: Apache-2.0 */
/* Which node is whose parent after losses, and how facts travel. */
#include "check.h"
#include "pair.h"

#include "core/base/bytes.h"
#include "transport/session/frame.h"

#include <stdlib.h>
#include <unistd.h>

static struct pair *p;

static void begin(void)
{
    alarm(60);
}

TestSuite(tree, .init = begin);

/* A ctx that has only a number of nodes and a list of those that are lost. */
static struct hth_ctx bare(struct hth_epoch *e, uint32_t nodes, uint32_t *down)
{
    *e = (struct hth_epoch){ .nodes = nodes };
    return (struct hth_ctx){ .epoch = e, .lost = down };
}

Test(tree, every_living_node_is_the_child_of_its_living_parent_whoever_is_lost)
{
    enum { N = 5000 };
    uint32_t *down = calloc(N, sizeof(*down)), *seen = calloc(N, sizeof(*seen));
    uint32_t *child = calloc(N, sizeof(*child));
    struct hth_epoch e;
    struct hth_ctx c = bare(&e, N, down);
    uint64_t seed = 5;

    for (int round = 0; round < 3; round++) {
        memset(seen, 0, N * sizeof(*seen));
        for (uint32_t i = 1; i < N; i++)
            down[i] = round ? hth_splitmix64(&seed) % (round == 1 ? 3 : 2) == 0 : 0;
        if (round == 2)
            for (uint32_t i = 1; i <= 40; i++)
                down[i] = 1;
        for (uint32_t i = 0; i < N; i++) {
            uint32_t n = down[i] ? 0 : hth_tree_children(&c, i, child, N);

            for (uint32_t k = 0; k < n; k++) {
                cr_assert(eq(u32, hth_tree_parent(&c, child[k]), i));
                cr_assert(lt(u32, i, child[k]));
                seen[child[k]]++;
            }
        }
        for (uint32_t i = 1; i < N; i++)
            cr_assert(eq(u32, seen[i], !down[i]), "round %d node %u", round, i);
    }
    free(down);
    free(seen);
    free(child);
}

Test(tree, says_how_many_children_there_are_when_they_do_not_fit)
{
    struct hth_epoch e;
    struct hth_ctx c = bare(&e, 100, NULL);
    uint32_t child[4] = { 0 };

    cr_assert(eq(u32, hth_tree_children(&c, 0, child, 2), 32));
    cr_assert(eq(u32, child[1], 2));
    cr_assert(eq(u32, child[2], 0));
    cr_assert(eq(u32, hth_tree_children(&c, 3, child, 4), 3));
    cr_assert(eq(u32, hth_tree_parent(&c, 0), HTH_NODE_NONE));
}

static void facts_from(uint32_t node)
{
    uint32_t before = p->node[0].delivered;

    hth_tree_up(&p->node[node].ctx, HTH_KIND_ECHO, "fact", 4);
    cr_assert(pair_until(p, &p->node[0].delivered, before + 1, 3000), "from %u", node);
    cr_assert(eq(u32, p->node[0].origin, node));
    cr_assert(eq(sz, p->node[0].len, 4));
    cr_assert(zero(int, memcmp(p->node[0].fact, "fact", 4)));
}

Test(tree, up_brings_a_fact_to_the_coordinator_with_its_origin)
{
    p = pair_open(70);
    facts_from(0);
    facts_from(1);
    facts_from(69); /* over node 2 */
    cr_assert(gt(u32, hth_session_connections(p->node[2].ctx.session), 1));
    cr_assert(eq(int, hth_session_is_up(p->node[0].ctx.session, 69), 0));
    pair_close(p);
}

Test(tree, up_goes_round_a_parent_that_is_lost)
{
    p = pair_open(70);
    p->node[69].lost[2] = 1;
    facts_from(69);
    cr_assert(eq(int, hth_session_is_up(p->node[0].ctx.session, 69), 1));
    pair_close(p);
}

/* Before the map has it: only the facts that the child itself sends go another way. */
Test(tree, up_goes_round_a_parent_that_its_child_cannot_reach)
{
    p = pair_open(70);
    hth_tree_reach(&p->node[69].ctx, 2, 0);
    facts_from(69);
    cr_assert(eq(int, hth_session_is_up(p->node[0].ctx.session, 69), 1));
    cr_assert(zero(int, hth_session_is_up(p->node[2].ctx.session, 69)));
    hth_tree_reach(&p->node[69].ctx, 2, 1);
    facts_from(69);
    cr_assert(eq(int, hth_session_is_up(p->node[2].ctx.session, 69), 1));
    pair_close(p);
}

Test(tree, whom_the_map_cuts_from_its_parent_is_the_next_ones_child)
{
    static const struct hth_pair_note cut[] = { { 0, 1, 1, 1, 0 }, { 2, 69, 1, 1, 0 },
        { 3, 100, 0, 1, 0 }, { 4, 5000, 1, 1, 0 }, { 156, 5000, 1, 1, 0 } };
    enum { N = 5001 };
    static uint32_t seen[N], child[N];
    struct hth_epoch e;
    struct hth_ctx c = bare(&e, N, NULL);

    c.pair = cut;
    c.pairs = 5;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t n = hth_tree_children(&c, i, child, N);

        for (uint32_t k = 0; k < n; k++) {
            cr_assert(eq(u32, hth_tree_parent(&c, child[k]), i));
            seen[child[k]]++;
        }
    }
    for (uint32_t i = 1; i < N; i++)
        cr_assert(eq(u32, seen[i], 1), "node %u", i);
    cr_assert(zero(u32, hth_tree_parent(&c, 1)), "there is nobody above the coordinator");
    cr_assert(zero(u32, hth_tree_parent(&c, 69)));
    cr_assert(eq(u32, hth_tree_parent(&c, 100), 3), "they can again");
    cr_assert(zero(u32, hth_tree_parent(&c, 5000)),
            "it reaches neither its parent nor its grandparent");
}

Test(tree, down_reaches_everybody_once_and_to_one_only)
{
    p = pair_open(70);
    hth_tree_down(&p->node[0].ctx, HTH_KIND_GO, "go", 2);
    cr_assert(eq(u32, p->node[0].delivered, 1), "the coordinator receives its own message at once");
    pair_run(p, 200);
    for (uint32_t i = 0; i < 70; i++)
        cr_assert(eq(u32, p->node[i].delivered, 1), "node %u", i);
    hth_tree_to(&p->node[0].ctx, 69, HTH_KIND_PLAN, NULL, 0);
    hth_tree_to(&p->node[0].ctx, 0, HTH_KIND_PLAN, NULL, 0);
    pair_run(p, 200);
    for (uint32_t i = 0; i < 70; i++)
        cr_assert(eq(u32, p->node[i].delivered, i == 69 || i == 0 ? 2 : 1), "node %u", i);
    cr_assert(eq(u32, p->node[69].kind, HTH_KIND_PLAN));
    for (uint32_t i = 0; i < 70; i++)
        cr_assert(le(u32, hth_session_connections(p->node[i].ctx.session), 33));
    pair_close(p);
}

Test(tree, ignores_what_comes_from_the_wrong_side_or_is_too_short)
{
    unsigned char body[16] = { 0 };
    struct hth_ctx *c;

    p = pair_open(40);
    c = &p->node[1].ctx;
    cr_assert(eq(int, hth_tree_message(c, 5, HTH_MSG_DOWN, body, 16), 1));
    cr_assert(eq(int, hth_tree_message(c, 0, HTH_MSG_UP, body, 16), 1));
    cr_assert(eq(int, hth_tree_message(c, 0, HTH_MSG_DOWN, body, 7), 1));
    cr_assert(eq(int, hth_tree_message(c, 0, HTH_MSG_OFFER, body, 16), 0));
    body[0] = 200; /* no such node */
    cr_assert(eq(int, hth_tree_message(c, 0, HTH_MSG_TO, body, 16), 1));
    cr_assert(eq(int, hth_tree_message(&p->node[0].ctx, 3, HTH_MSG_UP, body, 16), 1));
    cr_assert(eq(u32, p->node[1].delivered, 0));
    cr_assert(eq(u32, p->node[0].delivered, 0));
    pair_close(p);
}

/* ---- Many facts, few messages ---------------------------------------------------------------- */

/* The messages that the coordinator receives while all nodes send `facts` facts of `len` bytes
 * each. */
static uint64_t messages_of(uint32_t facts, size_t len)
{
    unsigned char fact[1000] = { 0 };
    uint64_t before = hth_session_messages(p->node[0].ctx.session);
    uint32_t heard = p->node[0].delivered, all = facts * (p->nodes - 1);

    for (uint32_t i = 0; i < facts; i++)
        for (uint32_t n = 1; n < p->nodes; n++)
            hth_tree_up(&p->node[n].ctx, HTH_KIND_ECHO, fact, len);
    cr_assert(pair_until(p, &p->node[0].delivered, heard + all, 3000));
    pair_run(p, 100);
    cr_assert(eq(u32, p->node[0].delivered, heard + all), "each once");
    return hth_session_messages(p->node[0].ctx.session) - before;
}

Test(tree, facts_of_a_subtree_come_in_few_messages)
{
    p = pair_open(80);
    for (uint32_t n = 0; n < 80; n++)
        p->node[n].ctx.opts.tree_degree = 4; /* four levels */
    (void)messages_of(1, 72);                /* connections are made */
    cr_assert(le(u64, messages_of(1, 72), 16), "four subtrees, which are a level or two apart");
    cr_assert(le(u64, messages_of(1, 1000), 28), "eight to a message");
    pair_close(p);
}

Test(tree, a_parent_that_is_not_connected_yet_hears_all_in_one_message)
{
    p = pair_open(40);
    p->node[39].ctx.opts.tree_degree = p->node[1].ctx.opts.tree_degree = 32;
    hth_tree_up(&p->node[33].ctx, HTH_KIND_ECHO, "fact", 4);
    hth_tree_up(&p->node[1].ctx, HTH_KIND_ECHO, "fact", 4);
    cr_assert(pair_until(p, &p->node[0].delivered, 2, 3000));
    cr_assert(eq(u64, hth_session_messages(p->node[0].ctx.session), 1));
    pair_close(p);
}

Test(tree, what_was_gathered_in_an_older_epoch_is_not_said_in_the_next)
{
    p = pair_open(40);
    hth_tree_up(&p->node[1].ctx, HTH_KIND_ECHO, "fact", 4);
    p->node[1].epoch.nonce++;
    pair_run(p, 100);
    cr_assert(zero(u32, p->node[0].delivered));
    p->node[1].epoch.nonce--;
    facts_from(1);
    pair_close(p);
}

Test(tree, of_gathered_facts_that_make_no_sense_the_rest_is_not_heard)
{
    unsigned char body[256] = { 0 };
    struct hth_ctx *c;

    p = pair_open(40);
    c = &p->node[0].ctx;
    for (uint32_t i = 0; i < 2; i++) { /* two of 28 bytes, from node 1 */
        hth_put16(body + 32 * i, 28);
        hth_put32(body + 32 * i + 4, 1);
        hth_put16(body + 32 * i + 8, HTH_KIND_ECHO);
    }
    cr_assert(eq(int, hth_tree_message(c, 1, HTH_MSG_UPS, body, 64), 1));
    cr_assert(eq(u32, p->node[0].delivered, 2));
    cr_assert(eq(int, hth_tree_message(c, 1, HTH_MSG_UPS, body, 63), 1));
    cr_assert(eq(u32, p->node[0].delivered, 3), "the second is cut");
    hth_put16(body + 2, 1);
    cr_assert(eq(int, hth_tree_message(c, 1, HTH_MSG_UPS, body, 64), 1));
    cr_assert(eq(u32, p->node[0].delivered, 3), "what is zero is not");
    hth_put16(body + 2, 0);
    hth_put16(body, 0);
    cr_assert(eq(int, hth_tree_message(c, 1, HTH_MSG_UPS, body, 64), 1));
    cr_assert(eq(u32, p->node[0].delivered, 3), "of no bytes");
    cr_assert(eq(int, hth_tree_message(c, 5, HTH_MSG_UPS, body, 3), 1));
    pair_close(p);
}
