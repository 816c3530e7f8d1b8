/* SPDX-License-Identifier: Apache-2.0 */
/* A save that is begun where its slot is not there, said packet by packet to an engine in virtual
 * time. */
#include "reader.h"

#include "engine/state/history.h"
#include "engine/state/node_state.h"

TestSuite(begin, .init = start, .fini = end);

#define BYTES   (3 * HTH_BLOCK)
#define WAIT_MS 1000u

static const struct hth_store_ops *real;
static struct hth_store_ops late;
static int busy;  /* so many times there is none yet */
static int asked; /* for one, altogether */

static int lend_later(struct hth_store *s, uint64_t bytes, uint32_t rank, struct hth_slot **out,
        struct hearth_error *err)
{
    asked++;
    if (busy-- > 0)
        return hth_fail(err, HEARTH_EBUSY, 0, "older saves and their readers hold them all");
    return real->lend(s, bytes, rank, out, err);
}

/* A client of rank 1 attaches at its node, whose store has no slot to lend for the first `times`
 * calls. */
static void slots_are_late(int times)
{
    struct hth_store *store = hth_node_ctx(world_node(&w, 1))->store;

    real = store->ops;
    late = *real;
    late.lend = lend_later;
    store->ops = &late;
    busy = times;
    asked = 0;
    attach(1);
}

static void begin(uint64_t step, uint64_t bytes, uint32_t wait_ms)
{
    struct hth_local_begin m = {
        .step = step, .bytes = bytes, .wait_ms = wait_ms, .name = "object"
    };

    say(&m, sizeof(m), HTH_LOCAL_BEGIN);
}

static void refused(int code)
{
    wait_for(HTH_LOCAL_ERROR);
    cr_assert(eq(int, heard.error.code, code), "%s", heard.error.text);
}

Test(begin, who_can_wait_is_lent_a_slot_when_one_is_there)
{
    uint64_t began_ms = w.now_ms;

    slots_are_late(3);
    begin(UINT64_MAX, BYTES, WAIT_MS);
    cr_assert(zero(u32, heard.head.type));
    wait_for(HTH_LOCAL_LENT);
    cr_assert(ne(ptr, hth_node_lent(world_node(&w, 1), heard.lent.slot), NULL));
    cr_assert(lt(u64, w.now_ms - began_ms, WAIT_MS));
}

/* The slot that workers are making: `made` after so many looks. */
static int looks, making;

static int lend_made(struct hth_store *s, uint64_t bytes, uint32_t rank, struct hth_slot **out,
        struct hearth_error *err)
{
    if (looks > 0) {
        making = 1;
        return hth_fail(err, HEARTH_EBUSY, 0, "a slot is being prepared");
    }
    return real->lend(s, bytes, rank, out, err);
}

static int made_soon(struct hth_store *s, uint64_t bytes)
{
    (void)s, (void)bytes;
    if (looks > 0 && making)
        looks--;
    return looks > 0 && making;
}

static int made_ready(struct hth_store *s, uint64_t bytes)
{
    return looks <= 0 && real->ready(s, bytes);
}

Test(begin, a_slot_that_the_workers_make_is_waited_for_by_who_gave_no_time)
{
    slots_are_late(0);
    late.lend = lend_made;
    late.soon = made_soon;
    late.ready = made_ready;
    looks = 8;
    begin(UINT64_MAX, BYTES, 0);
    cr_assert(zero(u32, heard.head.type), "%s", heard.error.text);
    wait_for(HTH_LOCAL_LENT);
    cr_assert(ne(ptr, hth_node_lent(world_node(&w, 1), heard.lent.slot), NULL));
}

/* The workers make no page before this time, as where other programs have the processors. */
static uint64_t made_ms;

static int lend_after(struct hth_store *s, uint64_t bytes, uint32_t rank, struct hth_slot **out,
        struct hearth_error *err)
{
    if (w.now_ms >= made_ms)
        return real->lend(s, bytes, rank, out, err);
    making = 1;
    return hth_fail(err, HEARTH_EBUSY, 0, "a slot is being prepared, 0 of them are ready");
}

static int soon_after(struct hth_store *s, uint64_t bytes)
{
    (void)s, (void)bytes;
    return making && w.now_ms < made_ms;
}

static int ready_after(struct hth_store *s, uint64_t bytes)
{
    return w.now_ms >= made_ms && real->ready(s, bytes);
}

static void slots_are_made_in(uint64_t ms)
{
    slots_are_late(0);
    late.lend = lend_after;
    late.soon = soon_after;
    late.ready = ready_after;
    made_ms = w.now_ms + ms;
}

Test(begin, a_rank_without_wait_ms_waits_4_s_for_its_first_slot_on_a_loaded_machine)
{
    uint64_t began_ms;

    slots_are_made_in(4000);
    began_ms = w.now_ms;
    begin(UINT64_MAX, BYTES, 0);
    world_advance(&w, began_ms + 3999);
    cr_assert(zero(u32, heard.head.type), "%s", heard.error.text);
    wait_for(HTH_LOCAL_LENT);
}

/* Of the engine's record, for `hearth why`. */
Test(begin, how_long_a_begin_waited_for_its_slot_is_on_record)
{
    const struct history_save *s;

    slots_are_made_in(700);
    begin(2, BYTES, 5000);
    wait_for(HTH_LOCAL_LENT);
    s = history_save_at(world_node(&w, 1)->history, 0);
    cr_assert(eq(u64, s->id.step, 2));
    cr_expect(eq(u32, s->slot_rank, 1));
    cr_expect(ge(u32, s->slot_ms, 600));
    cr_expect(le(u32, s->slot_ms, 1000));
}

