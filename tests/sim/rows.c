/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories that lost a PROTECTED step or stopped saving for good, each by hand
 * (tests/support/script.h).
 *
 *   rows NAME [--trace] [--blob] [--break RULE]     rows --list       (--blob: maps are never in a word)
 *
 * Exit status 0: the promises held, and saving went on.
 */
#include "rows/rows.h"
#include "engine/job/health.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct world_opts base(uint32_t nodes, uint32_t ranks, uint32_t copies)
{
    return (struct world_opts){
        .seed = 1, .save_ms = SAVE_MS, .nodes = nodes, .ranks_per_node = ranks, .copies = copies
    };
}

static void must_have(struct world *w, uint32_t copies, const char *when)
{
    uint32_t least = script_copies(w);

    if (least < copies)
        world_broken(w, "%s: an object of the newest PROTECTED step is on %u nodes, not on %u",
                when, least, copies);
}

/* Members remember what a new coordinator's engine does not. */
static void serial(struct world *w)
{
    must_save(w, 2, "at first");
    script_silent(w, 5, FLAP_MS);
    script_run(w, WELL_MS);
    script_again(w, 0);
    script_run(w, 1000);
    script_silent(w, 3, FLAP_MS);
    script_run(w, WELL_MS);
    for (int i = 0; i < 8; i++) {
        must_save(w, 1, "after two flaps and a restart");
        must_have(w, 2, "after two flaps and a restart");
    }
}

/* The same where one copy of two is enough: the second loss finds nothing. */
static void serial_two(struct world *w)
{
    must_save(w, 2, "at first");
    script_silent(w, 5, FLAP_MS);
    script_run(w, 1000);
    script_silent(w, 4, FLAP_MS);
    script_run(w, 1000);
    script_again(w, 0);
    script_run(w, 1000);
    script_silent(w, 3, FLAP_MS);
    script_run(w, 1000);
    script_silent(w, 2, FLAP_MS);
    script_run(w, WELL_MS);
    for (int i = 0; i < 4; i++) {
        must_save(w, 1, "after four flaps and a restart");
        must_have(w, 2, "after four flaps and a restart");
    }
    script_run(w, WELL_MS);
    must_have(w, 3, "at rest");
}

/* Below the tree's first level the coordinator itself has no connection that could come back. */
static void deep(struct world *w)
{
    must_save(w, 2, "at first");
    script_silent(w, 35, FLAP_MS);
    script_run(w, WELL_MS);
    must_save(w, 3, "after node 35 was out of reach");
    must_have(w, 2, "after node 35 was out of reach");
}

static void restart(struct world *w)
{
    must_save(w, 2, "at first");
    script_silent(w, 3, FLAP_MS);
    script_run(w, 1000);
    script_again(w, 0);
    script_run(w, 1000);
    must_save(w, 3, "after a flap and a restart");
    must_have(w, 2, "after a flap and a restart");
}

/* The list of what has moved is bounded by what there is, not by what has happened. */
static void flaps(struct world *w)
{
    must_save(w, 1, "at first");
    for (uint32_t i = 0; i < 150; i++) {
        script_silent(w, 1 + i % 2, 3000);
        script_run(w, 500);
    }
    script_run(w, WELL_MS);
    must_save(w, 3, "after two nodes flapped 75 times each");
    must_have(w, 2, "after two nodes flapped 75 times each");
}

/* More copies have moved than a message has room for. */
static void many(struct world *w)
{
    must_save(w, 1, "at first");
    for (uint32_t n = 5; n < w->opts.nodes; n += 7)
        script_silence(w, n, 1);
    script_run(w, FLAP_MS);
    for (uint32_t n = 5; n < w->opts.nodes; n += 7)
        script_silence(w, n, 0);
    script_run(w, 2000);
    must_save(w, 1, "after a seventh of the nodes was out of reach");
    must_have(w, 2, "after a seventh of the nodes was out of reach");
    script_run(w, WELL_MS);
    must_save(w, 1, "with all at home again");
}

static void exactly(struct world *w, const char *when)
{
    uint32_t each = w->opts.ranks_per_node * (1 + w->opts.copies);

    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (script_all_objects(w, i) != each)
            world_broken(w, "%s: node %u holds %u objects, and owes %u", when, i,
                    script_all_objects(w, i), each);
}

