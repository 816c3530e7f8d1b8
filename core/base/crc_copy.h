/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_CORE_BASE_CRC_COPY_H
#define HEARTH_CORE_BASE_CRC_COPY_H

#include <stddef.h>
#include <stdint.h>

/* Copies src[len] to dst past the caches and continues crc by the bytes that it has written. It
 * reads each byte once, so sum and copy agree even while another thread changes src. src and dst
 * must not overlap. Later ordinary stores of this thread may become visible before the copy: call
 * hth_crc32c_copied() before a store that announces the copy. */
uint32_t hth_crc32c_copy(uint32_t crc, void *dst, const void *src, size_t len);

/* Other threads and processes see the copied bytes before anything that this thread stores after
 * this call. */
void hth_crc32c_copied(void);

/* The copiers that run on this machine, for tests: the fastest first, *out_count of them. */
struct hth_crc_copier {
    const char *name;
    uint32_t (*copy)(uint32_t crc, void *dst, const void *src, size_t len);
};
const struct hth_crc_copier *hth_crc_copiers(size_t *out_count);

#endif