Test(begin, a_begin_that_found_its_slot_has_no_wait_on_record)
{
    slots_are_late(0);
    begin(2, BYTES, 5000);
    wait_for(HTH_LOCAL_LENT);
    cr_assert(eq(u64, history_save_at(world_node(&w, 1)->history, 0)->id.step, 2));
    cr_expect(zero(u32, history_save_at(world_node(&w, 1)->history, 0)->slot_ms));
}

Test(begin, a_rank_without_wait_ms_is_refused_a_slot_that_is_not_made_in_5_s)
{
    uint64_t began_ms;

    slots_are_made_in(60000);
    began_ms = w.now_ms;
    begin(UINT64_MAX, BYTES, 0);
    world_advance(&w, began_ms + 4999);
    cr_assert(zero(u32, heard.head.type), "%s", heard.error.text);
    refused(HEARTH_EBUSY);
    cr_assert(le(u64, w.now_ms - began_ms, 5002));
}

Test(begin, who_waited_in_vain_hears_why_when_its_time_is_up)
{
    uint64_t began_ms;

    slots_are_late(1000000);
    began_ms = w.now_ms;
    begin(UINT64_MAX, BYTES, WAIT_MS);
    world_advance(&w, began_ms + WAIT_MS - 1);
    cr_assert(zero(u32, heard.head.type));
    refused(HEARTH_EBUSY);
    cr_assert(le(u64, w.now_ms - began_ms, WAIT_MS + 2));
}

Test(begin, who_cannot_wait_hears_it_at_once)
{
    slots_are_late(1000000);
    begin(UINT64_MAX, BYTES, 0);
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_ERROR));
    cr_assert(eq(int, heard.error.code, HEARTH_EBUSY));
}

Test(begin, nothing_is_lent_to_who_has_gone_while_it_waited)
{
    int before;

    slots_are_late(3);
    begin(UINT64_MAX, BYTES, WAIT_MS);
    hth_node_client_gone(world_node(&w, 1), OURS);
    before = asked;
    world_advance(&w, w.now_ms + 2 * WAIT_MS);
    cr_assert(eq(int, asked, before));
    cr_assert(zero(u32, heard.head.type));
}

static void forget(uint64_t begun)
{
    struct hth_local_head m = { sizeof(m), HTH_LOCAL_FORGET, ++request, begun };

    hth_node_request(world_node(&w, node), OURS, &m, sizeof(m), NULL);
    machine_due(&w.machine[w.member[node]], 0);
}

Test(begin, nothing_is_lent_for_a_request_whose_caller_waits_no_more)
{
    int before;

    slots_are_late(3);
    begin(UINT64_MAX, BYTES, WAIT_MS);
    forget(request);
    before = asked;
    world_advance(&w, w.now_ms + 2 * WAIT_MS);
    cr_assert(eq(int, asked, before));
}

Test(begin, what_was_lent_for_a_request_whose_caller_waits_no_more_comes_back)
{
    uint64_t slot;

    slots_are_late(0);
    begin(UINT64_MAX, BYTES, 0);
    wait_for(HTH_LOCAL_LENT);
    slot = heard.lent.slot;
    cr_assert(ne(ptr, hth_node_lent(world_node(&w, 1), slot), NULL));
    forget(heard.head.request);
    cr_assert(eq(ptr, hth_node_lent(world_node(&w, 1), slot), NULL));
}

/* The engine's own end frees what waits. */
Test(begin, an_engine_ends_while_somebody_waits)
{
    slots_are_late(1000000);
    begin(UINT64_MAX, BYTES, 60000);
    begin(UINT64_MAX, BYTES, 60000);
}

/* Its directory was removed, say. */
Test(begin, who_waits_hears_that_its_engine_ends)
{
    const struct hearth_error why = { .code = HEARTH_EENGINE, .text = "the directory is gone" };

    slots_are_late(1000000);
    begin(UINT64_MAX, BYTES, 60000);
    cr_assert(zero(u32, heard.head.type));
    hth_node_fail(world_node(&w, 1), &why);
    refused(HEARTH_EENGINE);
    must_say(heard.error.text, why.text);
}

Test(begin, what_is_no_object_is_not_begun)
{
    slots_are_late(0);
    begin(UINT64_MAX, 2 * HTH_BLOCK - 1, 0);
    refused(HEARTH_EINVAL);
}

/* The other ranks need not wait for its deadline. */
Test(begin, a_save_for_which_there_is_no_slot_fails_with_the_reason)
{
    uint64_t step = w.newest.id.step + 1;
    struct hth_local_find m = { .step = step, .wait_ms = WAIT_MS };

    slots_are_late(1000000);
    begin(step, BYTES, 0);
    refused(HEARTH_EBUSY);
    m.save = hth_local_save_of(w.newest.id);
    m.save.step = step;
    m.save.attempt = 1;
    say(&m, sizeof(m), HTH_LOCAL_FIND);
    refused(HEARTH_EFAILED);
    cr_assert(ne(ptr, strstr(heard.error.text, "readers hold them all"), NULL), "%s",
            heard.error.text);
}
