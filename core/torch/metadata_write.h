/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the two parts of the writer of `.metadata`: what was added (metadata_write.c), and how it
 * becomes a pickle (metadata_emit.c).
 *
 * Everything refers by number into growing arrays, so that it costs the same in any order:
 *
 *      name --> text (each once)         piece --> name, text of its path, dims, next of the name
 *           --> dims of its shape, first and last piece, steps of its place in the state
 */
/* For this folder alone. */
#ifndef HEARTH_CORE_TORCH_METADATA_WRITE_H
#define HEARTH_CORE_TORCH_METADATA_WRITE_H

#include "core/base/set.h"
#include <hearth/metadata.h>

struct hth_md_text {
    size_t at; /* in chars */
    uint32_t len;
    uint32_t memo; /* of the pickle, plus 1; 0: not written yet */
    uint32_t name; /* plus 1; 0: it is none */
};

struct hth_md_name {
    uint32_t text;
    uint32_t kind; /* enum hearth_metadata_kind; 0: only its path is known */
    uint32_t dtype, ndim;
    uint32_t first, last; /* pieces, plus 1; 0: none */
    uint32_t pieces;
    uint32_t steps; /* of its path, and the first of them; 0: ("name",) */
    size_t step;
    size_t shape; /* in dims */
};

struct hth_md_piece {
    uint64_t at, len;
    size_t dims; /* offset[ndim], shape[ndim] */
    uint32_t name, path;
    uint32_t next; /* of the same name, plus 1 */
    uint32_t memo; /* of its offset in the pickle, plus 1 */
};

struct hth_md_step {
    uint32_t text; /* plus 1; 0: an index */
    int64_t index;
};

struct hth_md_array {
    void *at;
    size_t count, cap; /* elements */
};

struct hearth_metadata_writer {
    uint32_t id, save_id; /* texts, plus 1; 0: none */
    struct hth_md_array chars, text, name, piece, dims, step;
    struct hth_set texts, places; /* numbers of texts and of pieces */
};

static inline struct hth_md_text *hth_md_text(const struct hearth_metadata_writer *w, uint32_t i)
{
    return (struct hth_md_text *)w->text.at + i;
}

static inline struct hth_md_name *hth_md_name(const struct hearth_metadata_writer *w, uint32_t i)
{
    return (struct hth_md_name *)w->name.at + i;
}

static inline struct hth_md_piece *hth_md_piece(const struct hearth_metadata_writer *w, uint32_t i)
{
    return (struct hth_md_piece *)w->piece.at + i;
}

static inline const struct hth_md_step *hth_md_step(
        const struct hearth_metadata_writer *w, size_t i)
{
    return (const struct hth_md_step *)w->step.at + i;
}

static inline const int64_t *hth_md_dims(const struct hearth_metadata_writer *w, size_t i)
{
    return (const int64_t *)w->dims.at + i;
}

/* The pickle, malloc'ed. Errors: HEARTH_ENOMEM. */
int hth_metadata_emit(
        struct hearth_metadata_writer *w, void **out, size_t *out_len, struct hearth_error *err);

#endif
