/* SPDX-License-Identifier: Apache-2.0 */
/* The bounded record of saves and recoveries, by hand. */
#include "check.h"

#include "engine/state/history.h"

#include <string.h>
#include <unistd.h>

static struct history *h;

static void open_one(void)
{
    alarm(60);
    h = history_open();
    cr_assert(ne(ptr, h, NULL));
}

static void close_one(void)
{
    history_close(h);
}

TestSuite(history, .init = open_one, .fini = close_one);

static struct hth_save_id save_of(uint64_t step)
{
    return (struct hth_save_id){ 7, 8, step, 1 };
}

static void moment(uint64_t step, enum hth_moment what, uint64_t now_ms)
{
    const struct hth_happened happened = { .what = what };

    cr_assert(eq(ptr,
            (void *)(uintptr_t)history_moment(
                    h, save_of(step), &happened, NULL, now_ms, 1000000 + now_ms),
            NULL));
}

static const struct history_save *ends(uint64_t step, int code, const char *text, uint64_t now_ms)
{
    const struct hth_happened happened = { .what = HTH_MOMENT_ENDED,
        .level = code ? HEARTH_SEALED : HEARTH_PROTECTED,
        .code = code,
        .text = text };

    return history_moment(h, save_of(step), &happened, NULL, now_ms, 0);
}

static void report(uint64_t step, enum hth_moment what, const char *node, uint32_t count,
        uint32_t due, uint64_t now_ms)
{
    const struct hth_happened happened = { .what = what, .count = count, .due = due };

    (void)history_moment(h, save_of(step), &happened, node, now_ms, 0);
}

Test(history, the_257th_save_pushes_the_first_out)
{
    for (uint64_t step = 1; step <= HISTORY_SAVES; step++)
        moment(step, HTH_MOMENT_BEGUN, step);
    cr_expect(eq(u64, history_save_at(h, HISTORY_SAVES - 1)->id.step, 1));
    moment(HISTORY_SAVES + 1, HTH_MOMENT_BEGUN, 1000);
    cr_expect(eq(u64, history_save_at(h, 0)->id.step, HISTORY_SAVES + 1));
    cr_expect(eq(u64, history_save_at(h, HISTORY_SAVES - 1)->id.step, 2));
    cr_expect(eq(ptr, (void *)(uintptr_t)history_save_at(h, HISTORY_SAVES), NULL));
}

Test(history, the_17th_recovery_pushes_the_first_out)
{
    struct hearth_recovery info = { .struct_size = sizeof(info) };

    for (uint64_t i = 1; i <= HISTORY_RECOVERIES + 1; i++) {
        history_recovery_begin(h, 7, i, 1000 + i);
        (void)history_recovery_end(h, 0, "", save_of(i), &info, i + 5);
    }
    cr_expect(eq(u64, history_recovery_at(h, HISTORY_RECOVERIES - 1)->save.step, 2));
    cr_expect(eq(ptr, (void *)(uintptr_t)history_recovery_at(h, HISTORY_RECOVERIES), NULL));
}

Test(history, a_moment_counts_from_the_first_news_and_the_first_time_stays)
{
    moment(1, HTH_MOMENT_BEGUN, 500);
    moment(1, HTH_MOMENT_BEGUN, 550);
    moment(1, HTH_MOMENT_COMMITTED, 620);
    cr_expect(eq(u32, history_save_at(h, 0)->at_ms[HTH_MOMENT_BEGUN], 0));
    cr_expect(eq(u32,
            history_between(history_save_at(h, 0), HTH_MOMENT_BEGUN, HTH_MOMENT_COMMITTED), 120));
    cr_expect(eq(u32, history_between(history_save_at(h, 0), HTH_MOMENT_HELD, HTH_MOMENT_COMMITTED),
            HISTORY_NOT));
}

Test(history, times_do_not_go_back_with_a_clock_that_jumps)
{
    const struct history_save *s;

    moment(1, HTH_MOMENT_BEGUN, 500);
    moment(1, HTH_MOMENT_COMMITTED, 700);
    moment(1, HTH_MOMENT_SEALED, 300);
    moment(1, HTH_MOMENT_HELD, 650);
    s = ends(1, 0, "", 710);
    cr_assert(ne(ptr, (void *)(uintptr_t)s, NULL));
    cr_expect(eq(u32, s->at_ms[HTH_MOMENT_SEALED], 200));
    cr_expect(eq(u32, s->at_ms[HTH_MOMENT_HELD], 200));
    cr_expect(eq(u32, s->at_ms[HTH_MOMENT_ENDED], 210));
}

Test(history, a_save_ends_once)
{
    moment(1, HTH_MOMENT_BEGUN, 1);
    cr_assert(ne(ptr, (void *)(uintptr_t)ends(1, HEARTH_EFAILED, "node b is lost", 5), NULL));
    cr_expect(eq(ptr, (void *)(uintptr_t)ends(1, 0, "", 6), NULL));
    moment(1, HTH_MOMENT_HELD, 7);
    cr_expect(eq(u32, history_save_at(h, 0)->at_ms[HTH_MOMENT_HELD], HISTORY_NOT));
    cr_expect(zero(int, strcmp(history_save_at(h, 0)->why, "node b is lost")));
    cr_expect(eq(int, history_save_at(h, 0)->code, HEARTH_EFAILED));
}

