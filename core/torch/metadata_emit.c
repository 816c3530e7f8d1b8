/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `.metadata` as a pickle of protocol 4, with the classes and attributes of torch 2.9 to 2.13:
 *
 *      Metadata(state_dict_metadata = {name: TensorStorageMetadata | BytesStorageMetadata},
 *               planner_data        = {name: ("outer", 0, "inner")},
 *               storage_data        = {MetadataIndex: _StorageInfo},
 *               storage_meta, version)
 *
 * Names, classes, and shapes that come again are written once and fetched from the memo: half as
 * much to write, and to load. Objects that can be changed are never shared.
 */
#include "core/base/bytes.h"
#include "core/base/fail.h"
#include "metadata_write.h"
#include "pickle_write.h"

#include <stdlib.h>

#define FRAME 65536 /* bytes after which a frame ends, as Python's pickler has it */
#define BATCH 1000  /* pairs, or elements, that one opcode takes */

/* Constants that are written at their first use and fetched from the memo later. Those with a
 * module are globals. */
enum constant {
    MODULE, /* of most classes */
    FILESYSTEM,
    TORCH,
    SERIALIZATION,
    METADATA,
    TENSOR,
    BYTES,
    CHUNK,
    PROPERTIES,
    FORMAT,
    INDEX,
    STORAGE_META,
    STORAGE_INFO,
    SIZE,
    GET_LAYOUT,
    ATTR_PROPERTIES,
    ATTR_SIZE,
    ATTR_CHUNKS,
    ATTR_OFFSETS,
    ATTR_SIZES,
    ATTR_FQN,
    ATTR_INDEX,
    ATTR_OFFSET,
    ATTR_PATH,
    ATTR_LENGTH,
    STRIDED,    /* the layout: all tensors are strided */
    CONTIGUOUS, /* and contiguous */
    CONSTANTS,
};

static const struct {
    const char *text;
    int module; /* enum constant; -1: a text */
} constants[] = {
    [MODULE] = { "torch.distributed.checkpoint.metadata", -1 },
    [FILESYSTEM] = { "torch.distributed.checkpoint.filesystem", -1 },
    [TORCH] = { "torch", -1 },
    [SERIALIZATION] = { "torch.serialization", -1 },
    [METADATA] = { "Metadata", MODULE },
    [TENSOR] = { "TensorStorageMetadata", MODULE },
    [BYTES] = { "BytesStorageMetadata", MODULE },
    [CHUNK] = { "ChunkStorageMetadata", MODULE },
    [PROPERTIES] = { "TensorProperties", MODULE },
    [FORMAT] = { "_MEM_FORMAT_ENCODING", MODULE },
    [INDEX] = { "MetadataIndex", MODULE },
    [STORAGE_META] = { "StorageMeta", MODULE },
    [STORAGE_INFO] = { "_StorageInfo", FILESYSTEM },
    [SIZE] = { "Size", TORCH },
    [GET_LAYOUT] = { "_get_layout", SERIALIZATION },
    [ATTR_PROPERTIES] = { "properties", -1 },
    [ATTR_SIZE] = { "size", -1 },
    [ATTR_CHUNKS] = { "chunks", -1 },
    [ATTR_OFFSETS] = { "offsets", -1 },
    [ATTR_SIZES] = { "sizes", -1 },
    [ATTR_FQN] = { "fqn", -1 },
    [ATTR_INDEX] = { "index", -1 },
    [ATTR_OFFSET] = { "offset", -1 },
    [ATTR_PATH] = { "relative_path", -1 },
    [ATTR_LENGTH] = { "length", -1 },
};

#define DTYPES 128 /* more than the largest value of enum hearth_dtype */

struct out {
    struct hearth_metadata_writer *w;
    unsigned char *at;
    size_t len, cap;
    size_t frame;                                /* where the open frame's bytes begin */
    uint32_t memos;                              /* values in the memo */
    int full;                                    /* no memory */
    uint32_t constant[CONSTANTS], dtype[DTYPES]; /* memo numbers, plus 1 */
};

/* --- bytes --- */

