/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content of a new `.metadata`, gathered in any order. Each text is kept once; pieces of a name
 * are a list through the array of all pieces. An addition that fails leaves nothing that is seen.
 */
#include "metadata_write.h"
#include "core/base/fail.h"
#include "core/base/grow.h"
#include "core/base/hash.h"
#include "core/base/opts.h"
#include "core/base/utf8.h"
#include "header.h"

#include <stdlib.h>
#include <string.h>

#define PATH_MAX_BYTES 1024 /* of an object's name in a container, with folders */

static const int64_t zeros[HTH_DIMS_MAX];

/* --- growing arrays --- */

static int no_memory(struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for more of a .metadata");
}

/* Makes room for `more` elements behind the last. The numbers of elements stay below 2^32 - 1. */
static int array_room(struct hth_md_array *a, size_t more, size_t size, struct hearth_error *err)
{
    void *at;

    if (size > sizeof(int64_t) && a->count + more >= UINT32_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "more than 2^32 entries of a .metadata");
    if (!(at = hth_grow(a->at, &a->cap, a->count + more, 64, size)))
        return no_memory(err);
    a->at = at;
    return HEARTH_OK;
}

/* Behind the last; there is room. */
static void array_push(struct hth_md_array *a, const void *from, size_t n, size_t size)
{
    if (n)
        memcpy((char *)a->at + a->count * size, from, n * size);
    a->count += n;
}

/* --- texts and names --- */

static int text_find(const struct hearth_metadata_writer *w, const char *chars, size_t len,
        uint32_t h, uint32_t *out)
{
    uint32_t i;

    for (size_t probe = 0; hth_set_next(&w->texts, h, &probe, &i);) {
        const struct hth_md_text *t = hth_md_text(w, i);

        if (t->len == len && (!len || !memcmp((const char *)w->chars.at + t->at, chars, len))) {
            *out = i;
            return 1;
        }
    }
    return 0;
}

/* The number of a text, kept once. */
static int text_number(struct hearth_metadata_writer *w, const char *chars, size_t len,
        uint32_t *out, struct hearth_error *err)
{
    struct hth_md_text t = { .at = w->chars.count, .len = (uint32_t)len };
    char say[HTH_KEY_TEXT];
    uint32_t h;
    int rc;

    if (len >= UINT32_MAX || !hth_utf8(chars, len))
        return hth_fail(err, HEARTH_EINVAL, 0, "%s is not UTF-8, as names in a .metadata are",
                hth_key_text(chars, len, say));
    h = (uint32_t)hth_hash(chars, len, 0);
    if (text_find(w, chars, len, h, out))
        return HEARTH_OK;
    if ((rc = array_room(&w->text, 1, sizeof(t), err)) || (rc = array_room(&w->chars, len, 1, err)))
        return rc;
    if (hth_set_room(&w->texts, 1))
        return no_memory(err);
    array_push(&w->chars, chars, len, 1);
    *out = (uint32_t)w->text.count;
    array_push(&w->text, &t, 1, sizeof(t));
    hth_set_add(&w->texts, h, *out);
    return HEARTH_OK;
}

/* The number of a name, which may be new: kind 0. */
static int name_number(struct hearth_metadata_writer *w, const void *chars, size_t len,
        uint32_t *out, struct hearth_error *err)
{
    struct hth_md_name n = { 0 };
    int rc = text_number(w, chars, len, &n.text, err);

    if (rc || (rc = array_room(&w->name, 1, sizeof(n), err)))
        return rc;
    if (!hth_md_text(w, n.text)->name) {
        array_push(&w->name, &n, 1, sizeof(n));
        hth_md_text(w, n.text)->name = (uint32_t)w->name.count;
    }
    *out = hth_md_text(w, n.text)->name - 1;
    return HEARTH_OK;
}

/* A path that stays in its container: what a reader of such files accepts. */
static int path_number(struct hearth_metadata_writer *w, const char *chars, uint32_t *out,
        struct hearth_error *err)
{
    size_t len = chars ? strlen(chars) : 0, part;

