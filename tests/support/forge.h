/* SPDX-License-Identifier: Apache-2.0 */
/* The forgery of an attacker, with knowledge of how a CRC32C is made. */
#ifndef FORGE_H
#define FORGE_H

/* Other bytes in these five, and every CRC32C over them as it was: they differ by its polynomial.
 * The same once more: as they were. */
static inline void forge(unsigned char at[5])
{
    static const unsigned char polynomial[5] = { 0xf1, 0x76, 0xec, 0x05, 0x01 };

    for (int i = 0; i < 5; i++)
        at[i] ^= polynomial[i];
}

#endif
