/* SPDX-License-Identifier: Apache-2.0 */
/* Opcodes of pickles and their arguments, as Python's pickletools has them. */
#include "pickle_code.h"
#include "core/base/bytes.h"

const struct hth_pickle_code hth_pickle_codes[256] = {
    ['('] = { 1 },               /* MARK */
    [')'] = { 1 },               /* EMPTY_TUPLE */
    ['.'] = { 1 },               /* STOP */
    ['0'] = { 1 },               /* POP */
    ['1'] = { 1 },               /* POP_MARK */
    ['2'] = { 1 },               /* DUP */
    ['B'] = { 1, .prefix = 4 },  /* BINBYTES */
    ['C'] = { 1, .prefix = 1 },  /* SHORT_BINBYTES */
    ['F'] = { 1, .lines = 1 },   /* FLOAT */
    ['G'] = { 1, .fixed = 8 },   /* BINFLOAT */
    ['I'] = { 1, .lines = 1 },   /* INT */
    ['J'] = { 1, .fixed = 4 },   /* BININT */
    ['K'] = { 1, .fixed = 1 },   /* BININT1 */
    ['L'] = { 1, .lines = 1 },   /* LONG */
    ['M'] = { 1, .fixed = 2 },   /* BININT2 */
    ['N'] = { 1 },               /* NONE */
    ['P'] = { 1, .lines = 1 },   /* PERSID */
    ['Q'] = { 1 },               /* BINPERSID */
    ['R'] = { 1 },               /* REDUCE */
    ['S'] = { 1, .lines = 1 },   /* STRING */
    ['T'] = { 1, .prefix = 4 },  /* BINSTRING */
    ['U'] = { 1, .prefix = 1 },  /* SHORT_BINSTRING */
    ['V'] = { 1, .lines = 1 },   /* UNICODE */
    ['X'] = { 1, .prefix = 4 },  /* BINUNICODE */
    [']'] = { 1 },               /* EMPTY_LIST */
    ['a'] = { 1 },               /* APPEND */
    ['b'] = { 1 },               /* BUILD */
    ['c'] = { 1, .lines = 2 },   /* GLOBAL */
    ['d'] = { 1 },               /* DICT */
    ['e'] = { 1 },               /* APPENDS */
    ['g'] = { 1, .lines = 1 },   /* GET */
    ['h'] = { 1, .fixed = 1 },   /* BINGET */
    ['i'] = { 1, .lines = 2 },   /* INST */
    ['j'] = { 1, .fixed = 4 },   /* LONG_BINGET */
    ['l'] = { 1 },               /* LIST */
    ['o'] = { 1 },               /* OBJ */
    ['p'] = { 1, .lines = 1 },   /* PUT */
    ['q'] = { 1, .fixed = 1 },   /* BINPUT */
    ['r'] = { 1, .fixed = 4 },   /* LONG_BINPUT */
    ['s'] = { 1 },               /* SETITEM */
    ['t'] = { 1 },               /* TUPLE */
    ['u'] = { 1 },               /* SETITEMS */
    ['}'] = { 1 },               /* EMPTY_DICT */
    [0x80] = { 1, .fixed = 1 },  /* PROTO */
    [0x81] = { 1 },              /* NEWOBJ */
    [0x82] = { 1, .fixed = 1 },  /* EXT1 */
    [0x83] = { 1, .fixed = 2 },  /* EXT2 */
    [0x84] = { 1, .fixed = 4 },  /* EXT4 */
    [0x85] = { 1 },              /* TUPLE1 */
    [0x86] = { 1 },              /* TUPLE2 */
    [0x87] = { 1 },              /* TUPLE3 */
    [0x88] = { 1 },              /* NEWTRUE */
    [0x89] = { 1 },              /* NEWFALSE */
    [0x8a] = { 1, .prefix = 1 }, /* LONG1 */
    [0x8b] = { 1, .prefix = 4 }, /* LONG4 */
    [0x8c] = { 1, .prefix = 1 }, /* SHORT_BINUNICODE */
    [0x8d] = { 1, .prefix = 8 }, /* BINUNICODE8 */
    [0x8e] = { 1, .prefix = 8 }, /* BINBYTES8 */
    [0x8f] = { 1 },              /* EMPTY_SET */
    [0x90] = { 1 },              /* ADDITEMS */
    [0x91] = { 1 },              /* FROZENSET */
    [0x92] = { 1 },              /* NEWOBJ_EX */
    [0x93] = { 1 },              /* STACK_GLOBAL */
    [0x94] = { 1 },              /* MEMOIZE */
    [0x95] = { 1, .fixed = 8 },  /* FRAME */
    [0x96] = { 1, .prefix = 8 }, /* BYTEARRAY8 */
    [0x97] = { 1 },              /* NEXT_BUFFER */
    [0x98] = { 1 },              /* READONLY_BUFFER */
};

static uint64_t code_number(const unsigned char *p, unsigned bytes)
{
    return bytes == 1 ? *p : bytes == 4 ? hth_get32(p) : hth_get64(p);
}

/* Bytes of `lines` texts with their newlines; more than `left` where one is missing. */
static uint64_t code_lines(unsigned lines, const unsigned char *at, size_t left)
{
    const unsigned char *end = at;

    for (; lines; lines--, end++)
        if (!(end = memchr(end, '\n', left - (size_t)(end - at))))
            return UINT64_MAX;
    return (uint64_t)(end - at);
}

const unsigned char *hth_pickle_argument(
        unsigned char code, const unsigned char *at, size_t left, size_t *out_n)
{
    const struct hth_pickle_code *c = &hth_pickle_codes[code];
    uint64_t n = c->lines ? code_lines(c->lines, at, left) : c->fixed;

    if (left < c->prefix)
        return NULL;
    if (c->prefix)
        n = code_number(at, c->prefix);
    if (n > left - c->prefix)
        return NULL;
    *out_n = (size_t)n;
    return at + c->prefix;
}

const char *hth_pickle_long(const unsigned char *arg, size_t n, int64_t *out)
{
    unsigned char sign = n && arg[n - 1] & 0x80 ? 0xff : 0;
    unsigned char eight[8];

    if (n > 16)
        return "an integer of more than 16 bytes";
    memset(eight, sign, sizeof(eight));
    memcpy(eight, arg, n < 8 ? n : 8);
    for (size_t i = 8; i < n; i++)
        if (arg[i] != sign)
            return "an integer that does not fit in 64 bits";
    if (n > 8 && (eight[7] & 0x80) != (sign & 0x80))
        return "an integer that does not fit in 64 bits";
    *out = (int64_t)hth_get64(eight);
    return NULL;
}
