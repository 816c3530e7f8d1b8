/* SPDX-License-Identifier: Apache-2.0 */
/* The files of tests/data, whole, and the rows of their tables. */
#ifndef VECTORS_H
#define VECTORS_H

#include "check.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct file {
    unsigned char *at; /* [len], of exactly this size, so that ASan sees a byte too far */
    size_t len;
};

static inline struct file file_read(const char *name)
{
    const char *dir = getenv("HEARTH_TEST_DATA");
    struct file f = { 0 };
    char path[1024];
    FILE *in;

    cr_assert(ne(ptr, (void *)(uintptr_t)dir, NULL), "HEARTH_TEST_DATA is not set");
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    in = fopen(path, "rb");
    cr_assert(ne(ptr, in, NULL), "%s", path);
    fseek(in, 0, SEEK_END);
    f.len = (size_t)ftell(in);
    rewind(in);
    f.at = malloc(f.len ? f.len : 1);
    cr_assert(eq(sz, fread(f.at, 1, f.len, in), f.len));
    fclose(in);
    return f;
}

/* Walk a table of tab-separated lines in place: the next row's fields, NULL-filled. Returns how
 * many there were; 0: the end. `*pos` counts bytes of the file. */
static inline size_t row_next(const struct file *f, size_t *pos, char **field, size_t max)
{
    size_t n = 0, start = *pos;

    memset(field, 0, max * sizeof(*field));
    if (start >= f->len)
        return 0;
    for (size_t i = start; i < f->len; i++) {
        char c = (char)f->at[i];

        if (c != '\t' && c != '\n')
            continue;
        f->at[i] = '\0';
        if (n < max)
            field[n++] = (char *)f->at + start;
        start = i + 1;
        if (c == '\n')
            break;
    }
    *pos = start;
    return n;
}

static inline size_t from_hex(unsigned char *out, size_t max, const char *hex)
{
    size_t n = strlen(hex) / 2;

    cr_assert(le(sz, n, max));
    for (size_t i = 0; i < n; i++) {
        unsigned byte;

        cr_assert(eq(int, sscanf(hex + 2 * i, "%2x", &byte), 1));
        out[i] = (unsigned char)byte;
    }
    return n;
}

#endif
