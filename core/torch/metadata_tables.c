/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records by name, and places by name and offset. Hashes are keyed: the writer of a file cannot
 * choose names whose hashes are equal.
 */
#include "metadata_parts.h"

#include <stdlib.h>

__extension__ typedef unsigned __int128 product128;

static uint64_t hash_mix(uint64_t a, uint64_t b)
{
    product128 product = (product128)a * b;

    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Odd, and half of the bits set. */
#define K1 UINT64_C(0x9e3779b97f4a7c15)
#define K2 UINT64_C(0xd6e8feb86659fd93)

uint32_t md_hash(const struct hearth_metadata *md, const void *text, size_t len)
{
    const unsigned char *at = text;
    uint64_t h = hash_mix(md->seed ^ len, K1), tail = 0;

    for (; len >= 8; len -= 8, at += 8)
        h = hash_mix(h ^ hth_get64(at), K1 ^ md->seed);
    memcpy(&tail, at, len);
    return (uint32_t)hash_mix(h ^ tail, K2 ^ md->seed);
}

static uint32_t offset_hash(
        const struct hearth_metadata *md, uint32_t name, const int64_t *offset, uint32_t ndim)
{
    uint64_t h = hash_mix(name ^ md->seed, K1 + ndim + (offset != NULL));

    for (uint32_t i = 0; offset && i < ndim; i++)
        h = hash_mix(h ^ (uint64_t)offset[i], K2 ^ md->seed);
    return (uint32_t)h;
}

static uint32_t stored_hash(const struct hearth_metadata *md, const struct md_stored *s)
{
    int64_t offset[HTH_DIMS_MAX];

    md_dims(md, s->offset, s->ndim, offset);
    return offset_hash(md, s->hash, s->has_offset ? offset : NULL, s->ndim);
}

static int same_text(const struct hearth_metadata *md, uint32_t at, const char *text, size_t len)
{
    struct hearth_text t = md_text(md, at);

    return t.len == len && memcmp(t.data, text, len) == 0;
}

static int same_offset(const struct hearth_metadata *md, const struct md_stored *s,
        const int64_t *offset, uint32_t ndim)
{
    const unsigned char *p = md->bytes + s->offset;

    if (s->has_offset != (offset != NULL) || s->ndim != ndim)
        return 0;
    if (!offset)
        return 1;
    for (uint32_t i = 0; i < ndim; i++)
        if (md_int_next(&p) != offset[i])
            return 0;
    return 1;
}

/* ---- Lookups ------------------------------------------------------------------------------ */

static struct md_entry *entry_seek(
        const struct hearth_metadata *md, uint32_t hash, const char *name, size_t len)
{
    uint32_t i;

    for (size_t probe = 0; hth_set_next(&md->by_name, hash, &probe, &i);) {
        struct md_entry *e = &md->entry.at[md->first_entry + i];

        if (same_text(md, e->name, name, len))
            return e;
    }
    return NULL;
}

/* The entry of the name that stands at byte `name`. */
static struct md_entry *entry_named(const struct hearth_metadata *md, uint32_t name, uint32_t hash)
{
    struct hearth_text t = md_text(md, name);

    return entry_seek(md, hash, t.data, t.len);
}

const struct md_entry *md_entry_find(const struct hearth_metadata *md, const char *name, size_t len)
{
    return entry_seek(md, md_hash(md, name, len), name, len);
}

const struct md_entry *md_entry_hashed(const struct hearth_metadata *md, uint32_t hash)
{
    size_t probe = 0;
    uint32_t i;

    return hth_set_next(&md->by_name, hash, &probe, &i) ? &md->entry.at[md->first_entry + i] : NULL;
}

/* A key to look up in storage_data; `hash` is of name and offset. */
struct wanted {
    uint32_t hash;
    const char *name;
    size_t len;
    const int64_t *offset; /* [ndim] or NULL */
    uint32_t ndim;
};

static const struct md_stored *stored_seek(const struct hearth_metadata *md, const struct wanted *w)
{
    uint32_t i;

    for (size_t probe = 0; hth_set_next(&md->by_place, w->hash, &probe, &i);) {
        const struct md_stored *s = &md->stored.at[md->first_stored + i];

        if (same_text(md, s->name, w->name, w->len) && same_offset(md, s, w->offset, w->ndim))
            return s;
    }
    return NULL;
}

const struct md_stored *md_stored_find(const struct hearth_metadata *md, const char *name,
        size_t len, const int64_t *offset, uint32_t ndim)
{
    struct wanted w = { .name = name, .len = len, .offset = offset, .ndim = ndim };

    w.hash = offset_hash(md, md_hash(md, name, len), offset, ndim);
    return stored_seek(md, &w);
}

/* ---- Building ----------------------------------------------------------------------------- */

static int name_twice(const struct hearth_metadata *md, uint32_t name, struct hearth_error *err)
{
    struct hearth_text t = md_text(md, name);
    char say[HTH_KEY_TEXT];

    return hth_fail(err, HEARTH_ECORRUPT, 0, "byte %" PRIu32 ": %s comes twice in a dict", name,
            hth_key_text(t.data, t.len, say));
}

static int tables_entries(struct hearth_metadata *md, struct hearth_error *err)
{
    for (uint32_t i = 0; i < md->entries; i++) {
        const struct md_entry *e = &md->entry.at[md->first_entry + i];

        if (entry_named(md, e->name, e->hash))
            return name_twice(md, e->name, err);
        hth_set_add(&md->by_name, e->hash, i);
    }
    return HEARTH_OK;
}

static int place_insert(
        struct hearth_metadata *md, uint32_t i, uint32_t hash, struct hearth_error *err)
{
    const struct md_stored *s = &md->stored.at[md->first_stored + i];
    struct hearth_text t = md_text(md, s->name);
    struct wanted w = { .hash = hash, .name = t.data, .len = t.len, .ndim = s->ndim };
    int64_t offset[HTH_DIMS_MAX];

    md_dims(md, s->offset, s->ndim, offset);
    w.offset = s->has_offset ? offset : NULL;
    if (stored_seek(md, &w))
        return name_twice(md, s->name, err);
    hth_set_add(&md->by_place, hash, i);
    return HEARTH_OK;
}

/* The table is far larger than any cache: places are asked for before they are needed. */
static int tables_places(struct hearth_metadata *md, struct hearth_error *err)
{
    enum { AHEAD = 16 };
    uint32_t hash[AHEAD];
    int rc;

    for (uint32_t i = 0; i < md->storeds; i += AHEAD) {
        uint32_t n = md->storeds - i < AHEAD ? md->storeds - i : AHEAD;

        for (uint32_t k = 0; k < n; k++) {
            hash[k] = stored_hash(md, &md->stored.at[md->first_stored + i + k]);
            hth_set_ahead(&md->by_place, hash[k]);
        }
        for (uint32_t k = 0; k < n; k++)
            if ((rc = place_insert(md, i + k, hash[k], err)))
                return rc;
    }
    return HEARTH_OK;
}

/* Paths of names that are no entries are ignored. */
static int tables_paths(struct hearth_metadata *md, struct hearth_error *err)
{
    for (uint32_t i = 0; i < md->paths; i++) {
        const struct md_path *path = &md->path.at[md->first_path + i];
        struct md_entry *e = entry_named(md, path->name, path->hash);

        if (!e)
            continue;
        if (e->path)
            return name_twice(md, path->name, err);
        e->path = i + 1;
    }
    return HEARTH_OK;
}

static int by_text(const void *a, const void *b)
{
    const struct md_spoiled *x = a, *y = b;

    return x->name < y->name ? -1 : x->name > y->name;
}

/* A text is looked up once, however many places and paths share it as their name. */
static void tables_unknowns(struct hearth_metadata *md)
{
    const struct md_spoiled *s = md->spoiled.at;

    if (md->spoiled.count)
        qsort(md->spoiled.at, md->spoiled.count, sizeof(*s), by_text);
    for (uint32_t i = 0; i < md->spoiled.count; i++, s++) {
        struct md_entry *e;

        if (i && s[-1].name == s->name)
            continue;
        e = entry_named(md, s->name, s->hash);
        if (!e)
            continue;
        md->info.chunks -= e->chunks;
        *e = (struct md_entry){
            .name = e->name, .hash = e->hash, .path = e->path, .unknown = s->what
        };
    }
    for (uint32_t i = 0; i < md->entries; i++)
        md->info.unknown += md->entry.at[md->first_entry + i].unknown.name != 0;
}

int md_tables(struct hearth_metadata *md, struct hearth_error *err)
{
    int rc;

    if (hth_set_room(&md->by_name, md->entries) || hth_set_room(&md->by_place, md->storeds))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %" PRIu32 " names", md->entries);
    if ((rc = tables_entries(md, err)) || (rc = tables_places(md, err)) ||
            (rc = tables_paths(md, err)))
        return rc;
    tables_unknowns(md);
    return HEARTH_OK;
}