    if (!len || len > PATH_MAX_BYTES)
        return hth_fail(err, HEARTH_EINVAL, 0, "an object's path has 1 to %d bytes, not %zu",
                PATH_MAX_BYTES, len);
    for (const char *p = chars;; p += part + 1) {
        part = strcspn(p, "/");
        if (!part || (part == 1 && *p == '.') || (part == 2 && p[0] == '.' && p[1] == '.'))
            return hth_fail(err, HEARTH_EINVAL, 0, "'%s' is no path within a container", chars);
        if (!p[part])
            break;
    }
    return text_number(w, chars, len, out, err);
}

static int name_wrong(const struct hearth_metadata_writer *w, uint32_t n, int code,
        const char *what, struct hearth_error *err)
{
    const struct hth_md_text *t = hth_md_text(w, hth_md_name(w, n)->text);
    char say[HTH_KEY_TEXT];

    return hth_fail(err, code, 0, "%s: %s",
            hth_key_text((const char *)w->chars.at + t->at, t->len, say), what);
}

/* --- pieces --- */

static int range_check(uint64_t at, uint64_t len, struct hearth_error *err)
{
    if (at > INT64_MAX || len > INT64_MAX - at)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "[%" PRIu64 ", + %" PRIu64 ") does not fit in 63 bits", at, len);
    return HEARTH_OK;
}

static uint32_t box_hash(const struct hearth_metadata_writer *w, uint32_t n, const int64_t *offset)
{
    return (uint32_t)hth_hash(offset, sizeof(int64_t) * hth_md_name(w, n)->ndim, n);
}

/* The same box in the same tensor again: a box without elements is the same thing. */
static int place_taken(
        const struct hearth_metadata_writer *w, uint32_t n, const int64_t *offset, uint32_t *out)
{
    size_t bytes = sizeof(int64_t) * hth_md_name(w, n)->ndim, probe = 0;
    uint32_t h = box_hash(w, n, offset), i;

    while (hth_set_next(&w->places, h, &probe, &i)) {
        const struct hth_md_piece *p = hth_md_piece(w, i);

        if (p->name == n && (!bytes || !memcmp(hth_md_dims(w, p->dims), offset, bytes))) {
            *out = i;
            return 1;
        }
    }
    return 0;
}

static int shape_is_empty(const int64_t *shape, uint32_t ndim)
{
    for (uint32_t i = 0; i < ndim; i++)
        if (!shape[i])
            return 1;
    return 0;
}

/* One more piece of `n` that lies in `p`, with its dims. */
static int piece_push(struct hearth_metadata_writer *w, uint32_t n, struct hth_md_piece *p,
        const int64_t *offset, const int64_t *shape, struct hearth_error *err)
{
    struct hth_md_name *of = hth_md_name(w, n);
    uint32_t ndim = of->ndim, plus1, taken;
    int rc;

    if (place_taken(w, n, offset, &taken)) {
        const int64_t *was = hth_md_dims(w, hth_md_piece(w, taken)->dims) + ndim;

        if (of->kind == HEARTH_METADATA_TENSOR && shape_is_empty(shape, ndim) &&
                !memcmp(was, shape, sizeof(*shape) * ndim))
            return HEARTH_OK;
        return name_wrong(w, n, HEARTH_EEXIST, "two pieces at one place of the tensor", err);
    }
    if ((rc = array_room(&w->piece, 1, sizeof(*p), err)) ||
            (rc = array_room(&w->dims, 2 * (size_t)ndim, sizeof(int64_t), err)))
        return rc;
    if (hth_set_room(&w->places, 1))
        return no_memory(err);
    p->name = n;
    p->dims = w->dims.count;
    array_push(&w->dims, offset, ndim, sizeof(int64_t));
    array_push(&w->dims, shape, ndim, sizeof(int64_t));
    array_push(&w->piece, p, 1, sizeof(*p));
    plus1 = (uint32_t)w->piece.count;
    hth_set_add(&w->places, box_hash(w, n, offset), plus1 - 1);
    if (of->last)
        hth_md_piece(w, of->last - 1)->next = plus1;
    else
        of->first = plus1;
    of->last = plus1;
    of->pieces++;
    return HEARTH_OK;
}

