/* SPDX-License-Identifier: Apache-2.0 */
/* hearth plan: what it reads, and what it counts. Whether jobs make what it counts: plan.py. */
#include "command.h"

#include <jansson.h>

TestSuite(plan, .init = make_root, .fini = remove_root);

static json_t *said;

static json_int_t number(const char *key)
{
    return json_integer_value(json_object_get(said, key));
}

#define PLAN(...)                                                                    \
    do {                                                                             \
        cr_assert(zero(int, hearth("plan", "--json", __VA_ARGS__)), "%s", err_text); \
        json_decref(said);                                                           \
        said = json_loads(out, 0, NULL);                                             \
    } while (0)

Test(plan, units_are_as_users_write_them)
{
    static const struct {
        const char *text;
        json_int_t bytes;
    } sizes[] = { { "5", 5 }, { "5B", 5 }, { "5K", 5120 }, { "5KiB", 5120 }, { "5KB", 5000 },
        { "1.5GiB", INT64_C(3) << 29 }, { "2TB", INT64_C(2000000000000) }, { "1e9", 1000000000 } };

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        PLAN("--ranks", "1", "--bytes", sizes[i].text);
        cr_expect(eq(i64, number("rank_bytes"), sizes[i].bytes), "%s", sizes[i].text);
    }
    json_decref(said);
}

Test(plan, a_model_is_spread_over_all_ranks)
{
    PLAN("--ranks", "8", "--model", "8B");
    cr_expect(eq(i64, number("rank_bytes"), INT64_C(14000000000)));
    PLAN("--ranks", "8", "--model", "8e9", "--optimizer", "sgd");
    cr_expect(eq(i64, number("rank_bytes"), INT64_C(6000000000)));
    PLAN("--ranks", "8", "--model", "8000M", "--parameter-bytes", "16");
    cr_expect(eq(i64, number("rank_bytes"), INT64_C(16000000000)));
    json_decref(said);
}

Test(plan, the_fullest_node_counts)
{
    PLAN("--ranks", "9", "--nodes", "4", "--bytes", "1GiB", "--keep", "2");
    cr_expect(eq(i64, number("ranks_of_node"), 3));
    cr_expect(eq(i64, number("slots"), 3 * 2 * 3 + 1));
    PLAN("--ranks", "2", "--nodes", "1", "--bytes", "1GiB", "--copies", "3");
    cr_expect(eq(i64, number("slots"), 2 * 2));
    cr_expect(
            zero(i64, json_integer_value(json_object_get(json_object_get(said, "save"), "bytes"))));
    json_decref(said);
}

Test(plan, what_does_not_fit_or_is_too_slow_is_status_1)
{
    cr_assert(eq(int, hearth("plan", "--root", root, "--ranks", "8", "--bytes", "900TiB"), 1));
    cr_assert(eq(int, has(out, "DOES NOT FIT"), 1), "%s", out);
    cr_assert(
            zero(int, hearth("plan", "--root", root, "--ranks", "1", "--bytes", "1M")), "%s", out);
    cr_assert(eq(int, has(out, "it fits"), 1), "%s", out);
    cr_assert(eq(int,
            hearth("plan", "--ranks", "2", "--nodes", "2", "--bytes", "1GB", "--link", "1",
                    "--interval", "7"),
            1));
    cr_assert(zero(int, hearth("plan", "--ranks", "2", "--nodes", "2", "--bytes", "1GB", "--link",
                                "1", "--interval", "9")));
    cr_assert(eq(int, hearth("plan", "--root", "/nowhere", "--ranks", "1", "--bytes", "1M"), 3));
}

Test(plan, what_cannot_be_is_refused)
{
    static const char *const wrong[][2] = { { "--bytes", "x" }, { "--bytes", "0" },
        { "--bytes", "-1" }, { "--bytes", "5XB" }, { "--bytes", "5KiBs" }, { "--bytes", "1e40" },
        { "--bytes", "nan" }, { "--model", "70Q" }, { "--model", "inf" }, { "--model", "" } };
    static const char *const others[][2] = { { "--nodes", "0" }, { "--nodes", "9" },
        { "--copies", "9" }, { "--keep", "0" }, { "--keep", "17" }, { "--objects", "65" },
        { "--link", "0" }, { "--interval", "x" }, { "--ranks", "0" } };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_expect(eq(int, hearth("plan", "--ranks", "8", wrong[i][0], wrong[i][1]), 2), "%s",
                wrong[i][1]);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        cr_expect(
                eq(int, hearth("plan", "--ranks", "8", "--bytes", "1M", others[i][0], others[i][1]),
                        2),
                "%s %s", others[i][0], others[i][1]);
    cr_expect(eq(int, hearth("plan", "--ranks", "8"), 2));
    cr_expect(eq(int, hearth("plan", "--bytes", "1M"), 2));
    cr_expect(eq(int, hearth("plan", "--ranks", "8", "--model", "1B", "--optimizer", "x"), 2));
}
