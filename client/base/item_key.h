/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of items, for tables of them. */
#ifndef HEARTH_CLIENT_ITEM_KEY_H
#define HEARTH_CLIENT_ITEM_KEY_H

#include <stddef.h>
#include <stdint.h>

/* FNV-1a, 64 bit (Fowler, Noll, Vo). */
static inline uint64_t hth_key_hash(const void *key, size_t len)
{
    const unsigned char *k = key;
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < len; i++)
        h = (h ^ k[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

#endif