/* Copies that moved return to their own nodes, and no copy is left where it was meanwhile. */
static void moved(struct world *w)
{
    must_save(w, 1, "at first");
    exactly(w, "at first");
    script_silent(w, 2, 4000);
    script_run(w, WELL_MS);
    exactly(w, "after a flap");
    must_save(w, 1, "after a flap");
    exactly(w, "after a flap and a save");
}

/* A node that is lost twice has its copies again when it is reachable. No other node has room for
 * them: there is memory for what each node owes, and one slot (core/store/need.h). */
static void twice_lost(struct world *w)
{
    must_save(w, 2, "at first");
    for (int i = 0; i < 3; i++) {
        script_silent(w, 2, FLAP_MS);
        script_run(w, 1000);
    }
    script_run(w, WELL_MS);
    must_save(w, 3, "after three flaps");
    exactly(w, "after three flaps");
    must_have(w, 2, "after three flaps");
}

static void as_before(struct world *w, const uint32_t before[4], const char *when)
{
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (script_slots(w, i) > before[i] + 1) /* one of the largest size */
            world_broken(w, "%s: node %u has %u slots, and %u before", when, i, script_slots(w, i),
                    before[i]);
}

static void cut(struct world *w, uint32_t a, uint32_t b, int both, int on)
{
    world_mute(w, w->member[a], w->member[b], on);
    if (both)
        world_mute(w, w->member[b], w->member[a], on);
}

/* Copies are with other nodes while two nodes cannot reach each other. The slots for them are given
 * back when the two can again. */
static void given_back(struct world *w)
{
    uint32_t before[4] = { 0 }, most = 0;

    must_save(w, 3, "at first");
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        before[i] = script_slots(w, i);
    cut(w, 2, 3, 1, 1);
    script_run(w, 3 * SAVE_MS);
    must_save(w, 4, "while two nodes cannot reach each other");
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        most += script_slots(w, i) > before[i] ? script_slots(w, i) - before[i] : 0;
    if (!most)
        world_broken(w, "while two nodes cannot reach each other: no node has more slots");
    cut(w, 2, 3, 1, 0);
    script_run(w, 5 * WELL_MS);
    must_save(w, 1, "with all at home");
    as_before(w, before, "with all at home");
}

/* Slots that were made while ranks saved and copies moved are given back in the next epoch, if not
 * before. */
static void given_back_later(struct world *w)
{
    uint32_t before[4] = { 0 }, most = 0;

    must_save(w, 3, "at first");
    script_go(w);
    script_run(w, 1000);
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        before[i] = script_slots(w, i);
    script_silent(w, 2, FLAP_MS);
    script_run(w, 100);
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        most = script_slots(w, i) > before[i] + most ? script_slots(w, i) - before[i] : most;
    if (most <= 2)
        world_broken(w, "after a flap: nobody wants more slots");
    world_restart(w, 1, "the job is started again");
    world_advance(w, w->now_ms + 3);
    script_rest(w);
    must_save(w, 1, "in the next epoch");
    script_run(w, WELL_MS);
    as_before(w, before, "in the next epoch");
}

/* For a coordinator that was silent all others were lost, and for ten minutes it alone would be
 * well enough for copies: it has no room for all of them. */
static void crowded(struct world *w)
{
    must_save(w, 2, "at first");
    for (int i = 0; i < 2; i++) {
        script_silent(w, 0, FLAP_MS);
        script_run(w, 1000);
    }
    script_run(w, WELL_MS);
    must_save(w, 3, "after the coordinator's node was silent twice");
    must_have(w, 2, "after the coordinator's node was silent twice");
}

/* Copies are to move to a node that is out of reach too, and is not lost yet. The node that had
 * them is back, and keeps them. */
static void unsettled(struct world *w)
{
    must_save(w, 1, "at first");
    script_silence(w, 1, 1);
    script_run(w, 1900);
    script_silence(w, 2, 1);
    script_run(w, 400);
    script_silence(w, 1, 0);
    script_run(w, 4000);
    script_silence(w, 2, 0);
    script_run(w, WELL_MS);
    exactly(w, "after both were silent");
    must_save(w, 2, "after both were silent");
}

/* The head is on record before any node receives it, and the engines act on it after a restart
 * too. */
static void all_again(struct world *w)
{
    must_save(w, 1, "at first");
    script_silent(w, 2, FLAP_MS);
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        script_kill(w, i);
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        script_start(w, i);
    script_run(w, WELL_MS);
    exactly(w, "after all engines started again");
    must_save(w, 2, "after all engines started again");
    must_have(w, 2, "after all engines started again");
}

