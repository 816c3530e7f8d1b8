/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Items into the open object: copied now, staged, or given a place that the caller fills. All of a
 * call is checked before the first byte is copied, and what a call that fails has put is taken
 * back. Tensors come before byte strings in an object, as ml-flashpoint has them.
 */
#include "save.h"

#include "client/base/args.h"
#include "client/base/clock.h"
#include "client/slots/copy.h"
#include "client/slots/layout.h"
#include "seen.h"
#include <stdlib.h>
#include <string.h>

/* Room for one more item, of `data` bytes and a record. */
static int add_has_room(const struct hth_written *o, uint64_t data, uint64_t record)
{
    uint64_t left = o->room - o->data_len - o->items_len;

    return hth_add_up(data, record) <= left;
}

/* need: of all items of the call. */
static int add_no_room(
        const struct hth_written *before, uint64_t need, size_t count, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ENOSPC, 0,
            "%zu items need %" PRIu64 " bytes, and %" PRIu64 " are left of the %" PRIu64
            " of begin: ask there for what hearth_save_bytes() says",
            count, need, before->room - before->data_len - before->items_len, before->room);
}

static int add_make_record(struct hearth_save *s, uint64_t record, struct hearth_error *err)
{
    const struct hth_written *o = hth_save_open_object(s);

    if (hth_save_records(s, o->items_len + record))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for item %" PRIu32, o->items);
    return HEARTH_OK;
}

static void add_record(struct hearth_save *s, const struct hth_item *item)
{
    struct hth_written *o = hth_save_open_object(s);

    hth_item_encode(item, s->scratch.items + o->items_len);
    o->items_len += hth_item_bytes(item->ndim, item->key_len);
    o->items++;
    o->data_len += item->length;
}

static int add_note_copy(
        struct hth_copies *list, const struct hth_laid *laid, void *dst, struct hearth_error *err)
{
    const struct hearth_piece *p = laid->piece;
    uint32_t elem = hearth_dtype_bytes((enum hearth_dtype)p->dtype);
    struct hth_strided strided;
    int plain =
            !p->strides || hth_strided_init(&strided, elem, p->ndim, p->shape, NULL, p->strides);

    if ((!laid->again && hth_copies_head(list, laid->header, laid->header_len)) ||
            hth_copies_add(list, dst, p->data, laid->payload, plain ? NULL : &strided))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
    return HEARTH_OK;
}

/* A piece in GPU memory: its header is written now. The rank makes no sums of the object then. */
static int add_note_device(struct hearth_save *s, struct hth_copies *list,
        const struct hth_laid *laid, const struct hth_device_at *where, unsigned char *at,
        struct hearth_error *err)
{
    hth_save_open_object(s)->summed = 0;
    list->crc = NULL;
    if (!laid->again && hth_copies_head(list, laid->header, laid->header_len))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
    memcpy(at, laid->header, laid->header_len);
    return hth_from_note(s, laid, where, at + laid->header_len, err);
}

static int add_note(struct hearth_save *s, struct hth_copies *list, const struct hth_laid *laid,
        unsigned char *at, int staged, struct hearth_error *err)
{
    struct hth_device_at where;
    char key[HTH_KEY_TEXT];
    int device = hth_from_where(s, laid, &where, err);

    if (device < 0)
        return device;
    if (!device)
        return add_note_copy(list, laid, at + laid->header_len, err);
    if (staged)
        return hth_fail(err, HEARTH_EUNSUPPORTED, 0,
                "piece %s: GPU memory is added, and not staged, since its bytes come later",
                hth_key_text(laid->piece->key, laid->piece->key_len, key));
    return add_note_device(s, list, laid, &where, at, err);
}

/* Writes the header and the record. Notes the copy, if there is a list, and returns the place of
 * the payload, if out_data is set. */
static int add_piece(struct hearth_save *s, const struct hth_laid *laid, struct hth_copies *list,
        void **out_data, struct hearth_error *err)
{
    struct hth_written *o = hth_save_open_object(s);
    unsigned char *at = hth_written_end(o);
    struct hth_item item;
    int rc = HEARTH_OK;

    if (!list && (!s->h->opts.off || out_data))
        memcpy(at, laid->header, laid->header_len);
    if (list && (!s->h->opts.off || out_data))
        rc = add_note(s, list, laid, at, out_data != NULL, err);
    if (rc)
        return rc;
    if (out_data)
        *out_data = at + laid->header_len;
    hth_laid_item(&item, laid, o->data_len);
    add_record(s, &item);
    return HEARTH_OK;
}

