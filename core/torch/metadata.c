/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The questions of callers about a `.metadata` that has been read. Numbers are read in the pickle
 * again, at the places that the records have.
 */
#include "metadata_parts.h"

#include "core/base/auto.h"
#include "core/base/opts.h"

#include <stdlib.h>
#include <sys/random.h>

HTH_AUTO_DEFINE(hearth_metadata_close, struct hearth_metadata)

/* dims[which][ndim], until the next call. */
static const int64_t *dims_of(struct hearth_metadata *md, int which, uint32_t at, uint32_t ndim)
{
    md_dims(md, at, ndim, md->dims[which]);
    return md->dims[which];
}

static void *array_trimmed(void *at, size_t bytes)
{
    void *less = bytes ? realloc(at, bytes) : NULL;

    return less ? less : at;
}

static uint64_t add_up_to_max(uint64_t a, uint64_t b)
{
    return a < UINT64_MAX - b ? a + b : UINT64_MAX;
}

/* A tensor of more than 2^63 bytes is a test's, or made to overflow a reader's product of its
 * dimensions. At least as many of its bytes must be stored as its longest dimension has
 * elements. */
static int huge_check(const struct hearth_metadata *md, struct hearth_error *err)
{
    uint64_t *stored = calloc(md->entry.count, sizeof(*stored));
    int rc = HEARTH_OK;

    if (!stored)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for metadata");
    for (uint32_t i = 0; i < md->stored.count; i++) {
        const struct md_stored *s = &md->stored.at[i];
        const struct md_entry *e = md_entry_hashed(md, s->hash);
        const unsigned char *len = md->bytes + s->len;
        uint64_t bytes = s->transforms ? UINT64_MAX : (uint64_t)md_int_next(&len);

        if (e)
            stored[e - md->entry.at] = add_up_to_max(stored[e - md->entry.at], bytes);
    }
    for (uint32_t i = 0; i < md->entry.count && !rc; i++) {
        const struct md_entry *e = &md->entry.at[i];
        const unsigned char *p = md->bytes + e->shape;

        for (uint32_t d = 0; e->flags & MD_HUGE && d < e->ndim && !rc; d++)
            if ((uint64_t)md_int_next(&p) > stored[i])
                rc = hth_fail(err, HEARTH_ECORRUPT, 0,
                        "byte %" PRIu32 ": a tensor of more than 2^63 bytes, of which %" PRIu64
                        " are stored",
                        e->shape, stored[i]);
    }
    free(stored);
    return rc;
}

