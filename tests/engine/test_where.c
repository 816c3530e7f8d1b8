/* SPDX-License-Identifier: Apache-2.0 */
/* PLACES: engines in virtual time are asked where the objects of each rank are. */
#include "reader.h"

#include <jansson.h>

static json_t *page; /* the last answer */

static void hear_page(struct world *world, const struct letter *l)
{
    hear(world, l);
    if (l->client == OURS && l->attached)
        page = json_loadb((const char *)l->bytes + l->len, l->attached, 0, NULL);
}

static void ask_places(uint32_t at, uint32_t skip)
{
    struct hth_local_history m = { .skip = skip };

    json_decref(page);
    page = NULL;
    node = at;
    w.stranger = hear_page;
    ask(&m, sizeof(m), HTH_LOCAL_PLACES, HTH_LOCAL_BYTES);
}

static json_t *row(const char *list, size_t at)
{
    return json_array_get(json_object_get(page, list), at);
}

static int flag(const json_t *of, const char *key)
{
    return json_is_true(json_object_get(of, key));
}

/* What a node is said to have of the newest kept save: 't', 'f', or 'n' for null. */
static char has(size_t at)
{
    const json_t *one = json_array_get(json_object_get(row("nodes", at), "has"), 0);

    return json_is_true(one) ? 't' : json_is_false(one) ? 'f' : 'n';
}

/* [home, now, was] of a place; -1: null. */
static int place(size_t rank, size_t at, size_t which)
{
    const json_t *one = json_array_get(json_array_get(row("ranks", rank), at), which);

    return json_is_integer(one) ? (int)json_integer_value(one) : -1;
}

static void end_where(void)
{
    json_decref(page);
    end();
}

TestSuite(where, .init = start, .fini = end_where);

Test(where, each_engine_knows_the_places_of_a_settled_map)
{
    for (uint32_t at = 0; at < 3; at++) {
        ask_places(at, 0);
        cr_assert(eq(int, flag(page, "settled"), 1));
        cr_assert(eq(int, flag(page, "current"), 1));
        cr_assert(eq(sz, json_array_size(json_object_get(page, "nodes")), 3));
        cr_assert(eq(sz, json_array_size(json_object_get(page, "ranks")), 3));
        cr_assert(gt(sz, json_array_size(json_object_get(page, "kept")), 0));
        for (size_t i = 0; i < 3; i++) {
            cr_expect(eq(chr, has(i), 't'));
            cr_expect(eq(int, place(i, 0, 0), (int)i));
            cr_expect(eq(int, place(i, 0, 1), (int)i));
            cr_expect(eq(int, place(i, 1, 0), (int)(i + 1) % 3));
            cr_expect(eq(int, place(i, 1, 1), (int)(i + 1) % 3));
            cr_expect(eq(int, place(i, 1, 2), -1));
        }
    }
}

/* Until node 1 has that flag, of node 2 or of the page. */
static void until(const char *key, int of_node)
{
    uint64_t until_ms = w.now_ms + 20000;

    do
        ask_places(1, 0);
    while (!flag(of_node ? row("nodes", 2) : page, key) && w.now_ms < until_ms);
    cr_assert(eq(int, flag(of_node ? row("nodes", 2) : page, key), 1), "%s", key);
}

/* The coordinator alone has each promise, so a member knows of all copies or of none. */
Test(where, a_map_that_is_not_settled_promises_nothing_on_a_member)
{
    world_silence(&w, w.member[2], 1);
    until("lost", 1);
    cr_assert(zero(int, flag(page, "settled")));
    cr_expect(eq(chr, has(0), 'n'));
    cr_expect(eq(chr, has(1), 'n'));
    cr_expect(eq(chr, has(2), 'f'));
    cr_expect(eq(int, place(2, 0, 0), 2));
    cr_expect(ne(int, place(2, 0, 1), 2));
    cr_expect(eq(int, place(2, 0, 2), 2));
    until("settled", 0);
    cr_expect(eq(chr, has(0), 't'));
    cr_expect(eq(chr, has(2), 'f'));
    world_silence(&w, w.member[2], 0);
}

Test(where, an_engine_that_does_not_hear_its_coordinator_knows_nothing)
{
    world_silence(&w, w.member[0], 1);
    world_advance(&w, w.now_ms + 8000);
    ask_places(1, 0);
    cr_expect(zero(int, flag(page, "current")));
    for (size_t i = 0; i < 3; i++)
        cr_expect(ne(chr, has(i), 't'));
    world_silence(&w, w.member[0], 0);
}

/* Which is what a node asks for while the map is not settled. */
Test(where, a_member_hands_out_what_the_coordinator_knows)
{
    struct hth_local_elsewhere m = { .node = HTH_NODE_NONE, .type = HTH_LOCAL_PLACES };

    world_silence(&w, w.member[2], 1);
    until("lost", 1);
    json_decref(page);
    page = NULL;
    ask(&m, sizeof(m), HTH_LOCAL_ELSEWHERE, HTH_LOCAL_BYTES);
    cr_assert(zero(int, strcmp(json_string_value(json_object_get(page, "node")), "m0")));
    cr_expect(ne(chr, has(0), 'n'));
    cr_expect(ne(chr, has(1), 'n'));
    world_silence(&w, w.member[2], 0);
}

Test(where, a_page_begins_behind_what_is_skipped)
{
    ask_places(0, 2);
    cr_expect(eq(sz, json_array_size(json_object_get(page, "nodes")), 1));
    cr_expect(eq(sz, json_array_size(json_object_get(page, "ranks")), 1));
    ask_places(0, UINT32_MAX);
    cr_expect(zero(sz, json_array_size(json_object_get(page, "nodes"))));
}
