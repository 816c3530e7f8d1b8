/* SPDX-License-Identifier: Apache-2.0 */
/* HISTORY: an engine in virtual time is asked what it remembers, before any attach. */
#include "reader.h"

#include <jansson.h>

static json_t *page; /* of the last answer */

static void hear_page(struct world *world, const struct letter *l)
{
    hear(world, l);
    if (l->client == OURS && l->attached)
        page = json_loadb((const char *)l->bytes + l->len, l->attached, 0, NULL);
}

static void ask_history(uint32_t at, uint32_t what, uint32_t skip, enum hth_local_type answer)
{
    struct hth_local_history m = { .what = what, .skip = skip };

    json_decref(page);
    page = NULL;
    node = at;
    w.stranger = hear_page;
    ask(&m, sizeof(m), HTH_LOCAL_HISTORY, answer);
}

static const json_t *row(const char *list, size_t at)
{
    return json_array_get(json_object_get(page, list), at);
}

static const char *word(const json_t *of, const char *key)
{
    const char *text = json_string_value(json_object_get(of, key));

    return text ? text : "";
}

static json_int_t count(const json_t *of, const char *key)
{
    return json_integer_value(json_object_get(json_object_get(of, key), "count"));
}

static void end_why(void)
{
    json_decref(page);
    end();
}

TestSuite(why, .init = start, .fini = end_why);

Test(why, the_coordinator_knows_when_each_node_reported)
{
    const json_t *s;

    ask_history(0, HTH_HISTORY_SAVES, 0, HTH_LOCAL_BYTES);
    s = row("saves", 0);
    cr_assert(zero(int, strcmp(word(s, "state"), "protected")));
    cr_expect(eq(i64, count(s, "sealed"), 3));
    cr_expect(eq(i64, count(s, "held"), 3));
    cr_expect(eq(i64, count(s, "copied"), 1));
    cr_expect(gt(i64, json_integer_value(json_object_get(s, "bytes")), 0));
    cr_expect(eq(sz, json_array_size(json_object_get(s, "phases")), 6));
    cr_expect(eq(sz, json_array_size(json_object_get(page, "peers")), 2));
}

static json_int_t of_all_peers(const char *key)
{
    json_int_t sum = 0;

    for (size_t i = 0; i < json_array_size(json_object_get(page, "peers")); i++)
        sum += json_integer_value(json_object_get(row("peers", i), key));
    return sum;
}

/* One rank a node, one copy: each node gives one object and pulls one. */
Test(why, peers_have_what_moved_each_way)
{
    ask_history(1, HTH_HISTORY_SAVES, 0, HTH_LOCAL_BYTES);
    cr_expect(eq(i64, of_all_peers("given"), 1));
    cr_expect(eq(i64, of_all_peers("given_bytes"), (json_int_t)shard(1, 1)->object.data_len));
    cr_expect(gt(i64, of_all_peers("pulled_bytes"), 0));
    cr_expect(gt(i64, of_all_peers("pulls"), 0));
    cr_expect(eq(int, json_is_integer(json_object_get(row("peers", 0), "pull_ms")), 1));
    cr_expect(ge(
            i64, json_integer_value(json_object_get(page, "peers_ms")), of_all_peers("pull_ms")));
    cr_expect(zero(i64, of_all_peers("bad")));
}

Test(why, a_member_knows_its_own_part_and_names_the_coordinator)
{
    ask_history(1, HTH_HISTORY_SAVES, 0, HTH_LOCAL_BYTES);
    cr_assert(zero(int, strcmp(word(row("saves", 0), "state"), "protected")));
    cr_expect(zero(i64, count(row("saves", 0), "sealed")));
    cr_expect(zero(int, strcmp(word(page, "coordinator"), "m0")));
    cr_expect(zero(int, strcmp(word(page, "node"), "m1")));
}

Test(why, a_page_begins_behind_what_is_skipped)
{
    ask_history(0, HTH_HISTORY_SAVES, 1000, HTH_LOCAL_BYTES);
    cr_expect(zero(sz, json_array_size(json_object_get(page, "saves"))));
    ask_history(0, HTH_HISTORY_SAVES, UINT32_MAX, HTH_LOCAL_BYTES);
    cr_expect(zero(sz, json_array_size(json_object_get(page, "saves"))));
}

