/* SPDX-License-Identifier: Apache-2.0 */
/* STATUS and NODES: engines in virtual time are asked how all is, before any attach. */
#include "reader.h"

#include "core/local/local.h"

#include <jansson.h>

#define NOTICED 2400u /* ms: dead_ms and two heartbeats of such a world */

static json_t *said; /* the last answer */

static void hear_said(struct world *world, const struct letter *l)
{
    hear(world, l);
    if (l->client == OURS && l->machine == world->member[node] && l->attached)
        said = json_loadb((const char *)l->bytes + l->len, l->attached, 0, NULL);
}

static void ask_json(uint32_t at, void *message, uint32_t len, enum hth_local_type type)
{
    json_decref(said);
    said = NULL;
    node = at;
    w.stranger = hear_said;
    ask(message, len, type, HTH_LOCAL_BYTES);
    cr_assert(ne(ptr, said, NULL), "no JSON");
}

static void ask_status(uint32_t at)
{
    struct hth_local_head m;

    ask_json(at, &m, sizeof(m), HTH_LOCAL_STATUS);
}

static void ask_nodes(uint32_t at, uint32_t skip)
{
    struct hth_local_nodes m = { .skip = skip };

    ask_json(at, &m, sizeof(m), HTH_LOCAL_NODES);
}

static const json_t *at2(const char *key, const char *sub)
{
    return json_object_get(json_object_get(said, key), sub);
}

static json_int_t number(const char *key, const char *sub)
{
    return json_integer_value(at2(key, sub));
}

/* The sentence of a check; "": it is not raised. */
static const char *check(const char *name)
{
    const json_t *checks = at2("health", "checks");

    for (size_t i = 0; i < json_array_size(checks); i++) {
        const json_t *c = json_array_get(checks, i);

        if (!strcmp(json_string_value(json_object_get(c, "name")), name))
            return json_string_value(json_object_get(c, "text"));
    }
    return "";
}

static void *strstr_of(const char *text, const char *part)
{
    return strstr(text, part) ? &w : NULL;
}

static void is_state(const char *state)
{
    char *all = json_dumps(json_object_get(said, "health"), 0);

    cr_expect(zero(int, strcmp(json_string_value(at2("health", "state")), state)), "%s", all);
    free(all);
}

/* What the last answer to NODES has of a member: "": null. */
static const char *state_of(uint32_t member)
{
    const json_t *n = json_array_get(json_object_get(said, "nodes"), member);
    const char *state = json_string_value(json_object_get(n, "state"));

    return state ? state : "";
}

static void end_status(void)
{
    json_decref(said);
    end();
}

TestSuite(status, .init = start, .fini = end_status);

Test(status, a_job_that_is_well_is_called_so_by_each_node)
{
    for (uint32_t i = 0; i < 3; i++) {
        ask_status(i);
        is_state("well");
        cr_expect(eq(i64, number("newest_protected", "step"), (json_int_t)w.newest.id.step));
        cr_expect(zero(
                int, strcmp(json_string_value(at2("newest_protected", "state")), "protected")));
        cr_expect(lt(dbl, json_real_value(at2("newest_protected", "age_s")), 1.0));
        cr_expect(eq(i64, number("copies", "asked"), 1));
        cr_expect(zero(i64, number("copies", "below")));
        cr_expect(zero(i64, number("behind", "saves")));
        cr_expect(json_is_null(json_object_get(said, "interval_s")));
        cr_expect(gt(sz, json_string_length(json_object_get(said, "version")), 0));
    }
}

/* No reader of JSON has to accept an integer of 2^63 or more: one would fail the whole answer. */
Test(status, a_step_of_2_63_or_more_is_a_string)
{
    hth_node_ctx(world_node(&w, 0))->keep.save[0].step = UINT64_MAX - 2;
    ask_status(0);
    cr_expect(zero(int,
            strcmp(json_string_value(at2("newest_protected", "step")), "18446744073709551613")));
    hth_node_ctx(world_node(&w, 0))->keep.save[0].step = w.newest.id.step;
}

Test(status, slots_are_counted_once_each)
{
    ask_status(1);
    cr_expect(gt(i64, number("room", "kept"), 0));
    cr_expect(gt(i64, number("room", "copies"), 0));
    cr_expect(zero(i64, number("room", "undecided")));
    cr_expect(eq(i64, number("room", "reserved"),
            number("room", "kept") + number("room", "copies") + number("room", "free")));
    cr_expect(json_is_null(at2("room", "max")));
}