/* The fault of a piece by itself; NULL: it has none. */
static const char *piece_fault(
        const struct hearth_piece *p, const int64_t *offset, const int64_t *global)
{
    int64_t end;

    if (!hearth_dtype_bytes((enum hearth_dtype)p->dtype))
        return "its dtype is none of enum hearth_dtype";
    for (uint32_t i = 0; i < p->ndim; i++)
        if (p->shape[i] < 0 || offset[i] < 0 ||
                __builtin_add_overflow(offset[i], p->shape[i], &end) || end > global[i])
            return "its box reaches out of the global tensor";
    return NULL;
}

/* The name is a tensor of this dtype and global shape, from the first piece on. */
static int name_as_tensor(struct hearth_metadata_writer *w, uint32_t n,
        const struct hearth_piece *p, const int64_t *global, struct hearth_error *err)
{
    struct hth_md_name *of = hth_md_name(w, n);
    int rc;

    if (!of->kind) {
        if ((rc = array_room(&w->dims, p->ndim, sizeof(int64_t), err)))
            return rc;
        of->kind = HEARTH_METADATA_TENSOR;
        of->dtype = p->dtype;
        of->ndim = p->ndim;
        of->shape = w->dims.count;
        array_push(&w->dims, global, p->ndim, sizeof(int64_t));
        return HEARTH_OK;
    }
    if (of->kind != HEARTH_METADATA_TENSOR)
        return name_wrong(w, n, HEARTH_EINVAL, "a byte item and a tensor of one name", err);
    if (of->dtype != p->dtype || of->ndim != p->ndim ||
            (p->ndim && memcmp(hth_md_dims(w, of->shape), global, sizeof(*global) * p->ndim) != 0))
        return name_wrong(w, n, HEARTH_EINVAL,
                "its dtype or global shape is another one than in an earlier piece", err);
    return HEARTH_OK;
}

/* --- calls --- */

int hearth_metadata_write(const char *checkpoint_id, const char *save_id,
        struct hearth_metadata_writer **out, struct hearth_error *err)
{
    struct hearth_metadata_writer *w;
    int rc = HEARTH_OK;

    if (!out)
        return hth_fail(err, HEARTH_EINVAL, 0, "out is NULL");
    if (!(w = calloc(1, sizeof(*w))))
        return no_memory(err);
    if (checkpoint_id && !(rc = text_number(w, checkpoint_id, strlen(checkpoint_id), &w->id, err)))
        w->id++;
    if (!rc && save_id && !(rc = text_number(w, save_id, strlen(save_id), &w->save_id, err)))
        w->save_id++;
    if (rc)
        hearth_metadata_abandon(w);
    else
        *out = w;
    return rc;
}

int hearth_metadata_add_piece(struct hearth_metadata_writer *w, const struct hearth_piece *piece,
        const char *object, uint64_t at, uint64_t len, struct hearth_error *err)
{
    struct hth_md_piece stored = { .at = at, .len = len };
    const int64_t *offset, *global;
    struct hearth_piece p;
    const char *fault;
    uint32_t n;
    int rc;

    if (!w || !piece)
        return hth_fail(err, HEARTH_EINVAL, 0, "the writer or the piece is NULL");
    if ((rc = hth_opts_copy(&p, sizeof(p), piece, err)) || (rc = range_check(at, len, err)) ||
            (rc = path_number(w, object, &stored.path, err)))
        return rc;
    if ((p.key_len && !p.key) || p.ndim > HTH_DIMS_MAX || (p.ndim && !p.shape))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "a piece needs a key, and a shape of at most %d dimensions", HTH_DIMS_MAX);
    offset = p.global_offset ? p.global_offset : zeros;
    global = p.global_shape ? p.global_shape : p.shape;
    if ((rc = name_number(w, p.key, p.key_len, &n, err)))
        return rc;
    if ((fault = piece_fault(&p, offset, global)))
        return name_wrong(w, n, HEARTH_EINVAL, fault, err);
    if ((rc = name_as_tensor(w, n, &p, global, err)))
        return rc;
    rc = piece_push(w, n, &stored, offset, p.shape, err);
    if (!hth_md_name(w, n)->pieces)
        hth_md_name(w, n)->kind = 0; /* it was the first one */
    return rc;
}

