/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `.metadata` as torch.distributed.checkpoint keeps it: which tensors and byte items a checkpoint
 * has, of which chunks, and where each is stored. Read from and written as a pickle; nothing of
 * the pickle is run, and nothing but integers and strings is made of it.
 *
 * Read: torch 2.2 to 2.15 and later ones, protocols 4 and 5. Fields that a later torch adds are
 * skipped; an entry that needs a class or dtype which is not known here is HEARTH_METADATA_UNKNOWN,
 * and all others are read. Time is linear in the input and memory beyond the
 * input bounded by its length. Objects here belong to one thread at a time.
 */
#ifndef HEARTH_METADATA_H
#define HEARTH_METADATA_H

#include <hearth/error.h>
#include <hearth/init.h>
#include <hearth/types.h>
#include <stddef.h>
#include <stdint.h>

HEARTH_BEGIN

struct hearth_metadata;
struct hearth_metadata_writer;

struct hearth_text {  /* bytes, UTF-8 as it was pickled; no terminator, may hold NUL; until close */
    const char *data; /* NULL: absent or None */
    size_t len;
};

enum hearth_metadata_kind {
    HEARTH_METADATA_TENSOR = 10,
    HEARTH_METADATA_BYTES = 20,
    HEARTH_METADATA_UNKNOWN = 30, /* nothing but its name and path can be said */
};
enum hearth_metadata_id { HEARTH_ID_NONE = 0, HEARTH_ID_TEXT = 10, HEARTH_ID_PATH = 20 };

struct hearth_metadata_head {
    size_t struct_size;
    size_t entries; /* names: tensors and byte items */
    size_t chunks;  /* of all tensors */
    size_t stored;  /* where chunks and byte items lie */
    struct hearth_text checkpoint_id, save_id, load_id, version;
    uint32_t id_kind;     /* enum hearth_metadata_id */
    uint32_t has_stored;  /* 0: storage_data was None */
    uint32_t has_planner; /* 0: planner_data was None */
    uint32_t modules;     /* names in storage_meta.modules */
    size_t unknown;       /* entries of kind UNKNOWN */
};
HEARTH_SIZED(hearth_metadata_head);
#define HEARTH_METADATA_HEAD_INIT HEARTH_INIT(hearth_metadata_head)

struct hearth_metadata_entry {
    size_t struct_size;
    struct hearth_text name;
    uint32_t kind;  /* enum hearth_metadata_kind */
    uint32_t dtype; /* tensor: enum hearth_dtype */
    uint32_t ndim;
    uint32_t requires_grad, pin_memory,
            memory_format;     /* as torch numbers it: 0 contiguous, 1 channels_last, 2 preserve */
    struct hearth_text layout; /* "torch.strided" */
    const int64_t *shape;      /* [ndim] of the global tensor; until the next call */
    size_t chunks, path;       /* number of chunks; of steps of its planner path */
    size_t index;              /* for the calls below */
    struct hearth_text unknown_module, unknown_name; /* kind UNKNOWN: the class that is not known */
};
HEARTH_SIZED(hearth_metadata_entry);
#define HEARTH_METADATA_ENTRY_INIT HEARTH_INIT(hearth_metadata_entry)

struct hearth_metadata_chunk {
    size_t struct_size;
    uint32_t ndim;
    const int64_t *offset, *shape; /* [ndim]; until the next call */
};
HEARTH_SIZED(hearth_metadata_chunk);
#define HEARTH_METADATA_CHUNK_INIT HEARTH_INIT(hearth_metadata_chunk)

struct hearth_metadata_stored {
    size_t struct_size;
    struct hearth_text name;
    int64_t hint;          /* index hint, or -1 */
    uint32_t ndim;         /* of offset */
    uint32_t has_offset;   /* 0: a byte item, or unknown */
    const int64_t *offset; /* [ndim]; until the next call */
    struct hearth_text path;
    uint64_t at, len;    /* of the item in the file `path` */
    uint32_t transforms; /* names in transform_descriptors: bytes that only torch can undo */
};
HEARTH_SIZED(hearth_metadata_stored);
#define HEARTH_METADATA_STORED_INIT HEARTH_INIT(hearth_metadata_stored)

