/* SPDX-License-Identifier: Apache-2.0 */
/* A decoder that must refuse whatever is not, byte for byte, what was written. */
#ifndef DAMAGED_H
#define DAMAGED_H

#include "check.h"

#include <stdlib.h>

/* 0 when it takes the bytes, which are 8-aligned, with nothing behind them. */
typedef int takes_fn(const unsigned char *bytes, size_t len);

static inline void refuses_lengths(takes_fn *takes, const unsigned char *whole, size_t len)
{
    for (size_t n = 0; n <= len + 1; n++) {
        unsigned char *exact = calloc(1, n ? n : 1);

        memcpy(exact, whole, n < len ? n : len);
        if (n != len)
            cr_assert(ne(int, takes(exact, n), 0), "%zu bytes instead of %zu", n, len);
        free(exact);
    }
}

/* Every truncation, one byte more, and every byte with each of the 255 values that it has not. */
static inline void refuses_all_damage(takes_fn *takes, const unsigned char *whole, size_t len)
{
    unsigned char *copy = malloc(len);
    size_t tried = 0, taken = 0, last = 0;

    memcpy(copy, whole, len);
    must(takes(copy, len));
    for (size_t i = 0; i < len; i++) {
        for (unsigned x = 1; x < 256; x++, tried++) { /* an assertion each would take minutes */
            copy[i] = (unsigned char)(whole[i] ^ x);
            if (!takes(copy, len)) {
                taken++;
                last = i;
            }
        }
        copy[i] = whole[i];
    }
    cr_assert(eq(sz, tried, 255 * len));
    cr_assert(eq(sz, taken, 0), "changes of %zu bytes that were taken, the last one of byte %zu",
            len, last);
    must(takes(copy, len));
    free(copy);
    refuses_lengths(takes, whole, len);
}

#endif