/* One more piece. HEARTH_ENOSPC without a text: there is no room for it. */
static int add_one(struct hearth_save *s, const struct hth_laid *laid, struct hth_copies *list,
        void **out_data, struct hearth_error *err)
{
    uint64_t data = laid->header_len + laid->payload, record = hth_laid_bytes(laid) - data;
    int rc;

    if (!add_has_room(hth_save_open_object(s), data, record))
        return HEARTH_ENOSPC;
    rc = add_make_record(s, record, err);
    return rc ? rc : add_piece(s, laid, list, out_data, err);
}

#define ADD_TOLD      ((uint32_t)(HTH_COPIES_TOLD / HTH_CHUNK))
#define ADD_TOLD_MS   100u /* that the copy takes before, and between two reports */
#define ADD_TOLD_FROM (UINT64_C(256) << 20)

/* 1: peers may have chunks of the object before it is sealed. Chunks of an object into which
 * callers write are never reported. Nor are those of a copy that is short, or where copies of all
 * ranks of a node would take more than half of the processors that this one may use: pulls would
 * take them from copies, and trainers would be blocked for longer. */
static int add_tells(const struct hearth_save *s)
{
    const struct hth_written *o = &s->object[s->objects - 1];

    return o->summed && o->room >= ADD_TOLD_FROM && s->step != HEARTH_STEP_LATER &&
           hth_crew_spares(s->h->crew, s->h->ranks_a_node);
}

/* The chunks that lie before this byte of the object are complete. */
static void add_told(struct hearth_save *s, uint64_t data)
{
    struct hth_written *o = hth_save_open_object(s);
    uint32_t chunks = (uint32_t)(data / HTH_CHUNK);
    uint64_t now = hth_mono_ms();

    if (!add_tells(s) || chunks < o->told + ADD_TOLD || now < o->told_ms)
        return;
    o->told = chunks;
    o->told_ms = now + ADD_TOLD_MS;
    hth_handle_written_chunks(s->handle, s->objects - 1, chunks);
}

static void add_progress(void *self, uint64_t bytes)
{
    struct hearth_save *s = self;

    add_told(s, s->scratch.copies.at + bytes);
}

/* The list of this call's copies. If the caller gets the place of the bytes (`told`), it may write
 * there until the end, so the rank makes no sums of the object. */
static struct hth_copies *add_list(struct hearth_save *s, int told)
{
    struct hth_written *o = hth_save_open_object(s);
    struct hth_copies *list = &s->scratch.copies;

    o->summed &= !told;
    list->crc = o->summed ? o->crc : NULL;
    list->at = o->data_len;
    list->progress = add_tells(s) ? add_progress : NULL;
    list->self = s;
    if (!o->told_ms)
        o->told_ms = hth_mono_ms() + ADD_TOLD_MS;
    return list;
}

/* copy: from the pieces' data. out_data: NULL, or where each payload lies. */
static int add_pieces(struct hearth_save *s, const struct hearth_piece *pieces, size_t count,
        int copy, void **out_data, struct hearth_error *err)
{
    struct hth_written before = *hth_save_open_object(s);
    struct hth_copies *list = add_list(s, out_data != NULL);
    struct hth_laid laid;
    int rc = HEARTH_OK;

    if (copy && (!s->h->opts.off || out_data))
        hth_from_begin(s);
    laid.header_len = 0;
    for (size_t i = 0; i < count && !rc; i++) {
        rc = hth_piece_at(&laid, pieces, i, copy, err);
        if (!rc)
            rc = add_one(s, &laid, copy ? list : NULL, out_data ? &out_data[i] : NULL, err);
    }
    if (rc == HEARTH_ENOSPC)
        rc = add_no_room(&before, hearth_save_bytes(pieces, count, NULL, 0), count, err);
    if (!rc)
        rc = hth_seen_take(s, &before, err);
    if (!rc)
        rc = hth_from_run(s, err);
    if (rc)
        *hth_save_open_object(s) = before;
    else
        hth_crew_run(s->h->crew, list);
    hth_from_clear(s);
    hth_copies_clear(list);
    if (!rc)
        add_told(s, hth_save_open_object(s)->data_len);
    return rc;
}

