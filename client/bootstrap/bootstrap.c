/* SPDX-License-Identifier: Apache-2.0 */
/* The common parts of the bootstraps: closing, numbers from the environment, lists of ranks. */
#include "bootstrap.h"

#include "client/base/limits.h"

#include "core/base/options.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void hearth_bootstrap_close(struct hearth_bootstrap *bootstrap)
{
    if (bootstrap && bootstrap->struct_size >= HTH_BOOTSTRAP_LEAST && bootstrap->close)
        bootstrap->close(bootstrap);
}

int hth_bootstrap_check(uint32_t rank, uint32_t world, uint32_t deadline_ms,
        struct hearth_bootstrap **out, struct hearth_error *err)
{
    if (!out)
        return hth_fail(err, HEARTH_EINVAL, 0, "out is NULL: there is no place for the bootstrap");
    if (!world || rank >= world)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank is %u of a world of %u: ranks count from 0 to world - 1", rank, world);
    if (!deadline_ms || deadline_ms > HTH_DEADLINE_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "deadline_ms is %u: there is no waiting for ever, give 1 to %u", deadline_ms,
                HTH_DEADLINE_MAX);
    return HEARTH_OK;
}

int hth_env_number(const char *name, uint32_t most, uint32_t *out, struct hearth_error *err)
{
    const char *text = getenv(name);
    char *end;
    unsigned long v;

    if (!text || !text[0])
        return hth_fail(err, HEARTH_ENOENT, 0, "the variable %s is not set", name);
    errno = 0;
    v = strtoul(text, &end, 10);
    if (errno || *end || text[0] < '0' || text[0] > '9' || v > most)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "%s is '%.80s': give a number up to %u", name, text, most);
    *out = (uint32_t)v;
    return HEARTH_OK;
}
