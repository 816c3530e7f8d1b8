/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of any age: options that come in, answers that go out. */
#include "opts.h"
#include "fail.h"

#include <string.h>

int hth_opts_copy(void *ours, size_t ours_size, const void *theirs, struct hearth_error *err)
{
    const unsigned char *src = theirs;
    size_t size;

    memset(ours, 0, ours_size);
    if (!theirs)
        return HEARTH_OK;

    memcpy(&size, src, sizeof(size)); /* struct_size is the first field */
    if (size < sizeof(size) || size > HTH_STRUCT_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "struct_size %zu is not set", size);
    for (size_t i = ours_size; i < size; i++)
        if (src[i])
            return hth_fail(
                    err, HEARTH_EUNSUPPORTED, 0, "option byte %zu is newer than this library", i);

    memcpy(ours, src, size < ours_size ? size : ours_size);
    return HEARTH_OK;
}

int hth_give(void *theirs, const void *mine, size_t size, struct hearth_error *err)
{
    size_t want;

    if (!theirs)
        return hth_fail(err, HEARTH_EINVAL, 0, "the struct to be filled is NULL");
    memcpy(&want, theirs, sizeof(want));
    if (want < sizeof(want) || want > HTH_STRUCT_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "struct_size of the struct to be filled is not set: set it to its sizeof");
    if (want > size) {
        memset((char *)theirs + size, 0, want - size);
        memcpy((char *)theirs + sizeof(want), (const char *)mine + sizeof(want),
                size - sizeof(want));
        return HEARTH_OK;
    }
    memcpy((char *)theirs + sizeof(want), (const char *)mine + sizeof(want), want - sizeof(want));
    return HEARTH_OK;
}
