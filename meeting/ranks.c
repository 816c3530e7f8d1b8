/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks in a sentence. */
#include "meeting.h"

#include <stdio.h>

void hth_ranks_text(char *out, size_t len, const unsigned char *there, uint32_t world)
{
    size_t n = 0;
    uint32_t shown = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < world && n + 32 < len; i++) {
        uint32_t end = i;

        if (there[i])
            continue;
        while (end + 1 < world && !there[end + 1])
            end++;
        n += (size_t)snprintf(
                out + n, len - n, end > i ? "%s%u-%u" : "%s%u", shown ? ", " : "", i, end);
        shown++;
        i = end;
    }
    if (n + 32 >= len)
        snprintf(out + n, len - n, ", ...");
}
