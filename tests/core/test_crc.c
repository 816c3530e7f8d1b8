/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: the check value, both ways of computing it, and continuing. */
#include "check.h"

#include "core/base/crc.h"
#include "core/base/env.h"

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

/* Lengths whose bytes nobody would go over: by pairs of equal parts, as often as it takes. */
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
