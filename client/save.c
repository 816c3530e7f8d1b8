/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writing. The rank fills a slot that the engine lent it:
 *
 *     begin --slot--> add, add, ... --> [next_object --slot--> add ...] --> commit
 *                      |  copies now                                          | table records go
 *                      |  records are kept aside                              | behind the data
 *
 *     file  | block (engine) | items, no padding | 0.. | table head (engine) | records | CRCs (engine)
 *           0              4096          4096 + data_len   next 4096          +64
 *
 * Tensors come before byte strings in an object, as ml-flashpoint has them.
 */
#include "save.h"

#include "core/base/opts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int hth_save_enter(const struct hearth_save *s, struct hearth_error *err)
{
    if (!s)
        return hth_fail(err, HEARTH_EINVAL, 0, "the save is NULL: hearth_save_begin() gives one");
    return hth_enter(s->h, err);
}

int hth_save_not_sealed(const struct hearth_save *s, struct hearth_error *err)
{
    if (!s->closed)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ESTATE, 0,
            "the save is sealed: hearth_save_put_common() and commit (or abort) alone may follow");
}

void hth_save_dispose(struct hearth_save *s)
{
    for (uint32_t i = 0; i < s->objects; i++) {
        struct hth_written *o = &s->object[i];

        if (o->slot)
            hth_slot_put(s->h, o->slot);
        else if (s->h->opts.off)
            munmap(o->base, HTH_BLOCK + o->room);
    }
    hth_commons_drop(s);
    hth_seen_fini(&s->seen);
    hearth_handle_close(s->handle);
    free(s->items);
    free(s);
}

struct hearth_save *hth_save_open(struct hearth *h, uint64_t step)
{
    struct hearth_save *s = calloc(1, sizeof(*s));

    if (!s || !(s->handle = hth_handle_open(h))) {
        free(s);
        return NULL;
    }
    s->h = h;
    s->step = step;
    return s;
}

/* ---- begin ---------------------------------------------------------------------------------- */

static int lend_nothing(struct hth_written *o, uint64_t bytes, struct hearth_error *err)
{
    void *p = mmap(NULL, HTH_BLOCK + bytes, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (p == MAP_FAILED)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no address space for %" PRIu64 " bytes", bytes);
    o->base = p;
    return HEARTH_OK;
}

void hth_save_lent(
        struct hearth_save *s, uint64_t token, uint64_t incarnation, struct hth_local_save save)
{
    pthread_mutex_lock(&s->h->lock);
    s->token = s->handle->token = token;
    s->incarnation = s->handle->incarnation = incarnation;
    s->handle->save = hth_local_save_to(save);
    s->handle->status.step = save.epoch ? save.step : s->step;
    s->handle->status.attempt = save.attempt;
    pthread_mutex_unlock(&s->h->lock);
}

static int begin_fill(struct hearth_save *s, struct hth_local_begin *m, uint64_t bytes,
        const struct hearth_begin_opts *o, struct hearth_error *err)
{
    int n, rc;

    if (o->name) {
        if ((rc = hth_object_name_check(o->name, err)))
            return rc;
        n = snprintf(m->name, sizeof(m->name), "%s", o->name);
    } else {
        n = snprintf(m->name, sizeof(m->name), "__%u__%u_src%u.distcp", s->h->opts.rank, s->objects,
                s->h->opts.rank);
    }
    if (n < 0 || n > HTH_NAME_MAX)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "the object's name has more than %d bytes", HTH_NAME_MAX);
    m->step = s->step;
    m->bytes = hth_file_bytes(bytes);
    m->wait_ms = o->wait_ms;
    m->cancel_old = o->cancel_old;
    m->index = s->objects;
    return HEARTH_OK;
}

static int lend(struct hearth_save *s, struct hth_written *w, uint64_t bytes,
        const struct hearth_begin_opts *o, struct hearth_error *err)
{
    struct hth_local_begin m = { .step = 0 };
    struct hth_local_lent a;
    int fd = -1, rc;
    struct hth_ask ask = { .msg = &m,
        .len = sizeof(m),
        .type = HTH_LOCAL_BEGIN,
        .want = HTH_LOCAL_LENT,
        .token = s->token,
        .fd = -1,
        .again = s->objects == 0,
        .incarnation = s->incarnation,
        .answer = &a,
        .answer_len = sizeof(a),
        .out_fd = &fd,
        .wait_ms = o->wait_ms + HTH_REQUEST_MS + (bytes >> 20) * 10,
        .what = "begin" };

    if ((rc = begin_fill(s, &m, bytes, o, err)) || (rc = hth_ask(s->h, &ask, err)))
        return rc;
    if (fd < 0)
        rc = hth_fail(err, HEARTH_EPROTO, 0, HTH_NO_DESCRIPTOR);
    else if (a.capacity < m.bytes)
        rc = hth_fail(err, HEARTH_EPROTO, 0, "the engine lent a slot that is too small");
    else
        rc = hth_slot_get(s->h, fd, m.bytes, 1, &w->slot, err);
    if (fd >= 0)
        close(fd);
    hth_save_lent(s, a.head.token, ask.answered, a.save);
    if (!w->slot)
        return rc;
    w->base = w->slot->base;
    w->slot_id = a.slot;
    w->generation = a.generation;
    return HEARTH_OK;
}

