/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records by name, and places by name and offset: open addressing, at most three quarters full.
 * A place of a table holds half of the hash beside the record's number, so that what lies
 * elsewhere is looked at only where it is equal. Hashes are keyed: who writes a file cannot choose
 * names that fall together.
 */
#include "metadata_parts.h"

#include <stdlib.h>

__extension__ typedef unsigned __int128 product128;

static uint64_t mix(uint64_t a, uint64_t b)
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
    uint64_t h = mix(md->seed ^ len, K1), tail = 0;

    for (; len >= 8; len -= 8, at += 8)
        h = mix(h ^ hth_get64(at), K1 ^ md->seed);
    memcpy(&tail, at, len);
    return (uint32_t)mix(h ^ tail, K2 ^ md->seed);
}

static uint64_t name_hash(const struct hearth_metadata *md, uint32_t name)
{
    return mix(name ^ md->seed, K2);
}

static uint64_t place_hash(
        const struct hearth_metadata *md, uint32_t name, const int64_t *offset, uint32_t ndim)
{
    uint64_t h = mix(name ^ md->seed, K1 + ndim + (offset != NULL));

    for (uint32_t i = 0; offset && i < ndim; i++)
        h = mix(h ^ (uint64_t)offset[i], K2 ^ md->seed);
    return h;
}

