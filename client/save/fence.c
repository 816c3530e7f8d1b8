/* SPDX-License-Identifier: Apache-2.0 */
/* When tensors in GPU memory may change again. */
#include "save.h"

#include "client/base/clock.h"
#include "client/device/work.h"

int hearth_save_fence(struct hearth_save *save, void *stream, struct hearth_error *err)
{
    int rc;

    if ((rc = hth_save_enter(save, err)) || !save->handle->work)
        return rc;
    rc = hth_work_fence(save->handle->work, stream, hth_until_ms(save->h->opts.save_ms), err);
    return rc ? hth_while(err, rc, "fence a save") : HEARTH_OK;
}

int hearth_handle_fence(struct hearth_handle *handle, void *stream, struct hearth_error *err)
{
    int rc;

    if (!handle)
        return hth_fail(err, HEARTH_EINVAL, 0, "the handle is NULL: commit gives one");
    if ((rc = hth_enter(handle->h, err)) || !handle->work)
        return rc;
    rc = hth_work_fence(handle->work, stream, hth_until_ms(handle->h->opts.save_ms), err);
    return rc ? hth_while(err, rc, "fence a save") : HEARTH_OK;
}
