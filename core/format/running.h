/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `.hearth/running`: what a member has to know besides the epoch record to go on in that epoch,
 * should its engine die under living ranks. It is there once recovery has ended well.
 *
 *     0 "HTHRUNNG"   8 u32 version   12 u32 zero   16 u64 epoch   24 u64 nonce   32 the chosen save
 *    64 u32 copies   68 u32 min_copies   72 u32 keep   76 u32 allow_degraded
 *    80 u32 recover_ms   84 u32 save_ms   88 u32 heartbeat_ms   92 u32 dead_ms   96 u32 stall_ms
 *   100 u32 linger_s   104 u32 inflight_mib   108 u32 bad_after   112 u64 lease_bytes   120 u64 spare_bytes
 *   128 digest
 *
 * Version 1 has zero for bad_after.
 */
#ifndef HEARTH_CORE_FORMAT_RUNNING_H
#define HEARTH_CORE_FORMAT_RUNNING_H

#include "core/base/auth.h"
#include "core/base/id.h"
#include "versions.h"
#include <stddef.h>

#define HTH_RUNNING_BYTES (128 + HTH_DIGEST)

struct hth_running {
    uint64_t epoch, nonce;
    struct hth_save_id chosen; /* what the recovery ended with; epoch 0: nothing */
    /* The options in effect, as set by the ranks and the engine's command line. */
    uint32_t copies, min_copies, keep, allow_degraded;
    uint32_t recover_ms, save_ms, heartbeat_ms, dead_ms, stall_ms, linger_s, inflight_mib,
            bad_after;
    uint64_t lease_bytes, spare_bytes;
};

void hth_running_encode(const struct hth_running *r, unsigned char out[HTH_RUNNING_BYTES]);
/* Errors: HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED. _as: with other rows than ours (versions.h). */
int hth_running_decode_as(const struct hth_versions *versions, struct hth_running *out,
        const void *bytes, size_t len, struct hearth_error *err);
int hth_running_decode(
        struct hth_running *out, const void *bytes, size_t len, struct hearth_error *err);

#endif
