/* SPDX-License-Identifier: Apache-2.0 */
#include "deeds.h"

#include "model.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#define STATE_BYTES(rank) (1000u + 37u * (rank))

__attribute__((format(printf, 2, 3))) static void fail(struct answer *out, const char *format, ...)
{
    va_list ap;

    if (out->rc)
        return;
    out->rc = 1;
    va_start(ap, format);
    vsnprintf(out->err.text, sizeof(out->err.text), format, ap);
    va_end(ap);
}

static int64_t big_rows(const struct me *me)
{
    return (int64_t)(me->bytes / 4096) * 4;
}

static void state_fill(unsigned char *data, uint32_t rank, uint64_t step)
{
    for (uint32_t i = 0; i < STATE_BYTES(rank); i++)
        data[i] = (unsigned char)element(100 + rank, step, i);
}

/* ---- put and get ----------------------------------------------------------------------------- */

static size_t make_all(const struct me *me, unsigned turn, enum layout layout, struct part *out)
{
    size_t n = 0;

    for (uint32_t t = 0; t < TENSORS; t++)
        n += (size_t)part_make(&out[n], t, cut_other(cut_of(t), turn), me->rank, me->world,
                big_rows(me), layout ? layout : (enum layout)(t % 2));
    return n;
}

void put(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_begin_opts patient = { .struct_size = sizeof(patient), .wait_ms = 15000 };
    struct hearth_handle **handle = &me->handle[arg[0] % 16];
    struct hearth_piece piece[TENSORS];
    struct part part[TENSORS];
    size_t n = make_all(me, 0, LAYOUT_C, part);
    unsigned char state[2000];
    char key[2][32];
    struct hearth_bytes bytes[2] = {
        { sizeof(bytes[0]), key[0], 0, state, STATE_BYTES(me->rank) },
        { sizeof(bytes[0]), key[1], 0, NULL, 0 },
    };

    bytes[0].key_len = (size_t)snprintf(key[0], sizeof(key[0]), "state.%u", me->rank);
    bytes[1].key_len = (size_t)snprintf(key[1], sizeof(key[1]), "nothing.%u", me->rank);
    state_fill(state, me->rank, arg[0]);
    for (size_t i = 0; i < n; i++) {
        part_fill(&part[i], arg[0], part[i].data);
        piece[i] = part[i].piece;
    }
    hearth_handle_close(*handle);
    *handle = NULL;
    out->rc = hearth_save_begin(
            me->h, arg[0], hearth_save_bytes(piece, n, bytes, 2), &patient, &me->save, &out->err);
    if (!out->rc)
        out->rc = hearth_save_add(me->save, piece, n, &out->err);
    if (!out->rc)
        out->rc = hearth_save_add_bytes(me->save, bytes, 2, &out->err);
    if (!out->rc)
        out->rc = hearth_save_commit(me->save, handle, &out->err);
    for (size_t i = 0; i < n; i++)
        part_free(&part[i]);
}

static void get_states(struct me *me, uint64_t step, uint32_t by, struct answer *out)
{
    for (uint32_t r = 0; r < by && !out->rc; r++) {
        unsigned char want[2000], data[2000] = { 0 };
        int64_t shape[2] = { STATE_BYTES(r), 0 };
        char key[2][32];
        struct hearth_piece piece[2] = {
            { .struct_size = sizeof(piece[0]),
                    .key = key[0],
                    .data = data,
                    .dtype = HEARTH_UINT8,
                    .ndim = 1,
                    .shape = &shape[0] },
            { .struct_size = sizeof(piece[0]),
                    .key = key[1],
                    .dtype = HEARTH_UINT8,
                    .ndim = 1,
                    .shape = &shape[1] },
        };

        piece[0].key_len = (size_t)snprintf(key[0], sizeof(key[0]), "state.%u", r);
        piece[1].key_len = (size_t)snprintf(key[1], sizeof(key[1]), "nothing.%u", r);
        state_fill(want, r, step);
        out->rc = hearth_load(me->ckpt, piece, 2, 0, NULL, &out->err);
        if (!out->rc && memcmp(want, data, STATE_BYTES(r)) != 0)
            fail(out, "the bytes of %s are wrong", key[0]);
    }
}

void get(struct me *me, const uint64_t arg[3], struct answer *out)
{
    static const enum layout layouts[] = { LAYOUT_C, LAYOUT_GAPS, LAYOUT_FORTRAN };
    struct hearth_piece piece[TENSORS];
    struct part part[TENSORS];
    size_t n = make_all(me, (unsigned)arg[1], layouts[arg[1] % 3], part);

    for (size_t i = 0; i < n; i++)
        piece[i] = part[i].piece;
    if (!me->ckpt)
        fail(out, "there is no checkpoint");
    if (!out->rc)
        out->rc = hearth_load(me->ckpt, piece, n, 0, NULL, &out->err);
    for (size_t i = 0; i < n && !out->rc; i++)
        if (!part_right(&part[i], arg[0]))
            fail(out, "rank %u of %u, turn %u: the values of %s are wrong", me->rank, me->world,
                    (unsigned)arg[1], (const char *)piece[i].key);
    for (size_t i = 0; i < n; i++)
        part_free(&part[i]);
    if (!out->rc)
        get_states(me, arg[0], (uint32_t)arg[2], out);
}

/* ---- item by item ---------------------------------------------------------------------------- */

