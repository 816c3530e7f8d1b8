/* SPDX-License-Identifier: Apache-2.0 */
/* What a rank that has lost its connection hears of a save that it had begun, in virtual time. */
#include "reader.h"

#include <hearth/save.h>

TestSuite(follow, .init = start, .fini = end);

/* As a process of rank 1 that comes back, and says what it had handed over. */
static void follow(struct hth_save_id save, uint32_t objects, uint32_t committed)
{
    struct hth_local_follow m = {
        .save = hth_local_save_of(save), .objects = objects, .committed = committed
    };

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
    follow(w.newest.id, 1, 1);
    wait_for(HTH_LOCAL_EVENT);
    cr_assert(eq(u32, heard.event.level, HEARTH_PROTECTED));
    cr_assert(zero(int, heard.event.code), "%s", heard.event.text);
}

/* Nobody else can end it, and the other ranks wait for it. */
Test(follow, a_save_that_was_being_written_has_failed_for_all)
{
    struct hth_local_find m = { .wait_ms = SOON / 2 };

    attach(1);
    follow(next_save(), 0, 0);
    m.save = hth_local_save_of(next_save());
    m.step = next_save().step;
    say(&m, sizeof(m), HTH_LOCAL_FIND);
    for (int i = 0; i < (int)SOON && heard.head.type != HTH_LOCAL_ERROR; i++)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_ERROR));
    cr_assert(eq(int, heard.error.code, HEARTH_EFAILED), "%s", heard.error.text);
    cr_assert(ne(ptr, strstr(heard.error.text, "died while a rank was writing"), NULL), "%s",
            heard.error.text);
}

/* What the engine had not sealed when it died is gone. */
Test(follow, a_save_of_which_something_is_not_here_has_failed)
{
    attach(1);
    follow(next_save(), 2, 1);
    for (int i = 0; i < (int)SOON && !(heard.head.type == HTH_LOCAL_EVENT && heard.event.code); i++)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(u32, heard.head.type, HTH_LOCAL_EVENT));
    cr_assert(eq(int, heard.event.code, HEARTH_EFAILED), "%s", heard.event.text);
}

Test(follow, what_another_epoch_left_is_not_known)
{
    struct hth_save_id id = w.newest.id;

    id.epoch--;
    attach(1);
    follow(id, 1, 1);
    wait_for(HTH_LOCAL_ERROR);
    cr_assert(eq(int, heard.error.code, HEARTH_EUNKNOWN), "%s", heard.error.text);
}

Test(follow, what_a_process_of_the_rank_still_writes_is_its_own_to_end)
{
    struct hth_local_begin m = {
        .step = next_save().step, .bytes = 3 * HTH_BLOCK, .name = "object"
    };
    struct hth_save_id id;

    attach(1);
    say(&m, sizeof(m), HTH_LOCAL_BEGIN);
    wait_for(HTH_LOCAL_LENT);
    id = hth_local_save_to(heard.lent.save);
    follow(id, 0, 0);
    wait_for(HTH_LOCAL_ERROR);
    cr_assert(eq(int, heard.error.code, HEARTH_ESTATE), "%s", heard.error.text);
}

/* Nothing more would be said of it, and who follows it would wait. */
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
    follow(id, 1, 1);
    wait_for(HTH_LOCAL_EVENT);
    cr_assert(eq(int, heard.event.code, HEARTH_EUNKNOWN), "%s", heard.event.text);
}
