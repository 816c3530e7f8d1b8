/* SPDX-License-Identifier: Apache-2.0 */
/* Small things the files of this folder have in common. */
#include "client.h"

#include "core/base/opts.h"
#include "core/format/manifest.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MAX (2 * (uint64_t)HTH_DEADLINE_MAX) /* poll() takes no more than 2^31 ms */

uint64_t hth_mono_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

uint64_t hth_until_ms(uint64_t wait_ms)
{
    return hth_mono_ms() + (wait_ms < WAIT_MAX ? wait_ms : WAIT_MAX);
}

const char *hth_object_text(const struct hth_object *o, char out[HTH_OBJECT_TEXT])
{
    if (o->owner == HTH_OWNER_NONE)
        snprintf(out, HTH_OBJECT_TEXT, "object '%s'", o->name);
    else
        snprintf(out, HTH_OBJECT_TEXT, "object '%s' of rank %" PRIu32, o->name, o->owner);
    return out;
}

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

int hth_memfd(const char *name, const void *bytes, size_t len)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    size_t done = 0;

    while (fd >= 0 && done < len) {
        ssize_t n = write(fd, (const char *)bytes + done, len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int keep = n ? errno : ENOSPC;

            close(fd);
            errno = keep;
            return -1;
        }
        done += (size_t)n;
    }
    return fd;
}

void hearth_free(void *memory)
{
    free(memory);
}

int hth_step_check(uint64_t step, uint64_t but, struct hearth_error *err)
{
    if (step <= HTH_STEP_MAX || (but && step == but))
        return HEARTH_OK;
    if (step == HEARTH_STEP_NEWEST)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "HEARTH_STEP_NEWEST is for reading (hearth_checkpoint_open) and no step to save");
    return hth_fail(err, HEARTH_EINVAL, 0,
            "HEARTH_STEP_LATER is for hearth_save_begin() and no step: say which one is meant");
}
