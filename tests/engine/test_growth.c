/* SPDX-License-Identifier: Apache-2.0 */
/* What engines remember of saves and of their log has a size, and 10^5 saves do not change it. */
#include "check.h"
#include "saving.h"

#include "engine/state/events.h"
#include "engine/state/history.h"
#include "engine/state/metrics.h"

#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>

static size_t used(void)
{
    return mallinfo2().uordblks + mallinfo2().hblkhd;
}

/* ---- The records alone ----------------------------------------------------------------------- */

#define SAVES 100000u

static struct records {
    struct history *history;
    struct events *events;
    struct metrics metrics;
    struct hth_log log;
} records;

static uint64_t now_ms;

static uint64_t clock_now(void *self)
{
    (void)self;
    return now_ms;
}

/* All moments of a save, with a report of each kind, a copy that comes, and lines of the log. */
static void record_save(uint64_t step)
{
    const struct hth_save_id save = { 1 + step / 1000, 8, step, 1 };
    const struct history_save *ended;

    for (uint32_t what = 0; what < HTH_MOMENTS; what++, now_ms++) {
        const struct hth_happened happened = { .what = (enum hth_moment)what,
            .count = 1,
            .due = 1,
            .level = HEARTH_PROTECTED,
            .code = what == HTH_MOMENT_ENDED && step % 7 == 0 ? HEARTH_EFAILED : 0,
            .text = "it was aborted" };

        if (what == HTH_MOMENT_SEALED)
            history_pull_begin(records.history, save, step, "n1", now_ms);
        if (what == HTH_MOMENT_COPIED)
            history_pull_end(records.history, save, step, 1000, now_ms);
        ended = history_moment(records.history, save, &happened, "n1", now_ms, now_ms);
        if (ended)
            metrics_save(&records.metrics, ended);
    }
    if (step % 100 == 0) {
        history_recovery_begin(records.history, save.epoch, now_ms, now_ms);
        metrics_recovery(&records.metrics,
                history_recovery_end(records.history, HEARTH_ELOST, "no save", save, NULL, now_ms));
    }
    hth_say(&records.log, HEARTH_LOG_WARN, "save-failed", "step %" PRIu64, step);
}

Test(growth, records_of_a_hundred_thousand_saves_are_no_larger_than_of_a_thousand)
{
    const struct hth_clock clock = { .now_ms = clock_now, .wall_ms = clock_now };
    const struct hth_log silent = { .emit = NULL };
    struct hth_log log;
    size_t had = 0;

    alarm(60);
    records.history = history_open();
    records.events = events_open(&clock);
    cr_assert(ne(ptr, records.history, NULL));
    cr_assert(ne(ptr, records.events, NULL));
    log = metrics_log(&records.metrics, &silent);
    records.log = events_log(records.events, &log);
    for (uint64_t step = 1; step <= SAVES; step++) {
        record_save(step);
        if (step == 1000)
            had = used();
    }
    cr_expect(le(sz, used(), had), "%zu bytes more", used() - had);
    cr_expect(eq(u64, events_count(records.events), SAVES));
    history_close(records.history);
    events_close(records.events);
}

/* ---- Engines --------------------------------------------------------------------------------- */

#define SLACK 16384u /* bytes: of what is under way; a leak of 8 bytes a save is 24,000 */

static struct world w;

/* Of engines, stores and what is under way: the notes of the judge are not theirs. */
static size_t used_after(uint64_t saves)
{
    while (!w.why[0] && w.count[WORLD_PROTECTED] < saves * w.ranks)
        world_advance(&w, w.now_ms + 100);
    cr_assert(zero(int, w.why[0]), "%s", w.why);
    return used() - past_bytes(w.notes) - said_bytes(w.said);
}

Test(growth, engines_are_no_larger_after_four_thousand_saves_than_after_a_thousand)
{
    struct world_opts o = { .seed = 1,
        .nodes = 2,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 2,
        .run_ms = 3600000,
        .data_max = 100,
        .every_ms = 50 };
    size_t had, has;

    alarm(60);
    world_open(&w, &o);
    had = used_after(1000);
    has = used_after(4000);
    cr_expect(le(sz, has, had + SLACK), "%zu bytes more", has - had);
    world_close(&w);
}
