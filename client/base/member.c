/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that each public call makes first. */
#include "member.h"

#include "core/base/fail.h"

int hth_enter(const struct hearth *h, struct hearth_error *err)
{
    if (!h)
        return hth_fail(err, HEARTH_EINVAL, 0, "the job is NULL: hearth_open() gives one");
    if (atomic_load(&h->forked))
        return hth_fail(err, HEARTH_EFORK, 0,
                "this process was forked from rank %u after hearth_open(): it may read the views it "
                "inherited, and nothing else",
                h->opts.rank);
    return HEARTH_OK;
}
