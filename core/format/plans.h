/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `.hearth/plans`: the serial of the last plan that the coordinator gave in an epoch, and that
 * plan.
 *
 *     0 "HTHPLANS"   8 u32 version   12 u32 serial   16 u64 epoch   24 u64 nonce   32 the plan, or
 *     nothing where there was no room for it   . 32 digest
 */
#ifndef HEARTH_CORE_FORMAT_PLANS_H
#define HEARTH_CORE_FORMAT_PLANS_H

#include "versions.h"
#include <stddef.h>

struct hth_plans {
    uint64_t epoch, nonce;
    uint32_t serial;
    const unsigned char *plan; /* [plan_len], as loader/plan encodes it; borrowed */
    size_t plan_len;
};

size_t hth_plans_bytes(const struct hth_plans *p);
void hth_plans_encode(const struct hth_plans *p, unsigned char *out);
/* out->plan lies in `bytes`. Errors: HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED. _as: with other rows
 * than ours (versions.h). */
int hth_plans_decode_as(const struct hth_versions *versions, struct hth_plans *out,
        const void *bytes, size_t len, struct hearth_error *err);
int hth_plans_decode(
        struct hth_plans *out, const void *bytes, size_t len, struct hearth_error *err);

#endif
