/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor without its bytes: dtype and shape. */
#ifndef HEARTH_CORE_BASE_SHAPE_H
#define HEARTH_CORE_BASE_SHAPE_H

#include "fail.h"
#include <hearth/dtype.h>
#include <stdint.h>

#define HTH_DIMS_MAX 64 /* torch's own limit */

struct hth_header {
    enum hearth_dtype dtype;
    uint32_t ndim;
    int64_t shape[HTH_DIMS_MAX];
};

/* Elements, and bytes of the payload. Errors: HEARTH_EINVAL when a dimension is negative or
 * the number of bytes does not fit in 63 bits. */
int hth_header_bytes(
        const struct hth_header *header, uint64_t *out_bytes, struct hearth_error *err);

#endif