int hearth_metadata_open(
        const void *bytes, size_t len, struct hearth_metadata **out, struct hearth_error *err)
{
    HTH_AUTO(hearth_metadata_close) struct hearth_metadata *md = NULL;
    struct md_memo *memo = NULL;
    uint64_t kept = 0;
    int rc;

    if (!out || (!bytes && len))
        return hth_fail(err, HEARTH_EINVAL, 0, "no bytes, or nowhere to put the metadata");
    if (!(md = calloc(1, sizeof(*md))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for metadata");
    md->bytes = bytes;
    md->len = len;
    if (getrandom(&md->seed, sizeof(md->seed), GRND_NONBLOCK) != sizeof(md->seed))
        md->seed = (uintptr_t)md;
    if ((rc = md_scan(bytes, len, &memo, &kept, err)))
        return rc;
    rc = md_run(md, memo, kept, err);
    free(memo);
    if (rc || (rc = md_tables(md, err)) || (md->huge && (rc = huge_check(md, err))))
        return rc;
    md->chunk.at = array_trimmed(md->chunk.at, md->chunk.count * sizeof(*md->chunk.at));
    md->stored.at = array_trimmed(md->stored.at, md->stored.count * sizeof(*md->stored.at));
    *out = md;
    md = NULL;
    return HEARTH_OK;
}

void hearth_metadata_close(struct hearth_metadata *md)
{
    if (!md)
        return;
    free(md->entry.at);
    free(md->chunk.at);
    free(md->stored.at);
    free(md->path.at);
    free(md->spoiled.at);
    free(md->heap.at);
    hth_set_fini(&md->by_name);
    hth_set_fini(&md->by_place);
    free(md->id);
    free(md);
}

int hearth_metadata_info(const struct hearth_metadata *md, struct hearth_metadata_head *out,
        struct hearth_error *err)
{
    if (!md)
        return hth_fail(err, HEARTH_EINVAL, 0, "no metadata");
    return hth_give(out, &md->info, sizeof(md->info), err);
}

/* ---- Entries ------------------------------------------------------------------------------ */

static int entry_give(struct hearth_metadata *md, const struct md_entry *e,
        struct hearth_metadata_entry *out, struct hearth_error *err)
{
    struct hearth_metadata_entry give = { .name = md_text(md, e->name),
        .kind = HEARTH_METADATA_BYTES,
        .index = (size_t)(e - md->entry.at) - md->first_entry };

    if (e->unknown.name) {
        give.kind = HEARTH_METADATA_UNKNOWN;
        give.unknown_module = md_text(md, e->unknown.module);
        give.unknown_name = md_text(md, e->unknown.name);
    }
    if (e->tensor) {
        give.kind = HEARTH_METADATA_TENSOR;
        give.dtype = e->dtype;
        give.ndim = e->ndim;
        give.requires_grad = !!(e->flags & MD_GRAD);
        give.pin_memory = !!(e->flags & MD_PINNED);
        give.memory_format = e->flags >> MD_FORMAT_SHIFT & MD_FORMAT_MASK;
        give.layout = md_text(md, e->layout);
        give.shape = dims_of(md, 0, e->shape, e->ndim);
        give.chunks = e->chunks;
    }
    if (e->path) {
        const struct md_slot *steps = &md->path.at[md->first_path + e->path - 1].steps;

        give.path = steps->kind == MD_TUPLE ? steps->y : steps->n;
    }
    return hth_give(out, &give, sizeof(give), err);
}

/* Entry `index`, or NULL. */
static const struct md_entry *entry_at(
        const struct hearth_metadata *md, size_t index, struct hearth_error *err)
{
    if (!md)
        return (void)hth_fail(err, HEARTH_EINVAL, 0, "no metadata"), NULL;
    if (index < md->entries)
        return &md->entry.at[md->first_entry + index];
    (void)hth_fail(err, HEARTH_ENOENT, 0, "entry %zu of %" PRIu32, index, md->entries);
    return NULL;
}

int hearth_metadata_entry_at(struct hearth_metadata *md, size_t index,
        struct hearth_metadata_entry *out, struct hearth_error *err)
{
    const struct md_entry *e = entry_at(md, index, err);

    return e ? entry_give(md, e, out, err) : md ? HEARTH_ENOENT : HEARTH_EINVAL;
}

static int no_name(const char *name, size_t len, struct hearth_error *err)
{
    char say[HTH_KEY_TEXT];

    return hth_fail(
            err, HEARTH_ENOENT, 0, "%s is not in the metadata", hth_key_text(name, len, say));
}

int hearth_metadata_entry_find(struct hearth_metadata *md, const char *name, size_t len,
        struct hearth_metadata_entry *out, struct hearth_error *err)
{
    const struct md_entry *e;

    if (!md || (!name && len))
        return hth_fail(err, HEARTH_EINVAL, 0, "no metadata, or no name");
    e = md_entry_find(md, len ? name : "", len);
    return e ? entry_give(md, e, out, err) : no_name(name, len, err);
}

/* Refuse: the entry has an unknown class in it. */
static int not_known(
        const struct hearth_metadata *md, const struct md_entry *e, struct hearth_error *err)
{
    struct hearth_text text[3] = { md_text(md, e->name), md_text(md, e->unknown.name),
        md_text(md, e->unknown.module) };
    char say[3][HTH_KEY_TEXT];

    return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
            "%s is described by the class or function %s of %s, which is not known here",
            hth_key_text(text[0].data, text[0].len, say[0]),
            hth_key_text(text[1].data, text[1].len, say[1]),
            hth_key_text(text[2].data, text[2].len, say[2]));
}

int hearth_metadata_chunk_at(struct hearth_metadata *md, size_t entry, size_t chunk,
        struct hearth_metadata_chunk *out, struct hearth_error *err)
{
    const struct md_entry *e = entry_at(md, entry, err);
    struct hearth_metadata_chunk give;
    const struct md_chunk *c;

    if (!e)
        return md ? HEARTH_ENOENT : HEARTH_EINVAL;
    if (e->unknown.name)
        return not_known(md, e, err);
    if (chunk >= e->chunks)
        return hth_fail(err, HEARTH_ENOENT, 0, "chunk %zu of %" PRIu32, chunk, e->chunks);
    c = &md->chunk.at[e->chunk + chunk];
    give = (struct hearth_metadata_chunk){ .ndim = e->ndim,
        .offset = dims_of(md, 0, c->offset, e->ndim),
        .shape = dims_of(md, 1, c->shape, e->ndim) };
    return hth_give(out, &give, sizeof(give), err);
}

int hearth_metadata_path_at(struct hearth_metadata *md, size_t entry, size_t step,
        struct hearth_metadata_step *out, struct hearth_error *err)
{
    const struct md_entry *e = entry_at(md, entry, err);
    const struct md_slot *steps = NULL, *s;
    size_t count = 0;

    if (!e)
        return md ? HEARTH_ENOENT : HEARTH_EINVAL;
    if (!out)
        return hth_fail(err, HEARTH_EINVAL, 0, "nowhere to put the step");
    if (e->path) {
        steps = &md->path.at[md->first_path + e->path - 1].steps;
        count = steps->kind == MD_TUPLE ? steps->y : steps->n;
    }
    if (step >= count)
        return hth_fail(err, HEARTH_ENOENT, 0, "step %zu of %zu", step, count);
    *out = (struct hearth_metadata_step){ 0 };
    if (steps->kind == MD_INTS) {
        out->index = dims_of(md, 0, steps->at, steps->n)[step];
        return HEARTH_OK;
    }
    s = &md->heap.at[steps->x + step];
    if (s->kind == MD_TEXT)
        out->key = md_text(md, s->at);
    else
        out->index = s->i;
    return HEARTH_OK;
}

/* ---- Places ------------------------------------------------------------------------------- */

static int stored_give(struct hearth_metadata *md, const struct md_stored *s,
        struct hearth_metadata_stored *out, struct hearth_error *err)
{
    struct hearth_metadata_stored give = { .name = md_text(md, s->name),
        .hint = s->hint ? md_int(md, s->hint) : -1,
        .ndim = s->ndim,
        .has_offset = s->has_offset,
        .path = md_text(md, s->path),
        .at = (uint64_t)md_int(md, s->at),
        .len = (uint64_t)md_int(md, s->len),
        .transforms = s->transforms };

    if (s->has_offset)
        give.offset = dims_of(md, 0, s->offset, s->ndim);
    return hth_give(out, &give, sizeof(give), err);
}

int hearth_metadata_stored_at(struct hearth_metadata *md, size_t index,
        struct hearth_metadata_stored *out, struct hearth_error *err)
{
    if (!md)
        return hth_fail(err, HEARTH_EINVAL, 0, "no metadata");
    if (index >= md->storeds)
        return hth_fail(err, HEARTH_ENOENT, 0, "place %zu of %" PRIu32, index, md->storeds);
    return stored_give(md, &md->stored.at[md->first_stored + index], out, err);
}

int hearth_metadata_stored_find(struct hearth_metadata *md, const char *name, size_t len,
        const int64_t *offset, uint32_t ndim, struct hearth_metadata_stored *out,
        struct hearth_error *err)
{
    const struct md_stored *s;
    const struct md_entry *e;

    if (!md || (!name && len) || (!offset && ndim))
        return hth_fail(err, HEARTH_EINVAL, 0, "no metadata, no name, or no offset");
    e = md->info.unknown ? md_entry_find(md, len ? name : "", len) : NULL;
    if (e && e->unknown.name)
        return not_known(md, e, err);
    s = ndim > HTH_DIMS_MAX ? NULL : md_stored_find(md, len ? name : "", len, offset, ndim);
    return s ? stored_give(md, s, out, err) : no_name(name, len, err);
}
