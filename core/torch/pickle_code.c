/* SPDX-License-Identifier: Apache-2.0 */
/* Opcodes of pickles and their arguments, as Python's pickletools has them. */
#include "pickle_code.h"
#include "core/base/bytes.h"

const struct hth_pickle_code hth_pickle_codes[256] = {
    ['('] = { .known = 1 },               /* MARK */
    [')'] = { .known = 1 },               /* EMPTY_TUPLE */
    ['.'] = { .known = 1 },               /* STOP */
    ['0'] = { .known = 1 },               /* POP */
    ['1'] = { .known = 1 },               /* POP_MARK */
    ['2'] = { .known = 1 },               /* DUP */
    ['B'] = { .known = 1, .prefix = 4 },  /* BINBYTES */
    ['C'] = { .known = 1, .prefix = 1 },  /* SHORT_BINBYTES */
    ['F'] = { .known = 1, .lines = 1 },   /* FLOAT */
    ['G'] = { .known = 1, .fixed = 8 },   /* BINFLOAT */
    ['I'] = { .known = 1, .lines = 1 },   /* INT */
    ['J'] = { .known = 1, .fixed = 4 },   /* BININT */
    ['K'] = { .known = 1, .fixed = 1 },   /* BININT1 */
    ['L'] = { .known = 1, .lines = 1 },   /* LONG */
    ['M'] = { .known = 1, .fixed = 2 },   /* BININT2 */
    ['N'] = { .known = 1 },               /* NONE */
    ['P'] = { .known = 1, .lines = 1 },   /* PERSID */
    ['Q'] = { .known = 1 },               /* BINPERSID */
    ['R'] = { .known = 1 },               /* REDUCE */
    ['S'] = { .known = 1, .lines = 1 },   /* STRING */
    ['T'] = { .known = 1, .prefix = 4 },  /* BINSTRING */
    ['U'] = { .known = 1, .prefix = 1 },  /* SHORT_BINSTRING */
    ['V'] = { .known = 1, .lines = 1 },   /* UNICODE */
    ['X'] = { .known = 1, .prefix = 4 },  /* BINUNICODE */
    [']'] = { .known = 1 },               /* EMPTY_LIST */
    ['a'] = { .known = 1 },               /* APPEND */
    ['b'] = { .known = 1 },               /* BUILD */
    ['c'] = { .known = 1, .lines = 2 },   /* GLOBAL */
    ['d'] = { .known = 1 },               /* DICT */
    ['e'] = { .known = 1 },               /* APPENDS */
    ['g'] = { .known = 1, .lines = 1 },   /* GET */
    ['h'] = { .known = 1, .fixed = 1 },   /* BINGET */
    ['i'] = { .known = 1, .lines = 2 },   /* INST */
    ['j'] = { .known = 1, .fixed = 4 },   /* LONG_BINGET */
    ['l'] = { .known = 1 },               /* LIST */
    ['o'] = { .known = 1 },               /* OBJ */
    ['p'] = { .known = 1, .lines = 1 },   /* PUT */
    ['q'] = { .known = 1, .fixed = 1 },   /* BINPUT */
    ['r'] = { .known = 1, .fixed = 4 },   /* LONG_BINPUT */
    ['s'] = { .known = 1 },               /* SETITEM */
    ['t'] = { .known = 1 },               /* TUPLE */
    ['u'] = { .known = 1 },               /* SETITEMS */
    ['}'] = { .known = 1 },               /* EMPTY_DICT */
    [0x80] = { .known = 1, .fixed = 1 },  /* PROTO */
    [0x81] = { .known = 1 },              /* NEWOBJ */
    [0x82] = { .known = 1, .fixed = 1 },  /* EXT1 */
    [0x83] = { .known = 1, .fixed = 2 },  /* EXT2 */
    [0x84] = { .known = 1, .fixed = 4 },  /* EXT4 */
    [0x85] = { .known = 1 },              /* TUPLE1 */
    [0x86] = { .known = 1 },              /* TUPLE2 */
    [0x87] = { .known = 1 },              /* TUPLE3 */
    [0x88] = { .known = 1 },              /* NEWTRUE */
    [0x89] = { .known = 1 },              /* NEWFALSE */
    [0x8a] = { .known = 1, .prefix = 1 }, /* LONG1 */
    [0x8b] = { .known = 1, .prefix = 4 }, /* LONG4 */
    [0x8c] = { .known = 1, .prefix = 1 }, /* SHORT_BINUNICODE */
    [0x8d] = { .known = 1, .prefix = 8 }, /* BINUNICODE8 */
    [0x8e] = { .known = 1, .prefix = 8 }, /* BINBYTES8 */
    [0x8f] = { .known = 1 },              /* EMPTY_SET */
    [0x90] = { .known = 1 },              /* ADDITEMS */
    [0x91] = { .known = 1 },              /* FROZENSET */
    [0x92] = { .known = 1 },              /* NEWOBJ_EX */
    [0x93] = { .known = 1 },              /* STACK_GLOBAL */
    [0x94] = { .known = 1 },              /* MEMOIZE */
    [0x95] = { .known = 1, .fixed = 8 },  /* FRAME */
    [0x96] = { .known = 1, .prefix = 8 }, /* BYTEARRAY8 */
    [0x97] = { .known = 1 },              /* NEXT_BUFFER */
    [0x98] = { .known = 1 },              /* READONLY_BUFFER */
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