Test(why, the_recovery_has_its_votes)
{
    ask_history(0, HTH_HISTORY_RECOVERIES, 0, HTH_LOCAL_BYTES);
    cr_assert(zero(int, strcmp(word(row("recoveries", 0), "state"), "done")));
    cr_expect(eq(i64, count(row("recoveries", 0), "vote"), 3));
    cr_expect(eq(i64, count(row("recoveries", 0), "inventory"), 3));
}

static const json_t *part(const json_t *of, const char *first, const char *second)
{
    return json_object_get(json_object_get(of, first), second);
}

Test(why, a_node_knows_its_last_rank_and_the_copy_that_took_longest)
{
    const json_t *s;

    ask_history(1, HTH_HISTORY_SAVES, 0, HTH_LOCAL_BYTES);
    s = row("saves", 0);
    cr_expect(eq(i64, count(s, "written"), 1));
    cr_expect(eq(i64, json_integer_value(part(json_object_get(s, "written"), "last", "rank")), 1));
    cr_expect(eq(i64, json_integer_value(part(s, "pull", "bytes")),
            (json_int_t)shard(1, 0)->object.data_len));
    cr_expect(zero(int, strcmp(json_string_value(part(s, "pull", "node")), "m0")));
}

/* A pull from the second machine to the third takes 400 ms. */
static struct hth_loop_verdict slow_pair(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };

    (void)arg, (void)bytes, (void)len;
    if (kind == HTH_LOOP_PULL && ((from == 2 && to == 3) || (from == 3 && to == 2)))
        v.delay_ms = 400;
    return v;
}

/* The newest that is protected. */
static const json_t *protected_row(void)
{
    size_t at = 0;

    while (row("saves", at) && strcmp(word(row("saves", at), "state"), "protected") != 0)
        at++;
    return row("saves", at);
}

Test(why, the_pair_of_a_slow_copy_is_known)
{
    uint64_t before = w.newest.id.step;
    const json_t *s;

    hth_loop_net_script(w.net, slow_pair, NULL);
    for (uint32_t r = 0; r < w.ranks; r++)
        rank_due(&w.rank[r], w.now_ms + 1);
    while (!w.why[0] && w.newest.id.step < before + 3)
        world_advance(&w, w.now_ms + 1);
    ask_history(0, HTH_HISTORY_SAVES, 0, HTH_LOCAL_BYTES);
    s = json_object_get(protected_row(), "slowest");
    cr_assert(zero(int, strcmp(word(s, "node"), "m2")), "%s", json_dumps(s, 0));
    cr_expect(zero(int, strcmp(word(s, "report"), "promised")));
    cr_expect(ge(i64, json_integer_value(json_object_get(s, "lag_ms")), 400));
    ask_history(2, HTH_HISTORY_SAVES, 0, HTH_LOCAL_BYTES);
    s = json_object_get(protected_row(), "pull");
    cr_expect(zero(int, strcmp(word(s, "node"), "m1")));
    cr_expect(ge(i64, json_integer_value(json_object_get(s, "ms")), 400));
}

/* The third machine is lost in the next save, before its rank has handed over anything. */
Test(why, an_undecided_save_has_the_node_that_it_waits_for)
{
    uint64_t before = w.newest.id.step, until = w.now_ms + 10000;
    const json_t *s;

    machine_lose(&w, w.member[2]);
    for (uint32_t r = 0; r < 2; r++)
        rank_due(&w.rank[r], w.now_ms + 1);
    do {
        world_advance(&w, w.now_ms + 1);
        ask_history(0, HTH_HISTORY_SAVES, 0, HTH_LOCAL_BYTES);
        s = row("saves", 0);
    } while (w.newest.id.step == before && w.now_ms < until &&
             !strcmp(word(s, "state"), "protected"));
    cr_assert(zero(int, strcmp(word(s, "state"), "undecided")), "%s", json_dumps(page, 0));
    cr_expect(zero(int, strcmp(word(s, "waits_for"), "the ranks of node m2")), "%s",
            word(s, "waits_for"));
    ask_history(1, HTH_HISTORY_SAVES, 0, HTH_LOCAL_BYTES);
    cr_expect(zero(int, strcmp(word(row("saves", 0), "waits_for"),
                                "the decision of the coordinator, node m0")),
            "%s", json_dumps(page, 0));
    cr_expect(eq(ptr, json_object_get(row("saves", 1), "waits_for"), NULL));
}

Test(why, an_unknown_kind_is_refused)
{
    ask_history(0, 7, 0, HTH_LOCAL_ERROR);
    cr_expect(eq(int, heard.error.code, HEARTH_EPROTO));
}
