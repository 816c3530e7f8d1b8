/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Thousands of reads in one call. Everything is looked up and checked before the first byte is
 * written; then what lies here is noted as one list of copies for all threads, and what lies
 * elsewhere is read in the order of its bytes, so that each chunk travels once:
 *
 *     wishes of one remote object   |a| |b|   |c|        | d |     |   e   |
 *     runs, brought ahead           [   1        ]       [        2        ]
 *
 * While run k is copied, the next ones travel: 64 MiB of an object, or 32 runs. New ones are asked
 * for once half of these are read, so that the engine receives many requests together. Of an object
 * whose holder sends no checksums of slices one run travels, since it moves a chunk for each.
 */
#include "box.h"

#include "client/base/args.h"
#include "client/base/text.h"
#include "core/format/manifest.h"
#include "foreign.h"
#include "index.h"
#include "part.h"
#include "window.h"
#include <stdlib.h>
#include <string.h>

#define RUN_MAX (UINT64_C(64) << 20)
#define GAP_MAX (HTH_CHUNK / 64) /* between two wishes of a run: brought for nothing */

struct wish { /* a box of an item, or (entry == NULL) a range of an object */
    struct hth_source *source;
    const struct hth_entry *entry;
    uint64_t off, len;   /* the bytes of the data section it lies in */
    size_t index;        /* in the caller's array */
    struct hth_gpu *gpu; /* of its dst; NULL: host memory */
    int dense;           /* they are worth bringing as one */
};

struct wishes {
    struct hearth_checkpoint *c;
    const struct hearth_box *box;     /* the caller's array of one, */
    const struct hearth_range *range; /* or of the other */
    struct wish *wish;
    size_t count, near; /* what lies here comes first */
    struct hth_to to;
    size_t ahead; /* of objects before it the first run was asked for, or had its chance */
    size_t deep;  /* of the object that is read, each run before it likewise */
};

/* ---- looking up and checking ---------------------------------------------------------------- */

static int wish_wrong_item(
        const struct hth_entry *e, const struct hearth_box *b, struct hearth_error *err)
{
    const char *have = hearth_dtype_name(e->item.dtype);
    const char *want = hearth_dtype_name((enum hearth_dtype)b->dtype);
    char key[HTH_KEY_TEXT];

    return hth_fail(err, HEARTH_EINVAL, 0,
            "key %s is %s with %u dimensions in object '%.64s' and %s with %u here: they must "
            "match",
            hth_key_text(e->item.key, e->item.key_len, key), have ? have : "a byte string",
            e->item.ndim, b->object, want ? want : "of no dtype", b->ndim);
}

static int boxes_is_empty(const struct hearth_box *b)
{
    for (uint32_t i = 0; i < b->ndim; i++)
        if (!b->shape[i])
            return 1;
    return 0;
}

static int boxes_at(const struct hearth_box **out, struct hearth_box *mine,
        const struct hearth_box *boxes, size_t i, struct hearth_error *err)
{
    const void *at;
    int rc = hth_array_at(&at, mine, sizeof(*mine), boxes, i, "hearth_box", err);

    if (!rc)
        *out = at;
    return rc;
}

static int wish_where(
        struct wishes *w, const struct hearth_box *b, struct wish *x, struct hearth_error *err)
{
    const struct hth_item *item = &x->entry->item;
    struct hth_memory m = { .at = b->dst,
        .memory = b->memory,
        .elem = hearth_dtype_bytes(item->dtype),
        .ndim = b->ndim,
        .shape = b->shape,
        .strides = b->dst_strides,
        .key = item->key,
        .key_len = item->key_len };

    return boxes_is_empty(b) ? HEARTH_OK : hth_to_where(&w->to, &m, &x->gpu, err);
}

/* need_dst: 0 where nothing is written yet. */
static int wish_look_up_box(
        struct wishes *w, size_t i, struct wish *out, int need_dst, struct hearth_error *err)
{
    const struct hearth_box *b;
    const struct hth_entry *e;
    struct hearth_box mine;
    struct hth_box box;
    int rc;

    if ((rc = boxes_at(&b, &mine, w->box, i, err)))
        return rc;
    if (!b->object || (b->ndim && (!b->offset || !b->shape)))
        return hth_fail(
                err, HEARTH_EINVAL, 0, "box %zu of the array: object, offset or shape is NULL", i);
    if (b->reserved || (b->memory != HEARTH_HOST && b->memory != HEARTH_CUDA))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "box %zu of the array: memory is %u, and reserved %u, which must be 0", i,
                b->memory, b->reserved);
    if ((rc = hth_entry_in(w->c, b->object, b->item, &e, err)))
        return rc;
    if (e->item.kind != HTH_ITEM_TENSOR || e->item.dtype != (enum hearth_dtype)b->dtype ||
            e->item.ndim != b->ndim)
        return wish_wrong_item(e, b, err);
    if ((rc = hth_box_check(&e->item, b->offset, b->shape, &box, err)))
        return hth_while(err, rc, "object '%.64s'", b->object);
    if (need_dst && !b->dst && !boxes_is_empty(b))
        return hth_fail(err, HEARTH_EINVAL, 0, "box %zu of the array: dst is NULL", i);
    *out = (struct wish){ .source = &w->c->source[e->source], .entry = e, .index = i };
    out->dense = hth_part_cover(e, &box, &out->off, &out->len);
    return need_dst ? wish_where(w, b, out, err) : HEARTH_OK;
}

