/* SPDX-License-Identifier: Apache-2.0 */
/* hearth what-if without an answer, and what it makes of answers that cannot be. */
#include "command.h"

#include "cli/losses.h"

#include <sys/stat.h>

static struct losses l;

static void start_what_if(void)
{
    char path[128];

    make_root();
    snprintf(path, sizeof(path), "%s/train", root);
    cr_assert(zero(int, mkdir(path, 0700)));
    snprintf(path, sizeof(path), "%s/train/.hearth", root);
    cr_assert(zero(int, mkdir(path, 0700)));
}

static void end_what_if(void)
{
    losses_free(&l);
    remove_root();
}

TestSuite(what_if, .init = start_what_if, .fini = end_what_if);

Test(what_if, is_status_3_without_a_job_or_an_engine)
{
    cr_assert(eq(int, hearth("what-if", "--root", root, "other"), 3), "%s", err_text);
    cr_assert(eq(int, hearth("what-if", "--root", root, "train", "n1"), 3), "%s", err_text);
    cr_assert(eq(int, has(err_text, "no engine runs"), 1), "%s", err_text);
}

Test(what_if, a_number_of_pairs_that_is_none_is_refused)
{
    const char *wrong[] = { "x", "0", "-1", "1001", "" };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        cr_assert(eq(int, hearth("what-if", "--root", root, "--worst", wrong[i], "train"), 2), "%s",
                err_text);
    cr_assert(eq(int, hearth("what-if", "train"), 2), "%s", err_text);
}

/* ---- Pages ----------------------------------------------------------------------------------- */

static int take(const char *text, struct hearth_error *err)
{
    json_t *page = json_loads(text, 0, NULL);
    int rc;

    cr_assert(ne(ptr, page, NULL), "%s", text);
    rc = losses_page(&l, page, err);
    json_decref(page);
    return rc;
}

#define SAVE "0000000000000007-0000000000000001-0000000000000028-00000001"

/* Three nodes with a rank each, one copy; node c's copy of rank b moved from the lost node d. */
#define PAGE(members, settled, position, has_c)                                                   \
    "{\"node\": \"b\", \"coordinator\": \"a\", \"epoch\": 7, \"position\": " position             \
    ", \"as_of_ms\": 3, \"current\": true, \"settled\": " settled                                 \
    ", \"dead_ms\": 5000, \"copies\": 1, \"members\": " members                                   \
    ", \"world\": 3, \"kept\": [{\"save\": \"" SAVE                                               \
    "\", \"state\": \"protected\", \"bad\": false}], \"nodes\": ["                                \
    "{\"node\": \"a\", \"lost\": false, \"domains\": [], \"has\": [true]},"                       \
    "{\"node\": \"b\", \"lost\": false, \"domains\": [], \"has\": [true]},"                       \
    "{\"node\": \"c\", \"lost\": false, \"domains\": [], \"has\": [" has_c                        \
    "]},{\"node\": \"d\", \"lost\": true, \"domains\": [], \"has\": [false]}],"                   \
    "\"ranks\": [[[0, 0, null], [1, 1, null]], [[1, 1, null], [3, 2, 3]], [[2, 2, null], [0, 0, " \
    "null]]]}"

static enum loss_fate fate(const char *lost)
{
    uint8_t gone[4] = { 0 };
    struct loss_verdict v;

    for (; *lost; lost++)
        gone[*lost - 'a'] = 1;
    must(losses_judge(&l, gone, &v));
    return v.fate[0];
}

Test(what_if, a_copy_that_is_not_promised_is_not_counted)
{
    must(take(PAGE("4", "false", "9", "false"), NULL));
    cr_expect(eq(int, losses_whole(&l), 1));
    cr_expect(eq(int, fate(""), LOSS_SURVIVES));
    cr_expect(eq(int, fate("a"), LOSS_UNKNOWN)); /* rank c: perhaps on its own node */
    cr_expect(eq(int, fate("b"), LOSS_UNKNOWN)); /* rank b: perhaps on node c */
}

Test(what_if, a_lost_node_may_come_back_with_its_copy)
{
    must(take(PAGE("4", "true", "9", "true"), NULL));
    cr_expect(eq(int, fate(""), LOSS_SURVIVES));
    cr_expect(eq(int, fate("b"), LOSS_SURVIVES));
    cr_expect(eq(int, fate("bc"), LOSS_UNKNOWN)); /* rank b: perhaps on node d */
    cr_expect(eq(int, fate("bcd"), LOSS_LOST));
    cr_expect(eq(int, fate("ab"), LOSS_LOST)); /* rank a */
}

Test(what_if, pages_between_which_something_was_decided_are_not_put_together)
{
    struct hearth_error err = { 0 };

    must(take(PAGE("5", "true", "9", "true"), NULL));
    cr_expect(zero(int, losses_whole(&l)));
    cr_expect(eq(int, take(PAGE("5", "true", "10", "true"), &err), HEARTH_ESTATE));
}

Test(what_if, pages_that_cannot_be_are_refused)
{
    const char *wrong[] = { "{}", "[]", PAGE("0", "true", "9", "true"),
        PAGE("2", "true", "9", "true"), PAGE("-1", "true", "9", "true"),
        PAGE("99999999", "true", "9", "true") };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        cr_expect(eq(int, take(wrong[i], NULL), HEARTH_EPROTO), "%s", wrong[i]);
        losses_free(&l);
    }
}

Test(what_if, the_worst_pair_is_the_one_with_most_ranks)
{
    uint32_t unit[4];
    struct loss_pair pair[4];

    must(take(PAGE("4", "true", "9", "true"), NULL));
    cr_assert(eq(u32, losses_units(&l, 0, unit), 4));
    cr_assert(eq(int, losses_worst(&l, 0, unit, 4, pair, 4), 3));
    for (int i = 0; i < 3; i++)
        cr_expect(eq(u32, pair[i].ranks, 1));
    unit[1] = unit[2]; /* nodes b and c fail together: rank b is in one unit */
    cr_assert(gt(int, losses_worst(&l, 0, unit, 4, pair, 4), 0));
    cr_expect(eq(u32, pair[0].ranks, 3));
    cr_expect(eq(u32, pair[0].a, 0));
    cr_expect(eq(u32, pair[0].b, 2));
}
