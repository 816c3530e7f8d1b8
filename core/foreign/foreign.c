/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a foreign container's files, by their names and bytes. Where its `.metadata` is a
 * pickle of classes that core/torch does not know, the names of the step's files can still be found
 * in it as plain text.
 */
#include "foreign.h"
#include "core/base/hash.h"

#include <stdio.h>
#include <string.h>

#define OBJECT_END ".distcp"

static int name_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* At most nine digits; returns what follows them, or NULL where there is no such number. */
static const char *name_digits(const char *at, uint32_t *out)
{
    uint32_t value = 0;
    int digits = 0;

    for (; name_digit(*at); at++, digits++) {
        if (digits == 9)
            return NULL;
        value = value * 10 + (uint32_t)(*at - '0');
    }
    *out = value;
    return digits ? at : NULL;
}

uint32_t hth_foreign_owner(const char *name)
{
    uint32_t rank, index;
    const char *at;

    for (at = strstr(name, "src"); at; at = strstr(at + 1, "src"))
        if (name_digits(at + 3, &rank))
            return rank;
    if (strncmp(name, "__", 2) != 0 || !(at = name_digits(name + 2, &rank)) || *at != '_' ||
            !name_digits(at + 1, &index))
        return HTH_OWNER_NONE;
    return rank;
}

struct hth_object hth_foreign_object(const char *name, uint64_t bytes)
{
    struct hth_object o = {
        .owner = hth_foreign_owner(name), .kind = HTH_OBJECT_FOREIGN, .data_len = bytes
    };

    o.id = hth_object_id(o.owner, hth_hash32(name, strlen(name)));
    snprintf(o.name, sizeof(o.name), "%s", name);
    return o;
}

static int is_zeros(const unsigned char *at, size_t len)
{
    return !*at && !memcmp(at, at + 1, len - 1);
}

/* A block with a signature, or one of nothing but a length. */
static int has_block(const unsigned char *at, uint64_t len)
{
    static const char tensors[] = "MLF_TENS", torch[] = "TORCH___";

    return (len >= 16 && (!memcmp(at + 8, tensors, 8) || !memcmp(at + 8, torch, 8))) ||
           (len >= HTH_BLOCK && is_zeros(at + 8, HTH_BLOCK - 8));
}

int hth_foreign_data(
        struct hth_foreign_data *out, const void *bytes, uint64_t len, struct hearth_error *err)
{
    struct hth_foreign_data d = { .len = len };
    struct hth_block b;
    int rc;

    if (has_block(bytes, len)) {
        rc = hth_block_decode(&b, bytes, len < HTH_BLOCK ? len : HTH_BLOCK, len, err);
        if (rc)
            return rc;
        if (b.signature == HTH_SIG_NONE && !b.data_len)
            return hth_fail(err, HEARTH_ECORRUPT, 0,
                    "block: torn, neither a signature nor a length has been written to it");
        d = (struct hth_foreign_data){ HTH_BLOCK, b.data_len,
            b.signature == HTH_SIG_NONE ? HTH_SIG_TORCH : b.signature };
    }
    *out = d;
    return HEARTH_OK;
}

static int name_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || name_digit(c) || c == '.' ||
           c == '_' || c == '-';
}

/* The byte before a name is its length, which may look like a letter: so a name begins at its
 * `__`. */
int hth_foreign_name_next(const void *bytes, size_t len, size_t *pos, char out[HTH_NAME_MAX + 1])
{
    const char *all = bytes, *end;

    while (*pos < len &&
            (end = memmem(all + *pos, len - *pos, OBJECT_END, sizeof(OBJECT_END) - 1))) {
        const char *stop = end + sizeof(OBJECT_END) - 1, *from = end;

        *pos = (size_t)(stop - all);
        while (from > all && name_letter(from[-1]) && end - from < HTH_NAME_MAX)
            from--;
        while (from < end && strncmp(from, "__", 2) != 0)
            from++;
        if (from == end || stop - from > HTH_NAME_MAX)
            continue;
        memcpy(out, from, (size_t)(stop - from));
        out[stop - from] = '\0';
        return 1;
    }
    return 0;
}
