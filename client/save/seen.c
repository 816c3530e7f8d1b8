/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pieces that a rank's save has already: places of table records, and a hash set of them. They
 * are needed because a rank that loads a key takes the first piece that covers a box, and never any
 * other of the same box.
 *
 * Records are entered after they were written and before anything is copied. Those of a call that
 * is refused are the last ones, and are cut off again.
 */
#include "seen.h"

#include "client/base/text.h"
#include "core/base/grow.h"
#include "core/base/hash.h"
#include "core/base/set.h"
#include <stdlib.h>
#include <string.h>

struct hth_seen_at {
    uint64_t at;     /* of the record in its object's items part */
    uint32_t object; /* its number + 1 */
};

struct hth_seen {
    struct hth_set set;     /* numbers of: */
    struct hth_seen_at *at; /* [count] where their records are, of [room] */
    size_t room, count;
    uint32_t object; /* whose records were looked at last, its number + 1 ... */
    uint64_t pos;    /* ... and how far */
};

static int seen_is_empty(const struct hth_item *item)
{
    for (uint32_t i = 0; item->kind == HTH_ITEM_TENSOR && i < item->ndim; i++)
        if (!item->shape[i])
            return 1;
    return 0;
}

static uint64_t seen_box_bytes(const struct hth_item *item)
{
    return item->kind == HTH_ITEM_TENSOR ? sizeof(int64_t) * (uint64_t)item->ndim : 0;
}

