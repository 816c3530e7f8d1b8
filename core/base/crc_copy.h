/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_CORE_BASE_CRC_COPY_H
#define HEARTH_CORE_BASE_CRC_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Copies src[len] to dst past the caches and continues crc by the bytes that were written: each
 * byte is read once, so sum and copy agree even while another thread changes src. No overlap.
 * Ordinary stores of this thread do not wait for it: hth_crc32c_copied() before others are told. */
uint32_t hth_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t len);

/* What was copied is seen by others before what this thread stores after this. */
void hth_crc32c_copied(void);

/* The ways to do it, for tests: the fastest first; 0 and NULL behind the last that runs here. */
struct hth_crc_copier {
    const char *name;
    uint32_t (*copy)(uint32_t crc, void *dst, const void *src, size_t len);
};
const struct hth_crc_copier *hth_crc_copiers(size_t *out_count);

#endif