int hth_save_add_object(struct hearth_save *s, uint64_t bytes, const struct hearth_begin_opts *o,
        struct hearth_error *err)
{
    struct hth_written w = { .room = bytes };
    int rc;

    if (bytes > (uint64_t)INT64_MAX / 2)
        return hth_fail(
                err, HEARTH_ENOSPC, 0, "%" PRIu64 " bytes are more than any store has", bytes);
    rc = s->h->opts.off ? lend_nothing(&w, bytes, err) : lend(s, &w, bytes, o, err);
    if (rc)
        return rc;
    s->object[s->objects++] = w;
    s->has_bytes = 0;
    return HEARTH_OK;
}

static int may_begin(struct hearth *h, struct hearth_error *err)
{
    int recovered;

    pthread_mutex_lock(&h->lock);
    recovered = h->recovered;
    pthread_mutex_unlock(&h->lock);
    if (h->opts.off || recovered)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_ESTATE, 0,
            "hearth_recover() was not called since the ranks joined: all ranks call it first, to "
            "agree on where the job goes on");
}

int hearth_save_begin(struct hearth *h, uint64_t step, uint64_t bytes,
        const struct hearth_begin_opts *opts, struct hearth_save **out_save,
        struct hearth_error *err)
{
    struct hearth_begin_opts o;
    struct hearth_save *s;
    int rc;

    if ((rc = hth_enter(h, err)) || (rc = hth_opts_copy(&o, sizeof(o), opts, err)))
        return rc;
    if ((rc = hth_step_check(step, HEARTH_STEP_LATER, err)))
        return hth_while(err, rc, "begin a save");
    if (!out_save)
        return hth_fail(err, HEARTH_EINVAL, 0, "out_save is NULL: there is no place for the save");
    if (o.wait_ms > HTH_DEADLINE_MAX)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "wait_ms is %u: at most %u", o.wait_ms, HTH_DEADLINE_MAX);
    if ((rc = may_begin(h, err)))
        return rc;
    if (!(s = hth_save_open(h, step)))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to begin a save");
    s->wait_ms = o.wait_ms;
    if ((rc = hth_save_add_object(s, bytes, &o, err))) {
        if (s->token)
            hearth_save_abort(s); /* lent, and of no use to us */
        else
            hth_save_dispose(s);
        if (step == HEARTH_STEP_LATER)
            return hth_while(err, rc, "begin a save");
        return hth_while(err, rc, "begin step %" PRIu64, step);
    }
    *out_save = s;
    return HEARTH_OK;
}

/* ---- add ------------------------------------------------------------------------------------ */

static int make_room(struct hearth_save *s, uint64_t data, uint64_t records, size_t count,
        struct hearth_error *err)
{
    struct hth_written *o = hth_save_open_object(s);
    uint64_t left = o->room - o->data_len - o->items_len;
    size_t need = o->items_len + records;

    if (hth_add_up(data, records) > left)
        return hth_fail(err, HEARTH_ENOSPC, 0,
                "%zu items need %" PRIu64 " bytes, and %" PRIu64 " are left of the %" PRIu64
                " of begin: ask there for what hearth_save_bytes() says",
                count, hth_add_up(data, records), left, o->room);
    if (need > s->items_room) {
        size_t room = need < 2 * s->items_room ? 2 * s->items_room : need;
        unsigned char *more = realloc(s->items, room);

        if (!more)
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %zu items", count);
        s->items = more;
        s->items_room = room;
    }
    return HEARTH_OK;
}

static void put_record(struct hearth_save *s, const struct hth_item *item)
{
    struct hth_written *o = hth_save_open_object(s);

    hth_item_encode(item, s->items + o->items_len);
    o->items_len += hth_item_bytes(item->ndim, item->key_len);
    o->items++;
    o->data_len += item->length;
}