static void emit_bytes(struct out *o, const void *from, size_t n)
{
    if (o->full)
        return;
    if (n > o->cap - o->len) {
        size_t cap = o->cap + n > 2 * o->cap ? o->cap + n + FRAME : 2 * o->cap;
        unsigned char *at = realloc(o->at, cap);

        if (!at) {
            o->full = 1;
            return;
        }
        o->at = at;
        o->cap = cap;
    }
    if (n)
        memcpy(o->at + o->len, from, n);
    o->len += n;
}

static void emit_ops(struct out *o, const char *codes)
{
    emit_bytes(o, codes, strlen(codes));
}

static void frame_open(struct out *o)
{
    static const unsigned char frame[9] = { 0x95 };

    emit_bytes(o, frame, sizeof(frame));
    o->frame = o->len;
}

static void frame_close(struct out *o)
{
    if (!o->full)
        hth_put64(o->at + o->frame - 8, o->len - o->frame);
}

/* Between two opcodes: a frame that is long enough ends. */
static void frame_next(struct out *o)
{
    if (o->len - o->frame < FRAME)
        return;
    frame_close(o);
    frame_open(o);
}

/* --- values --- */

static uint32_t emit_memoize(struct out *o)
{
    emit_ops(o, "\x94");
    return ++o->memos;
}

static void emit_fetch(struct out *o, uint32_t memo)
{
    unsigned char op[5] = { memo - 1 <= UINT8_MAX ? 'h' : 'j' };

    hth_put32(op + 1, memo - 1);
    emit_bytes(o, op, op[0] == 'h' ? 2 : 5);
}

static void emit_integer(struct out *o, int64_t v)
{
    unsigned char op[HTH_PICKLE_INT_MAX];

    emit_bytes(o, op, hth_pickle_int(op, v));
}

static void emit_characters(struct out *o, const char *text, size_t len)
{
    unsigned char op[5] = { len <= UINT8_MAX ? 0x8c : 'X' };

    hth_put32(op + 1, (uint32_t)len);
    emit_bytes(o, op, len <= UINT8_MAX ? 2 : 5);
    emit_bytes(o, text, len);
}

/* A text of the writer's. */
static void emit_text(struct out *o, uint32_t number)
{
    struct hth_md_text *t = hth_md_text(o->w, number);

    if (t->memo) {
        emit_fetch(o, t->memo);
        return;
    }
    emit_characters(o, (const char *)o->w->chars.at + t->at, t->len);
    t->memo = emit_memoize(o);
}

static void emit_constant(struct out *o, enum constant which)
{
    int module = constants[which].module;

    if (o->constant[which]) {
        emit_fetch(o, o->constant[which]);
        return;
    }
    if (module >= 0)
        emit_constant(o, (enum constant)module);
    emit_characters(o, constants[which].text, strlen(constants[which].text));
    if (module >= 0)
        emit_ops(o, "\x93");
    o->constant[which] = emit_memoize(o);
}

static void emit_attribute(struct out *o, const char *name)
{
    emit_characters(o, name, strlen(name));
}

/* A new object, the dict of its attributes, and a MARK; "ub" closes it. */
static void emit_object(struct out *o, enum constant class)
{
    emit_constant(o, class);
    emit_ops(o, ")\x81}(");
}

/* layout and memory format are the same everywhere: calls whose results are kept. */
static void emit_kept(struct out *o, enum constant which)
{
    if (o->constant[which]) {
        emit_fetch(o, o->constant[which]);
        return;
    }
    emit_constant(o, which == STRIDED ? GET_LAYOUT : FORMAT);
    if (which == STRIDED)
        emit_attribute(o, "torch.strided");
    else
        emit_integer(o, 0);
    emit_ops(o, "\x85R");
    o->constant[which] = emit_memoize(o);
}

static void emit_dtype(struct out *o, uint32_t number)
{
    if (o->dtype[number]) {
        emit_fetch(o, o->dtype[number]);
        return;
    }
    emit_constant(o, TORCH);
    emit_attribute(o, hearth_dtype_name((enum hearth_dtype)number));
    emit_ops(o, "\x93");
    o->dtype[number] = emit_memoize(o);
}

