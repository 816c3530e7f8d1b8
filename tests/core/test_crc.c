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
