/* SPDX-License-Identifier: Apache-2.0 */
/* The header in front of each tensor: `[u32 length][pickle of TensorHeader(dtype, shape)]`. */
#ifndef HEARTH_CORE_TORCH_HEADER_H
#define HEARTH_CORE_TORCH_HEADER_H

#include "core/base/shape.h"
#include <stddef.h>
#include <stdint.h>

#define HTH_HEADER_MAX 1024 /* bytes; the largest header that is written: 64 dims of LONG1 */

/* Exactly what Python's pickle (protocol 4) writes, length in front. Returns the bytes written
 * to out[HTH_HEADER_MAX]; 0 when dtype or ndim is not valid. */
size_t hth_header_encode(const struct hth_header *header, unsigned char out[HTH_HEADER_MAX]);

/* The header at the front of bytes[len]; out_used (may be NULL): its bytes with the length.
 * Protocols 2 to 5, memo references; constructs nothing but integers and strings. Unknown
 * attribute names are skipped, those beginning with `__` refused.
 * Errors: HEARTH_ECORRUPT, "byte N: ..." with N counted from the pickle's first byte. */
int hth_header_decode(struct hth_header *out, const void *bytes, size_t len, size_t *out_used,
        struct hearth_error *err);

/* "float32 2,3", "float32 ()". out[HTH_HEADER_TEXT]. */
#define HTH_HEADER_TEXT (32 + 21 * HTH_DIMS_MAX)
void hth_header_text(const struct hth_header *header, char out[HTH_HEADER_TEXT]);

#endif
