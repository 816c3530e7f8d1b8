/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests assert: the names of Criterion's newer assertions, for the types that tests here use.
 * Criterion's own macros turn one assertion into 9,000 characters, for which gcc takes 13 ms, and
 * 37 ms with the sanitizers; here it is a call. An operand is evaluated once. The arguments of the
 * message are evaluated where the assertion fails, and not elsewhere.
 *
 *     cr_assert(eq(int, rc, 0));
 *     cr_assert(not(closed(fd)), "round %d", round);
 */
#ifndef CRITERIA_H
#define CRITERIA_H

#include <criterion/abort.h>
#include <criterion/criterion.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum criteria_op { CRITERIA_EQ, CRITERIA_NE, CRITERIA_LT, CRITERIA_LE, CRITERIA_GT, CRITERIA_GE };

/* Each returns whether `a op b`, and keeps both for the message of a failure. */
bool criteria_signed(enum criteria_op op, long long a, long long b);
bool criteria_unsigned(enum criteria_op op, unsigned long long a, unsigned long long b);
bool criteria_real(enum criteria_op op, double a, double b);
bool criteria_pointer(enum criteria_op op, uintptr_t a, uintptr_t b);
bool criteria_text(enum criteria_op op, const char *a, const char *b);
/* At most `most` from each other. */
bool criteria_near(double a, double b, double most);

/* Report a failure to the runner. `text`: the arguments of the assertion; the first is printed. */
void criteria_failed(const char *file, unsigned line, const char *text);
__attribute__((format(printf, 4, 5))) void criteria_failed_as(
        const char *file, unsigned line, const char *text, const char *format, ...);

#define eq(type, a, b) CRITERIA_OF_##type(CRITERIA_EQ, a, b)
#define ne(type, a, b) CRITERIA_OF_##type(CRITERIA_NE, a, b)
#define lt(type, a, b) CRITERIA_OF_##type(CRITERIA_LT, a, b)
#define le(type, a, b) CRITERIA_OF_##type(CRITERIA_LE, a, b)
#define gt(type, a, b) CRITERIA_OF_##type(CRITERIA_GT, a, b)
#define ge(type, a, b) CRITERIA_OF_##type(CRITERIA_GE, a, b)
#define zero(type, a)  CRITERIA_OF_##type(CRITERIA_EQ, a, 0)
#define not(holds) (!(holds))
#define epsilon_eq(type, a, b, most) criteria_near(a, b, most)

/* The left operand is evaluated first, as Criterion does. */
#define CRITERIA_OF(kind, type, op, a, b)           \
    __extension__({                                 \
        type criteria_a = (type)(a);                \
        criteria_##kind(op, criteria_a, (type)(b)); \
    })
#define CRITERIA_OF_chr(op, a, b)   CRITERIA_OF(signed, char, op, a, b)
#define CRITERIA_OF_int(op, a, b)   CRITERIA_OF(signed, int, op, a, b)
#define CRITERIA_OF_long(op, a, b)  CRITERIA_OF(signed, long, op, a, b)
#define CRITERIA_OF_llong(op, a, b) CRITERIA_OF(signed, long long, op, a, b)
#define CRITERIA_OF_i32(op, a, b)   CRITERIA_OF(signed, int32_t, op, a, b)
#define CRITERIA_OF_i64(op, a, b)   CRITERIA_OF(signed, int64_t, op, a, b)
#define CRITERIA_OF_u8(op, a, b)    CRITERIA_OF(unsigned, uint8_t, op, a, b)
#define CRITERIA_OF_u16(op, a, b)   CRITERIA_OF(unsigned, uint16_t, op, a, b)
#define CRITERIA_OF_u32(op, a, b)   CRITERIA_OF(unsigned, uint32_t, op, a, b)
#define CRITERIA_OF_u64(op, a, b)   CRITERIA_OF(unsigned, uint64_t, op, a, b)
#define CRITERIA_OF_uint(op, a, b)  CRITERIA_OF(unsigned, unsigned, op, a, b)
#define CRITERIA_OF_ulong(op, a, b) CRITERIA_OF(unsigned, unsigned long, op, a, b)
#define CRITERIA_OF_sz(op, a, b)    CRITERIA_OF(unsigned, size_t, op, a, b)
#define CRITERIA_OF_dbl(op, a, b)   CRITERIA_OF(real, double, op, a, b)
#define CRITERIA_OF_str(op, a, b)   CRITERIA_OF(text, const char *, op, a, b)
/* By number: gcc takes a `const void *` for an argument whose bytes are read. */
#define CRITERIA_OF_ptr(op, a, b) \
    CRITERIA_OF(pointer, uintptr_t, op, (const volatile void *)(a), (const volatile void *)(b))

/* An assertion with a message and one without are two macros: C17 has no `...` that stands for
 * nothing. A message has at most eleven arguments beside its format. */
#define CRITERIA_NTH(_1, _2, _3, _4, _5, _6, _7, _8, _9, _10, _11, _12, _13, n, ...) n
#define CRITERIA_KIND(...)                                                                \
    CRITERIA_NTH(__VA_ARGS__, CRITERIA_SAYS, CRITERIA_SAYS, CRITERIA_SAYS, CRITERIA_SAYS, \
            CRITERIA_SAYS, CRITERIA_SAYS, CRITERIA_SAYS, CRITERIA_SAYS, CRITERIA_SAYS,    \
            CRITERIA_SAYS, CRITERIA_SAYS, CRITERIA_SAYS, CRITERIA_BARE, )
#define CRITERIA_BARE(end, text, holds) \
    ((holds) ? (void)0 : (criteria_failed(__FILE__, __LINE__, text), end()))
#define CRITERIA_SAYS(end, text, holds, ...) \
    ((holds) ? (void)0 : (criteria_failed_as(__FILE__, __LINE__, text, __VA_ARGS__), end()))

#undef cr_assert
#undef cr_expect
#define cr_assert(...) CRITERIA_KIND(__VA_ARGS__)(criterion_abort_test, #__VA_ARGS__, __VA_ARGS__)
#define cr_expect(...) \
    CRITERIA_KIND(__VA_ARGS__)(criterion_continue_test, #__VA_ARGS__, __VA_ARGS__)

#endif
