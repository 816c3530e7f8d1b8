/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between a device and contiguous host memory, in parts. */
#ifndef HEARTH_CLIENT_CUT_H
#define HEARTH_CLIENT_CUT_H

#include "core/torch/header.h"
#include "driver.h"

/* The copy of a tensor between a device and host memory in C order; the caller sets both addresses.
 * strides: of the device's side, in elements; NULL: C order. Adjacent dimensions are merged. 0, or
 * -1: more than three dimensions remain, or elements overlap or lie backwards. */
int hth_device_shape(struct hth_device_copy *out, uint32_t elem, uint32_t ndim,
        const int64_t *shape, const int64_t *strides);

static inline uint64_t hth_device_bytes(const struct hth_device_copy *c)
{
    return c->width * c->rows * c->planes;
}

/* The part of `c` that begins at byte `off` of its host memory, which is contiguous: at most `most`
 * bytes, fewer where only so many are a copy of their own. Returns how many. */
uint64_t hth_device_part(
        const struct hth_device_copy *c, uint64_t off, uint64_t most, struct hth_device_copy *out);

#endif