static int add_checks(
        struct hearth_save *s, const void *array, size_t count, struct hearth_error *err)
{
    int rc = hth_save_enter(s, err);

    if (rc || (rc = hth_save_not_sealed(s, err)))
        return rc;
    if (count && !array)
        return hth_fail(err, HEARTH_EINVAL, 0, "the array of %zu items is NULL", count);
    return HEARTH_OK;
}

static int add_no_bytes_yet(const struct hearth_save *s, struct hearth_error *err)
{
    if (!s->has_bytes)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ESTATE, 0,
            "tensors go before byte strings in an object: add them first, or go on with a further "
            "object (hearth_save_next_object)");
}

int hearth_save_add(struct hearth_save *save, const struct hearth_piece *pieces, size_t count,
        struct hearth_error *err)
{
    int rc;

    if ((rc = add_checks(save, pieces, count, err)) || !count)
        return rc;
    if (!(rc = add_no_bytes_yet(save, err)))
        rc = add_pieces(save, pieces, count, 1, NULL, err);
    return rc ? hth_while(err, rc, "add to a save") : HEARTH_OK;
}

static int add_places(struct hearth_save *s, const struct hearth_piece *pieces, size_t count,
        int copy, void **out_data, struct hearth_error *err)
{
    int rc;

    if ((rc = add_checks(s, pieces, count, err)) || !count)
        return rc;
    if (!out_data)
        return hth_fail(err, HEARTH_EINVAL, 0, "out_data is NULL: there is no place for places");
    if (!(rc = add_no_bytes_yet(s, err)))
        rc = add_pieces(s, pieces, count, copy, out_data, err);
    return rc ? hth_while(err, rc, copy ? "stage in a save" : "reserve in a save") : HEARTH_OK;
}

int hearth_save_reserve(struct hearth_save *save, const struct hearth_piece *pieces, size_t count,
        void **out_data, struct hearth_error *err)
{
    return add_places(save, pieces, count, 0, out_data, err);
}

int hearth_save_stage(struct hearth_save *save, const struct hearth_piece *pieces, size_t count,
        void **out_data, struct hearth_error *err)
{
    return add_places(save, pieces, count, 1, out_data, err);
}

static int add_bytes(struct hearth_save *s, const struct hearth_bytes *items, size_t count,
        struct hth_copies *list, struct hearth_error *err)
{
    struct hth_written *o = hth_save_open_object(s);
    struct hearth_bytes tmp;
    const struct hearth_bytes *b;
    int rc;

    for (size_t i = 0; i < count; i++) {
        uint64_t record;

        if ((rc = hth_bytes_at(&b, &tmp, items, i, err)))
            return rc;
        record = hth_item_bytes(0, (uint32_t)b->key_len);
        if (!add_has_room(o, b->len, record))
            return HEARTH_ENOSPC;
        if ((rc = add_make_record(s, record, err)))
            return rc;
        if (!s->h->opts.off && hth_copies_add(list, hth_written_end(o), b->data, b->len, NULL))
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
        add_record(s, &(struct hth_item){ .offset = o->data_len,
                              .length = b->len,
                              .kind = HTH_ITEM_BYTES,
                              .key_len = (uint32_t)b->key_len,
                              .shape = NULL,
                              .key = b->key });
    }
    return HEARTH_OK;
}

int hearth_save_add_bytes(struct hearth_save *save, const struct hearth_bytes *items, size_t count,
        struct hearth_error *err)
{
    struct hth_copies *list;
    struct hth_written before;
    int rc;

    if ((rc = add_checks(save, items, count, err)) || !count)
        return rc;
    before = *hth_save_open_object(save);
    list = add_list(save, 0);
    rc = add_bytes(save, items, count, list, err);
    if (rc == HEARTH_ENOSPC)
        rc = add_no_room(&before, hearth_save_bytes(NULL, 0, items, count), count, err);
    if (!rc)
        rc = hth_seen_take(save, &before, err);
    if (rc) {
        *hth_save_open_object(save) = before;
    } else {
        save->has_bytes = 1;
        hth_crew_run(save->h->crew, list);
    }
    hth_copies_clear(list);
    return rc ? hth_while(err, rc, "add bytes to a save") : HEARTH_OK;
}
