/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes are text. */
#include "utf8.h"

/* Bytes of the character at s[n] when it is well formed (Unicode 15, table 3-7), else 0. */
static size_t utf8_character(const unsigned char *s, size_t n)
{
    unsigned char low = 0x80, high = 0xbf; /* of the second byte */
    size_t len;

    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    len = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : low;
    high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : high;
    if (n < len || s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < len; i++)
        if (s[i] < 0x80 || s[i] > 0xbf)
            return 0;
    return len;
}

int hth_utf8(const void *text, size_t len)
{
    const unsigned char *s = text;

    for (size_t i = 0, n; i < len; i += n)
        if (!(n = utf8_character(s + i, len - i)))
            return 0;
    return 1;
}
