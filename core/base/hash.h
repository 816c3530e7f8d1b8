/* SPDX-License-Identifier: Apache-2.0 */
/* Hashes of names and keys: FNV-1a (Fowler, Noll, Vo). Not keyed: bytes can be chosen so that their
 * hashes are equal. */
#ifndef HEARTH_CORE_BASE_HASH_H
#define HEARTH_CORE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* 64 bit, its upper half mixed in, since places in a table are taken from the lower. */
static inline uint64_t hth_hash(const void *bytes, size_t len, uint64_t seed)
{
    const unsigned char *p = bytes;
    uint64_t h = UINT64_C(0xcbf29ce484222325) ^ (seed * UINT64_C(0x9e3779b97f4a7c15));

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

/* 32 bit, as it is: ids of foreign objects are made of it, on every node alike. */
static inline uint32_t hth_hash32(const void *bytes, size_t len)
{
    const unsigned char *p = bytes;
    uint32_t h = UINT32_C(0x811c9dc5);

    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * UINT32_C(0x01000193);
    return h;
}

#endif