struct hearth_metadata_step { /* of a path into the nested state */
    struct hearth_text key;   /* NULL: a list index */
    int64_t index;
};

/* bytes[len] are borrowed until close. Errors: HEARTH_ECORRUPT, "byte N: ..."; HEARTH_ENOMEM. */
HEARTH_API int hearth_metadata_open(
        const void *bytes, size_t len, struct hearth_metadata **out, struct hearth_error *err);
HEARTH_API void hearth_metadata_close(struct hearth_metadata *md);
HEARTH_API int hearth_metadata_info(const struct hearth_metadata *md,
        struct hearth_metadata_head *out, struct hearth_error *err);

/* In the pickle's order, from 0; HEARTH_ENOENT past the last. */
HEARTH_API int hearth_metadata_entry_at(struct hearth_metadata *md, size_t index,
        struct hearth_metadata_entry *out, struct hearth_error *err);
HEARTH_API int hearth_metadata_entry_find(struct hearth_metadata *md, const char *name, size_t len,
        struct hearth_metadata_entry *out, struct hearth_error *err);
/* HEARTH_EUNSUPPORTED of an entry of kind UNKNOWN, and so does stored_find: the text names both. */
HEARTH_API int hearth_metadata_chunk_at(struct hearth_metadata *md, size_t entry, size_t chunk,
        struct hearth_metadata_chunk *out, struct hearth_error *err);
HEARTH_API int hearth_metadata_path_at(struct hearth_metadata *md, size_t entry, size_t step,
        struct hearth_metadata_step *out, struct hearth_error *err);
HEARTH_API int hearth_metadata_stored_at(struct hearth_metadata *md, size_t index,
        struct hearth_metadata_stored *out, struct hearth_error *err);
/* The place of a chunk (by its offset[ndim]) or of a byte item (offset NULL). */
HEARTH_API int hearth_metadata_stored_find(struct hearth_metadata *md, const char *name, size_t len,
        const int64_t *offset, uint32_t ndim, struct hearth_metadata_stored *out,
        struct hearth_error *err);

/* ---- writing ----------------------------------------------------------------------------- */

/* A `.metadata` that torch.distributed.checkpoint loads. checkpoint_id, save_id: text, NULL:
 * none. */
HEARTH_API int hearth_metadata_write(const char *checkpoint_id, const char *save_id,
        struct hearth_metadata_writer **out, struct hearth_error *err);

/* A piece of a tensor, stored at [at, at + len) of the object `path`. The pieces of one name come
 * in any order and between others; dtype and global shape must be the same each time. The name is
 * the piece's key: UTF-8. data is not looked at. */
HEARTH_API int hearth_metadata_add_piece(struct hearth_metadata_writer *w,
        const struct hearth_piece *piece, const char *path, uint64_t at, uint64_t len,
        struct hearth_error *err);
HEARTH_API int hearth_metadata_add_bytes(struct hearth_metadata_writer *w, const char *name,
        size_t name_len, const char *path, uint64_t at, uint64_t len, struct hearth_error *err);

/* Where a name lies in the nested state: steps[count]. Names without one get ("name",). */
HEARTH_API int hearth_metadata_add_path(struct hearth_metadata_writer *w, const char *name,
        size_t name_len, const struct hearth_metadata_step *steps, size_t count,
        struct hearth_error *err);

/* The pickle, malloc'ed: hearth_free(). The writer is gone afterwards, also on error. */
HEARTH_API int hearth_metadata_finish(
        struct hearth_metadata_writer *w, void **out, size_t *out_len, struct hearth_error *err);
HEARTH_API void hearth_metadata_abandon(struct hearth_metadata_writer *w);

HEARTH_END

#endif
