/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of errors: the cause first, then each caller's doing in front of it. */
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *hearth_strerror(int code)
{
    switch (code) {
    case HEARTH_OK:
        return "success";
#define HEARTH_X(name, value, text) \
    case name:                      \
        return text;
        HEARTH_CODES(HEARTH_X)
#undef HEARTH_X
    }
    return "unknown error";
}

/* Copies `text`; if it is too long, " ... " replaces its middle. */
static void error_fit(char out[HEARTH_ERROR_TEXT], const char *text)
{
    static const char gap[] = " ... ";
    size_t len = strlen(text);
    size_t head = (HEARTH_ERROR_TEXT - sizeof(gap)) / 2;
    size_t tail = HEARTH_ERROR_TEXT - sizeof(gap) - head;

    if (len < HEARTH_ERROR_TEXT) {
        memcpy(out, text, len + 1);
        return;
    }
    memcpy(out, text, head);
    memcpy(out + head, gap, sizeof(gap) - 1);
    memcpy(out + head + sizeof(gap) - 1, text + len - tail, tail + 1);
}

int hth_fail(struct hearth_error *err, int code, int native, const char *fmt, ...)
{
    char text[2 * HEARTH_ERROR_TEXT];
    va_list ap;

    if (!err)
        return code;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    err->code = code;
    err->native = native;
    error_fit(err->text, text);
    return code;
}

int hth_while(struct hearth_error *err, int code, const char *fmt, ...)
{
    char text[2 * HEARTH_ERROR_TEXT + 2];
    va_list ap;
    size_t len;

    if (!err)
        return code;

    va_start(ap, fmt);
    vsnprintf(text, HEARTH_ERROR_TEXT, fmt, ap);
    va_end(ap);
    len = strlen(text);
    snprintf(text + len, sizeof(text) - len, ": %s", err->text);
    err->code = code;
    error_fit(err->text, text);
    return code;
}

const char *hth_key_text(const void *key, size_t len, char out[HTH_KEY_TEXT])
{
    const unsigned char *k = key;
    size_t room = HTH_KEY_TEXT - sizeof("''...") + 1;
    size_t n = len < room ? len : room - 1;
    char *p = out;

    *p++ = '\'';
    for (size_t i = 0; i < n; i++)
        *p++ = k[i] >= 0x20 && k[i] < 0x7f ? (char)k[i] : '?';
    memcpy(p, n < len ? "...'" : "'", n < len ? 5 : 2);
    return out;
}