/* The piece of `rank`; 0: none. */
static int find(struct me *me, const char *key, uint32_t rank, struct hearth_item *out,
        struct answer *answer)
{
    struct hearth_item item[RANKS_MAX] = { { .struct_size = sizeof(item[0]) } };
    size_t count = 0;

    answer->rc =
            hearth_item_find(me->ckpt, key, strlen(key), item, RANKS_MAX, &count, &answer->err);
    for (size_t i = 0; i < count && i < RANKS_MAX && !answer->rc; i++)
        if (item[i].owner == rank) {
            *out = item[i];
            return 1;
        }
    fail(answer, "key %s has no piece of rank %u among %zu", key, rank, count);
    return 0;
}

/* A box of a stored piece, counted in the piece, and what it has to be. */
static void read_box(struct me *me, const struct hearth_item *item, uint32_t tensor, uint64_t step,
        const int64_t *offset, const int64_t *shape, enum layout layout, struct answer *out)
{
    int64_t global[DIMS];
    struct part p;

    part_make(&p, tensor, CUT_WHOLE, 0, 1, 0, LAYOUT_C);
    memcpy(p.global, item->global_shape, item->ndim * sizeof(global[0]));
    for (uint32_t d = 0; d < item->ndim; d++)
        global[d] = item->global_offset[d] + offset[d];
    part_box(&p, global, shape, layout);
    out->rc = hearth_read_box(me->ckpt, item, offset, shape, p.data, p.piece.strides, &out->err);
    if (!out->rc && !part_right(&p, step))
        fail(out, "a box of piece %.*s of rank %u is wrong", (int)item->key_len,
                (const char *)item->key, item->owner);
    part_free(&p);
}

void whole(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_item item;
    const int64_t zero[2] = { 0 };

    if (find(me, "big", (uint32_t)arg[1], &item, out))
        read_box(me, &item, BIG, arg[0], zero, item.shape, LAYOUT_C, out);
}

void recover_and_read(struct me *me, const uint64_t arg[3], struct answer *out)
{
    const uint64_t no_arg[3] = { 0 };

    do_recover(me, no_arg, out);
    if (!out->rc)
        whole(me, arg, out);
}

/* ---- held over saves ------------------------------------------------------------------------- */

struct reader {
    pthread_t thread;
    atomic_int stop;
    struct me *me;
    struct hearth_item item;
    uint64_t step, reads, refusals;
    struct answer answer;
};

static struct hearth_view held = { .struct_size = sizeof(held) };
static struct hearth_item held_item;
static struct reader reader;

void done_reading(struct me *me, const uint64_t arg[3], struct answer *out)
{
    (void)arg, (void)out;
    hearth_checkpoint_close(me->ckpt);
    me->ckpt = NULL;
}

void view_open(struct me *me, const uint64_t arg[3], struct answer *out)
{
    (void)arg;
    if (find(me, "big", me->rank, &held_item, out))
        out->rc = hearth_view_open(me->ckpt, &held_item, &held, &out->err);
    hearth_checkpoint_close(arg[1] ? me->ckpt : NULL);
    if (arg[1])
        me->ckpt = NULL;
}

void view_check(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct part p;

    part_make(&p, BIG, CUT_ROWS, me->rank, me->world, big_rows(me), LAYOUT_C);
    if (held.bytes != p.bytes)
        fail(out, "the view has %u bytes", (unsigned)held.bytes);
    part_fill(&p, arg[0], p.data);
    if (!out->rc && memcmp(p.data, held.data, p.bytes) != 0)
        fail(out, "rank %u: the bytes of a view have changed", me->rank);
    part_free(&p);
    hearth_view_close(me->h, &held);
}

/* Two boxes far from each other by turns: what was pulled for one is of no use for the other. */
static void *reading(void *arg)
{
    struct reader *r = arg;

    for (unsigned turn = 0; !atomic_load(&r->stop); turn++) {
        const int64_t rows = r->item.shape[0];
        const int64_t offset[2] = { turn % 2 ? rows - 30 : 0, 5 }, shape[2] = { 30, 1000 };
        struct answer a = { 0 };

        read_box(r->me, &r->item, BIG, r->step, offset, shape, LAYOUT_C, &a);
        r->reads += a.rc == 0;
        r->refusals += a.rc < 0;
        if (a.rc && !r->answer.rc)
            r->answer = a;
        if (a.rc > 0 || a.rc == HEARTH_ECORRUPT) /* not the bytes: nothing excuses that */
            break;
        if (a.rc)
            nap_ms(10);
    }
    return NULL;
}

void reader_start(struct me *me, const uint64_t arg[3], struct answer *out)
{
    reader.me = me;
    reader.step = arg[0];
    reader.item.local = 1;
    for (uint32_t r = 0; r < me->world && reader.item.local; r++)
        if (!find(me, "big", r, &reader.item, out))
            return;
    if (reader.item.local)
        fail(out, "no piece is elsewhere for rank %u", me->rank);
    else if (pthread_create(&reader.thread, NULL, reading, &reader))
        fail(out, "no thread");
}

void reader_end(struct me *me, const uint64_t arg[3], struct answer *out)
{
    (void)me, (void)arg;
    atomic_store(&reader.stop, 1);
    pthread_join(reader.thread, NULL);
    *out = reader.answer;
    out->v[0] = reader.reads;
    out->v[1] = reader.refusals;
}