/* Until it is known who cannot reach whom a save may fail; from then on none does, though they
 * never can. */
static void apart_of(struct world *w, uint32_t a, uint32_t b, int both)
{
    uint64_t until_ms;

    must_save(w, 2, "at first");
    cut(w, a, b, both, 1);
    for (until_ms = w->now_ms + 3 * SAVE_MS; w->now_ms < until_ms;)
        (void)script_save(w, 1, SAVE_MS + 1000);
    for (int i = 0; i < 4; i++) {
        must_save(w, 1, "while two nodes cannot reach each other");
        must_have(w, 2, "while two nodes cannot reach each other");
    }
    script_again(w, 0);
    must_save(w, 2, "and the coordinator's engine has started again");
    cut(w, a, b, both, 0);
    script_run(w, 5 * WELL_MS);
    must_save(w, 2, "when they can again");
    must_have(w, 1 + w->opts.copies, "when they can again");
}

/* Owner and holder of copies of each other. */
static void apart(struct world *w)
{
    apart_of(w, 2, 3, 1);
}

static void apart_oneway(struct world *w)
{
    apart_of(w, 2, 3, 0);
}

/* Parent and child in the tree: facts and words go another way. */
static void apart_tree(struct world *w)
{
    apart_of(w, 1, 3, 1);
}

/* The coordinator and a node below its children, owner and holder of copies of each other: signs of
 * life pass by the tree, so the node is never lost. */
static void apart_coordinator(struct world *w)
{
    apart_of(w, 0, 6, 1);
}

static void apart_from_coordinator(struct world *w)
{
    apart_of(w, 0, 6, 0);
}

static void apart_to_coordinator(struct world *w)
{
    apart_of(w, 6, 0, 0);
}

/* The check of this engine has the two by name. */
static void must_name(struct world *w, uint32_t asked, uint32_t a, uint32_t b)
{
    struct health *h = calloc(1, sizeof(*h));
    char pair[64];

    if (!h)
        abort();
    snprintf(pair, sizeof(pair), "Nodes m%u and m%u", w->member[a], w->member[b]);
    health_look(w->machine[w->member[asked]].node, h);
    if (!(h->raised >> HEALTH_node_unreachable & 1) ||
            !strstr(h->text[HEALTH_node_unreachable], pair))
        world_broken(w, "node %u does not say that nodes %u and %u cannot reach each other", asked,
                a, b);
    free(h);
}

/* The coordinator and two nodes that have no connection with it, since they have no places in
 * common with it: it alone notices, when it needs a common object of theirs. Each engine says
 * so. */
static void apart_coordinator_two(struct world *w)
{
    must_save(w, 2, "at first");
    cut(w, 0, 3, 1, 1);
    cut(w, 0, 5, 1, 1);
    for (uint64_t until_ms = w->now_ms + 5 * SAVE_MS; w->now_ms < until_ms;)
        (void)script_save(w, 1, SAVE_MS + 1000);
    for (int i = 0; i < 8; i++) {
        must_save(w, 1, "while the coordinator cannot reach two nodes");
        must_have(w, 2, "while the coordinator cannot reach two nodes");
    }
    cut(w, 0, 5, 1, 0);
    script_run(w, 5 * WELL_MS);
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        must_name(w, i, 0, 3);
    script_again(w, 0);
    must_save(w, 8, "and the coordinator's engine has started again");
    cut(w, 0, 3, 1, 0);
    script_run(w, 5 * WELL_MS);
    must_save(w, 2, "when it can again");
    must_have(w, 2, "when it can again");
}

/* No dial of the coordinator's finds that such a node is lost: its parent says so. */
static void apart_then_lost(struct world *w)
{
    const struct hth_ctx *ctx;

    must_save(w, 2, "at first");
    cut(w, 0, 6, 1, 1);
    script_run(w, 3 * SAVE_MS);
    must_save(w, 2, "while two nodes cannot reach each other");
    script_silence(w, 6, 1);
    script_run(w, 4 * w->opts.dead_ms);
    ctx = hth_node_ctx(w->machine[w->member[0]].node);
    if (!ctx->lost[6])
        world_broken(w, "the coordinator does not call a silent node lost");
    script_silence(w, 6, 0);
    script_run(w, 5 * WELL_MS);
    must_save(w, 2, "when it answers again");
}

