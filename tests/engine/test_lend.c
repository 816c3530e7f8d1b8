/* SPDX-License-Identifier: Apache-2.0 */
/* Slots in ranks' hands, said packet by packet to an engine in virtual time. */
#include "packets.h"

#include "engine/saves/reserve.h"

#include <string.h>

#define OURS 99999u /* a client that is no rank of the world */

/* A job that saves, and on its first node a second process of rank 0. */
static void start(void)
{
    struct hth_local_attach m = {
        .version = hth_version_written(HTH_FORMAT_LOCAL), .world = 2, .helper = 1, .job = "sim"
    };

    saving_open(&w, 1, 1);
    node = world_node(&w, 0);
    must(ask(OURS, &m, sizeof(m), HTH_LOCAL_ATTACH, 0, HTH_LOCAL_ATTACHED));
}

TestSuite(lend, .init = start, .fini = end);

static int begin_next(
        uint64_t step, uint64_t token, uint32_t index, const char *name, struct hth_local_lent *out)
{
    struct hth_local_begin m = { .step = step, .bytes = 3 * HTH_BLOCK, .index = index };
    int rc;

    strcpy(m.name, name);
    rc = ask(OURS, &m, sizeof(m), HTH_LOCAL_BEGIN, token, HTH_LOCAL_LENT);
    *out = heard.lent;
    return rc;
}

static int begin(uint64_t step, uint64_t token, const char *name, struct hth_local_lent *out)
{
    return begin_next(step, token, token != 0, name, out);
}

/* The rank may be writing into what it was lent before. */
Test(lend, a_refused_further_object_leaves_the_rank_what_it_has)
{
    struct hth_local_lent lent, none;

    must(begin(UINT64_MAX, 0, "first", &lent));
    cr_assert(ne(int, begin(UINT64_MAX, lent.head.token, "no/name", &none), 0));
    cr_assert(ne(ptr, hth_node_lent(node, lent.slot), NULL));
    must(say(OURS, HTH_LOCAL_ABORT, lent.head.token, HTH_LOCAL_OK));
    cr_assert(eq(ptr, hth_node_lent(node, lent.slot), NULL));
}

/* The answer came too late for the rank, or it could not map the slot. */
Test(lend, a_further_object_that_the_rank_has_not_got_is_lent_again)
{
    struct hth_local_lent first, lost, again;

    must(begin(UINT64_MAX, 0, "first", &first));
    must(begin(UINT64_MAX, first.head.token, "second", &lost));
    must(begin(UINT64_MAX, first.head.token, "second", &again));
    cr_assert(eq(u64, again.slot, lost.slot));
    cr_assert(ne(ptr, hth_node_lent(node, first.slot), NULL));
    cr_assert(ne(int, begin_next(UINT64_MAX, first.head.token, 3, "fourth", &lost), 0));
    cr_assert(ne(int, begin_next(UINT64_MAX, first.head.token, 2, "first", &lost), 0));
    cr_assert(ne(int, begin_next(UINT64_MAX, first.head.token, 0, "none", &lost), 0));
    cr_assert(ne(ptr, hth_node_lent(node, first.slot), NULL));
    must(say(OURS, HTH_LOCAL_ABORT, first.head.token, HTH_LOCAL_OK));
    cr_assert(eq(ptr, hth_node_lent(node, again.slot), NULL));
}

/* Others may have mapped the slot, by the open file that its writer has. */
Test(lend, a_slot_whose_writer_is_cut_off_is_let_go_by_all_others)
{
    struct hth_local_lent lent;
    uint64_t told = 0;

    must(begin(UINT64_MAX, 0, "first", &lent));
    hth_node_client_gone(node, OURS);
    for (const struct letter *l = w.letters; l; l = l->next) {
        const struct hth_local_let_go *m = (const void *)l->bytes;

        if (m->head.type != HTH_LOCAL_LET_GO)
            continue;
        cr_assert(ne(u32, l->client, OURS));
        told = m->slot;
    }
    cr_assert(eq(u64, told, lent.slot));
    cr_assert(eq(ptr, hth_node_lent(node, lent.slot), NULL));
}

/* The ranks of the world give no sizes when they join: their first save shows them. */
Test(lend, slots_for_saves_to_come_are_asked_for_as_soon_as_one_has_shown_their_sizes)
{
    for (uint32_t m = 0; m < 2; m++) /* its own and a copy, for keep + 1 saves */
        cr_assert(eq(sz, hth_store_mem_foreseen(w.machine[m].store), 4), "node %u", m);
}

/* The map is not settled while a node is lost and no other node has its place. */
Test(lend, what_cannot_be_given_back_yet_is_looked_at_later)
{
    uint32_t soon = 0;

    world_silence(&w, 1, 1);
    for (uint64_t until = w.now_ms + 10000; w.now_ms < until && !w.why[0];) {
        world_advance(&w, w.now_ms + 10);
        w.restart_ms = HTH_NEVER; /* the job waits */
        cr_assert(gt(u64, reserve_due_ms(node), w.now_ms));
        soon += reserve_due_ms(node) != HTH_NEVER;
    }
    cr_assert(gt(u32, soon, 0), "it looks for nothing to give back");
}
