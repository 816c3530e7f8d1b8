/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of numbers by hash: what is in is found, by hashes that fall together too, and nothing
 * else. */
#include "check.h"

#include "core/base/set.h"

#define NUMBERS 5000u

/* Few hashes, all of them at the end of the table, so that chains are long and go round. */
static uint32_t crowded(uint32_t number)
{
    return UINT32_MAX - number % 7;
}

static uint32_t spread(uint32_t number)
{
    return number * UINT32_C(0x9e3779b1);
}

static int has(const struct hth_set *set, uint32_t hash, uint32_t number)
{
    uint32_t found;

    for (size_t probe = 0; hth_set_next(set, hash, &probe, &found);)
        if (found == number)
            return 1;
    return 0;
}

static void add(struct hth_set *set, uint32_t hash, uint32_t number)
{
    must(hth_set_room(set, 1));
    hth_set_add(set, hash, number);
}

Test(set, that_is_empty_has_nothing)
{
    struct hth_set set = { 0 };

    cr_assert(not(has(&set, 0, 0)));
    must(hth_set_room(&set, 0));
    cr_assert(not(has(&set, 0, 0)));
    hth_set_ahead(&set, 3);
    hth_set_fini(&set);
}

Test(set, finds_what_was_added_however_it_grew)
{
    struct hth_set set = { 0 };

    for (uint32_t i = 0; i < NUMBERS; i++)
        add(&set, spread(i), i);
    cr_assert(eq(sz, set.count, NUMBERS));
    for (uint32_t i = 0; i < NUMBERS; i++)
        cr_assert(has(&set, spread(i), i), "%u", i);
    for (uint32_t i = NUMBERS; i < 2 * NUMBERS; i++)
        cr_assert(not(has(&set, spread(i), i)), "%u", i);
    hth_set_fini(&set);
}

Test(set, tells_numbers_of_one_hash_apart)
{
    struct hth_set set = { 0 };
    uint32_t found, count = 0;

    for (uint32_t i = 0; i < 100; i++)
        add(&set, crowded(i), i);
    for (uint32_t i = 0; i < 100; i++)
        cr_assert(has(&set, crowded(i), i), "%u", i);
    for (size_t probe = 0; hth_set_next(&set, crowded(3), &probe, &found); count++)
        cr_assert(eq(u32, found % 7, 3));
    cr_assert(eq(u32, count, 14));
    hth_set_fini(&set);
}

Test(set, is_as_it_was_after_a_cut)
{
    struct hth_set set = { 0 };

    must(hth_set_room(&set, 100));
    for (uint32_t i = 0; i < 100; i++)
        hth_set_add(&set, crowded(i), i);
    hth_set_cut(&set, 60);
    cr_assert(eq(sz, set.count, 60));
    for (uint32_t i = 0; i < 100; i++)
        cr_assert(eq(int, has(&set, crowded(i), i), i < 60), "%u", i);
    hth_set_add(&set, crowded(60), 60);
    cr_assert(has(&set, crowded(60), 60));
    hth_set_fini(&set);
}

Test(set, has_no_room_for_more_than_its_numbers_can_count)
{
    struct hth_set set = { 0 };

    must_fail(hth_set_room(&set, UINT32_MAX), HEARTH_ENOMEM);
    cr_assert(eq(sz, set.cap, 0));
}