/* Each copy may come from the other holder, and there is nowhere else to go. */
static void apart_other(struct world *w)
{
    apart_of(w, 1, 2, 1);
}

/* A copy was elsewhere before, where nothing of a new save is. */
static void apart_moved(struct world *w)
{
    must_save(w, 1, "at first");
    script_silent(w, 2, FLAP_MS);
    script_run(w, WELL_MS);
    must_save(w, 1, "after a flap");
    apart_of(w, 1, 2, 1);
}

/* The two have their copies again when they can, however often they could not: no other node has
 * room for these copies of more than one save. */
static void apart_twice(struct world *w)
{
    must_save(w, 2, "at first");
    for (int i = 0; i < 2; i++) {
        cut(w, 1, 2, 1, 1);
        script_run(w, 3 * SAVE_MS);
        cut(w, 1, 2, 1, 0);
        script_run(w, 2 * WELL_MS);
    }
    must_save(w, 3, "when they can again");
    exactly(w, "when they can again");
    must_have(w, 2, "when they can again");
}

/* The map has a pair when a node and the holder of its copy are lost, twice, and return.
 * The copy returns, too. */
static void apart_lost(struct world *w)
{
    must_save(w, 2, "at first");
    cut(w, 3, 4, 1, 1);
    script_run(w, 3 * SAVE_MS);
    cut(w, 3, 4, 1, 0);
    script_run(w, 2 * WELL_MS);
    must_save(w, 1, "when two nodes can reach each other again");
    for (int i = 0; i < 2; i++) {
        script_silence(w, 3, 1);
        script_run(w, FLAP_MS);
        script_silence(w, 2, 1);
        script_run(w, FLAP_MS);
        script_silence(w, 3, 0);
        script_run(w, 1000);
        script_silence(w, 2, 0);
        script_run(w, 1000);
    }
    script_run(w, WELL_MS);
    must_save(w, 3, "after two others were silent twice");
    exactly(w, "after two others were silent twice");
}

/* The job is started again; `m` is the machine of that node from now on. */
static void with_machine(struct world *w, uint32_t node, uint32_t m)
{
    w->member[node] = m;
    world_restart(w, 1, "another machine");
    world_advance(w, w->now_ms + 3);
    script_rest(w);
    world_advance(w, w->now_ms + WELL_MS); /* what was lost is brought back */
}

/* Two of three machines are replaced, and come back with their old memory when their
 * replacements are lost: the newest step is beyond redundancy, and recovery goes back to the
 * step before. */
static void ruled_out(struct world *w)
{
    struct known_save before;

    must_save(w, 1, "at first");
    before = w->newest;
    with_machine(w, 0, 3);
    with_machine(w, 1, 4);
    must_save(w, 1, "with two other machines");
    machine_lose(w, 3);
    machine_lose(w, 4);
    w->newest = before;
    w->member[0] = 0;
    with_machine(w, 1, 1);
    must_save(w, 3, "after recovery went back to an older step");
    script_run(w, WELL_MS);
    exactly(w, "after recovery went back to an older step");
}

#define STAGER 90000u /* a client of each node: a helper of its rank, which stages saves */

static uint32_t staged, refused;

static void hear_stager(struct world *w, const struct letter *l)
{
    uint32_t type = ((const struct hth_local_head *)(const void *)l->bytes)->type;

    (void)w;
    staged += l->client >= STAGER && type == HTH_LOCAL_LENT;
    refused += l->client >= STAGER && type == HTH_LOCAL_ERROR;
}

static void stager_says(struct world *w, uint32_t node, void *message, uint32_t len, uint32_t type)
{
    const struct hth_local_head head = { len, type, 1, 0 };

    memcpy(message, &head, sizeof(head));
    hth_node_request(world_node(w, w->member[node]), STAGER + node, message, len, NULL);
    machine_due(&w->machine[w->member[node]], 0);
    world_advance(w, w->now_ms + 1);
}

/* Stages saves without a step until one is refused. */
static void stage_all(struct world *w, uint32_t node)
{
    struct hth_local_attach attach = { .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = node,
        .world = w->ranks,
        .helper = 1,
        .job = "sim" };
    uint32_t before;

    stager_says(w, node, &attach, sizeof(attach), HTH_LOCAL_ATTACH);
    world_advance(w, w->now_ms + 5);
    before = refused;
    for (uint32_t i = 0; i < 30 && refused == before; i++) {
        struct hth_local_begin begin = { .step = UINT64_MAX, .bytes = 2 * HTH_BLOCK, .name = "o" };

        stager_says(w, node, &begin, sizeof(begin), HTH_LOCAL_BEGIN);
        world_advance(w, w->now_ms + 5);
    }
    if (refused == before)
        world_broken(w, "node %u: no staged save is refused", node);
}

