/* SPDX-License-Identifier: Apache-2.0 */
/* What an engine counts: by hand, and as it answers METRICS in virtual time before any attach. */
#include "reader.h"

#include "engine/state/metrics.h"

#include <jansson.h>

/* ---- By hand --------------------------------------------------------------------------------- */

static struct history_save ended(uint32_t wrote_ms, uint32_t sealed, uint32_t end, int code)
{
    struct history_save s = { .bytes = 1000, .code = code };

    for (uint32_t i = 0; i < HTH_MOMENTS; i++)
        s.at_ms[i] = HISTORY_NOT;
    s.at_ms[HTH_MOMENT_BEGUN] = 0;
    s.at_ms[HTH_MOMENT_COMMITTED] = wrote_ms;
    s.at_ms[HTH_MOMENT_SEALED] = sealed;
    s.at_ms[HTH_MOMENT_ENDED] = end;
    return s;
}

static uint64_t all_of(const struct metrics_histogram *h)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i <= METRICS_BOUNDS; i++)
        sum += h->in[i];
    return sum;
}

Test(metrics, a_time_is_in_the_first_bucket_whose_bound_it_does_not_exceed)
{
    struct history_save s = ended(5, 6, 400000, 0);
    struct metrics m = { 0 };

    metrics_save(&m, &s);
    cr_expect(eq(u64, m.save[METRICS_WRITTEN].in[0], 1));
    cr_expect(eq(u64, m.save[METRICS_SEALED].in[1], 1));
    cr_expect(eq(u64, m.save[METRICS_PROTECTED].in[METRICS_BOUNDS], 1));
    cr_expect(eq(u64, m.save[METRICS_PROTECTED].sum_ms, 400000));
    cr_expect(zero(u64, all_of(&m.save[METRICS_COPIED])));
    cr_expect(eq(u64, m.saves, 1));
    cr_expect(eq(u64, m.sealed_bytes, 1000));
}

Test(metrics, a_save_that_failed_counts_by_its_cause_and_was_never_protected)
{
    static const int code[METRICS_CAUSES] = { HEARTH_ENOSPC, HEARTH_EFAILED, HEARTH_EUNKNOWN };
    struct metrics m = { 0 };

    for (uint32_t i = 0; i < METRICS_CAUSES; i++) {
        struct history_save s = ended(1, 2, 3, code[i]);

        metrics_save(&m, &s);
    }
    for (uint32_t i = 0; i < METRICS_CAUSES; i++)
        cr_expect(eq(u64, m.saves_failed[i], 1), "%s", metrics_cause[i]);
    cr_expect(zero(u64, m.saves + m.saves_degraded));
    cr_expect(zero(u64, all_of(&m.save[METRICS_PROTECTED])));
    cr_expect(eq(u64, all_of(&m.save[METRICS_WRITTEN]), 3));
    cr_expect(eq(u64, m.sealed_bytes, 2000), "an unknown outcome may still become known");
}

static unsigned passed_on;

static void take_line(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    (void)self, (void)level, (void)event, (void)text;
    passed_on++;
}

static void lose_lines(void *self, struct hth_log_state *out)
{
    (void)self;
    out->lost = 7;
}

Test(metrics, lines_of_the_log_are_counted_and_passed_on)
{
    struct hth_log to = { .emit = take_line, .state = lose_lines }, log;
    struct hth_log_state state;
    struct metrics m = { 0 };

    log = metrics_log(&m, &to);
    hth_say(&log, HEARTH_LOG_WARN, "bad-chunk", "x");
    hth_say(&log, HEARTH_LOG_ERROR, "copy-bad", "x");
    hth_say(&log, HEARTH_LOG_INFO, "copy-right", "x");
    hth_say(&log, HEARTH_LOG_DEBUG, "protected", "x");
    hth_log_state(&log, &state);
    cr_expect(eq(u64, state.lost, 7));
    cr_expect(eq(u32, passed_on, 4));
    cr_expect(eq(u64, m.warnings, 1));
    cr_expect(eq(u64, m.errors, 1));
    for (uint32_t i = 0; i < METRICS_WRONG; i++)
        cr_expect(eq(u64, m.wrong[i], strcmp(metrics_wrong[i], "copy-lost") != 0), "%s",
                metrics_wrong[i]);
}

Test(metrics, a_record_that_is_given_up_undecided_is_counted)
{
    const struct hth_happened begun = { .what = HTH_MOMENT_BEGUN };
    const struct hth_happened end = { .what = HTH_MOMENT_ENDED };
    struct history *h = history_open();

    for (uint64_t step = 0; step < HISTORY_SAVES + 2; step++) {
        struct hth_save_id id = { 7, 8, step, 1 };

        (void)history_moment(h, id, &begun, NULL, 1, 1);
        if (step)
            (void)history_moment(h, id, &end, NULL, 2, 2);
    }
    cr_expect(eq(u64, history_dropped(h), 1));
    history_close(h);
}

