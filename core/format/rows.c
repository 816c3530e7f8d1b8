/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of a table, each as its difference from the row before it. */
#include "rows.h"

#include <hearth/error.h>
#include <string.h>

#define WORD 8u

static size_t rows_words(size_t len)
{
    return len / WORD + (len % WORD != 0);
}

static size_t rows_bits(size_t len) /* in bytes */
{
    return (rows_words(len) + 7) / 8;
}

/* The bytes of the word at `at`. */
static size_t rows_word(size_t len, size_t at)
{
    return len - at < WORD ? len - at : WORD;
}

uint64_t hth_rows_most(size_t len, uint32_t count)
{
    return (uint64_t)count * (rows_bits(len) + len);
}

static int word_is_same(const unsigned char *row, const unsigned char *before, size_t len)
{
    static const unsigned char zeros[WORD];

    return memcmp(row, before ? before : zeros, len) == 0;
}

size_t hth_rows_pack(unsigned char *out, const unsigned char *rows, size_t len, uint32_t count)
{
    const unsigned char *before = NULL;
    unsigned char *to = out;

    for (uint32_t i = 0; i < count; i++, before = rows, rows += len) {
        unsigned char *bits = to;

        to += rows_bits(len);
        memset(bits, 0, rows_bits(len));
        for (size_t at = 0, word = 0; at < len; at += WORD, word++) {
            size_t n = rows_word(len, at);

            if (word_is_same(rows + at, before ? before + at : NULL, n))
                continue;
            bits[word / 8] |= (unsigned char)(1u << word % 8);
            memcpy(to, rows + at, n);
            to += n;
        }
    }
    return (size_t)(to - out);
}

/* One row of in[left]. Returns the bytes that it took, or 0: there is no such row. */
static size_t row_unpack(unsigned char *row, const unsigned char *before, size_t len,
        const unsigned char *in, size_t left)
{
    size_t used = rows_bits(len), word = 0;

    if (left < used)
        return 0;
    for (size_t at = 0; at < len; at += WORD, word++) {
        size_t n = rows_word(len, at);

        if (!(in[word / 8] >> word % 8 & 1)) {
            if (before)
                memcpy(row + at, before + at, n);
            else
                memset(row + at, 0, n);
            continue;
        }
        if (left - used < n || word_is_same(in + used, before ? before + at : NULL, n))
            return 0;
        memcpy(row + at, in + used, n);
        used += n;
    }
    return word % 8 && in[word / 8] >> word % 8 ? 0 : used;
}

int hth_rows_unpack(
        unsigned char *rows, size_t len, uint32_t count, const unsigned char *in, size_t in_len)
{
    const unsigned char *before = NULL;
    size_t at = 0;

    for (uint32_t i = 0; i < count; i++, before = rows, rows += len) {
        size_t used = row_unpack(rows, before, len, in + at, in_len - at);

        if (!used)
            return HEARTH_EPROTO;
        at += used;
    }
    return at == in_len ? HEARTH_OK : HEARTH_EPROTO;
}
