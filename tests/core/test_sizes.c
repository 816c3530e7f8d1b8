/* SPDX-License-Identifier: Apache-2.0 */
/* With the sizes that a rank declares for its objects, no object is left without a slot, and little
 * room is wasted. */
#include "check.h"

#include "core/base/env.h"
#include "core/format/sizes.h"

#define SIZES(...) (const uint64_t[]){ __VA_ARGS__ }, sizeof((uint64_t[]){ __VA_ARGS__ }) / 8

Test(sizes, few_sizes_are_said_as_they_are)
{
    struct hth_sizes s;

    hth_sizes_of(&s, SIZES(5, 9, 5, 5, 9, 2, 7));
    cr_assert(eq(u64, s.bytes[0], 9));
    cr_assert(eq(u32, s.count[0], 2));
    cr_assert(eq(u64, s.bytes[1], 7));
    cr_assert(eq(u64, s.bytes[2], 5));
    cr_assert(eq(u32, s.count[2], 3));
    cr_assert(eq(u64, s.bytes[3], 2));
    cr_assert(eq(u32, hth_sizes_objects(&s), 7));
    hth_sizes_of(&s, NULL, 0);
    cr_assert(zero(u32, hth_sizes_objects(&s)));
    cr_assert(zero(u64, s.bytes[0]));
}

Test(sizes, of_many_sizes_those_count_as_the_next_that_lie_nearest_to_it)
{
    struct hth_sizes s;

    hth_sizes_of(&s, SIZES(1000, 999, 500, 499, 498, 10, 1));
    cr_assert(eq(u64, s.bytes[0], 1000));
    cr_assert(eq(u32, s.count[0], 2));
    cr_assert(eq(u64, s.bytes[1], 500));
    cr_assert(eq(u32, s.count[1], 3));
    cr_assert(eq(u64, s.bytes[2], 10));
    cr_assert(eq(u64, s.bytes[3], 1));
}

/* The k-th largest object is as large as the k-th largest size in `s`, or smaller. */
Test(sizes, each_object_has_its_place_whatever_the_sizes)
{
    uint64_t random = 4, bytes[HTH_SIZES_OBJECTS];
    struct hth_sizes s;

    for (int round = 0; round < 2000; round++) {
        size_t count = 1 + hth_splitmix64(&random) % HTH_SIZES_OBJECTS;
        uint64_t most = round % 7 ? 1 + hth_splitmix64(&random) % 300 : UINT64_MAX;

        for (size_t i = 0; i < count; i++)
            bytes[i] = 1 + hth_splitmix64(&random) % most;
        hth_sizes_of(&s, bytes, count);
        cr_assert(eq(int, hth_sizes_are(&s), 1));
        cr_assert(eq(u32, hth_sizes_objects(&s), (uint32_t)count));
        for (size_t i = 0; i < HTH_SIZES && s.count[i]; i++) {
            uint32_t objects = 0, places = 0;
            int is_one = 0;

            for (size_t k = 0; k < count; k++) {
                objects += bytes[k] >= s.bytes[i];
                is_one |= bytes[k] == s.bytes[i];
            }
            for (size_t k = 0; k < i; k++)
                places += s.count[k];
            cr_assert(le(u32, objects, places + s.count[i]));
            cr_assert(gt(u32, objects, places));
            cr_assert(eq(int, is_one, 1));
        }
    }
}

Test(sizes, what_is_never_said_is_known)
{
    struct hth_sizes s = { .bytes = { 9, 5 }, .count = { 1, 2 } };

    cr_assert(eq(int, hth_sizes_are(&s), 1));
    s.bytes[1] = 9; /* the same twice */
    cr_assert(eq(int, hth_sizes_are(&s), 0));
    s = (struct hth_sizes){ .bytes = { 9, 0, 5 }, .count = { 1, 0, 2 } };
    cr_assert(eq(int, hth_sizes_are(&s), 0));
    s = (struct hth_sizes){ .bytes = { 9 }, .count = { HTH_SIZES_OBJECTS + 1 } };
    cr_assert(eq(int, hth_sizes_are(&s), 0));
    s = (struct hth_sizes){ .bytes = { 9, 5 }, .count = { 1, 0 } };
    cr_assert(eq(int, hth_sizes_are(&s), 0));
}