/* All of it is in the engine's own struct: a scrape that never comes costs nothing that grows. */
Test(metrics, take_less_than_2_kib)
{
    cr_expect(le(sz, sizeof(struct metrics), 2048));
}

/* ---- METRICS --------------------------------------------------------------------------------- */

static json_t *page; /* the last answer */

static void hear_page(struct world *world, const struct letter *l)
{
    hear(world, l);
    if (l->client == OURS && l->attached)
        page = json_loadb((const char *)l->bytes + l->len, l->attached, 0, NULL);
}

static void ask_metrics(uint32_t at)
{
    struct hth_local_head m;

    json_decref(page);
    page = NULL;
    node = at;
    w.stranger = hear_page;
    ask(&m, sizeof(m), HTH_LOCAL_METRICS, HTH_LOCAL_BYTES);
    cr_assert(ne(ptr, page, NULL), "the answer is no JSON");
}

static const json_t *samples_of(const char *name)
{
    const json_t *family;
    size_t i;

    json_array_foreach(json_object_get(page, "families"), i, family)
    {
        if (!strcmp(json_string_value(json_object_get(family, "name")), name))
            return json_object_get(family, "samples");
    }
    cr_assert(0, "there is no %s", name);
    return NULL;
}

/* The value with that label; text NULL: without one. -1: there is none. */
static json_int_t value_of(const char *name, const char *suffix, const char *key, const char *text)
{
    const json_t *sample;
    size_t i;

    json_array_foreach(samples_of(name), i, sample)
    {
        const char *has = json_string_value(json_object_get(json_array_get(sample, 1), key));

        if (!strcmp(json_string_value(json_array_get(sample, 0)), suffix) &&
                (text ? has && !strcmp(has, text) : !has))
            return json_integer_value(json_array_get(sample, 2));
    }
    return -1;
}

static void end_metrics(void)
{
    json_decref(page);
    end();
}

TestSuite(series, .init = start, .fini = end_metrics);

Test(series, have_the_save_that_each_node_saw)
{
    for (uint32_t at = 0; at < 3; at++) {
        ask_metrics(at);
        cr_expect(eq(i64, value_of("hearth_saves_total", "", "level", "protected"), 1), "%u", at);
        cr_expect(zero(i64, value_of("hearth_saves_failed_total", "", "cause", "failed")));
        cr_expect(eq(i64, value_of("hearth_save_seconds", "_count", "phase", "protected"), 1));
        cr_expect(eq(i64, value_of("hearth_recoveries_total", "", "", NULL), 1));
        cr_expect(eq(i64, value_of("hearth_members", "", "", NULL), 3));
        cr_expect(gt(i64, value_of("hearth_sealed_bytes_total", "", "", NULL), 0));
    }
}

Test(series, have_a_step_of_2_63_or_more_as_a_string)
{
    const json_t *sample;

    hth_node_ctx(world_node(&w, 0))->keep.save[0].step = UINT64_MAX - 2;
    ask_metrics(0);
    sample = json_array_get(samples_of("hearth_protected_step"), 0);
    cr_expect(zero(
            int, strcmp(json_string_value(json_array_get(sample, 2)), "18446744073709551613")));
    hth_node_ctx(world_node(&w, 0))->keep.save[0].step = w.newest.id.step;
}

/* One rank a node, one copy: each node gives one object and pulls one. */
Test(series, of_peers_have_what_moved_and_go_with_a_lost_peer)
{
    static const char *const peers[] = { "m0", "m2" };
    uint32_t *lost = hth_node_ctx(world_node(&w, 1))->lost;
    json_int_t pulled = 0, given = 0;

    ask_metrics(1);
    for (uint32_t i = 0; i < 2; i++) {
        json_int_t from = value_of("hearth_pulled_bytes_total", "", "peer", peers[i]);
        json_int_t to = value_of("hearth_copied_objects_total", "", "peer", peers[i]);

        pulled += from > 0 ? from : 0;
        given += to > 0 ? to : 0;
    }
    cr_expect(gt(i64, pulled, 0));
    cr_expect(eq(i64, given, 1));
    lost[0] = lost[2] = 1;
    ask_metrics(1);
    cr_expect(zero(sz, json_array_size(samples_of("hearth_pulled_bytes_total"))));
    lost[0] = lost[2] = 0;
}