/* One engine is slow, and ranks of other nodes stage saves meanwhile. The save that waits for the
 * slow engine must have room for its copies. */
static void staged_beside(struct world *w)
{
    uint64_t step;

    must_save(w, 2, "at first");
    w->stranger = hear_stager;
    world_stop(w, w->member[1], 1);
    script_go(w);
    step = w->rank[0].next;
    world_advance(w, w->now_ms + 100);
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        if (i != 1)
            stage_all(w, i);
    world_stop(w, w->member[1], 0);
    script_rest(w);
    if (w->newest.id.step != step)
        world_broken(
                w, "beside %u staged saves: a save is not PROTECTED (%.200s)", staged, w->heard);
    for (uint32_t i = 0; i < w->opts.nodes; i++)
        hth_node_client_gone(world_node(w, w->member[i]), STAGER + i);
    must_save(w, 3, "after those that had staged are gone");
}

#define BLOCK_MS 1500u /* more than a third of dead_ms, but less than it: peers keep the node */
#define BLOCKS   60u

/* The coordinator's thread is blocked in a call again and again. It still finds a node that is
 * gone, counts no other node as lost, and saving goes on. */
static void blocked(struct world *w)
{
    struct hth_session *session = hth_node_ctx(world_node(w, 0))->session;
    uint32_t n = 0;

    must_save(w, 2, "at first");
    script_silence(w, 3, 1);
    for (; n < BLOCKS && hth_session_is_up(session, 3) && !w->why[0]; n++) {
        world_block(w, w->member[0], 1, w->now_ms + BLOCK_MS, 0);
        script_run(w, BLOCK_MS);
        world_unblock(w, w->member[0]);
        script_run(w, 100);
    }
    if (n == BLOCKS)
        world_broken(w, "a node that is gone was not found in %u s", BLOCKS * BLOCK_MS / 1000);
    if (!hth_session_is_up(session, 1) || !hth_session_is_up(session, 2))
        world_broken(w, "a node that is there was called lost");
    script_silence(w, 3, 0);
    script_run(w, WELL_MS);
    must_save(w, 2, "when it is back, and nothing blocks");
}