Test(status, all_members_are_listed_with_what_they_hold)
{
    json_int_t holds = 0;

    ask_nodes(2, 0);
    cr_assert(eq(sz, json_array_size(json_object_get(said, "nodes")), 3));
    for (uint32_t i = 0; i < 3; i++) {
        const json_t *n = json_array_get(json_object_get(said, "nodes"), i);
        char name[8];

        snprintf(name, sizeof(name), "m%u", i);
        cr_expect(zero(int, strcmp(json_string_value(json_object_get(n, "node")), name)));
        cr_expect(zero(int, strcmp(state_of(i), "ok")));
        cr_expect(eq(i64, json_integer_value(json_object_get(n, "ranks")), 1));
        cr_expect(zero(i64, json_integer_value(json_object_get(n, "owes"))));
        holds += json_integer_value(json_object_get(n, "holds"));
    }
    cr_expect(eq(i64, holds, 3)); /* one copy of each of three objects */
    ask_nodes(2, 2);
    cr_expect(eq(sz, json_array_size(json_object_get(said, "nodes")), 1));
    ask_nodes(2, UINT32_MAX);
    cr_expect(zero(sz, json_array_size(json_object_get(said, "nodes"))));
}

/* The coordinator needs dead_ms for it, its head a moment. */
Test(status, a_lost_node_is_named_by_each_node_that_is_left)
{
    world_silence(&w, w.member[2], 1);
    world_advance(&w, w.now_ms + NOTICED);
    for (uint32_t i = 0; i < 2; i++) {
        ask_status(i);
        is_state("at risk");
        cr_expect(ne(ptr, strstr_of(check("node_lost"), "Node m2 is lost"), NULL), "%s",
                check("node_lost"));
        ask_nodes(i, 0);
        cr_expect(zero(int, strcmp(state_of(2), "lost")));
        cr_expect(zero(int, strcmp(state_of(1 - i), "ok")));
    }
    world_silence(&w, w.member[2], 0);
    world_advance(&w, w.now_ms + 4 * NOTICED);
    ask_nodes(1, 0);
    cr_expect(zero(int, strcmp(state_of(2), "ok")));
    ask_status(1);
    is_state("well");
}

Test(status, a_node_without_its_coordinator_says_what_it_does_not_know)
{
    world_silence(&w, w.member[0], 1);
    world_advance(&w, w.now_ms + 2 * NOTICED);
    ask_status(1);
    is_state("broken");
    cr_expect(ne(ptr, strstr_of(check("coordinator_silent"), "node m0, for 4 s"), NULL), "%s",
            check("coordinator_silent"));
    cr_expect(zero(int, strcmp(json_string_value(at2("newest_protected", "state")), "kept")));
    ask_nodes(1, 0);
    cr_expect(zero(int, strcmp(state_of(0), "silent")));
    cr_expect(zero(int, strcmp(state_of(1), "ok")));
    world_silence(&w, w.member[0], 0);
}

/* One rank begins a save, and the others do not. */
Test(status, a_save_that_has_failed_is_named_with_its_reason)
{
    rank_due(&w.rank[0], w.now_ms + 1);
    world_advance(&w, w.now_ms + 1000);
    rank_due(&w.rank[0], HTH_NEVER);
    ask_status(0);
    cr_expect(eq(i64, number("behind", "saves"), 1));
    world_advance(&w, w.now_ms + 9000);
    ask_status(0);
    is_state("at risk");
    cr_expect(ne(ptr, strstr_of(check("save_failed"), "failed"), NULL), "%s", check("save_failed"));
}

/* All ranks save `saves` times, one save every so many milliseconds, and no more. */
static void save_every(uint32_t ms, uint32_t saves)
{
    uint32_t rest = 0;

    w.opts.every_ms = ms;
    for (uint32_t r = 0; r < w.ranks; r++)
        rank_due(&w.rank[r], w.now_ms + 1);
    for (uint64_t had = w.count[WORLD_PROTECTED];
            rest < w.ranks || w.count[WORLD_PROTECTED] < had + (uint64_t)saves * w.ranks;) {
        cr_assert(zero(int, w.why[0]), "%s", w.why);
        world_advance(&w, w.now_ms + 1);
        rest = 0;
        for (uint32_t r = 0; r < w.ranks; r++)
            if (w.rank[r].step == R_RUN && w.count[WORLD_PROTECTED] >= had + saves * w.ranks) {
                rank_due(&w.rank[r], HTH_NEVER);
                rest++;
            }
    }
}

