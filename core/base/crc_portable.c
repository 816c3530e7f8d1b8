/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CRC32C in plain C, eight bytes a step ("slicing-by-8"; Kounavis, Berry 2005). table[k][b] is
 * the effect of byte b with k zero bytes behind it, so eight look-ups make one step of 64 bits.
 *
 * A crc with n bytes behind it is that crc times x^8n modulo the polynomial, which is a product of
 * x^8, x^16, x^32 ... (as zlib's crc32_combine() has it).
 */
#include "bytes.h"
#include "crc.h"

#include <pthread.h>

#define POLYNOMIAL 0x82f63b78u /* Castagnoli, bits reversed */

static uint32_t table[8][256];
static uint32_t power[64]; /* x^(8 * 2^k); the highest bit is x^0 */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t crc_times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;

    for (; a; a <<= 1) {
        if (a >> 31)
            product ^= b;
        b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
    }
    return product;
}

static void crc_tables_fill(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;

        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        table[0][b] = crc;
    }
    for (uint32_t b = 0; b < 256; b++)
        for (int k = 1; k < 8; k++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
    power[0] = 1u << 23;
    for (int k = 1; k < 64; k++)
        power[k] = crc_times(power[k - 1], power[k - 1]);
}

static uint32_t crc_eight(uint32_t crc, const unsigned char *p)
{
    uint64_t v = hth_get64(p) ^ crc;
    uint32_t out = 0;

    for (int k = 0; k < 8; k++)
        out ^= table[7 - k][v >> (8 * k) & 255];
    return out;
}

uint32_t hth_crc32c_portable_more(uint32_t crc, const void *bytes, size_t len)
{
    const unsigned char *p = bytes;

    pthread_once(&once, crc_tables_fill);
    crc = ~crc;
    for (; len >= 8; len -= 8, p += 8)
        crc = crc_eight(crc, p);
    for (; len; len--, p++)
        crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}

uint32_t hth_crc32c_portable(const void *bytes, size_t len)
{
    return hth_crc32c_portable_more(0, bytes, len);
}

uint32_t hth_crc32c_join(uint32_t a, uint32_t b, uint64_t b_len)
{
    pthread_once(&once, crc_tables_fill);
    for (int k = 0; b_len; b_len >>= 1, k++)
        if (b_len & 1)
            a = crc_times(power[k], a);
    return a ^ b;
}