static const struct row {
    const char *name;
    void (*run)(struct world *w);
    uint32_t nodes, ranks, copies, min_copies, degree;
    uint32_t room; /* in hundredths of what a node owes; 0: without bound */
} rows[] = {
    { "serial", serial, 6, 1, 1, 1, 0, 0 },
    { "serial-two", serial_two, 6, 1, 2, 1, 0, 0 },
    { "deep", deep, 40, 1, 1, 1, 0, 0 },
    { "restart", restart, 6, 1, 1, 1, 0, 0 },
    { "flaps", flaps, 8, 8, 1, 1, 0, 0 },
    { "many", many, 200, 8, 1, 1, 0, 0 },
    { "moved", moved, 4, 4, 1, 1, 0, 0 },
    { "given-back", given_back, 4, 4, 1, 1, 0, 0 },
    { "given-back-later", given_back_later, 3, 8, 1, 1, 0, 0 },
    { "crowded", crowded, 8, 2, 1, 1, 0, 125 },
    { "twice-lost", twice_lost, 3, 1, 1, 1, 0, 70 },
    { "twice-lost-many", twice_lost, 4, 4, 1, 1, 0, 85 },
    { "twice-lost-copies", twice_lost, 8, 4, 2, 2, 0, 90 },
    { "unsettled", unsettled, 3, 1, 1, 1, 0, 0 },
    { "all-again", all_again, 4, 2, 1, 1, 0, 0 },
    { "apart", apart, 4, 1, 1, 1, 0, 0 },
    { "apart-oneway", apart_oneway, 4, 2, 1, 1, 0, 0 },
    { "apart-tree", apart_tree, 7, 1, 1, 1, 2, 0 },
    { "apart-coordinator", apart_coordinator, 7, 1, 1, 1, 2, 0 },
    { "apart-from-coordinator", apart_from_coordinator, 7, 1, 1, 1, 2, 0 },
    { "apart-to-coordinator", apart_to_coordinator, 7, 1, 1, 1, 2, 0 },
    { "apart-coordinator-two", apart_coordinator_two, 7, 1, 1, 1, 2, 0 },
    { "apart-then-lost", apart_then_lost, 7, 1, 1, 1, 2, 0 },
    { "apart-other", apart_other, 3, 1, 2, 2, 0, 0 },
    { "apart-moved", apart_moved, 3, 1, 1, 1, 0, 0 },
    { "apart-twice", apart_twice, 3, 1, 1, 1, 0, 70 },
    { "apart-lost", apart_lost, 5, 1, 1, 1, 0, 70 },
    { "ruled-out", ruled_out, 3, 1, 1, 1, 0, 0 },
    { "staged", staged_beside, 3, 1, 1, 1, 0, 75 },
    { "blocked", blocked, 4, 1, 1, 1, 0, 0 },
    { "forgotten", forgotten, 3, 2, 1, 1, 0, 0 },
    { "flipped", flipped, 3, 2, 1, 1, 0, 0 },
    { "flipped-strong", flipped, 3, 2, 1, 1, 0, 0 },
    { "steps-differ", steps_differ, 4, 2, 1, 1, 0, 0 },
    { "steps-differ-nodes", steps_differ, 6, 1, 1, 1, 0, 0 },
    { "sets", sets, 3, 2, 1, 1, 0, 0 },
    { "late", late, 3, 1, 1, 1, 0, 0 },
    { "queued", queued, 3, 1, 1, 1, 0, 0 },
    { "both-open", both_open, 3, 1, 1, 1, 0, 0 },
    { "written", written, 3, 1, 1, 1, 0, 0 },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const struct {
    const char *name;
    uint64_t rule;
} rules[] = {
    { "record", HTH_BREAK_RECORD },
    { "moved", HTH_BREAK_MOVED },
    { "apart", HTH_BREAK_UNREACHABLE },
    { "ruled-out", HTH_BREAK_RULED_OUT },
    { "staged-by-bytes", HTH_BREAK_CROWD },
    { "all-alive", HTH_BREAK_ALIVE },
    { "passed-waits", HTH_BREAK_STEPS },
    { "sets-count-together", HTH_BREAK_SET_COUNT },
    { "early", HTH_BREAK_EARLY },
    { "number", HTH_BREAK_NUMBER | HTH_BREAK_SERIAL },
};

static int run(const struct row *row, uint64_t breaks, int loud)
{
    struct world_opts opts = base(row->nodes, row->ranks, row->copies);
    struct world w;
    int broken;

    opts.min_copies = row->min_copies;
    opts.degree = row->degree;
    opts.room = row->room;
    opts.strong = !strcmp(row->name, "flipped-strong");
    opts.keep = row->run == both_open ? 3 : 0; /* room for two that are open */
    opts.some = row->run == sets;
    opts.data_max = row->run == written ? 5 * HTH_CHUNK : 0;
    opts.every_ms = row->run == sets ? 1000 : 0; /* none is undecided when the next is begun */
    opts.breaks = breaks;
    opts.deaf = breaks != 0; /* its consequences are to be noticed */
    opts.loud = loud;
    script_open(&w, &opts);
    if (!w.why[0])
        row->run(&w);
    broken = w.why[0] != '\0';
    printf("%s: %s, %llu s of virtual time\n", row->name, broken ? w.why : "held",
            (unsigned long long)w.now_ms / 1000);
    world_close(&w);
    return broken;
}

int main(int argc, char **argv)
{
    uint64_t breaks = 0;
    int loud = 0, blob = 0, broken = 1;

    if (argc == 2 && !strcmp(argv[1], "--list")) {
        for (size_t i = 0; i < ROWS; i++)
            puts(rows[i].name);
        return 0;
    }
    for (int i = 2; i < argc; i++) {
        loud |= !strcmp(argv[i], "--trace");
        blob |= !strcmp(argv[i], "--blob");
        for (size_t k = 0; k < sizeof(rules) / sizeof(rules[0]); k++)
            if (!strcmp(argv[i], rules[k].name))
                breaks = rules[k].rule;
    }
    for (size_t i = 0; i < ROWS && argc > 1; i++)
        if (!strcmp(rows[i].name, argv[1]))
            broken = run(&rows[i], breaks | (blob ? HTH_TEST_BLOB : 0), loud);
    return breaks ? !broken : broken;
}
