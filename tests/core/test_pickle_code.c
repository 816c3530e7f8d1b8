/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes behind an opcode: each form of an argument, whole and a byte short. */
#include "check.h"

#include "core/torch/pickle_code.h"

static const struct form {
    unsigned char code;
    const char *at;
    size_t len;   /* of the argument with what says its length */
    size_t front; /* of that alone */
} forms[] = {
    { 'N', "", 0, 0 },
    { 'K', "\x07", 1, 0 },
    { 'J', "1234", 4, 0 },
    { 0x95, "12345678", 8, 0 },
    { 0x8c, "\3abc", 4, 1 },
    { 'X', "\2\0\0\0ab", 6, 4 },
    { 0x8d, "\1\0\0\0\0\0\0\0a", 9, 8 },
    { 'F', "1.5\n", 4, 0 },
    { 'c', "torch\nSize\n", 11, 0 },
};

Test(pickle_code, arguments_end_where_the_next_opcode_begins)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++) {
        const struct form *f = &forms[i];
        const unsigned char *at = (const unsigned char *)f->at, *arg;
        size_t n = 0;

        arg = hth_pickle_argument(f->code, at, f->len, &n);
        cr_assert(arg != NULL, "%02x", f->code);
        cr_assert(eq(sz, (size_t)(arg - at), f->front), "%02x", f->code);
        cr_assert(eq(sz, n, f->len - f->front), "%02x", f->code);
    }
}

Test(pickle_code, arguments_that_are_cut_off_anywhere_are_none)
{
    for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
        for (size_t len = 0; len < forms[i].len; len++) {
            size_t n = 0;
            const void *arg =
                    hth_pickle_argument(forms[i].code, (const unsigned char *)forms[i].at, len, &n);

            cr_assert(arg == NULL, "%02x, %zu bytes", forms[i].code, len);
        }
}

Test(pickle_code, lengths_beyond_any_memory_are_cut_off)
{
    const unsigned char huge[9] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
    size_t n = 0;

    cr_assert(hth_pickle_argument(0x8d, huge, sizeof(huge), &n) == NULL);
}
