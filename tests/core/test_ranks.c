/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of ranks as runs, their codes, and how begins are counted set by set. */
#include "check.h"

#include "core/base/attempts.h"
#include "core/base/auth.h"
#include "core/format/ranks.h"

#include <stdio.h>
#include <stdlib.h>

#define WORLD 4096u

static struct hth_ranks set_of(const uint32_t *ranks, size_t count)
{
    struct hth_ranks set;

    must(hth_auth_init(NULL));
    must(hth_ranks_of(&set, ranks, count, WORLD, NULL));
    return set;
}

#define SET(...)                              \
    set_of((const uint32_t[]){ __VA_ARGS__ }, \
            sizeof((const uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

static void must_read(struct hth_ranks set, const char *text)
{
    char out[64];

    hth_ranks_say(&set, out, sizeof(out));
    must_say(out, text);
}

Test(ranks, a_set_is_written_as_runs)
{
    struct hth_ranks s = SET(0, 8, 16, 24);

    cr_assert(eq(u32, s.runs, 1));
    must_read(s, "0-24 by 8");
    must_read(SET(0), "0");
    must_read(SET(0, 1, 2, 3), "0-3");
    must_read(SET(3, 7), "3, 7");
    must_read(SET(0, 1, 2, 10, 12, 14, 15), "0-2, 10-14 by 2, 15");
    cr_assert(eq(u32, hth_ranks_count(&s), 4));
}

Test(ranks, a_set_has_its_ranks_and_no_others)
{
    struct hth_ranks s = SET(1, 2, 3, 10, 14, 18, 30), all = { 0 };
    uint32_t have = 0;

    for (uint32_t r = 0; r < 64; r++)
        have += (uint32_t)hth_ranks_have(&s, r);
    cr_assert(eq(u32, have, 7));
    cr_assert(ne(int, hth_ranks_have(&s, 14), 0));
    cr_assert(zero(int, hth_ranks_have(&s, 12)));
    cr_assert(ne(int, hth_ranks_have(&all, 4000), 0));
}

Test(ranks, all_ranks_are_no_set)
{
    static const uint32_t two[] = { 0, 1 };
    struct hth_ranks s;

    must(hth_ranks_of(&s, two, 2, 2, NULL));
    cr_assert(eq(u32, s.runs, 0));
    cr_assert(eq(u32, hth_ranks_bits(&s), 0));
}

Test(ranks, what_is_no_set_is_refused_by_name)
{
    static const uint32_t twice[] = { 0, 3, 3 }, falls[] = { 4, 2 }, outside[] = { 0, 4096 };
    struct hearth_error err;
    struct hth_ranks s;

    must_fail(hth_ranks_of(&s, twice, 3, WORLD, &err), HEARTH_EINVAL);
    must_fail(hth_ranks_of(&s, falls, 2, WORLD, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "rank 2 is named after rank 4"), NULL));
    must_fail(hth_ranks_of(&s, outside, 2, WORLD, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, "rank 4096 is named"), NULL));
    must_fail(hth_ranks_of(&s, outside, 0, WORLD, NULL), HEARTH_EINVAL);
}

/* Distances that are never alike: each run has two ranks. */
Test(ranks, a_set_that_takes_too_many_runs_is_refused)
{
    uint32_t rank[2 * HTH_RANK_RUNS + 1], at = 0;
    struct hth_ranks s;

    for (uint32_t i = 0; i < 2 * HTH_RANK_RUNS + 1; i++, at += i)
        rank[i] = at;
    must(hth_ranks_of(&s, rank, 2 * (size_t)HTH_RANK_RUNS, 100000, NULL));
    cr_assert(eq(u32, s.runs, HTH_RANK_RUNS));
    must_fail(hth_ranks_of(&s, rank, 2 * (size_t)HTH_RANK_RUNS + 1, 100000, NULL), HEARTH_EINVAL);
}

Test(ranks, runs_come_back_and_other_ways_of_writing_them_do_not)
{
    static const struct hth_ranks other[] = { { 2, { { 0, 2, 1 }, { 2, 1, 1 } } },
        { 2, { { 0, 1, 1 }, { 5, 2, 1 } } }, { 1, { { 0, 1, 2 } } }, { 1, { { 0, 0, 1 } } },
        { 1, { { 0, 2, 0 } } }, { 2, { { 4, 2, 1 }, { 0, 1, 1 } } },
        { 1, { { UINT32_MAX, 2, 1 } } } };
    struct hth_ranks s = SET(0, 1, 2, 10, 12, 14, 15), back;
    unsigned char bytes[HTH_RANK_RUNS * HTH_RANK_RUN_BYTES];

    hth_ranks_encode(&s, bytes);
    must(hth_ranks_decode(&back, bytes, hth_ranks_bytes(&s), NULL));
    cr_assert(ne(int, hth_ranks_same(&s, &back), 0));
    must_fail(hth_ranks_decode(&back, bytes, hth_ranks_bytes(&s) - 1, NULL), HEARTH_EPROTO);
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        hth_ranks_encode(&other[i], bytes);
        must_fail(hth_ranks_decode(&back, bytes, hth_ranks_bytes(&other[i]), NULL), HEARTH_EPROTO);
    }
}

