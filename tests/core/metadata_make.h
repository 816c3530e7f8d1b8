/* SPDX-License-Identifier: Apache-2.0 */
/* Pickles of a Metadata made opcode by opcode, in ways that no library writes them. */
#ifndef METADATA_MAKE_H
#define METADATA_MAKE_H

#include "check.h"

#include <hearth/metadata.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static struct hearth_error err;

struct text {
    char *at;
    size_t len;
    FILE *out;
};

static inline struct text *begin(struct text *t)
{
    t->out = open_memstream(&t->at, &t->len);
    cr_assert(ne(ptr, t->out, NULL));
    return t;
}

static inline void put(struct text *t, const char *bytes, size_t len)
{
    cr_assert(eq(sz, fwrite(bytes, 1, len, t->out), len));
}

#define PUT(t, bytes) put(t, bytes, sizeof(bytes) - 1)

static inline void put_text(struct text *t, const char *text)
{
    char len = (char)strlen(text);

    PUT(t, "\x8c");
    put(t, &len, 1);
    put(t, text, strlen(text));
}

static inline void put_global(struct text *t, const char *module, const char *name)
{
    put_text(t, module);
    put_text(t, name);
    PUT(t, "\x93");
}

#define D "torch.distributed.checkpoint.metadata"

/* A Metadata whose state_dict_metadata comes next; nothing is in the memo. */
static inline void head(struct text *t)
{
    PUT(begin(t), "\x80\x04");
    put_global(t, D, "Metadata");
    PUT(t, ")\x81}(");
    put_text(t, "state_dict_metadata");
}

/* Memo numbers 0 torch.Size, 1 to 3 the classes of chunk, index and storage info: they come into
 * being in attributes that are not read. */
static inline void classes(struct text *t)
{
    put_text(t, "x");
    put_global(t, "torch", "Size");
    PUT(t, "\x94)\x85R");
    put_text(t, "y");
    put_global(t, D, "ChunkStorageMetadata");
    PUT(t, "\x94)\x81}(");
    put_text(t, "offsets");
    PUT(t, "h\x00)\x85R");
    put_text(t, "sizes");
    PUT(t, "h\x00)\x85Rub");
    put_text(t, "z");
    put_global(t, D, "MetadataIndex");
    PUT(t, "\x94)\x81}");
    put_text(t, "fqn");
    PUT(t, "\x8c\x01nsb");
    put_text(t, "info");
    put_global(t, "torch.distributed.checkpoint.filesystem", "_StorageInfo");
    PUT(t, "\x94)\x81}(");
    put_text(t, "relative_path");
    PUT(t, "\x8c\x01p");
    put_text(t, "offset");
    PUT(t, "K\x00");
    put_text(t, "length");
    PUT(t, "K\x00ub");
}

static inline int finish(struct text *t, struct hearth_metadata **out)
{
    PUT(t, "ub.");
    fclose(t->out);
    return hearth_metadata_open(t->at, t->len, out, &err);
}

static inline void put_int(struct text *t, uint32_t i)
{
    char bytes[5] = { 'J' };

    memcpy(bytes + 1, &i, 4);
    put(t, bytes, 5);
}

/* torch.Size of ndim equal dimensions, below 256. */
static inline void put_size(struct text *t, unsigned ndim, unsigned dim)
{
    char one[2] = { 'K', (char)dim };

    PUT(t, "h\x00(");
    for (; ndim; ndim--)
        put(t, one, 2);
    PUT(t, "t\x85R");
}

/* TensorProperties, into the memo: number 4 after classes(). */
static inline void put_properties(struct text *t)
{
    put_text(t, "properties");
    put_global(t, D, "TensorProperties");
    PUT(t, ")\x81(");
    put_global(t, "torch", "float32");
    put_global(t, "torch.serialization", "_get_layout");
    put_text(t, "torch.strided");
    PUT(t, "\x85R\x89");
    put_global(t, D, "_MEM_FORMAT_ENCODING");
    PUT(t, "K\x00\x85R\x89tb\x94");
}

#endif