static int note_copy(
        struct hth_copies *list, const struct hth_laid *laid, void *dst, struct hearth_error *err)
{
    const struct hearth_piece *p = laid->piece;
    uint32_t elem = hearth_dtype_bytes((enum hearth_dtype)p->dtype);
    struct hth_strided strided;
    int plain =
            !p->strides || hth_strided_init(&strided, elem, p->ndim, p->shape, NULL, p->strides);

    if (hth_copies_add(list, dst, p->data, laid->payload, plain ? NULL : &strided))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
    return HEARTH_OK;
}

/* Header, record, the copy noted where there is one, the place told where it is asked for. */
static int put_piece(struct hearth_save *s, const struct hth_laid *laid, struct hth_copies *list,
        void **out_data, struct hearth_error *err)
{
    struct hth_written *o = hth_save_open_object(s);
    unsigned char *at = hth_written_end(o);
    struct hth_item item;
    int rc = HEARTH_OK;

    if (!s->h->opts.off || out_data)
        memcpy(at, laid->header, laid->header_len);
    if (list && (!s->h->opts.off || out_data))
        rc = note_copy(list, laid, at + laid->header_len, err);
    if (rc)
        return rc;
    if (out_data)
        *out_data = at + laid->header_len;
    hth_laid_item(&item, laid, o->data_len);
    put_record(s, &item);
    return HEARTH_OK;
}

/* copy: from the pieces' data. out_data: NULL, or where each payload lies. */
static int add_pieces(struct hearth_save *s, const struct hearth_piece *pieces, size_t count,
        int copy, void **out_data, struct hearth_error *err)
{
    struct hth_copies list = { 0 };
    struct hth_written before = *hth_save_open_object(s);
    struct hth_laid laid;
    uint64_t data = 0, records = 0;
    int rc = HEARTH_OK;

    for (size_t i = 0; i < count; i++) {
        if ((rc = hth_piece_at(&laid, pieces, i, copy, err)))
            return rc;
        data = hth_add_up(data, laid.header_len + laid.payload);
        records += hth_laid_bytes(&laid) - laid.header_len - laid.payload;
    }
    if ((rc = make_room(s, data, records, count, err)))
        return rc;
    for (size_t i = 0; i < count && !rc; i++) {
        rc = hth_piece_at(&laid, pieces, i, copy, err);
        if (!rc)
            rc = put_piece(s, &laid, copy ? &list : NULL, out_data ? &out_data[i] : NULL, err);
    }
    if (!rc)
        rc = hth_seen_take(s, &before, err);
    if (rc)
        *hth_save_open_object(s) = before;
    else
        hth_crew_run(s->h->crew, &list);
    hth_copies_fini(&list);
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

static int no_bytes_yet(const struct hearth_save *s, struct hearth_error *err)
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
    if (!(rc = no_bytes_yet(save, err)))
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
    if (!(rc = no_bytes_yet(s, err)))
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
    struct hearth_bytes tmp;
    const struct hearth_bytes *b;
    uint64_t data = 0, records = 0;
    int rc = HEARTH_OK;

    for (size_t i = 0; i < count; i++) {
        if ((rc = hth_bytes_at(&b, &tmp, items, i, err)))
            return rc;
        data = hth_add_up(data, b->len);
        records += hth_item_bytes(0, (uint32_t)b->key_len);
    }
    if ((rc = make_room(s, data, records, count, err)))
        return rc;
    for (size_t i = 0; i < count && !rc; i++) {
        struct hth_written *o = hth_save_open_object(s);

        if ((rc = hth_bytes_at(&b, &tmp, items, i, err)))
            break;
        if (!s->h->opts.off && hth_copies_add(list, hth_written_end(o), b->data, b->len, NULL))
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of copies");
        put_record(s, &(struct hth_item){ .offset = o->data_len,
                              .length = b->len,
                              .kind = HTH_ITEM_BYTES,
                              .key_len = (uint32_t)b->key_len,
                              .shape = NULL,
                              .key = b->key });
    }
    return rc;
}

int hearth_save_add_bytes(struct hearth_save *save, const struct hearth_bytes *items, size_t count,
        struct hearth_error *err)
{
    struct hth_copies list = { 0 };
    struct hth_written before;
    int rc;

    if ((rc = add_checks(save, items, count, err)) || !count)
        return rc;
    before = *hth_save_open_object(save);
    if (!(rc = add_bytes(save, items, count, &list, err)))
        rc = hth_seen_take(save, &before, err);
    if (rc) {
        *hth_save_open_object(save) = before;
    } else {
        save->has_bytes = 1;
        hth_crew_run(save->h->crew, &list);
    }
    hth_copies_fini(&list);
    return rc ? hth_while(err, rc, "add bytes to a save") : HEARTH_OK;
}
