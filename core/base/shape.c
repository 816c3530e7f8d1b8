/* SPDX-License-Identifier: Apache-2.0 */
/* How many bytes a tensor has. */
#include "shape.h"

int hth_header_bytes(const struct hth_header *header, uint64_t *out_bytes, struct hearth_error *err)
{
    uint64_t bytes = hearth_dtype_bytes(header->dtype);
    int empty = 0, over = 0;

    if (!bytes || header->ndim > HTH_DIMS_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "no dtype, or %" PRIu32 " dimensions, more than %d",
                header->ndim, HTH_DIMS_MAX);
    for (uint32_t i = 0; i < header->ndim; i++) {
        int64_t dim = header->shape[i];

        if (dim < 0)
            return hth_fail(
                    err, HEARTH_EINVAL, 0, "dimension %" PRIu32 " is negative: %" PRId64, i, dim);
        empty |= dim == 0;
        over |= __builtin_mul_overflow(bytes, (uint64_t)dim, &bytes) || bytes > INT64_MAX;
    }
    if (over && !empty)
        return hth_fail(err, HEARTH_EINVAL, 0, "a tensor of more than 2^63 bytes");
    *out_bytes = empty ? 0 : bytes;
    return HEARTH_OK;
}
