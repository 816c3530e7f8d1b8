/* SPDX-License-Identifier: Apache-2.0 */
/* A rank that has lost its connection learns the outcome of a save that it had begun, in virtual
 * time. */
#include "reader.h"

#include <hearth/save.h>

TestSuite(follow, .init = start, .fini = end);

/* As a process of rank 1 that comes back. */
static void follow(struct hth_save_id save)
{
    struct hth_local_follow m = { .save = hth_local_save_of(save) };

    say(&m, sizeof(m), HTH_LOCAL_FOLLOW);
}

static struct hth_save_id next_save(void)
{
    struct hth_save_id id = w.newest.id;

    id.step++;
    id.attempt = 1;
    return id;
}

Test(follow, what_is_decided_is_heard_at_once)
{
    attach(1);
    follow(w.newest.id);
    wait_for(HTH_LOCAL_EVENT);
    cr_assert(eq(u32, heard.event.level, HEARTH_PROTECTED));
    cr_assert(zero(int, heard.event.code), "%s", heard.event.text);
}

/* Other ranks may be about to begin it. */
Test(follow, a_save_that_the_node_knows_nothing_of_is_unknown_and_not_ended)
{
    struct hth_save_id id = next_save();

    id.attempt = 7;
    attach(1);
    follow(id);
    wait_for(HTH_LOCAL_EVENT);
    cr_assert(eq(int, heard.event.code, HEARTH_EUNKNOWN), "%s", heard.event.text);
}

Test(follow, what_another_epoch_left_is_not_known)
{
    struct hth_save_id id = w.newest.id;

    id.epoch--;
    attach(1);
    follow(id);
    wait_for(HTH_LOCAL_ERROR);
    cr_assert(eq(int, heard.error.code, HEARTH_EUNKNOWN), "%s", heard.error.text);
}

Test(follow, a_save_that_a_process_of_the_rank_still_writes_goes_on)
{
    struct hth_local_begin m = {
        .step = next_save().step, .bytes = 3 * HTH_BLOCK, .name = "object"
    };
    struct hth_save_id id;

    attach(1);
    say(&m, sizeof(m), HTH_LOCAL_BEGIN);
    wait_for(HTH_LOCAL_LENT);
    id = hth_local_save_to(heard.lent.save);
    follow(id);
    wait_for(HTH_LOCAL_EVENT);
    cr_assert(zero(int, heard.event.code), "%s", heard.event.text);
}

/* The engine would report nothing more about such a save, and a rank that follows it would wait. */
Test(follow, what_was_decided_before_this_engine_and_is_not_kept_is_unknown)
{
    const uint64_t step = w.newest.id.step;
    struct hth_save_id id = w.newest.id;

    while (w.newest.id.step < step + 5 && !w.why[0]) {
        world_advance(&w, w.now_ms + 1);
        id = w.newest.id.step == step + 1 ? w.newest.id : id;
    }
    machine_stop(&w, 1);
    machine_start(&w, 1);
    attach(1);
    follow(id);
    wait_for(HTH_LOCAL_EVENT);
    cr_assert(eq(int, heard.event.code, HEARTH_EUNKNOWN), "%s", heard.event.text);
}
