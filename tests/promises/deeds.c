/* SPDX-License-Identifier: Apache-2.0 */
/* The orders that a rank can carry out. Its tensor's bytes encode step, tag and rank. */
#include "party.h"

#include <string.h>

static const struct hearth_begin_opts patient = { .struct_size = sizeof(patient),
    .wait_ms = 10000 };

void fill(unsigned char *data, size_t bytes, uint64_t seed)
{
    uint64_t x = seed;

    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        x += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t y = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);

        y ^= y >> 27;
        memcpy(data + i, &y, 8);
    }
}

uint64_t seed_of(uint64_t step, uint64_t tag, uint32_t rank)
{
    return (step << 40) + (tag << 20) + rank + 1;
}

struct hearth_piece weights(struct me *me, int64_t shape[1])
{
    shape[0] = (int64_t)me->bytes / 8;
    return (struct hearth_piece){ .struct_size = sizeof(struct hearth_piece),
        .key = &me->rank,
        .key_len = sizeof(me->rank),
        .data = me->data,
        .dtype = HEARTH_INT64,
        .ndim = 1,
        .shape = shape };
}

void do_open(struct me *me, const uint64_t arg[3], struct answer *out)
{
    if (me->world > 1 && !me->opts.bootstrap)
        out->rc = hearth_bootstrap_tcp("127.0.0.1", (uint16_t)arg[0], me->rank, me->world,
                me->opts.open_ms, &me->boot, &out->err);
    if (!out->rc && me->boot)
        me->opts.bootstrap = me->boot;
    if (!out->rc)
        out->rc = hearth_open(&me->opts, &me->h, &out->err);
}

void do_close(struct me *me, const uint64_t arg[3], struct answer *out)
{
    (void)out;
    for (size_t i = 0; i < sizeof(me->handle) / sizeof(me->handle[0]); i++) {
        hearth_handle_close(me->handle[i]);
        me->handle[i] = NULL;
    }
    hearth_checkpoint_close(me->ckpt);
    me->ckpt = NULL;
    hearth_close(me->h, (enum hearth_leave)arg[0]);
    me->h = NULL;
    hearth_bootstrap_close(me->boot);
    me->boot = NULL;
    me->opts.bootstrap = NULL;
}

/* v: step, bytes pulled, beyond, degraded. */
void do_recover(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_recover_opts o = { .struct_size = sizeof(o), .deadline_ms = (uint32_t)arg[0] };
    struct hearth_recovery info = { .struct_size = sizeof(info) };

    hearth_checkpoint_close(me->ckpt);
    me->ckpt = NULL;
    out->rc = hearth_recover(me->h, &o, &me->ckpt, &out->err);
    if (!out->rc && me->ckpt)
        out->rc = hearth_checkpoint_info(me->ckpt, &info, &out->err);
    out->v[0] = info.step;
    out->v[1] = info.pulled_bytes;
    out->v[2] = info.beyond;
    out->v[3] = info.degraded;
}

/* This rank's tensor and every other's are those of (step, tag). */
void do_verify(struct me *me, const uint64_t arg[3], struct answer *out)
{
    unsigned char *want = malloc(me->bytes);
    uint32_t self = me->rank;

    for (uint32_t r = 0; r < me->world && want && !out->rc; r++) {
        struct hearth_piece piece;
        int64_t shape[1];

        me->rank = r;
        piece = weights(me, shape);
        memset(me->data, 0xee, me->bytes);
        fill(want, me->bytes, seed_of(arg[0], arg[1], r));
        out->rc = hearth_load(me->ckpt, &piece, 1, 0, NULL, &out->err);
        if (!out->rc && memcmp(want, me->data, me->bytes) != 0) {
            out->rc = 1;
            snprintf(out->err.text, sizeof(out->err.text), "WRONG BYTES handed out for rank %u", r);
        }
    }
    me->rank = self;
    free(want);
}

/* arg: step, wait_ms (0: none), cancel_old. */
void do_begin(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_begin_opts o = {
        .struct_size = sizeof(o), .wait_ms = (uint32_t)arg[1], .cancel_old = (uint32_t)arg[2]
    };
    int64_t shape[1];
    struct hearth_piece piece = weights(me, shape);

    out->rc = hearth_save_begin(
            me->h, arg[0], hearth_save_bytes(&piece, 1, NULL, 0), &o, &me->save, &out->err);
}

void do_abort(struct me *me, const uint64_t arg[3], struct answer *out)
{
    (void)arg, (void)out;
    hearth_save_abort(me->save);
    me->save = NULL;
}

void do_write(struct me *me, const uint64_t arg[3], struct answer *out)
{
    int64_t shape[1];
    struct hearth_piece piece = weights(me, shape);

    fill(me->data, me->bytes, seed_of(arg[0], arg[1], me->rank));
    out->rc = hearth_save_add(me->save, &piece, 1, &out->err);
}

void do_commit(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_handle **handle = &me->handle[arg[0] % 16];

    hearth_handle_close(*handle);
    *handle = NULL;
    out->rc = hearth_save_commit(me->save, handle, &out->err);
    me->save = NULL;
}

void do_save(struct me *me, const uint64_t arg[3], struct answer *out)
{
    uint64_t begin[3] = { arg[0], patient.wait_ms, 0 };

    do_begin(me, begin, out);
    if (!out->rc)
        do_write(me, arg, out);
    if (!out->rc)
        do_commit(me, arg, out);
}

void do_wait(struct me *me, const uint64_t arg[3], struct answer *out)
{
    uint64_t from = now_ms();

    out->rc = hearth_wait(
            me->handle[arg[0] % 16], (enum hearth_level)arg[1], (uint32_t)arg[2], &out->err);
    out->v[0] = now_ms() - from;
}

/* v: level, degraded, code as positive, copied; the text is in err. */
void do_test(struct me *me, const uint64_t arg[3], struct answer *out)
{
    struct hearth_status s = { .struct_size = sizeof(s) };

    out->rc = hearth_test(me->handle[arg[0] % 16], &s, &out->err);
    out->v[0] = s.level;
    out->v[1] = s.degraded;
    out->v[2] = (uint64_t)-s.code;
    out->v[3] = s.copied;
    if (!out->rc)
        snprintf(out->err.text, sizeof(out->err.text), "%s", s.text);
}

void do_cancel(struct me *me, const uint64_t arg[3], struct answer *out)
{
    out->rc = hearth_cancel(me->handle[arg[0] % 16], &out->err);
}