/* torch.Size((dims)) */
static void emit_size(struct out *o, const int64_t *dims, uint32_t ndim)
{
    static const char *const tuple[] = { ")", "\x85", "\x86", "\x87" };

    emit_constant(o, SIZE);
    if (ndim > 3)
        emit_ops(o, "(");
    for (uint32_t i = 0; i < ndim; i++)
        emit_integer(o, dims[i]);
    emit_ops(o, ndim > 3 ? "t" : tuple[ndim]);
    emit_ops(o, "\x85R");
}

/* --- dicts and lists in batches --- */

/* Before pair `i` of `n`, and once more with i = n. */
static void emit_batch(struct out *o, size_t i, size_t n, const char *close)
{
    if (i && (i == n || i % BATCH == 0))
        emit_ops(o, close);
    if (i < n && i % BATCH == 0)
        emit_ops(o, "(");
    frame_next(o);
}

/* --- parts --- */

static int dims_same(const int64_t *a, const int64_t *b, uint32_t ndim)
{
    for (uint32_t i = 0; i < ndim; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

/* Sizes that come again and again: of the whole tensor, and of its first chunk. */
struct known {
    const int64_t *whole, *first; /* first: NULL until there is one */
    uint32_t whole_memo, first_memo;
};

static void emit_sizes(struct out *o, struct known *k, const int64_t *shape, uint32_t ndim)
{
    if (dims_same(shape, k->whole, ndim)) {
        emit_fetch(o, k->whole_memo);
    } else if (k->first && dims_same(shape, k->first, ndim)) {
        emit_fetch(o, k->first_memo);
    } else {
        emit_size(o, shape, ndim);
        if (k->first)
            return;
        k->first = shape;
        k->first_memo = emit_memoize(o);
    }
}

static void emit_chunks(struct out *o, const struct hth_md_name *n, struct known *k)
{
    uint32_t next;
    size_t i = 0;

    emit_ops(o, "]");
    for (uint32_t at = n->first; at; at = next, i++) {
        struct hth_md_piece *p = hth_md_piece(o->w, at - 1);
        const int64_t *dims = hth_md_dims(o->w, p->dims);

        emit_batch(o, i, n->pieces, "e");
        emit_object(o, CHUNK);
        emit_constant(o, ATTR_OFFSETS);
        emit_size(o, dims, n->ndim);
        p->memo = emit_memoize(o); /* the index of storage_data has it too */
        emit_constant(o, ATTR_SIZES);
        emit_sizes(o, k, dims + n->ndim, n->ndim);
        emit_ops(o, "ub");
        next = p->next;
    }
    emit_batch(o, i, n->pieces, "e");
}

static void emit_tensor(struct out *o, const struct hth_md_name *n)
{
    struct known k = { .whole = hth_md_dims(o->w, n->shape) };

    emit_object(o, TENSOR);
    emit_constant(o, ATTR_PROPERTIES);
    emit_constant(o, PROPERTIES);
    emit_ops(o, ")\x81(");
    emit_dtype(o, n->dtype);
    emit_kept(o, STRIDED);
    emit_ops(o, "\x89"); /* requires_grad */
    emit_kept(o, CONTIGUOUS);
    emit_ops(o, "\x89tb"); /* pin_memory */
    emit_constant(o, ATTR_SIZE);
    emit_size(o, k.whole, n->ndim);
    k.whole_memo = emit_memoize(o);
    emit_constant(o, ATTR_CHUNKS);
    emit_chunks(o, n, &k);
    emit_ops(o, "ub");
}

/* Names that were given anything; one whose addition failed has no kind. */
static size_t emit_names(const struct hearth_metadata_writer *w)
{
    size_t n = 0;

    for (uint32_t i = 0; i < w->name.count; i++)
        n += hth_md_name(w, i)->kind != 0;
    return n;
}

typedef void name_fn(struct out *o, const struct hth_md_name *n);

/* A dict under `attribute`: the names that were given anything, `count` of them, and the value of
 * each. */
static void emit_by_name(struct out *o, const char *attribute, size_t count, name_fn *value)
{
    size_t done = 0;

    emit_attribute(o, attribute);
    emit_ops(o, "}");
    for (uint32_t i = 0; i < o->w->name.count; i++) {
        const struct hth_md_name *n = hth_md_name(o->w, i);

        if (!n->kind)
            continue;
        emit_batch(o, done++, count, "u");
        emit_text(o, n->text);
        value(o, n);
    }
    emit_batch(o, done, count, "u");
}

static void emit_entry(struct out *o, const struct hth_md_name *n)
{
    if (n->kind == HEARTH_METADATA_TENSOR) {
        emit_tensor(o, n);
    } else {
        emit_constant(o, BYTES);
        emit_ops(o, ")\x81");
    }
}

/* Where the name stands in the nested dicts and lists that it was flattened from. */
static void emit_place(struct out *o, const struct hth_md_name *n)
{
    emit_ops(o, "(");
    for (uint32_t k = 0; k < n->steps; k++) {
        const struct hth_md_step *s = hth_md_step(o->w, n->step + k);

        if (s->text)
            emit_text(o, s->text - 1);
        else
            emit_integer(o, s->index);
    }
    if (!n->steps)
        emit_text(o, n->text);
    emit_ops(o, "t");
}

static void emit_stored(
        struct out *o, const struct hth_md_name *n, const struct hth_md_piece *p, size_t hint)
{
    emit_object(o, INDEX);
    emit_constant(o, ATTR_FQN);
    emit_text(o, n->text);
    emit_constant(o, ATTR_INDEX);
    if (n->kind == HEARTH_METADATA_TENSOR) {
        emit_integer(o, (int64_t)hint);
        emit_constant(o, ATTR_OFFSET);
        emit_fetch(o, p->memo);
    } else {
        emit_ops(o, "N");
    }
    emit_ops(o, "ub");
    emit_object(o, STORAGE_INFO);
    emit_constant(o, ATTR_PATH);
    emit_text(o, p->path);
    emit_constant(o, ATTR_OFFSET);
    emit_integer(o, (int64_t)p->at);
    emit_constant(o, ATTR_LENGTH);
    emit_integer(o, (int64_t)p->len);
    emit_ops(o, "ub");
}

static void storage_data(struct out *o)
{
    size_t done = 0;

    emit_attribute(o, "storage_data");
    emit_ops(o, "}");
    for (uint32_t i = 0; i < o->w->name.count; i++) {
        const struct hth_md_name *n = hth_md_name(o->w, i);
        size_t hint = 0;

        for (uint32_t at = n->kind ? n->first : 0; at; at = hth_md_piece(o->w, at - 1)->next) {
            emit_batch(o, done++, o->w->piece.count, "u");
            emit_stored(o, n, hth_md_piece(o->w, at - 1), hint++);
        }
    }
    emit_batch(o, done, o->w->piece.count, "u");
}

static void storage_meta(struct out *o)
{
    const uint32_t ids[] = { o->w->id, o->w->save_id, 0 };
    static const char *const keys[] = { "checkpoint_id", "save_id", "load_id" };

    emit_attribute(o, "storage_meta");
    emit_object(o, STORAGE_META);
    for (int i = 0; i < 3; i++) {
        emit_attribute(o, keys[i]);
        if (ids[i])
            emit_text(o, ids[i] - 1);
        else
            emit_ops(o, "N");
    }
    emit_attribute(o, "modules");
    emit_ops(o, "]ub");
}

int hth_metadata_emit(
        struct hearth_metadata_writer *w, void **out, size_t *out_len, struct hearth_error *err)
{
    struct out o = { .w = w };
    size_t count = emit_names(w);

    emit_ops(&o, "\x80\x04");
    frame_open(&o);
    emit_object(&o, METADATA);
    emit_by_name(&o, "state_dict_metadata", count, emit_entry);
    emit_by_name(&o, "planner_data", count, emit_place);
    storage_data(&o);
    storage_meta(&o);
    emit_attribute(&o, "version");
    emit_attribute(&o, "1.0.0");
    emit_ops(&o, "ub.");
    frame_close(&o);
    if (o.full) {
        free(o.at);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a .metadata of %zu bytes", o.len);
    }
    *out = o.at;
    *out_len = o.len;
    return HEARTH_OK;
}