int hearth_metadata_add_bytes(struct hearth_metadata_writer *w, const char *key, size_t key_len,
        const char *object, uint64_t at, uint64_t len, struct hearth_error *err)
{
    struct hth_md_piece stored = { .at = at, .len = len };
    uint32_t n;
    int rc;

    if (!w || (key_len && !key))
        return hth_fail(err, HEARTH_EINVAL, 0, "the writer or the name is NULL");
    if ((rc = range_check(at, len, err)) || (rc = path_number(w, object, &stored.path, err)) ||
            (rc = name_number(w, key, key_len, &n, err)))
        return rc;
    if (hth_md_name(w, n)->kind)
        return name_wrong(w, n, HEARTH_EEXIST, "a byte item's name is taken", err);
    if ((rc = piece_push(w, n, &stored, zeros, zeros, err)))
        return rc;
    hth_md_name(w, n)->kind = HEARTH_METADATA_BYTES;
    return HEARTH_OK;
}

int hearth_metadata_add_path(struct hearth_metadata_writer *w, const char *key, size_t key_len,
        const struct hearth_metadata_step *steps, size_t count, struct hearth_error *err)
{
    size_t first;
    uint32_t n;
    int rc;

    if (!w || (key_len && !key) || !steps || !count || count > UINT32_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "a path needs a name and at least one step");
    if ((rc = name_number(w, key, key_len, &n, err)) ||
            (rc = array_room(&w->step, count, sizeof(struct hth_md_step), err)))
        return rc;
    if (hth_md_name(w, n)->steps)
        return name_wrong(w, n, HEARTH_EEXIST, "it has a path already", err);
    first = w->step.count;
    for (size_t i = 0; i < count && !rc; i++) {
        struct hth_md_step s = { .index = steps[i].index };

        if (steps[i].key.data &&
                !(rc = text_number(w, steps[i].key.data, steps[i].key.len, &s.text, err)))
            s.text++;
        array_push(&w->step, &s, 1, sizeof(s));
    }
    if (rc) {
        w->step.count = first;
        return rc;
    }
    hth_md_name(w, n)->step = first;
    hth_md_name(w, n)->steps = (uint32_t)count;
    return HEARTH_OK;
}

int hearth_metadata_finish(
        struct hearth_metadata_writer *w, void **out, size_t *out_len, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    if (!w || !out || !out_len) {
        hearth_metadata_abandon(w);
        return hth_fail(err, HEARTH_EINVAL, 0, "the writer or out is NULL");
    }
    for (uint32_t n = 0; n < w->name.count && !rc; n++)
        if (!hth_md_name(w, n)->kind && hth_md_name(w, n)->steps)
            rc = name_wrong(
                    w, n, HEARTH_EINVAL, "it has a path, and neither pieces nor bytes", err);
    if (!rc)
        rc = hth_metadata_emit(w, out, out_len, err);
    hearth_metadata_abandon(w);
    return rc;
}

void hearth_metadata_abandon(struct hearth_metadata_writer *w)
{
    if (!w)
        return;
    free(w->chars.at);
    free(w->text.at);
    free(w->name.at);
    free(w->piece.at);
    free(w->dims.at);
    free(w->step.at);
    hth_set_fini(&w->texts);
    hth_set_fini(&w->places);
    free(w);
}
