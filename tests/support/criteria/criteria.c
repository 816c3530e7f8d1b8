/* SPDX-License-Identifier: Apache-2.0 */
/* Comparisons that remember their operands, so that a failure can print them. */
#include "criteria.h"
#include <criterion/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The thread's last comparison. */
static _Thread_local struct {
    enum { NOTHING, SIGNED, UNSIGNED, REAL, POINTER, TEXT } kind;
    union operand {
        long long i;
        unsigned long long u;
        double d;
        const char *s;
    } a, b;
} last;

#define KEEP(kind_, member)                                        \
    (last.kind = (kind_), last.a = (union operand){ .member = a }, \
            last.b = (union operand){ .member = b })

#define COMPARE(a, b)      \
    switch (op) {          \
    case CRITERIA_EQ:      \
        return (a) == (b); \
    case CRITERIA_NE:      \
        return (a) != (b); \
    case CRITERIA_LT:      \
        return (a) < (b);  \
    case CRITERIA_LE:      \
        return (a) <= (b); \
    case CRITERIA_GT:      \
        return (a) > (b);  \
    default:               \
        return (a) >= (b); \
    }

bool criteria_signed(enum criteria_op op, long long a, long long b)
{
    KEEP(SIGNED, i);
    COMPARE(a, b)
}

bool criteria_unsigned(enum criteria_op op, unsigned long long a, unsigned long long b)
{
    KEEP(UNSIGNED, u);
    COMPARE(a, b)
}

bool criteria_real(enum criteria_op op, double a, double b)
{
    KEEP(REAL, d);
    COMPARE(a, b)
}

bool criteria_pointer(enum criteria_op op, uintptr_t a, uintptr_t b)
{
    KEEP(POINTER, u);
    COMPARE(a, b)
}

bool criteria_text(enum criteria_op op, const char *a, const char *b)
{
    KEEP(TEXT, s);
    int order = strcmp(a, b);
    COMPARE(order, 0)
}

bool criteria_near(double a, double b, double most)
{
    KEEP(REAL, d);
    return a == b || (a - b <= most && b - a <= most);
}

/* Both operands; the caller's buffer, "" where the assertion compares nothing. */
static void operands(char *out, size_t size)
{
    *out = 0;
    switch (last.kind) {
    case SIGNED:
        snprintf(out, size, ": %lld and %lld", last.a.i, last.b.i);
        break;
    case UNSIGNED:
        snprintf(out, size, ": %llu and %llu", last.a.u, last.b.u);
        break;
    case REAL:
        snprintf(out, size, ": %.17g and %.17g", last.a.d, last.b.d);
        break;
    case POINTER:
        snprintf(out, size, ": 0x%llx and 0x%llx", last.a.u, last.b.u);
        break;
    case TEXT:
        snprintf(out, size, ": '%s' and '%s'", last.a.s, last.b.s);
        break;
    default:
        break;
    }
}

/* Of "eq(int, a, b), "%s", c" the first argument. */
static int first_of(const char *text)
{
    int deep = 0;
    const char *at;
    for (at = text; *at && (deep > 0 || *at != ','); at++)
        deep += (*at == '(') - (*at == ')');
    return (int)(at - text);
}

/* A comparison that another assertion made is not of this one's operands. */
static bool compares(const char *text, int length)
{
    static const char *const names[] = { "eq(", "ne(", "lt(", "le(", "gt(", "ge(", "zero(" };
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        const char *at = strstr(text, names[i]);
        if (at && at < text + length)
            return true;
    }
    return false;
}

static void report(const char *file, unsigned line, const char *text, const char *said)
{
    char both[600] = "", message[4096];
    int length = first_of(text);
    if (compares(text, length))
        operands(both, sizeof(both));
    snprintf(message, sizeof(message), "%.*s is false%s%s%s", length, text, both, *said ? ": " : "",
            said);
    criterion_send_assert(
            &(struct criterion_assert_stats){ .message = message, .line = line, .file = file });
}

void criteria_failed(const char *file, unsigned line, const char *text)
{
    report(file, line, text, "");
}

void criteria_failed_as(const char *file, unsigned line, const char *text, const char *format, ...)
{
    char said[3000];
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof(said), format, args);
    va_end(args);
    report(file, line, text, said);
}
