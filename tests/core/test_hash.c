/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes: the published values of FNV-1a, and that seeds tell tables apart. */
#include "check.h"

#include "core/base/hash.h"

Test(hash, of_32_bits_is_fnv_1a)
{
    cr_assert(eq(u32, hth_hash32("", 0), 0x811c9dc5));
    cr_assert(eq(u32, hth_hash32("a", 1), 0xe40c292c));
    cr_assert(eq(u32, hth_hash32("foobar", 6), 0xbf9cf968));
}

Test(hash, of_64_bits_is_fnv_1a_with_its_upper_half_mixed_in)
{
    uint64_t a = UINT64_C(0xaf63dc4c8601ec8c), foobar = UINT64_C(0x85944171f73967e8);

    cr_assert(eq(u64, hth_hash("a", 1, 0), a ^ a >> 32));
    cr_assert(eq(u64, hth_hash("foobar", 6, 0), foobar ^ foobar >> 32));
}

Test(hash, differs_by_its_seed)
{
    cr_assert(ne(u64, hth_hash("a", 1, 0), hth_hash("a", 1, 1)));
}