static int ranges_at(const struct hearth_range **out, struct hearth_range *mine,
        const struct hearth_range *ranges, size_t i, struct hearth_error *err)
{
    const void *at;
    int rc = hth_array_at(&at, mine, sizeof(*mine), ranges, i, "hearth_range", err);

    if (!rc)
        *out = at;
    return rc;
}

static int wish_look_up_range(
        struct wishes *w, size_t i, struct wish *out, struct hearth_error *err)
{
    const struct hearth_range *r;
    struct hearth_range mine;
    char name[HTH_OBJECT_TEXT];
    struct hth_source *s;
    int rc;

    if ((rc = ranges_at(&r, &mine, w->range, i, err)))
        return rc;
    if (!r->object || (r->len && !r->dst))
        return hth_fail(err, HEARTH_EINVAL, 0, "range %zu of the array: object or dst is NULL", i);
    if ((rc = hth_source_named(w->c, r->object, &s, err)))
        return rc;
    if (r->offset > s->data_len || r->len > s->data_len - r->offset)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s has %" PRIu64 " bytes of data, and not %" PRIu64 " from %" PRIu64 " on",
                hth_object_text(s->object, name), s->data_len, r->len, r->offset);
    *out = (struct wish){ .source = s, .off = r->offset, .len = r->len, .index = i, .dense = 1 };
    return HEARTH_OK;
}

