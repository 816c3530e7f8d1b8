/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: the check value, both ways of computing it, and continuing. */
#include "check.h"

#include "core/base/crc.h"
#include "core/base/crc_copy.h"
#include "core/base/env.h"

#include <pthread.h>
#include <stdatomic.h>

#define BYTES 70000

static unsigned char bytes[BYTES];

static void fill(uint64_t seed)
{
    for (size_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)hth_splitmix64(&seed);
}

Test(crc, has_the_check_value_of_castagnoli)
{
    cr_assert(eq(u32, hth_crc32c("123456789", 9), 0xe3069283u));
    cr_assert(eq(u32, hth_crc32c_portable("123456789", 9), 0xe3069283u));
}

Test(crc, has_the_values_of_rfc_3720)
{
    unsigned char block[32] = { 0 };

    cr_assert(eq(u32, hth_crc32c(block, 32), 0x8a9136aau));
    memset(block, 0xff, sizeof(block));
    cr_assert(eq(u32, hth_crc32c(block, 32), 0x62a8ab43u));
    cr_assert(eq(u32, hth_crc32c(block, 0), 0u));
}

Test(crc, both_ways_agree_on_any_length_and_address)
{
    uint64_t seed = 1;

    fill(7);
    for (int round = 0; round < 4000; round++) {
        size_t from = hth_splitmix64(&seed) % 64;
        size_t max = round % 2 ? 40 : BYTES - 64;
        size_t len = hth_splitmix64(&seed) % max;

        cr_assert(eq(u32, hth_crc32c(bytes + from, len), hth_crc32c_portable(bytes + from, len)),
                "%zu bytes from %zu", len, from);
    }
}

Test(crc, goes_on_where_it_stopped)
{
    uint32_t whole;

    fill(9);
    whole = hth_crc32c(bytes, BYTES);
    for (size_t cut = 0; cut <= BYTES; cut += 977) {
        uint32_t front = hth_crc32c(bytes, cut);

        cr_assert(eq(u32, hth_crc32c_more(front, bytes + cut, BYTES - cut), whole));
        cr_assert(eq(u32, hth_crc32c_portable_more(front, bytes + cut, BYTES - cut), whole));
    }
}

Test(crc, of_two_parts_joins_to_that_of_the_whole)
{
    uint64_t seed = 3;

    fill(11);
    for (int round = 0; round < 20000; round++) {
        size_t len = hth_splitmix64(&seed) % (round % 2 ? 300 : BYTES);
        size_t cut = hth_splitmix64(&seed) % (len + 1);
        uint32_t front = hth_crc32c(bytes, cut), back = hth_crc32c(bytes + cut, len - cut);

        cr_assert(eq(u32, hth_crc32c_join(front, back, len - cut), hth_crc32c(bytes, len)),
                "%zu and %zu bytes", cut, len - cut);
    }
}

/* Lengths too large to go over their bytes: by pairs of equal parts, as often as it takes. */
Test(crc, of_parts_of_any_length_joins)
{
    uint32_t zeros = hth_crc32c("", 1), ones = hth_crc32c("\1", 1);

    for (int k = 0; k < 62; k++) {
        uint64_t len = UINT64_C(1) << k;
        uint32_t left = hth_crc32c_join(ones, zeros, len);

        /* (ones || zeros) || zeros is ones || (zeros || zeros) */
        cr_assert(eq(u32, hth_crc32c_join(left, zeros, len),
                          hth_crc32c_join(ones, hth_crc32c_join(zeros, zeros, len), 2 * len)),
                "2^%d bytes", k);
        zeros = hth_crc32c_join(zeros, zeros, len);
        if (k == 15)
            cr_assert(eq(u32, zeros, hth_crc32c(memset(bytes, 0, BYTES), 65536)));
    }
}

/* ---- sums of what is copied ------------------------------------------------------------------ */

static unsigned char copied[BYTES + 128];

static void copy_and_check(const struct hth_crc_copier *way, size_t from, size_t to, size_t len)
{
    uint32_t before = (uint32_t)len * 2654435761u, crc;

    memset(copied, 0xa5, sizeof(copied));
    crc = way->copy(before, copied + to, bytes + from, len);
    hth_crc32c_copied();
    cr_assert(eq(u32, crc, hth_crc32c_portable_more(before, bytes + from, len)),
            "%s: %zu bytes from %zu to %zu", way->name, len, from, to);
    cr_assert(zero(int, memcmp(copied + to, bytes + from, len)), "%s: %zu", way->name, len);
    cr_assert(eq(u8, copied[to + len], 0xa5), "%s: a byte behind", way->name);
    cr_assert(to == 0 || copied[to - 1] == 0xa5, "%s: a byte in front", way->name);
}

Test(crc, each_way_to_copy_sums_up_what_it_wrote_at_any_length_and_address)
{
    size_t ways;
    const struct hth_crc_copier *way = hth_crc_copiers(&ways);
    uint64_t seed = 5;

    fill(13);
    cr_assert(ge(sz, ways, 1));
    cr_assert(zero(int, strcmp(way[ways - 1].name, "plain")));
    for (size_t w = 0; w < ways; w++) {
        for (int round = 0; round < 2000; round++) {
            size_t max = round % 2 ? 5000 : BYTES - 64;

            copy_and_check(&way[w], hth_splitmix64(&seed) % 64, hth_splitmix64(&seed) % 64,
                    hth_splitmix64(&seed) % max);
        }
        for (size_t len = 2048; len <= 2048 + 1100; len++)
            copy_and_check(&way[w], len % 7, len % 64, len);
    }
}

static atomic_int changing;

static void *change(void *arg)
{
    while (atomic_load(&changing))
        for (size_t i = 0; i < BYTES; i += 61)
            ((volatile unsigned char *)bytes)[i]++;
    return arg;
}

/* The bytes may be old or new ones; the sum is that of the bytes that arrived. */
__attribute__((no_sanitize("thread"))) static void copy_while_it_changes(
        const struct hth_crc_copier *way)
{
    for (int round = 0; round < 300; round++) {
        uint32_t crc = way->copy(0, copied, bytes, BYTES);

        hth_crc32c_copied();
        cr_assert(eq(u32, crc, hth_crc32c_portable(copied, BYTES)), "%s", way->name);
    }
}

Test(crc, of_a_copy_agrees_with_it_while_the_source_changes)
{
    size_t ways;
    const struct hth_crc_copier *way = hth_crc_copiers(&ways);
    pthread_t other;

    fill(17);
    atomic_store(&changing, 1);
    cr_assert(zero(int, pthread_create(&other, NULL, change, NULL)));
    for (size_t w = 0; w < ways; w++)
        copy_while_it_changes(&way[w]);
    atomic_store(&changing, 0);
    pthread_join(other, NULL);
}
