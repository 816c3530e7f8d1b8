/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pass 1 over a `.metadata`: opcodes that are allowed, whole, within their frames, up to a STOP at
 * the very end; and a bit for each memo number that is ever fetched, a small part of all. Pass 2
 * need not look for the end of the bytes again.
 */
#include "metadata_parts.h"

#include <stdlib.h>

struct scan {
    const unsigned char *bytes, *end;
    const unsigned char *limit; /* of the frame, or `end` */
    struct md_memo *memo;
    uint64_t memos;
    struct hearth_error *err;
};

static int scan_refuse(const struct scan *s, const unsigned char *at, const char *what)
{
    return hth_fail(s->err, HEARTH_ECORRUPT, 0, "byte %zu: opcode %02x %s", (size_t)(at - s->bytes),
            *at, what);
}

/* Opcodes that writers of these files use, or may use in a field that is added later. ALONE: one
 * byte without an argument, and nothing to do for it in this pass. */
enum { WITH = 1, ALONE };

static const uint8_t allowed[256] = {
    ['('] = ALONE,
    [')'] = ALONE,
    ['.'] = WITH,
    ['B'] = WITH,
    ['C'] = WITH,
    ['G'] = WITH,
    ['J'] = WITH,
    ['K'] = WITH,
    ['M'] = WITH,
    ['N'] = ALONE,
    ['R'] = ALONE,
    ['X'] = WITH,
    [']'] = ALONE,
    ['a'] = ALONE,
    ['b'] = ALONE,
    ['e'] = ALONE,
    ['h'] = WITH,
    ['j'] = WITH,
    ['s'] = ALONE,
    ['t'] = ALONE,
    ['u'] = ALONE,
    ['}'] = ALONE,
    [0x81] = ALONE,
    [0x85] = ALONE,
    [0x86] = ALONE,
    [0x87] = ALONE,
    [0x88] = ALONE,
    [0x89] = ALONE,
    [0x8a] = WITH,
    [0x8c] = WITH,
    [0x8d] = WITH,
    [0x8e] = WITH,
    [0x8f] = ALONE,
    [0x90] = ALONE,
    [0x91] = ALONE,
    [0x92] = ALONE,
    [0x93] = ALONE,
    [0x94] = WITH,
    [0x95] = WITH,
    [0x96] = WITH,
};

static int scan_frame(struct scan *s, const unsigned char *p)
{
    uint64_t bytes = hth_get64(p + 1);

    if (s->limit != s->end)
        return scan_refuse(s, p, "begins a frame in a frame");
    if (bytes > (uint64_t)(s->end - p) - 9)
        return scan_refuse(s, p, "begins a frame that reaches past the end");
    s->limit = p + 9 + bytes;
    return HEARTH_OK;
}

/* Bytes of any opcode, from the table; 0: refused. */
static size_t scan_measure(struct scan *s, const unsigned char *p)
{
    const unsigned char *arg;
    size_t n;

    if (!allowed[*p])
        return (void)scan_refuse(s, p, "is not allowed"), 0;
    if (!(arg = hth_pickle_argument(*p, p + 1, (size_t)(s->limit - p) - 1, &n)))
        return (void)scan_refuse(s, p, "is cut off"), 0;
    if (*p == 0x95 && scan_frame(s, p))
        return 0;
    return (size_t)(arg - p) + n;
}

/* Memo number `number` is fetched by the opcode at p. */
static inline int scan_fetched(struct scan *s, const unsigned char *p, uint32_t number)
{
    if (number >= s->memos)
        return hth_fail(s->err, HEARTH_ECORRUPT, 0, "byte %zu: memo number %" PRIu32 " is not set",
                (size_t)(p - s->bytes), number);
    s->memo[number / 64].fetched |= UINT64_C(1) << number % 64;
    return HEARTH_OK;
}

/* *p_io: the first opcode that is none of the few below. Those make up nearly all of a file, and a
 * jump per opcode is faster than a length from a table, which the next opcode would wait for. */
static int scan_common(struct scan *s, const unsigned char **p_io)
{
    const unsigned char *p = *p_io, *limit = s->limit;
    int rc = HEARTH_OK;

    for (; !rc && limit - p > 5; *p_io = p) {
        switch (*p) {
        case 0x94:
            s->memos++;
            p++;
            break;
        case 'K':
            p += 2;
            break;
        case 'M':
            p += 3;
            break;
        case 'h':
            rc = scan_fetched(s, p, p[1]);
            p += 2;
            break;
        case 0x8c:
            if (limit - p < 2 + p[1])
                return rc;
            p += 2 + p[1];
            break;
        default:
            if (allowed[*p] != ALONE)
                return rc;
            p++;
            break;
        }
    }
    return rc;
}

static int scan_all(struct scan *s)
{
    const unsigned char *p = s->bytes + 2;
    size_t n;
    int rc;

    for (;;) {
        if ((rc = scan_common(s, &p)))
            return rc;
        if (p == s->limit && s->limit != s->end) {
            s->limit = s->end;
            continue;
        }
        if (p >= s->end)
            return hth_fail(s->err, HEARTH_ECORRUPT, 0, "byte %zu: the pickle ends before its STOP",
                    (size_t)(p - s->bytes));
        if (!(n = scan_measure(s, p)))
            return HEARTH_ECORRUPT;
        if (*p == '.')
            break;
        if ((*p == 'h' && (rc = scan_fetched(s, p, p[1]))) ||
                (*p == 'j' && (rc = scan_fetched(s, p, hth_get32(p + 1)))))
            return rc;
        s->memos += *p == 0x94;
        p += n;
    }
    if (p + 1 != s->end)
        return scan_refuse(s, p, "is STOP, and bytes follow it");
    return HEARTH_OK;
}

int md_scan(const unsigned char *bytes, size_t len, struct md_memo **out, uint64_t *out_kept,
        struct hearth_error *err)
{
    struct scan s = { .bytes = bytes, .end = bytes + len, .limit = bytes + len, .err = err };
    uint64_t kept = 0;
    int rc;

    if (len < 2 || bytes[0] != 0x80 || bytes[1] < 4 || bytes[1] > 5)
        return hth_fail(
                err, HEARTH_ECORRUPT, 0, "byte 0: no pickle of protocol 4 or 5 begins like this");
    if (len > UINT32_MAX)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "byte 0: a pickle of %zu bytes is too long", len);
    /* Each memo number is an opcode; pages of numbers that do not exist are never touched. */
    s.memo = calloc(len / 64 + 1, sizeof(*s.memo));
    if (!s.memo)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the memo of %zu bytes", len);
    if ((rc = scan_all(&s))) {
        free(s.memo);
        return rc;
    }
    for (uint64_t i = 0; i <= s.memos / 64; i++) {
        s.memo[i].before = kept;
        kept += (uint64_t)__builtin_popcountll(s.memo[i].fetched);
    }
    *out = s.memo;
    *out_kept = kept;
    return HEARTH_OK;
}