Test(ranks, single_ranks_never_share_a_code_and_none_is_that_of_all)
{
    struct hth_ranks a = SET(0), b = SET(1), c = SET(0, 1);

    cr_assert(eq(u32, hth_ranks_bits(&a), HTH_ATTEMPT_SOME));
    cr_assert(eq(u32, hth_ranks_bits(&b), HTH_ATTEMPT_SOME | 1u << HTH_ATTEMPT_SHIFT));
    cr_assert(ge(u32, hth_ranks_bits(&c), HTH_ATTEMPT_SOME | 0x4000u << HTH_ATTEMPT_SHIFT));
    cr_assert(zero(u32, hth_attempt_count(hth_ranks_bits(&c))));
}

Test(ranks, of_one_step_a_save_of_all_ranks_is_the_newest)
{
    struct hth_ranks one = SET(0), two = SET(0, 1);
    struct hth_save_id all = { 9, 9, 5, 1 }, a = { 9, 9, 5, hth_ranks_bits(&one) | 7 },
                       b = { 9, 9, 5, hth_ranks_bits(&two) | 1 }, next = { 9, 9, 6, a.attempt };

    cr_assert(lt(int, hth_save_cmp(a, b), 0));
    cr_assert(lt(int, hth_save_cmp(b, all), 0));
    cr_assert(lt(int, hth_save_cmp(all, next), 0));
}

Test(ranks, begins_are_counted_set_by_set)
{
    const uint32_t one = HTH_ATTEMPT_SOME, two = HTH_ATTEMPT_SOME | 0x10000;
    struct hth_attempts a = { 0 };

    cr_assert(zero(u32, hth_attempts_last(&a)));
    cr_assert(eq(u32, hth_attempts_next(&a, 5, 0), 1));
    cr_assert(eq(u32, hth_attempts_next(&a, 5, one), one | 1));
    cr_assert(eq(u32, hth_attempts_next(&a, 5, one), one | 2));
    cr_assert(eq(u32, hth_attempts_next(&a, 5, two), two | 1));
    cr_assert(eq(u32, hth_attempts_next(&a, 5, 0), 2), "others' begins are none of its");
    cr_assert(eq(u32, hth_attempts_last(&a), 2));
    cr_assert(zero(u32, hth_attempts_next(&a, 4, 0)), "steps never go down");
    cr_assert(eq(u32, hth_attempts_next(&a, 6, one), one | 1));
    hth_attempts_heard(&a, 6, one | 4);
    hth_attempts_heard(&a, 6, one | 3);
    hth_attempts_heard(&a, 6, 0);
    hth_attempts_heard(&a, 5, one | 9);
    cr_assert(eq(u32, hth_attempts_next(&a, 6, one), one | 5));
}

Test(ranks, a_count_never_runs_into_its_set)
{
    const uint32_t one = HTH_ATTEMPT_SOME | 0x10000;
    struct hth_attempts a = { 0 };

    hth_attempts_heard(&a, 5, one | HTH_ATTEMPT_COUNT);
    cr_assert(zero(u32, hth_attempts_next(&a, 5, one)));
    hth_attempts_heard(&a, 5, HTH_ATTEMPT_SOME - 1);
    cr_assert(zero(u32, hth_attempts_next(&a, 5, 0)));
    cr_assert(eq(u32, hth_attempts_next(&a, 6, one), one | 1));
    for (uint32_t i = 1; i < HTH_ATTEMPTS_SETS; i++)
        cr_assert(ne(u32, hth_attempts_next(&a, 6, HTH_ATTEMPT_SOME | (i + 1) << 16), 0));
    cr_assert(zero(u32, hth_attempts_next(&a, 6, 0)), "so many sets of one step and no more");
}
