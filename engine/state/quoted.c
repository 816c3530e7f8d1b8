/* SPDX-License-Identifier: Apache-2.0 */
/* Texts in the JSON that engines answer with. */
#include "quoted.h"

#include "core/base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void quoted(const char *text, char *out)
{
    int whole = hth_utf8(text, strlen(text));

    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;

        if (c < ' ')
            out += sprintf(out, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            out += sprintf(out, "\\%c", c);
        else
            *out++ = c < 0x80 || whole ? (char)c : '?';
    }
    *out = '\0';
}

const char *quoted_number(uint64_t number, char out[QUOTED_NUMBER])
{
    snprintf(out, QUOTED_NUMBER, number <= INT64_MAX ? "%" PRIu64 : "\"%" PRIu64 "\"", number);
    return out;
}
