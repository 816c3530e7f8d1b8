/* SPDX-License-Identifier: Apache-2.0 */
/* Integers as Python's pickler writes them. */
#include "pickle_write.h"
#include "core/base/bytes.h"

size_t hth_pickle_int(unsigned char out[HTH_PICKLE_INT_MAX], int64_t v)
{
    unsigned n = 1;

    if (v >= 0 && v <= UINT8_MAX) {
        out[0] = 'K';
        out[1] = (unsigned char)v;
        return 2;
    }
    if (v >= 0 && v <= UINT16_MAX) {
        out[0] = 'M';
        hth_put16(out + 1, (uint16_t)v);
        return 3;
    }
    if (v >= INT32_MIN && v <= INT32_MAX) {
        out[0] = 'J';
        hth_put32(out + 1, (uint32_t)v);
        return 5;
    }
    while (n < 8 && (v < -(INT64_C(1) << (8 * n - 1)) || v >= INT64_C(1) << (8 * n - 1)))
        n++;
    out[0] = 0x8a;
    out[1] = (unsigned char)n;
    memcpy(out + 2, &v, n);
    return 2 + n;
}
