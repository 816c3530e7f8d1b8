/* SPDX-License-Identifier: Apache-2.0 */
/* A file of a foreign container that lies on another node, read: brought here whole first. In
 * virtual time. */
#include "reader.h"

#include "container.h"

#define NODE_1_FILE "__1_0.distcp" /* what node 0, which is asked, does not need of itself */

static struct hth_object theirs;

/* All ranks have recovered, and none saves: the first PROTECTED save would free the container. */
static void recovered(void)
{
    uint32_t rest = 0;

    container_open(&w, 0, NULL);
    while (!w.why[0] && rest < w.ranks && w.now_ms < 20000) {
        world_advance(&w, w.now_ms + 1);
        rest = 0;
        for (uint32_t r = 0; r < w.ranks; r++)
            if (w.rank[r].step == R_RUN) {
                rank_due(&w.rank[r], HTH_NEVER);
                rest++;
            }
    }
    theirs = hth_foreign_object(NODE_1_FILE, 4);
    attach(0);
}

TestSuite(foreign_reading, .init = recovered, .fini = end);

static const struct hth_held *held_at(uint32_t at)
{
    struct hth_held_save *s =
            hth_holdings_find(hth_node_ctx(world_node(&w, at)), hth_save_of_foreign(STEP));

    return s ? hth_held_find(s, theirs.id) : NULL;
}

static void ask_range(uint64_t off, uint64_t len)
{
    struct hth_local_map m = { .object = theirs.id, .off = off, .len = len };

    m.save = hth_local_save_of(hth_save_of_foreign(STEP));
    say(&m, sizeof(m), HTH_LOCAL_RANGE);
}

static void lose_it(uint32_t at)
{
    struct hth_ctx *c = hth_node_ctx(world_node(&w, at));
    struct hth_held_save *s = hth_holdings_find(c, hth_save_of_foreign(STEP));

    hth_held_drop(c, s, hth_held_find(s, theirs.id));
}

Test(foreign_reading, a_part_of_it_is_read_when_all_of_it_is_here)
{
    cr_assert(eq(ptr, (void *)(uintptr_t)held_at(0), NULL));
    ask_range(1, 2);
    wait_for(HTH_LOCAL_BYTES);
    cr_assert(eq(u64, heard.bytes.len, 2));
    cr_assert(ne(ptr, (void *)(uintptr_t)held_at(0), NULL));
    cr_assert(eq(int, held_at(0)->verified, 1));
    cr_assert(zero(int, memcmp(held_at(0)->slot->base, "data", 4)));
}

Test(foreign_reading, it_is_brought_once_for_all_who_ask_and_who_goes_is_answered_nothing)
{
    uint32_t none = answers;

    w.slow_ms = 100;
    for (int i = 0; i < 3; i++)
        ask_range(0, 4);
    cr_assert(eq(u32, answers, none));
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(u32, answers, none + 3));
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_BYTES), "%s", heard.error.text);
    lose_it(0);
    ask_range(0, 4);
    hth_node_client_gone(world_node(&w, 0), OURS);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(u32, answers, none + 3));
    cr_assert(ne(ptr, (void *)(uintptr_t)held_at(0), NULL), "it came all the same");
}

Test(foreign_reading, what_its_node_has_lost_is_an_error_for_all_who_wait)
{
    uint32_t before = answers;

    lose_it(1);
    ask_range(0, 4);
    ask_range(0, 4);
    for (int i = 0; i < 60 && answers < before + 2; i++)
        world_advance(&w, w.now_ms + 1000);
    cr_assert(eq(u32, answers, before + 2));
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_ERROR));
    cr_assert(ne(ptr, strstr(heard.error.text, NODE_1_FILE), NULL), "%s", heard.error.text);
}

/* The engine's own end frees what waits. */
Test(foreign_reading, an_engine_ends_while_it_is_on_its_way)
{
    w.slow_ms = 60000;
    ask_range(0, 4);
    ask_range(0, 4);
}

Test(foreign_reading, a_file_that_is_here_is_read_by_its_name)
{
    struct hth_local_common m = { .save = hth_local_save_of(hth_save_of_foreign(STEP)),
        .name = HTH_METADATA };

    say(&m, sizeof(m), HTH_LOCAL_COMMON_GET);
    wait_for(HTH_LOCAL_BYTES);
    cr_assert(gt(u64, heard.bytes.len, 0));
}

/* ---- Slots that are being made
 * ------------------------------------------------------------------ */

static const struct hth_store_ops *real;
static struct hth_store_ops late;
static int busy; /* so many times there is none yet */

static int take_later(
        struct hth_store *s, uint64_t bytes, struct hth_slot **out, struct hearth_error *err)
{
    if (bytes <= HTH_BLOCK && busy-- > 0) /* for no object of ours */
        return hth_fail(err, HEARTH_EBUSY, 0, "a slot is being prepared");
    return real->take(s, bytes, out, err);
}

static void slots_are_late(int times)
{
    struct hth_store *store = hth_node_ctx(world_node(&w, 0))->store;

    real = store->ops;
    late = *real;
    late.take = take_later;
    store->ops = &late;
    busy = times;
}

Test(foreign_reading, a_slot_that_is_still_being_made_for_it_is_waited_for)
{
    uint32_t before = answers;

    slots_are_late(9);
    ask_range(0, 4);
    ask_range(1, 2);
    for (int i = 0; i < 500 && answers < before + 2; i++)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(u32, answers, before + 2), "soon after the slot is there");
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_BYTES), "%s", heard.error.text);
    cr_assert(ne(ptr, (void *)(uintptr_t)held_at(0), NULL));
}

Test(foreign_reading, a_slot_that_never_comes_is_an_error_for_each_in_its_time)
{
    uint32_t before = answers, recover_ms = hth_node_ctx(world_node(&w, 0))->opts.recover_ms;

    slots_are_late(1000000000);
    ask_range(0, 4);
    world_advance(&w, w.now_ms + recover_ms / 2);
    ask_range(0, 4);
    world_advance(&w, w.now_ms + recover_ms / 2 - 100);
    cr_assert(eq(u32, answers, before), "message %u", heard.head.type);
    world_advance(&w, w.now_ms + 200);
    cr_assert(eq(u32, answers, before + 1));
    cr_assert(eq(int, heard.error.code, HEARTH_EBUSY), "%s", heard.error.text);
    world_advance(&w, w.now_ms + recover_ms / 2);
    cr_assert(eq(u32, answers, before + 2));
    cr_assert(eq(int, heard.error.code, HEARTH_EBUSY), "%s", heard.error.text);
}

Test(foreign_reading, who_goes_while_a_slot_is_made_is_waited_for_no_longer)
{
    uint32_t before = answers;

    slots_are_late(1000);
    ask_range(0, 4);
    hth_node_client_gone(world_node(&w, 0), OURS);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(u32, answers, before));
    cr_assert(ge(int, busy, 990));
}