static uint32_t seen_hash(const struct hth_item *item)
{
    uint64_t h = hth_hash(item->key, item->key_len, 0) + item->kind;

    for (uint32_t i = 0; i < seen_box_bytes(item) / sizeof(int64_t); i++) {
        h = (h ^ (uint64_t)item->global_offset[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h = (h ^ h >> 29 ^ (uint64_t)item->shape[i]) * UINT64_C(0xbf58476d1ce4e5b9);
    }
    return (uint32_t)(h ^ h >> 32);
}

static int seen_is_same(const struct hth_item *a, const struct hth_item *b)
{
    uint64_t box = seen_box_bytes(a);

    return a->kind == b->kind && a->key_len == b->key_len && box == seen_box_bytes(b) &&
           !memcmp(a->key, b->key, a->key_len) &&
           (!box || (!memcmp(a->global_offset, b->global_offset, box) &&
                            !memcmp(a->shape, b->shape, box)));
}

/* The items part of an object: at hand while it is open, then where its table will be. */
static struct hth_table seen_records(const struct hearth_save *s, uint32_t object)
{
    const struct hth_written *o = &s->object[object];

    return (struct hth_table){ .data_len = o->data_len,
        .items = o->items,
        .items_len = o->items_len,
        .items_at = object + 1 == s->objects
                            ? s->scratch.items
                            : o->base + HTH_ALIGN(HTH_BLOCK + o->data_len) + HTH_TABLE_HEAD };
}

/* Room for so many more. */
static int seen_grow(struct hth_seen *seen, size_t more)
{
    struct hth_seen_at *at;

    at = hth_grow(seen->at, &seen->room, seen->count + more, 64, sizeof(*at));
    if (!at)
        return HEARTH_ENOMEM;
    seen->at = at;
    return hth_set_room(&seen->set, more);
}

/* Records that are entered together: a large set is in no cache, so its places are fetched for all
 * of them first. */
#define TOGETHER 32

struct seen_next {
    uint64_t at, end;
    uint32_t hash;
    int is_empty;
};

static int seen_has(
        const struct hearth_save *s, const struct hth_table *records, const struct seen_next *next)
{
    const struct hth_seen *seen = s->scratch.seen;
    size_t probe = 0;
    uint32_t i;

    while (hth_set_next(&seen->set, next->hash, &probe, &i)) {
        const struct hth_seen_at *at = &seen->at[i];
        struct hth_table others = seen_records(s, at->object - 1);
        uint64_t pos = next->at, other_pos = at->at;
        struct hth_item item, other;

        if (!hth_item_next(records, &pos, &item) && !hth_item_next(&others, &other_pos, &other) &&
                other_pos > at->at && seen_is_same(&item, &other))
            return 1;
    }
    return 0;
}

/* The next records, at most TOGETHER. Returns how many; *out_bad: the one behind them is none. */
static int seen_look(const struct hth_seen *seen, const struct hth_table *records,
        struct seen_next next[TOGETHER], int *out_bad)
{
    struct hth_item item;
    uint64_t pos = seen->pos, at;
    int count = 0;

    *out_bad = 0;
    while (count < TOGETHER && (at = pos) < records->items_len) {
        *out_bad = hth_item_next(records, &pos, &item) || pos == at;
        if (*out_bad)
            return count;
        next[count++] = (struct seen_next){ at, pos, seen_hash(&item), seen_is_empty(&item) };
        hth_set_ahead(&seen->set, next[count - 1].hash);
    }
    return count;
}

static int seen_take_record(struct hearth_save *s, const struct hth_table *records,
        const struct seen_next *next, struct hearth_error *err)
{
    struct hth_seen *seen = s->scratch.seen;
    uint64_t pos = next->at;
    struct hth_item item;
    char key[HTH_KEY_TEXT];

    if (!next->is_empty && seen_has(s, records, next)) {
        hth_item_next(records, &pos, &item);
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s %s is in this rank's save already%s: one of the two would never be read",
                item.kind == HTH_ITEM_TENSOR ? "piece" : "byte string",
                hth_key_text(item.key, item.key_len, key),
                item.kind == HTH_ITEM_TENSOR ? ", with the same box" : "");
    }
    seen->pos = next->end;
    if (next->is_empty)
        return HEARTH_OK;
    hth_set_add(&seen->set, next->hash, (uint32_t)seen->count);
    seen->at[seen->count++] = (struct hth_seen_at){ next->at, s->objects };
    return HEARTH_OK;
}

/* Forget what the open object has from record `at` on. */
static void seen_back(struct hearth_save *s, uint64_t at)
{
    struct hth_seen *seen = s->scratch.seen;

    while (seen->count && seen->at[seen->count - 1].object == s->objects &&
            seen->at[seen->count - 1].at >= at)
        seen->count--;
    hth_set_cut(&seen->set, (uint32_t)seen->count);
    seen->pos = seen->pos < at ? seen->pos : at;
}

/* Records of the open object that are not noted yet, at most: of a save that was taken all. */
static uint64_t seen_new_records(const struct hearth_save *s, const struct hth_written *before)
{
    const struct hth_written *o = &s->object[s->objects - 1];
    uint64_t fit = (o->items_len - s->scratch.seen->pos) / hth_item_bytes(0, 1);
    uint64_t more = o->items - (s->scratch.seen->pos ? before->items : 0);

    return more < fit ? more : fit;
}

int hth_seen_take(struct hearth_save *s, const struct hth_written *before, struct hearth_error *err)
{
    struct hth_seen *seen;
    struct hth_table records = seen_records(s, s->objects - 1);
    struct seen_next next[TOGETHER];
    int rc = HEARTH_OK, count, bad;

    if (s->h->opts.off)
        return HEARTH_OK;
    if (!s->scratch.seen && !(s->scratch.seen = calloc(1, sizeof(*s->scratch.seen))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of %u items", records.items);
    seen = s->scratch.seen;
    if (seen->object != s->objects) {
        seen->object = s->objects;
        seen->pos = 0;
    }
    if (seen_grow(seen, seen_new_records(s, before)))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of %u items", records.items);
    do {
        count = seen_look(seen, &records, next, &bad);
        for (int i = 0; i < count && !rc; i++)
            rc = seen_take_record(s, &records, &next[i], err);
        if (!rc && bad)
            rc = hth_fail(
                    err, HEARTH_EPROTO, 0, "the save that was taken has records that are none");
    } while (!rc && count == TOGETHER);
    if (rc)
        seen_back(s, before->items_len);
    return rc;
}

void hth_seen_clear(struct hth_seen *seen)
{
    if (!seen)
        return;
    hth_set_clear(&seen->set);
    seen->count = 0;
    seen->object = 0;
    seen->pos = 0;
}

void hth_seen_close(struct hth_seen *seen)
{
    if (!seen)
        return;
    hth_set_fini(&seen->set);
    free(seen->at);
    free(seen);
}
