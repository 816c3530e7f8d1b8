/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_CORE_BASE_CRC_H
#define HEARTH_CORE_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* CRC32C (Castagnoli, as in RFC 3720) of bytes[len]; "123456789" gives e3069283. Any len.
 * ISA-L where the build has it, else the portable one; both are tested against each other. */
uint32_t hth_crc32c(const void *bytes, size_t len);
uint32_t hth_crc32c_portable(const void *bytes, size_t len);

/* Continue: crc of a||b from the crc of a and the bytes of b. */
uint32_t hth_crc32c_more(uint32_t crc, const void *bytes, size_t len);
uint32_t hth_crc32c_portable_more(uint32_t crc, const void *bytes, size_t len);

/* Join: crc of a||b from the crcs of both and b's length, so that each may be computed
 * elsewhere. */
uint32_t hth_crc32c_join(uint32_t a, uint32_t b, uint64_t b_len);

#endif
