/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The items of a checkpoint by key: entries in order of the objects, this rank's first, chained
 * by hash. The tables they point into stay until the checkpoint is closed.
 */
#include "client.h"

#include <hearth/internal/core/manifest.h>
#include <stdlib.h>
#include <string.h>

/* FNV-1a, 64 bit (Fowler, Noll, Vo). */
static uint64_t hash_of(const void *key, size_t len)
{
    const unsigned char *k = key;
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < len; i++)
        h = (h ^ k[i]) * UINT64_C(0x100000001b3);
    return h ^ h >> 32;
}

static int grow(struct hearth_checkpoint *c, size_t more)
{
    size_t room = c->room ? 2 * c->room : 256;
    struct hth_entry *entry;

    if (c->entries + more <= c->room)
        return HEARTH_OK;
    room = room < c->entries + more ? c->entries + more : room;
    if (room > UINT32_MAX / 2)
        return HEARTH_ENOMEM;
    entry = realloc(c->entry, room * sizeof(*entry));
    if (!entry)
        return HEARTH_ENOMEM;
    c->entry = entry;
    c->room = room;
    return HEARTH_OK;
}

static int chain(struct hearth_checkpoint *c)
{
    size_t buckets = 64;
    uint32_t *bucket;

    while (buckets < c->entries)
        buckets *= 2;
    bucket = calloc(buckets, sizeof(*bucket));
    if (!bucket)
        return HEARTH_ENOMEM;
    for (size_t i = c->entries; i-- > 0;) { /* backwards: chains are in order of entries */
        uint32_t *at = &bucket[c->entry[i].hash & (buckets - 1)];

        c->entry[i].next = *at;
        *at = (uint32_t)i + 1;
    }
    free(c->bucket);
    c->bucket = bucket;
    c->buckets = buckets;
    return HEARTH_OK;
}

static int index_one(struct hearth_checkpoint *c, uint32_t index, struct hearth_error *err)
{
    struct hth_source *s = &c->source[index];
    uint64_t pos = 0;
    int rc;

    if ((rc = hth_source_open(c, s, err)))
        return rc;
    if (grow(c, s->table.items))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an index of the items");
    for (uint32_t i = 0; i < s->table.items; i++) {
        struct hth_entry *e = &c->entry[c->entries];

        if (hth_item_next(&s->table, &pos, &e->item))
            break;
        e->hash = hash_of(e->item.key, e->item.key_len);
        e->source = index;
        c->entries++;
    }
    return HEARTH_OK;
}

int hth_index(struct hearth_checkpoint *c, int all, struct hearth_error *err)
{
    uint32_t want = all ? c->sources : c->own;
    int rc = HEARTH_OK;

    if (c->indexed >= want && c->bucket)
        return HEARTH_OK;
    for (; c->indexed < want && !rc; c->indexed += !rc) {
        size_t before = c->entries;

        if ((rc = index_one(c, c->indexed, err)))
            c->entries = before;
        else if (c->indexed < c->own)
            c->own_entries = c->entries;
    }
    if (chain(c))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an index of the items");
    return rc;
}

const struct hth_entry *hth_entry_find(
        const struct hearth_checkpoint *c, const void *key, size_t len, uint32_t *pos)
{
    uint64_t hash = hash_of(key, len);
    uint32_t at = *pos ? c->entry[*pos - 1].next : c->bucket[hash & (c->buckets - 1)];

    for (; at; at = c->entry[at - 1].next) {
        const struct hth_entry *e = &c->entry[at - 1];

        if (e->hash == hash && e->item.key_len == len && memcmp(e->item.key, key, len) == 0) {
            *pos = at;
            return e;
        }
    }
    return NULL;
}
