/* SPDX-License-Identifier: Apache-2.0 */
/* Zips made to measure, and items opened in memory of exactly their size. */
#ifndef ZIPPER_H
#define ZIPPER_H

#include "check.h"

#include "core/base/bytes.h"
#include <hearth/value.h>
#include <stdlib.h>

struct zipper {
    unsigned char bytes[8192];
    size_t len;
    unsigned char central[2048];
    size_t central_len;
    unsigned members;
};

static inline void put(unsigned char *to, size_t *len, const void *bytes, size_t n)
{
    memcpy(to + *len, bytes, n);
    *len += n;
}

/* An entry of the central directory for a local header at `head`. */
static inline void entry(struct zipper *z, const char *name, size_t head, size_t n)
{
    unsigned char e[46] = "PK\1\2";

    hth_put32(e + 20, (uint32_t)n);
    hth_put32(e + 24, (uint32_t)n);
    hth_put16(e + 28, (uint16_t)strlen(name));
    hth_put32(e + 42, (uint32_t)head);
    put(z->central, &z->central_len, e, sizeof(e));
    put(z->central, &z->central_len, name, strlen(name));
    z->members++;
}

static inline void member(struct zipper *z, const char *name, const void *bytes, size_t n)
{
    unsigned char local[30] = "PK\3\4";

    entry(z, name, z->len, n);
    hth_put16(local + 26, (uint16_t)strlen(name));
    put(z->bytes, &z->len, local, sizeof(local));
    put(z->bytes, &z->len, name, strlen(name));
    put(z->bytes, &z->len, bytes, n);
}

static inline void finish(struct zipper *z)
{
    unsigned char end[22] = "PK\5\6";

    hth_put16(end + 8, (uint16_t)z->members);
    hth_put16(end + 10, (uint16_t)z->members);
    hth_put32(end + 12, (uint32_t)z->central_len);
    hth_put32(end + 16, (uint32_t)z->len);
    put(z->bytes, &z->len, z->central, z->central_len);
    put(z->bytes, &z->len, end, sizeof(end));
}

static struct hearth_error err;

/* Open bytes[len] in memory of exactly this size, and look at the root. */
static inline int open_item(const void *bytes, size_t len)
{
    struct hearth_value root = { .struct_size = sizeof(root) };
    unsigned char *exact = malloc(len ? len : 1);
    struct hearth_values *v = NULL;
    int rc;

    memset(&err, 0, sizeof(err));
    memcpy(exact, bytes, len);
    rc = hearth_values_open(exact, len, &v, &err);
    if (!rc)
        rc = hearth_value_root(v, &root, &err);
    hearth_values_close(v);
    free(exact);
    return rc;
}

static inline int open_zip(struct zipper *z)
{
    finish(z);
    return open_item(z->bytes, z->len);
}

#define refused(call, code, words)                                           \
    do {                                                                     \
        must_fail((call), (code));                                           \
        cr_assert(ne(ptr, strstr(err.text, (words)), NULL), "%s", err.text); \
    } while (0)

#endif
