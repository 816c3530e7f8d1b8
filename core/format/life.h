/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `.hearth/life`: how many engines have started on this store. So nodes can tell the facts of a
 * newer engine from those of an older one.
 *
 *     0 "HTHLIFES"   8 u32 version   12 u32 zero   16 u64 starts   24 digest
 */
#ifndef HEARTH_CORE_FORMAT_LIFE_H
#define HEARTH_CORE_FORMAT_LIFE_H

#include "core/base/auth.h"
#include "versions.h"
#include <stddef.h>

#define HTH_LIFE_BYTES (24 + HTH_DIGEST)

void hth_life_encode(uint64_t starts, unsigned char out[HTH_LIFE_BYTES]);
/* Errors: HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED. _as: with other rows than ours (versions.h). */
int hth_life_decode_as(const struct hth_versions *versions, uint64_t *out, const void *bytes,
        size_t len, struct hearth_error *err);
int hth_life_decode(uint64_t *out, const void *bytes, size_t len, struct hearth_error *err);

#endif