Test(status, a_burst_of_saves_that_ends_is_no_risk_before_a_lost_node_would_be_noticed)
{
    save_every(20, 6);
    ask_status(1);
    cr_assert(lt(dbl, json_real_value(json_object_get(said, "interval_s")), 0.2));
    world_advance(&w, w.now_ms + NOTICED - 300);
    ask_status(1);
    cr_expect(gt(dbl, json_real_value(at2("newest_protected", "intervals")), 9.0));
    is_state("well");
    world_advance(&w, w.now_ms + 600);
    ask_status(1);
    is_state("at risk");
    cr_expect(ne(ptr, strstr_of(check("protection_old"), " is 2 s old: "), NULL), "%s",
            check("protection_old"));
}

Test(status, a_save_is_old_after_three_intervals_and_not_before)
{
    double every_s;

    save_every(5000, 3);
    ask_status(1);
    every_s = json_real_value(json_object_get(said, "interval_s"));
    cr_assert(gt(dbl, every_s, 4.9));
    world_advance(&w, w.now_ms + (uint64_t)(2.8 * 1000 * every_s));
    ask_status(1);
    is_state("well");
    world_advance(&w, w.now_ms + (uint64_t)(0.4 * 1000 * every_s));
    ask_status(1);
    is_state("at risk");
    cr_expect(ne(ptr, strstr_of(check("protection_old"), "the last ones came every"), NULL));
}

/* No other node is left to copy to. */
Test(status, a_save_with_too_few_copies_is_named)
{
    world_silence(&w, w.member[1], 1);
    world_silence(&w, w.member[2], 1);
    world_advance(&w, w.now_ms + NOTICED);
    ask_status(0);
    is_state("at risk");
    cr_expect(ne(ptr, strstr_of(check("node_lost"), "Nodes m1 and m2 are lost"), NULL));
    cr_expect(ne(
            ptr, strstr_of(check("copies_below"), "has fewer copies than the 1 asked for"), NULL));
    cr_expect(eq(i64, number("copies", "below"), 1));
    cr_expect(zero(int, strcmp(json_string_value(at2("newest_protected", "state")), "degraded")));
    world_silence(&w, w.member[1], 0);
    world_silence(&w, w.member[2], 0);
}

/* A node reads the object of rank 1, which it does not hold, and a bit of both copies has
 * changed. */
Test(status, wrong_bytes_are_reported_by_their_finder)
{
    const struct hth_object o = shard(1, 1)->object;
    uint32_t holder = object_at(0, 1, HTH_OBJECT_SHARD) ? 0 : 2, reader = 2 - holder;

    tip(shard(1, 1));
    tip(shard(holder, 1));
    attach(reader);
    range(&o);
    world_advance(&w, w.now_ms + SOON);
    ask_status(reader);
    is_state("at risk");
    cr_expect(ne(ptr, strstr_of(check("checksum_error"), "wrong bytes"), NULL));
    cr_expect(ne(ptr,
                      strstr_of(check("checksum_error"),
                              "chunk 0 of object '__1__0_src1.distcp', as it came"),
                      NULL),
            "%s", check("checksum_error"));
}

static void start_recovering(void)
{
    struct world_opts o = { .seed = 1,
        .nodes = 3,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = 600000,
        .data_max = 100 };

    alarm(60);
    world_open(&w, &o);
    while (!w.why[0] && w.rank[1].step != R_RECOVER)
        world_advance(&w, w.now_ms + 1);
}

TestSuite(status_early, .init = start_recovering, .fini = end_status);

Test(status_early, an_engine_that_has_not_recovered_says_so)
{
    ask_status(1);
    is_state("at risk");
    cr_expect(ne(ptr, strstr_of(check("not_running"), "have not recovered in epoch"), NULL));
}

/* The record of its epoch is there, and its ranks have to join again. */
Test(status_early, an_engine_that_was_started_again_lists_no_members_before_its_ranks_join)
{
    world_crash(&w, w.member[1]);
    cr_assert(eq(ptr, world_node(&w, 1), NULL));
    machine_start(&w, w.member[1]);
    ask_nodes(1, 0);
    cr_expect(zero(i64, json_integer_value(json_object_get(said, "members"))));
    cr_expect(zero(sz, json_array_size(json_object_get(said, "nodes"))));
    ask_status(1);
    is_state("at risk");
    cr_expect(ne(ptr, strstr_of(check("not_running"), "has joined no epoch"), NULL));
    cr_expect(json_is_null(json_object_get(said, "domains")));
}
