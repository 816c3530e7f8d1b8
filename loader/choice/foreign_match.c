/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Do the files have the items that a `.metadata` says: place, length and shape of each? A file with
 * other items is of another save of that step; with it a model would be loaded from two saves.
 *
 *   all places of the `.metadata` ─► in order of file and offset ─► against what the file's holder saw
 *
 * Where a file does not show where one item ends and the next begins, it is checked only that they
 * lie within its data and reach to its end. The same holds for all files of a `.metadata` with
 * entries of a later torch, since the places of their items are not known here.
 */
#include "choice_state.h"

#include "core/foreign/foreign.h"
#include "core/torch/header.h"
#include <hearth/metadata.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NO_CHUNK SIZE_MAX

struct item_place {
    uint64_t at, len;
    size_t entry, chunk; /* NO_CHUNK: a byte item */
    uint32_t file;
};

struct item_places {
    struct item_place *at; /* [count] */
    size_t count;
    struct hearth_metadata *md;
    const struct hth_manifest *files;
    int some; /* the .metadata has more items, in entries that this code does not understand */
    const char *last; /* path whose file is `file`: neighbours mostly have the same text */
    uint32_t file;
};

/* ---- All places
 * ----------------------------------------------------------------------------------- */

/* The index of the file, or UINT32_MAX. foreign_names.c has checked before that each file
 * exists. */
static uint32_t place_file(struct item_places *p, struct hearth_text path)
{
    char name[HTH_NAME_MAX + 1];
    const struct hth_object *o;

    if (path.data == p->last)
        return p->file;
    snprintf(name, sizeof(name), "%.*s", (int)path.len, path.data);
    o = foreign_file_find(p->files, name);
    p->last = path.data;
    p->file = o ? (uint32_t)(o - p->files->object) : UINT32_MAX;
    return p->file;
}

static void place_add(struct item_places *p, const struct hearth_metadata_entry *e, size_t chunk,
        const int64_t *offset, uint32_t ndim)
{
    struct hearth_metadata_stored s = { .struct_size = sizeof(s) };
    uint32_t file;

    if (hearth_metadata_stored_find(p->md, e->name.data, e->name.len, offset, ndim, &s, NULL))
        return;
    file = place_file(p, s.path);
    if (s.len && file != UINT32_MAX)
        p->at[p->count++] = (struct item_place){ s.at, s.len, e->index, chunk, file };
}

static void places_of(struct item_places *p, const struct hearth_metadata_entry *e)
{
    struct hearth_metadata_chunk c = { .struct_size = sizeof(c) };
    int64_t offset[HTH_DIMS_MAX];

    if (e->kind == HEARTH_METADATA_BYTES)
        place_add(p, e, NO_CHUNK, NULL, 0);
    for (size_t i = 0; e->kind == HEARTH_METADATA_TENSOR && i < e->chunks; i++) {
        if (hearth_metadata_chunk_at(p->md, e->index, i, &c, NULL))
            return;
        memcpy(offset, c.offset,
                c.ndim * sizeof(offset[0])); /* c.offset is valid until the next call */
        place_add(p, e, i, offset, c.ndim);
    }
}

static int place_order(const void *a, const void *b)
{
    const struct item_place *x = a;
    const struct item_place *y = b;

    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->len < y->len ? -1 : x->len > y->len;
}

static int places_gather(struct item_places *p)
{
    struct hearth_metadata_head head = { .struct_size = sizeof(head) };
    struct hearth_metadata_entry e = { .struct_size = sizeof(e) };

    (void)hearth_metadata_info(p->md, &head, NULL);
    p->some = head.unknown > 0;
    p->at = calloc(head.chunks + head.entries + 1, sizeof(*p->at));
    if (!p->at)
        return HEARTH_ENOMEM;
    for (size_t i = 0; i < head.entries && !hearth_metadata_entry_at(p->md, i, &e, NULL); i++)
        places_of(p, &e);
    if (p->count)
        qsort(p->at, p->count, sizeof(*p->at), place_order);
    return HEARTH_OK;
}

/* ---- One file
 * -------------------------------------------------------------------------------------- */

static void place_digest_add(
        struct item_places *p, struct hth_digesting *d, const struct item_place *i, int shaped)
{
    struct hearth_metadata_chunk c = { .struct_size = sizeof(c) };

    if (shaped && i->chunk != NO_CHUNK &&
            !hearth_metadata_chunk_at(p->md, i->entry, i->chunk, &c, NULL))
        hth_foreign_item(d, i->at, i->len, c.ndim ? c.shape : (const int64_t[1]){ 0 }, c.ndim);
    else
        hth_foreign_item(d, i->at, i->len, NULL, 0);
}

/* `look`: the items that the file's holder has found in it; [first, next): the places in this file.
 * Two names for one place are one item. */
static int file_matches(
        struct item_places *p, size_t first, size_t next, const struct hth_foreign_look *look)
{
    const struct item_place *last = NULL;
    unsigned char digest[HTH_DIGEST];
    struct hth_digesting d;
    uint64_t items = 0, end = 0;

    hth_digest_begin(&d);
    for (size_t k = first; k < next; k++) {
        const struct item_place *i = &p->at[k];

        if (last && last->at == i->at && last->len == i->len)
            continue;
        last = i;
        if (i->at > look->data_len || i->len > look->data_len - i->at)
            return 0;
        end = i->at + i->len > end ? i->at + i->len : end;
        if (items++ < look->items)
            place_digest_add(p, &d, i, look->flags & HTH_FOREIGN_SHAPED);
        else if (!p->some && look->flags & HTH_FOREIGN_TENSORS && i->chunk != NO_CHUNK)
            return 0;
    }
    hth_digest_end(&d, digest);
    if (p->some)
        return 1;
    return items >= look->items && !memcmp(digest, look->digest, HTH_DIGEST) &&
           (!(look->flags & HTH_FOREIGN_BLOCK) || end == look->data_len);
}

int names_match(struct hearth_metadata *md, const struct hth_manifest *files,
        const struct hth_foreign_look *look, uint32_t *out_file)
{
    struct item_places p = { .md = md, .files = files };
    int rc = places_gather(&p);
    size_t next;

    *out_file = UINT32_MAX;
    for (size_t i = 0; !rc && *out_file == UINT32_MAX && i < p.count; i = next) {
        for (next = i + 1; next < p.count && p.at[next].file == p.at[i].file;)
            next++;
        if (!file_matches(&p, i, next, &look[p.at[i].file]))
            *out_file = p.at[i].file;
    }
    free(p.at);
    return rc;
}