static uint64_t stored_hash(const struct hearth_metadata *md, const struct md_stored *s)
{
    int64_t offset[HTH_DIMS_MAX];

    md_dims(md, s->offset, s->ndim, offset);
    return place_hash(md, s->hash, s->has_offset ? offset : NULL, s->ndim);
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

/* What is looked for, and its hash. `stored`: a place, else an entry. */
struct wanted {
    uint64_t hash;
    int stored;
    const char *name;
    size_t len;
    const int64_t *offset;
    uint32_t ndim;
};

static int is_wanted(const struct hearth_metadata *md, const struct wanted *w, uint32_t record)
{
    const struct md_stored *s;

    if (!w->stored)
        return same_text(md, md->entry.at[md->first_entry + record].name, w->name, w->len);
    s = &md->stored.at[md->first_stored + record];
    return same_text(md, s->name, w->name, w->len) && same_offset(md, s, w->offset, w->ndim);
}

/* Its place in the table, or the free one where it belongs. */
static struct md_place *seek(
        const struct hearth_metadata *md, const struct md_table *t, const struct wanted *w)
{
    for (uint64_t i = w->hash & t->mask;; i = (i + 1) & t->mask) {
        struct md_place *p = &t->place[i];

        if (!p->record || (p->tag == w->hash >> 32 && is_wanted(md, w, p->record - 1)))
            return p;
    }
}

const struct md_entry *md_entry_find(const struct hearth_metadata *md, const char *name, size_t len)
{
    struct wanted w = { .name = name, .len = len };
    const struct md_place *p;

    w.hash = name_hash(md, md_hash(md, name, len));
    p = seek(md, &md->by_name, &w);
    return p->record ? &md->entry.at[md->first_entry + p->record - 1] : NULL;
}

const struct md_entry *md_entry_hashed(const struct hearth_metadata *md, uint32_t hash)
{
    const struct md_table *t = &md->by_name;
    uint64_t wanted = name_hash(md, hash), i = wanted & t->mask;

    while (t->place[i].record && t->place[i].tag != wanted >> 32)
        i = (i + 1) & t->mask;
    return t->place[i].record ? &md->entry.at[md->first_entry + t->place[i].record - 1] : NULL;
}

const struct md_stored *md_stored_find(const struct hearth_metadata *md, const char *name,
        size_t len, const int64_t *offset, uint32_t ndim)
{
    struct wanted w = { .stored = 1, .name = name, .len = len, .offset = offset, .ndim = ndim };
    const struct md_place *p;

    w.hash = place_hash(md, md_hash(md, name, len), offset, ndim);
    p = seek(md, &md->by_place, &w);
    return p->record ? &md->stored.at[md->first_stored + p->record - 1] : NULL;
}

/* ---- Building ----------------------------------------------------------------------------- */

static int table_init(struct md_table *t, uint32_t records, struct hearth_error *err)
{
    uint64_t places = 4;

    while (places * 3 / 4 < records)
        places *= 2;
    t->place = calloc(places, sizeof(*t->place));
    t->mask = places - 1;
    return t->place ? HEARTH_OK
                    : hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %" PRIu64 " names", places);
}

static int twice(const struct hearth_metadata *md, uint32_t name, struct hearth_error *err)
{
    struct hearth_text t = md_text(md, name);
    char say[HTH_KEY_TEXT];

    return hth_fail(err, HEARTH_ECORRUPT, 0, "byte %" PRIu32 ": %s comes twice in a dict", name,
            hth_key_text(t.data, t.len, say));
}

static int entries(struct hearth_metadata *md, struct hearth_error *err)
{
    for (uint32_t i = 0; i < md->entries; i++) {
        const struct md_entry *e = &md->entry.at[md->first_entry + i];
        struct hearth_text t = md_text(md, e->name);
        struct wanted w = { .hash = name_hash(md, e->hash), .name = t.data, .len = t.len };
        struct md_place *p = seek(md, &md->by_name, &w);

        if (p->record)
            return twice(md, e->name, err);
        *p = (struct md_place){ i + 1, (uint32_t)(w.hash >> 32) };
    }
    return HEARTH_OK;
}

static int place_insert(
        struct hearth_metadata *md, uint32_t i, uint64_t hash, struct hearth_error *err)
{
    const struct md_stored *s = &md->stored.at[md->first_stored + i];
    struct hearth_text t = md_text(md, s->name);
    struct wanted w = { .hash = hash, .stored = 1, .name = t.data, .len = t.len, .ndim = s->ndim };
    int64_t offset[HTH_DIMS_MAX];
    struct md_place *p;

    md_dims(md, s->offset, s->ndim, offset);
    w.offset = s->has_offset ? offset : NULL;
    p = seek(md, &md->by_place, &w);
    if (p->record)
        return twice(md, s->name, err);
    *p = (struct md_place){ i + 1, (uint32_t)(hash >> 32) };
    return HEARTH_OK;
}

/* The table is far larger than any cache: places are asked for before they are needed. */
static int places(struct hearth_metadata *md, struct hearth_error *err)
{
    enum { AHEAD = 16 };
    uint64_t hash[AHEAD];
    int rc;

    for (uint32_t i = 0; i < md->storeds; i += AHEAD) {
        uint32_t n = md->storeds - i < AHEAD ? md->storeds - i : AHEAD;

        for (uint32_t k = 0; k < n; k++) {
            hash[k] = stored_hash(md, &md->stored.at[md->first_stored + i + k]);
            __builtin_prefetch(&md->by_place.place[hash[k] & md->by_place.mask], 1);
        }
        for (uint32_t k = 0; k < n; k++)
            if ((rc = place_insert(md, i + k, hash[k], err)))
                return rc;
    }
    return HEARTH_OK;
}

/* Paths of names that are no entries are of no use to anybody. */
static int paths(struct hearth_metadata *md, struct hearth_error *err)
{
    for (uint32_t i = 0; i < md->paths; i++) {
        const struct md_path *path = &md->path.at[md->first_path + i];
        struct hearth_text t = md_text(md, path->name);
        struct wanted w = { .hash = name_hash(md, path->hash), .name = t.data, .len = t.len };
        const struct md_place *p = seek(md, &md->by_name, &w);
        struct md_entry *e;

        if (!p->record)
            continue;
        e = &md->entry.at[md->first_entry + p->record - 1];
        if (e->path)
            return twice(md, path->name, err);
        e->path = i + 1;
    }
    return HEARTH_OK;
}

static void unknowns(struct hearth_metadata *md)
{
    for (uint32_t i = 0; i < md->spoiled.count; i++) {
        struct hearth_text t = md_text(md, md->spoiled.at[i].name);
        struct wanted w = { .name = t.data, .len = t.len };
        const struct md_place *p;
        struct md_entry *e;

        w.hash = name_hash(md, md_hash(md, t.data, t.len));
        p = seek(md, &md->by_name, &w);
        if (!p->record)
            continue;
        e = &md->entry.at[md->first_entry + p->record - 1];
        md->info.chunks -= e->chunks;
        *e = (struct md_entry){
            .name = e->name, .hash = e->hash, .path = e->path, .unknown = md->spoiled.at[i].what
        };
    }
    for (uint32_t i = 0; i < md->entries; i++)
        md->info.unknown += md->entry.at[md->first_entry + i].unknown.name != 0;
}

int md_tables(struct hearth_metadata *md, struct hearth_error *err)
{
    int rc;

    if ((rc = table_init(&md->by_name, md->entries, err)) ||
            (rc = table_init(&md->by_place, md->storeds, err)) || (rc = entries(md, err)) ||
            (rc = places(md, err)) || (rc = paths(md, err)))
        return rc;
    unknowns(md);
    return HEARTH_OK;
}
