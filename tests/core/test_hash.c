/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes: the published values of FNV-1a, and what tables rely on. */
#include "check.h"

#include "core/base/hash.h"

Test(hash, of_32_bits_is_fnv_1a)
{
    cr_assert(eq(u32, hth_hash32("", 0), 0x811c9dc5));
    cr_assert(eq(u32, hth_hash32("a", 1), 0xe40c292c));
    cr_assert(eq(u32, hth_hash32("foobar", 6), 0xbf9cf968));
}

/* Each bit of a key, and its length, counts: keys that differ in one have other hashes, also in the
 * half that places of a table are taken from. */
Test(hash, of_64_bits_depends_on_each_bit_and_on_the_length)
{
    unsigned char key[40] = { 0 };

    for (size_t len = 1; len <= sizeof(key); len++) {
        uint64_t plain = hth_hash(key, len, 0);

        cr_assert(ne(u32, (uint32_t)hth_hash(key, len - 1, 0), (uint32_t)plain), "%zu", len);
        for (size_t bit = 0; bit < 8 * len; bit++) {
            key[bit / 8] ^= (unsigned char)(1 << bit % 8);
            cr_assert(ne(u32, (uint32_t)hth_hash(key, len, 0), (uint32_t)plain), "%zu: bit %zu",
                    len, bit);
            key[bit / 8] = 0;
        }
    }
}

Test(hash, differs_by_its_seed)
{
    cr_assert(ne(u64, hth_hash("a", 1, 0), hth_hash("a", 1, 1)));
}
