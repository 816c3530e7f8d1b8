/* SPDX-License-Identifier: Apache-2.0 */
/* The table of versions, and the sentence for what is not in it. */
#include "versions.h"

#include <stdio.h>

static const struct hth_versions ours[HTH_FORMATS] = {
#define HTH_VERSIONS_ROW(row, low, high, name) \
    [HTH_FORMAT_##row] = { .what = (name), .oldest = (low), .newest = (high) },
    HTH_VERSIONS(HTH_VERSIONS_ROW)
#undef HTH_VERSIONS_ROW
};

const struct hth_versions *hth_versions_of(enum hth_format format)
{
    return &ours[format];
}

uint32_t hth_version_written(enum hth_format format)
{
    return ours[format].newest;
}

int hth_version_check(const struct hth_versions *v, uint32_t found, struct hearth_error *err)
{
    char reads[40];

    if (found >= v->oldest && found <= v->newest)
        return HEARTH_OK;
    snprintf(reads, sizeof(reads), v->oldest == v->newest ? "%" PRIu32 : "%" PRIu32 " to %" PRIu32,
            v->oldest, v->newest);
    return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
            "the %s is of version %" PRIu32 ", and this Hearth reads version %s: use the %s Hearth "
            "that wrote it; nothing of it was touched",
            v->what, found, reads, found > v->newest ? "newer" : "older");
}