static int wish_cmp(const void *a, const void *b)
{
    const struct wish *x = a, *y = b;

    if (x->source->local != y->source->local)
        return y->source->local - x->source->local;
    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    if (x->off != y->off)
        return x->off < y->off ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* All of them checked, what lies here first, the rest by object and place. */
static int wishes_look_up(struct wishes *w, size_t count, int need_dst, struct hearth_error *err)
{
    int rc = HEARTH_OK;

    w->wish = calloc(count, sizeof(*w->wish));
    if (!w->wish)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of %zu reads", count);
    for (size_t i = 0; i < count && !rc; i++) {
        rc = w->box ? wish_look_up_box(w, i, &w->wish[i], need_dst, err)
                    : wish_look_up_range(w, i, &w->wish[i], err);
        w->near += !rc && w->wish[i].source->local;
    }
    w->count = count;
    if (!rc && w->near < count)
        qsort(w->wish, count, sizeof(*w->wish), wish_cmp);
    return rc;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* The wishes from `first` on that are brought as one. Returns the first that is none of them. */
static size_t wishes_run(const struct wishes *w, size_t first, uint64_t *out_off, uint64_t *out_len)
{
    const struct wish *a = &w->wish[first];
    uint64_t end = a->off + a->len;
    size_t i = first + 1;

    for (; i < w->count && a->dense; i++) {
        const struct wish *b = &w->wish[i];
        uint64_t more = b->off + b->len > end ? b->off + b->len : end;

        if (b->source != a->source || !b->dense ||
                b->off > end + (a->source->table.strong ? HTH_CHUNK : GAP_MAX) ||
                more - a->off > RUN_MAX)
            break;
        end = more;
    }
    *out_off = a->off;
    *out_len = a->dense ? end - a->off : 0;
    return i;
}

/* Ask for the run that begins at `first`, if it is one. Returns the first wish behind it. */
static size_t wishes_run_ahead(const struct wishes *w, size_t first)
{
    uint64_t off, len;
    size_t end = wishes_run(w, first, &off, &len);

    if (len)
        hth_source_ahead(w->c, w->wish[first].source, off, len);
    return end;
}

/* The first run of each object that is elsewhere, from wish `from` on, as long as there is room for
 * more: the rest has its turn when some of these were read. */
static void wishes_ahead(struct wishes *w, size_t from)
{
    if (w->ahead < from)
        w->ahead = from;
    for (; w->ahead < w->count && hth_ahead_room(w->c); w->ahead++)
        if ((w->ahead == w->near || w->wish[w->ahead].source != w->wish[w->ahead - 1].source) &&
                !hth_source_has_ahead(w->wish[w->ahead].source))
            wishes_run_ahead(w, w->ahead);
}

/* A prefetch of what lies behind it would end with its first part. */
static int wish_is_read_in_parts(const struct wish *x)
{
    return x->len && !x->dense;
}

/* Runs of the object of wish `from`, from there on, once half of those on their way are read. */
static void wishes_deep(struct wishes *w, size_t from)
{
    struct hth_source *source = from < w->count ? w->wish[from].source : NULL;

    if (w->deep < from)
        w->deep = from;
    if (!source || !hth_source_lacks(source))
        return;
    while (w->deep < w->count && w->wish[w->deep].source == source &&
            !wish_is_read_in_parts(&w->wish[w->deep]) && hth_source_room(w->c, source))
        w->deep = wishes_run_ahead(w, w->deep);
}

static int wish_read_range(
        struct wishes *w, const struct wish *x, struct hth_copies *list, struct hearth_error *err)
{
    const struct hearth_range *r;
    struct hearth_range mine;
    const unsigned char *src;
    int rc = ranges_at(&r, &mine, w->range, x->index, err);

    if (rc || !r->len)
        return rc;
    if (!list)
        return hth_read_data(w->c, x->source, r->offset, r->dst, r->len, err);
    if ((rc = hth_source_at(w->c, x->source, r->offset, r->len, &src, err)))
        return rc;
    if (hth_copies_add(list, r->dst, src, r->len, NULL))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
    return HEARTH_OK;
}

static int wish_read(
        struct wishes *w, const struct wish *x, struct hth_copies *list, struct hearth_error *err)
{
    struct hth_target target = { .list = list, .to = &w->to, .gpu = x->gpu };
    const struct hearth_box *b;
    struct hearth_box mine;
    struct hth_box box;
    int rc;

    if (!x->entry)
        return wish_read_range(w, x, list, err);
    if ((rc = boxes_at(&b, &mine, w->box, x->index, err)))
        return rc;
    if (b->ndim) {
        memcpy(box.offset, b->offset, b->ndim * sizeof(*b->offset));
        memcpy(box.shape, b->shape, b->ndim * sizeof(*b->shape));
    }
    target.dst = b->dst;
    target.strides = b->dst_strides;
    return hth_read_part(w->c, x->entry, &box, &target, err);
}

static int wishes_read_near(struct wishes *w, struct hearth_error *err)
{
    struct hth_copies list = { 0 };
    int rc = HEARTH_OK;

    for (size_t i = 0; i < w->near && !rc; i++)
        rc = wish_read(w, &w->wish[i], &list, err);
    if (!rc)
        rc = hth_to_run(&w->to, err);
    if (!rc)
        hth_crew_run(w->c->h->crew, &list);
    hth_copies_fini(&list);
    return rc;
}

static int wishes_read_far(struct wishes *w, struct hearth_error *err)
{
    size_t next = w->near;
    int rc = HEARTH_OK;

    for (size_t i = w->near; i < w->count && !rc; i++) {
        uint64_t off, len;

        rc = wish_read(w, &w->wish[i], NULL, err);
        if (rc || i < next)
            continue;
        next = wishes_run(w, i, &off, &len); /* its window is here: those after it may come */
        if (next < w->count && w->wish[next].source == w->wish[i].source)
            wishes_deep(w, next);
        wishes_ahead(w, next);
    }
    return rc;
}

static int wishes_read(struct wishes *w, size_t count, struct hearth_error *err)
{
    int rc;

    hth_to_begin(&w->to, w->c);
    if (!(rc = wishes_look_up(w, count, 1, err))) {
        wishes_ahead(w, w->near);
        wishes_deep(w, w->near);
        rc = wishes_read_near(w, err);
        if (!rc)
            rc = wishes_read_far(w, err);
        rc = hth_to_end(&w->to, rc, err);
        for (size_t i = w->near; rc && i < w->count; i++)
            hth_source_forget_ahead(w->c, w->wish[i].source);
    }
    if (!rc)
        rc = hth_sources_same(w->c, err);
    free(w->wish);
    return rc ? hth_while(err, rc, "read from step %" PRIu64, w->c->save.step) : HEARTH_OK;
}

static int boxes_enter(const struct hearth_checkpoint *c, const void *array, size_t count,
        struct hearth_error *err)
{
    int rc = hth_checkpoint_enter(c, err);

    if (!rc && count && !array)
        rc = hth_fail(err, HEARTH_EINVAL, 0, "the array of %zu reads is NULL", count);
    return rc;
}

int hearth_read_boxes(struct hearth_checkpoint *ckpt, const struct hearth_box *boxes, size_t count,
        struct hearth_error *err)
{
    struct wishes w = { .c = ckpt, .box = boxes };
    int rc = boxes_enter(ckpt, boxes, count, err);

    return rc || !count ? rc : wishes_read(&w, count, err);
}

int hearth_read_ranges(struct hearth_checkpoint *ckpt, const struct hearth_range *ranges,
        size_t count, struct hearth_error *err)
{
    struct wishes w = { .c = ckpt, .range = ranges };
    int rc = boxes_enter(ckpt, ranges, count, err);

    return rc || !count ? rc : wishes_read(&w, count, err);
}

int hearth_prefetch_boxes(struct hearth_checkpoint *ckpt, const struct hearth_box *boxes,
        size_t count, struct hearth_error *err)
{
    struct wishes w = { .c = ckpt, .box = boxes };
    int rc = boxes_enter(ckpt, boxes, count, err);

    if (rc || !count)
        return rc;
    if (!(rc = wishes_look_up(&w, count, 0, err)))
        wishes_ahead(&w, w.near);
    free(w.wish);
    return rc;
}
