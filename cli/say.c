/* SPDX-License-Identifier: Apache-2.0 */
/* Words: errors in one line, text for people, JSON for programs. */
#include "cli.h"

#include "core/base/utf8.h"
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum status complain(const struct hearth_error *err)
{
    char text[HEARTH_ERROR_TEXT];

    plain(text, sizeof(text), err->text, strlen(err->text));
    fprintf(stderr, "hearth: %s\n", text);
    switch (err->code) {
    case HEARTH_EINVAL:
        return STATUS_USAGE;
    case HEARTH_ENOENT:
        return STATUS_NOT_FOUND;
    case HEARTH_ELOCKED:
        return STATUS_IN_USE;
    case HEARTH_ECORRUPT:
    case HEARTH_EUNSUPPORTED:
    case HEARTH_EEXIST:
    case HEARTH_ESTATE:
        return STATUS_WRONG;
    default:
        return STATUS_SYSTEM;
    }
}

static unsigned said;

static void say_aside(const char *fmt, va_list ap)
{
    char text[HEARTH_ERROR_TEXT], line[HEARTH_ERROR_TEXT];

    vsnprintf(text, sizeof(text), fmt, ap);
    plain(line, sizeof(line), text, strlen(text));
    fprintf(stderr, "hearth: %s\n", line);
}

void remark(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say_aside(fmt, ap);
    va_end(ap);
    said++;
}

void note(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say_aside(fmt, ap);
    va_end(ap);
}

void remarks_forget(void)
{
    said = 0;
}

unsigned remarks(void)
{
    return said;
}

/* The user's locale, for characters alone: numbers stay those of the C locale. */
static int say_is_utf8(void)
{
    static int known = -1;
    locale_t locale;

    if (known >= 0)
        return known;
    locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
    known = locale && !strcmp(nl_langinfo_l(CODESET, locale), "UTF-8");
    if (locale)
        freelocale(locale);
    return known;
}

/* Control characters, and those that are not seen but move or hide what is beside them. */
static int say_is_shown(uint32_t c)
{
    static const uint32_t hidden[][2] = { { 0, 0x9f }, { 0xad, 0xad }, { 0x61c, 0x61c },
        { 0x180e, 0x180e }, { 0x200b, 0x200f }, { 0x2028, 0x202e }, { 0x2060, 0x206f },
        { 0xfeff, 0xfeff }, { 0xfff0, 0xfffb }, { 0xfffe, 0xffff }, { 0xe0000, 0xe0fff } };

    for (size_t i = 0; i < sizeof(hidden) / sizeof(*hidden); i++)
        if (c >= hidden[i][0] && c <= hidden[i][1])
            return 0;
    return 1;
}

/* How many bytes at `b` are one character that a terminal may have; 0: they are none. */
static size_t say_character(const unsigned char *b, size_t count)
{
    size_t n = b[0] < 0x80 ? 1 : b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    uint32_t c = b[0] & (0xffu >> (n + 1));

    if (n == 1)
        return b[0] >= ' ' && b[0] <= '~';
    if (n > count || !say_is_utf8() || !hth_utf8(b, n))
        return 0;
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (b[i] & 0x3fu);
    return say_is_shown(c) ? n : 0;
}

/* In place; `keeps` stays as it is, too. */
static void say_filter(char *text, char keeps)
{
    const char *end = text + strlen(text);
    size_t n;

    for (; *text; text += n ? n : 1)
        if (!(n = say_character((unsigned char *)text, (size_t)(end - text))) && *text != keeps)
            *text = '?';
}

char *printable(const char *text)
{
    char *copy = strdup(text);

    if (copy)
        say_filter(copy, '\0');
    return copy;
}

static void say_to(FILE *to, const char *fmt, va_list ap)
{
    char *text;

    if (vasprintf(&text, fmt, ap) < 0)
        return;
    say_filter(text, '\n');
    fputs(text, to);
    free(text);
}

void say(const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    say_to(stdout, fmt, ap);
    va_end(ap);
}

enum status complain_usage(const char *fmt, ...)
{
    va_list ap;

    fputs("hearth: ", stderr);
    va_start(ap, fmt);
    say_to(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    return STATUS_USAGE;
}

void plain(char *out, size_t len, const void *bytes, size_t count)
{
    const unsigned char *b = bytes;
    size_t n = 0, more;

    for (; n < count && n + 1 < len; n += more ? more : 1) {
        more = say_character(b + n, count - n);
        if (n + more + 1 > len)
            break;
        if (more)
            memcpy(out + n, b + n, more);
        else
            out[n] = '?';
    }
    out[n] = '\0';
}

json_t *json_text(const void *bytes, size_t count)
{
    json_t *text = json_stringn(bytes, count);
    char *other;

    if (text)
        return text;
    other = malloc(count + 1);
    if (!other)
        return NULL;
    plain(other, count + 1, bytes, count);
    text = json_string(other);
    free(other);
    return text;
}

/* Readers of JSON take no larger integers, jansson among them. */
json_t *json_unsigned(uint64_t n)
{
    char digits[24];

    if (n <= INT64_MAX)
        return json_integer((json_int_t)n);
    snprintf(digits, sizeof(digits), "%" PRIu64, n);
    return json_string(digits);
}

void human(char out[32], uint64_t bytes)
{
    static const char *const units[] = { "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double v = (double)bytes / 1024;
    size_t i = 0;

    if (bytes < 1024) {
        snprintf(out, 32, "%u B", (unsigned)bytes);
        return;
    }
    for (; v >= 1024 && i < 5; i++)
        v /= 1024;
    snprintf(out, 32, "%.1f %s", v, units[i]);
}

void human_age(char out[32], int64_t seconds)
{
    static const struct {
        int64_t most, unit;
        const char *name;
    } rows[] = { { 120, 1, "s" }, { 7200, 60, "min" }, { 172800, 3600, "h" }, { 0, 86400, "d" } };
    size_t i = 0;

    while (i < 3 && seconds >= rows[i].most)
        i++;
    if (seconds < 0)
        snprintf(out, 32, "-");
    else
        snprintf(out, 32, "%" PRId64 " %s", seconds / rows[i].unit, rows[i].name);
}

enum status print_json(json_t *value)
{
    char *text = value ? json_dumps(value, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_ENSURE_ASCII)
                       : NULL;

    json_decref(value);
    if (!text)
        return complain(&(struct hearth_error){ HEARTH_ENOMEM, 0, "no memory for the output" });
    puts(text);
    free(text);
    return STATUS_OK;
}