Test(history, an_unknown_end_may_become_known)
{
    moment(1, HTH_MOMENT_BEGUN, 1);
    history_over(h, "a new epoch", 4);
    cr_expect(eq(int, history_save_at(h, 0)->code, HEARTH_EUNKNOWN));
    cr_expect(ne(ptr, (void *)(uintptr_t)ends(1, 0, "", 9), NULL));
    cr_expect(eq(int, history_save_at(h, 0)->code, 0));
    cr_expect(zero(int, strcmp(history_save_at(h, 0)->why, "")));
}

Test(history, the_last_node_is_named_with_its_lag_behind_the_median)
{
    uint32_t lag_ms;

    moment(1, HTH_MOMENT_BEGUN, 100);
    report(1, HTH_MOMENT_NODE_DONE, "a", 1, 4, 110);
    report(1, HTH_MOMENT_NODE_DONE, "b", 2, 4, 120);
    report(1, HTH_MOMENT_NODE_DONE, "c", 3, 4, 130);
    report(1, HTH_MOMENT_NODE_DONE, "d", 4, 4, 900);
    report(1, HTH_MOMENT_NODE_HELD, "a", 1, 4, 910);
    report(1, HTH_MOMENT_NODE_HELD, "b", 2, 4, 911);
    cr_expect(eq(u32, history_slowest(history_save_at(h, 0), &lag_ms), HISTORY_DONE));
    cr_expect(eq(u32, lag_ms, 780));
    cr_expect(zero(int, strcmp(history_save_at(h, 0)->reports[HISTORY_DONE].last.name, "d")));
    cr_expect(zero(int, strcmp(history_save_at(h, 0)->reports[HISTORY_DONE].before.name, "c")));
    cr_expect(eq(u32, history_save_at(h, 0)->reports[HISTORY_DONE].before.ms, 30));
}

Test(history, promises_of_an_older_map_do_not_count)
{
    moment(1, HTH_MOMENT_BEGUN, 0);
    report(1, HTH_MOMENT_NODE_PROMISED, "a", 1, 3, 10);
    report(1, HTH_MOMENT_NODE_PROMISED, "b", 2, 3, 20);
    report(1, HTH_MOMENT_NODE_PROMISED, "b", 1, 3, 500);
    report(1, HTH_MOMENT_NODE_PROMISED, "a", 2, 3, 510);
    cr_expect(eq(u32, history_save_at(h, 0)->reports[HISTORY_PROMISED].count, 2));
    cr_expect(eq(u32, history_save_at(h, 0)->reports[HISTORY_PROMISED].median_ms, 510));
}

Test(history, a_recovery_that_a_new_epoch_ends_is_not_the_next_one)
{
    struct hearth_recovery info = { .struct_size = sizeof(info) };

    history_recovery_begin(h, 7, 10, 1000);
    history_recovery_report(h, 0, "a", 1, 2, 15);
    history_over(h, "a new epoch", 20);
    history_recovery_begin(h, 7, 30, 1020);
    (void)history_recovery_end(h, 0, "", save_of(3), &info, 45);
    cr_expect(eq(u32, history_recovery_at(h, 0)->ms, 15));
    cr_expect(zero(u32, history_recovery_at(h, 0)->inventory.count));
    cr_expect(eq(int, history_recovery_at(h, 1)->code, HEARTH_ECANCELED));
}

static void saves_at(uint64_t step, uint64_t begun_ms, uint64_t ended_ms, int code)
{
    moment(step, HTH_MOMENT_BEGUN, begun_ms);
    (void)ends(step, code, code ? "no" : "", ended_ms);
}

Test(history, the_interval_is_the_median_of_distances_between_protected_saves)
{
    cr_expect(zero(u64, history_interval_ms(h)));
    saves_at(1, 0, 100, 0);
    cr_expect(zero(u64, history_interval_ms(h)));
    saves_at(2, 900, 1100, 0);
    cr_expect(eq(u64, history_interval_ms(h), 1000));
    saves_at(3, 1500, 1600, HEARTH_EFAILED); /* counts for nothing */
    saves_at(4, 2000, 2200, 0);
    saves_at(5, 9000, 9200, 0);
    cr_expect(eq(u64, history_interval_ms(h), 1100)); /* of 1000, 1100 and 7000 */
    (void)ends(6, 0, "", 9201);                       /* begun under an engine before */
    cr_expect(eq(u64, history_interval_ms(h), 1100));
}

Test(history, when_a_save_was_protected_is_known_if_it_was_seen_from_its_begin)
{
    uint64_t ms, begun_ms;

    saves_at(1, 10, 100, 0);
    (void)ends(2, 0, "", 200);
    saves_at(3, 210, 300, HEARTH_EFAILED);
    cr_assert(eq(int, history_protected_ms(h, save_of(1), &begun_ms, &ms), 1));
    cr_expect(eq(u64, begun_ms, 10));
    cr_expect(eq(u64, ms, 100));
    cr_expect(zero(int, history_protected_ms(h, save_of(2), &begun_ms, &ms)));
    cr_expect(zero(int, history_protected_ms(h, save_of(3), &begun_ms, &ms)));
    cr_expect(zero(int, history_protected_ms(h, save_of(4), &begun_ms, &ms)));
}
