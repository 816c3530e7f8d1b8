/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of names and keys. Not keyed: bytes can be chosen so that their hashes are equal. */
#ifndef HEARTH_CORE_BASE_HASH_H
#define HEARTH_CORE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* 64 bit, for tables in this process's memory: it may differ between versions. Eight bytes at a
 * time, with the multipliers of SplitMix64 (Steele, Lea, Flood). */
static inline uint64_t hth_hash(const void *bytes, size_t len, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t h = seed * UINT64_C(0x9e3779b97f4a7c15) + len, word;

    for (size_t n; len; p += n, len -= n) {
        n = len < sizeof(word) ? len : sizeof(word);
        word = 0;
        memcpy(&word, p, n);
        h = (h ^ word) * UINT64_C(0xbf58476d1ce4e5b9);
        h ^= h >> 29;
    }
    h = (h ^ h >> 32) * UINT64_C(0x94d049bb133111eb);
    return h ^ h >> 32;
}

/* 32 bit, FNV-1a (Fowler, Noll, Vo): ids of foreign objects are made of it, on every node alike. */
static inline uint32_t hth_hash32(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint32_t h = UINT32_C(0x811c9dc5);

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * UINT32_C(0x01000193);
    return h;
}

#endif
