/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is it a pickle with its end? Whoever was cut off while writing one leaves an opcode without its
 * argument, or no STOP. All opcodes of protocols 2 to 5 count, also those that nothing here runs: a
 * `.metadata` of classes that we do not know is whole all the same.
 */
#include "core/base/bytes.h"
#include "core/base/fail.h"
#include "pickle.h"

#include <string.h>

struct kind { /* opcodes whose arguments are alike */
    const char *codes;
    unsigned fixed;  /* bytes */
    unsigned prefix; /* bytes of a length in front of as many bytes */
    unsigned lines;  /* that end in a newline */
};

static const struct kind kinds[] = {
    { .codes = "(012NQRabde)]}lostu\x81\x85\x86\x87\x88\x89\x8f\x90\x91\x92\x93\x94\x97\x98" },
    { .codes = "Khq\x80\x82", .fixed = 1 },
    { .codes = "M\x83", .fixed = 2 },
    { .codes = "Jjr\x84", .fixed = 4 },
    { .codes = "G\x95", .fixed = 8 },
    { .codes = "CU\x8a\x8c", .prefix = 1 },
    { .codes = "BTX\x8b", .prefix = 4 },
    { .codes = "\x8d\x8e\x96", .prefix = 8 },
    { .codes = "FILPSVgp", .lines = 1 },
    { .codes = "ci", .lines = 2 },
};

static const struct kind *kind_of(unsigned char code)
{
    for (size_t i = 0; code && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strchr(kinds[i].codes, code))
            return &kinds[i];
    return NULL;
}

/* Bytes of the argument at[left]; more than `left` where it is cut off. */
static uint64_t argument_bytes(const struct kind *k, const unsigned char *at, uint64_t left)
{
    const unsigned char *end = at;
    uint64_t n;

    for (unsigned i = 0; i < k->lines; i++, end++)
        if (!(end = memchr(end, '\n', left - (uint64_t)(end - at))))
            return UINT64_MAX;
    if (k->lines || left < k->prefix)
        return k->lines ? (uint64_t)(end - at) : UINT64_MAX;
    if (!k->prefix)
        return k->fixed;
    n = k->prefix == 1 ? *at : k->prefix == 4 ? hth_get32(at) : hth_get64(at);
    return n < UINT64_MAX - k->prefix ? n + k->prefix : UINT64_MAX;
}

int hth_pickle_whole(const void *bytes, size_t len, struct hearth_error *err)
{
    const struct kind *of[256];
    const unsigned char *all = bytes;
    size_t pos = 0;

    for (unsigned code = 0; code < 256; code++)
        of[code] = kind_of((unsigned char)code);
    if (!len || *all != 0x80)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "it does not begin as a pickle does");
    while (pos < len && all[pos] != '.') {
        const struct kind *k = of[all[pos]];
        uint64_t n = k ? argument_bytes(k, all + pos + 1, len - pos - 1) : 0;

        if (!k)
            return hth_fail(err, HEARTH_ECORRUPT, 0, "byte %zu: no pickle has an opcode %02x", pos,
                    all[pos]);
        if (n > len - pos - 1)
            return hth_fail(err, HEARTH_ECORRUPT, 0, "byte %zu: opcode %02x of a pickle is cut off",
                    pos, all[pos]);
        pos += 1 + (size_t)n;
    }
    if (pos + 1 != len)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                pos < len ? "byte %zu: bytes follow the pickle's STOP"
                          : "byte %zu: the pickle ends before its STOP",
                pos);
    return HEARTH_OK;
}
