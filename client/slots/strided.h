/* SPDX-License-Identifier: Apache-2.0 */
/* n-dimensional copies. */
#ifndef HEARTH_CLIENT_STRIDED_H
#define HEARTH_CLIENT_STRIDED_H

#include "core/torch/header.h"
#include <stdint.h>

/* An n-dimensional copy with adjacent dimensions merged. Steps in bytes. */
struct hth_strided {
    uint32_t ndim;
    uint32_t elem;  /* bytes of one, or of a contiguous run of them */
    uint64_t count; /* elements altogether */
    int64_t shape[HTH_DIMS_MAX], dst[HTH_DIMS_MAX], src[HTH_DIMS_MAX];
};

/* Steps of C order without gaps, in elements. */
void hth_c_order(uint32_t ndim, const int64_t *shape, int64_t *out);

/* strides in elements; NULL: C order. 1: both sides are contiguous, a plain memcpy will do. */
int hth_strided_init(struct hth_strided *s, uint32_t elem, uint32_t ndim, const int64_t *shape,
        const int64_t *dst_strides, const int64_t *src_strides);
/* Where one element lies in src, by its number in C order. */
const unsigned char *hth_strided_at(const struct hth_strided *s, const void *src, uint64_t element);
/* Elements [first, first + count) in C order. */
void hth_strided_copy(
        const struct hth_strided *s, void *dst, const void *src, uint64_t first, uint64_t count);

#endif
