/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C by ISA-L where the build has it. ISA-L takes the length as an int and leaves the
 * inversion before and after to its caller.
 */
#include "crc.h"

#ifdef HEARTH_ISAL
#include <isa-l/crc.h>

#define PIECE (1u << 30) /* fits an int */

uint32_t hth_crc32c_more(uint32_t crc, const void *bytes, size_t len)
{
    unsigned char *at = (unsigned char *)(uintptr_t)bytes; /* ISA-L reads only, but has no const */

    crc = ~crc;
    while (len) {
        size_t piece = len < PIECE ? len : PIECE;

        crc = crc32_iscsi(at, (int)piece, crc);
        at += piece;
        len -= piece;
    }
    return ~crc;
}
#else
uint32_t hth_crc32c_more(uint32_t crc, const void *bytes, size_t len)
{
    return hth_crc32c_portable_more(crc, bytes, len);
}
#endif

uint32_t hth_crc32c(const void *bytes, size_t len)
{
    return hth_crc32c_more(0, bytes, len);
}
