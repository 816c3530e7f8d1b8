/* SPDX-License-Identifier: Apache-2.0 */
/* What stands at a byte of a `.metadata`: records hold places in the pickle, not values, and both
 * passes have seen that the right opcodes are there. */
/* For this folder alone. */
#ifndef HEARTH_CORE_TORCH_METADATA_REREAD_H
#define HEARTH_CORE_TORCH_METADATA_REREAD_H

#include "core/base/bytes.h"
#include "header.h"
#include "pickle_code.h"
#include <hearth/metadata.h>

/* A text; of no bytes where `at` is 0. */
struct hearth_text md_text(const struct hearth_metadata *md, uint32_t at);

/* One integer; the ndim of a tuple. */
int64_t md_int(const struct hearth_metadata *md, uint32_t at);
void md_dims(
        const struct hearth_metadata *md, uint32_t at, uint32_t ndim, int64_t out[HTH_DIMS_MAX]);

/* The integer at *p, past what may stand between two of a tuple: a MEMOIZE or a FRAME. */
static inline int64_t md_int_next(const unsigned char **p)
{
    const unsigned char *at = *p;
    int64_t i = 0;

    for (;; at += *at == 0x94 ? 1 : 9) {
        switch (*at) {
        case 'K':
            *p = at + 2;
            return at[1];
        case 'M':
            *p = at + 3;
            return hth_get16(at + 1);
        case 'J':
            *p = at + 5;
            return (int32_t)hth_get32(at + 1);
        case 0x8a:
            *p = at + 2 + at[1];
            hth_pickle_long(at + 2, at[1], &i);
            return i;
        default:
            break;
        }
    }
}

#endif
