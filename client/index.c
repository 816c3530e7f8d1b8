/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The items of a checkpoint. Each object lists its own, in order of offset, once it is opened:
 *
 *     by name and offset   sources sorted by name, then halving the object's list
 *     by key               chained by hash, over as many objects as were asked for
 *
 * The tables that entries point into stay until the checkpoint is closed.
 */
#include "client.h"

#include "core/base/hash.h"
#include "core/format/manifest.h"
#include <stdlib.h>
#include <string.h>

#define BLOCK 256u /* objects whose tables are brought before the first of them is listed */

static int list(struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err)
{
    uint64_t pos = 0;
    int rc;

    if (s->entry)
        return HEARTH_OK;
    if ((rc = hth_source_open(c, s, err)))
        return rc;
    s->entry = malloc(((size_t)s->table.items + 1) * sizeof(*s->entry));
    if (!s->entry)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an index of the items");
    for (uint32_t i = 0; i < s->table.items; i++) {
        struct hth_entry *e = &s->entry[i];

        *e = (struct hth_entry){ .source = (uint32_t)(s - c->source) };
        if (hth_item_next(&s->table, &pos, &e->item)) {
            s->table.items = i;
            break;
        }
        e->hash = hth_hash(e->item.key, e->item.key_len, 0);
    }
    return HEARTH_OK;
}

/* ---- by name and offset --------------------------------------------------------------------- */

static int name_cmp(const void *a, const void *b, void *arg)
{
    const struct hth_source *source = arg;

    return strcmp(
            source[*(const uint32_t *)a].object->name, source[*(const uint32_t *)b].object->name);
}

static int sort_names(struct hearth_checkpoint *c)
{
    uint32_t *by_name;

    if (c->by_name)
        return HEARTH_OK;
    by_name = malloc(((size_t)c->sources + 1) * sizeof(*by_name));
    if (!by_name)
        return HEARTH_ENOMEM;
    for (uint32_t i = 0; i < c->sources; i++)
        by_name[i] = i;
    if (c->sources)
        qsort_r(by_name, c->sources, sizeof(*by_name), name_cmp, c->source);
    c->by_name = by_name;
    return HEARTH_OK;
}

int hth_source_named(struct hearth_checkpoint *c, const char *name, struct hth_source **out,
        struct hearth_error *err)
{
    uint32_t low = 0, high = c->sources;

    if (sort_names(c))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an index of the objects");
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        struct hth_source *s = &c->source[c->by_name[mid]];
        int cmp = strcmp(s->object->name, name);

        if (cmp == 0) {
            int rc = hth_source_open(c, s, err);

            if (!rc)
                *out = s;
            return rc;
        }
        if (cmp < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return hth_fail(err, HEARTH_ENOENT, 0, "the checkpoint has no object '%.255s'", name);
}

int hth_entry_in(struct hearth_checkpoint *c, const char *object, uint64_t offset,
        const struct hth_entry **out, struct hearth_error *err)
{
    char name[HTH_OBJECT_TEXT];
    struct hth_source *s;
    size_t low = 0, high;
    int rc;

    if ((rc = hth_source_named(c, object, &s, err)) || (rc = list(c, s, err)))
        return rc;
    high = s->table.items;
    while (low < high) { /* the first that does not begin before it, and has bytes if one has */
        size_t mid = low + (high - low) / 2;
        const struct hth_item *i = &s->entry[mid].item;

        if (i->offset < offset || (i->offset == offset && !i->length))
            low = mid + 1;
        else
            high = mid;
    }
    if (low < s->table.items && s->entry[low].item.offset == offset)
        *out = &s->entry[low];
    else if (low && s->entry[low - 1].item.offset == offset)
        *out = &s->entry[low - 1];
    else
        return hth_fail(err, HEARTH_ENOENT, 0,
                "%s has no item that begins at byte %" PRIu64 " of its data",
                hth_object_text(s->object, name), offset);
    return HEARTH_OK;
}

/* ---- by key --------------------------------------------------------------------------------- */

static int chain(struct hearth_checkpoint *c)
{
    struct hth_entry **bucket;
    size_t buckets = 64;

    while (buckets < c->entries)
        buckets *= 2;
    bucket = calloc(buckets, sizeof(struct hth_entry *));
    if (!bucket)
        return HEARTH_ENOMEM;
    for (uint32_t i = c->indexed; i-- > 0;) /* backwards: chains are in order of entries */
        for (uint32_t k = c->source[i].table.items; k-- > 0;) {
            struct hth_entry *e = &c->source[i].entry[k];
            struct hth_entry **at = &bucket[e->hash & (buckets - 1)];

            e->next = *at;
            *at = e;
        }
    free(c->bucket);
    c->bucket = bucket;
    c->buckets = buckets;
    return HEARTH_OK;
}

int hth_index(struct hearth_checkpoint *c, int all, struct hearth_error *err)
{
    uint32_t want = all ? c->sources : c->own;
    int rc = HEARTH_OK;

    if (c->indexed >= want && c->bucket)
        return HEARTH_OK;
    for (uint32_t ahead = c->indexed; c->indexed < want && !rc;) {
        struct hth_source *s = &c->source[c->indexed];

        if (c->indexed == ahead) {
            ahead = want - ahead > BLOCK ? ahead + BLOCK : want;
            rc = hth_tables(c, c->indexed, ahead, err);
        }
        if (rc || (rc = list(c, s, err)))
            break;
        s->first = c->entries;
        c->entries += s->table.items;
        if (++c->indexed <= c->own)
            c->own_entries = c->entries;
    }
    if (chain(c))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an index of the items");
    return rc;
}

const struct hth_entry *hth_entry_find(const struct hearth_checkpoint *c, const void *key,
        size_t len, const struct hth_entry *last)
{
    uint64_t hash = hth_hash(key, len, 0);
    const struct hth_entry *e = last ? last->next : c->bucket[hash & (c->buckets - 1)];

    while (e && (e->hash != hash || e->item.key_len != len || memcmp(e->item.key, key, len) != 0))
        e = e->next;
    return e;
}

const struct hth_entry *hth_entry_at(const struct hearth_checkpoint *c, size_t index)
{
    uint32_t low = 0, high = c->indexed;

    while (high - low > 1) { /* the last source that begins at or before it */
        uint32_t mid = low + (high - low) / 2;

        if (c->source[mid].first <= index)
            low = mid;
        else
            high = mid;
    }
    return &c->source[low].entry[index - c->source[low].first];
}

void hth_index_fini(struct hearth_checkpoint *c)
{
    for (uint32_t i = 0; i < c->sources; i++)
        free(c->source[i].entry);
    free(c->by_name);
    free(c->bucket);
}
