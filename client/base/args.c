/* SPDX-License-Identifier: Apache-2.0 */
/* Arguments of callers, checked; and values that are returned to them. */
#include "args.h"

#include "core/base/fail.h"
#include "core/base/opts.h"
#include "core/format/manifest.h"
#include <hearth/hearth.h>
#include <stdlib.h>
#include <string.h>

int hth_array_at(const void **out, void *mine, size_t size, const void *array, size_t i,
        const char *what, struct hearth_error *err)
{
    const void *at;
    size_t stride, own;

    memcpy(&stride, array, sizeof(stride));
    if (stride < sizeof(stride) || stride > HTH_STRUCT_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "struct_size in the array is not set: set it to sizeof(struct %s)", what);
    at = (const char *)array + i * stride;
    memcpy(&own, at, sizeof(own));
    if (own != stride)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "struct %s %zu of the array: struct_size is %zu and not %zu as of the first", what,
                i, own, stride);
    *out = stride == size ? at : mine;
    return stride == size ? HEARTH_OK : hth_opts_copy(mine, size, at, err);
}

int hth_step_check(uint64_t step, uint64_t but, struct hearth_error *err)
{
    if (step <= HTH_STEP_MAX || (but && step == but))
        return HEARTH_OK;
    if (step == HEARTH_STEP_NEWEST)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "HEARTH_STEP_NEWEST is for reading (hearth_checkpoint_open) and no step to save");
    return hth_fail(err, HEARTH_EINVAL, 0,
            "HEARTH_STEP_LATER is for hearth_save_begin() and no step: give the step that is "
            "meant");
}

void hearth_free(void *memory)
{
    free(memory);
}
