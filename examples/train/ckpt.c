/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that a training job needs to do for Hearth: describe its tensors once, open, recover, load;
 * then begin, add, commit every few steps. A thread waits for each save to become PROTECTED, for
 * the record only: training goes on after commit.
 */
#include "train.h"

#include <hearth/hearth.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PIECES     6
#define ROOM_MS    20000  /* for a place to write to: the last save was decided before */
#define PROTECT_MS 120000 /* for a save to become PROTECTED */

struct ckpt {
    struct hearth *h;
    struct model *model;
    struct hearth_bootstrap bootstrap;
    struct hearth_piece pieces[PIECES];
    char keys[PIECES][32];
    int64_t shape[2], global_shape[2], global_offset[2], dense_shape[1];
    uint64_t bytes;

    struct hearth_handle *handle; /* of the last save; NULL: none */
    pthread_t waiter;             /* runs while handle is set */
    double begun_ms;
    int64_t step;               /* of the last save */
    atomic_bool settled;        /* PROTECTED, failed or unknown */
    _Atomic uint32_t protected; /* saves of this launch */
};

static int complain(const struct ckpt *ckpt, const char *doing, const struct hearth_error *err)
{
    fprintf(stderr, "hearth_train: rank %u: %s: %s\n", ckpt->model->rank, doing, err->text);
    return -1;
}

/* JSON has no room for quotes and control characters in a sentence. */
static const char *plain(char *text)
{
    for (char *c = text; *c; c++)
        if (*c == '"' || *c == '\\' || (unsigned char)*c < ' ')
            *c = '\'';
    return text;
}

static int allgather(void *self, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    (void)self, (void)err; /* MPI ends the job itself when it cannot */
    exchange_all(mine, len, all);
    return HEARTH_OK;
}

/* The table's arrays are boxes of one global tensor; the dense part each rank keeps for itself. */
static void describe(struct ckpt *ckpt)
{
    struct model *m = ckpt->model;
    const char *names[PIECES] = { "table", "table.momentum", "table.squares", "dense",
        "dense.momentum", "step" };
    void *data[PIECES] = { m->table, m->momentum, m->squares, m->dense, m->dense_momentum,
        &m->step };

    ckpt->shape[0] = m->rows;
    ckpt->global_shape[0] = m->rows * m->world;
    ckpt->global_offset[0] = m->rows * m->rank;
    ckpt->shape[1] = ckpt->global_shape[1] = DIM;
    ckpt->dense_shape[0] = DENSE;
    for (size_t i = 0; i < PIECES; i++) {
        struct hearth_piece *piece = &ckpt->pieces[i];

        if (i < 3)
            snprintf(ckpt->keys[i], sizeof(ckpt->keys[i]), "%s", names[i]);
        else
            snprintf(ckpt->keys[i], sizeof(ckpt->keys[i]), "%s/%u", names[i], m->rank);
        *piece = (struct hearth_piece){ .struct_size = sizeof(*piece),
            .key = ckpt->keys[i],
            .key_len = strlen(ckpt->keys[i]),
            .data = data[i],
            .dtype = HEARTH_FLOAT32,
            .ndim = 1,
            .shape = ckpt->dense_shape };
        if (i < 3) {
            piece->ndim = 2;
            piece->shape = ckpt->shape;
            piece->global_shape = ckpt->global_shape;
            piece->global_offset = ckpt->global_offset;
        }
    }
    ckpt->pieces[PIECES - 1].dtype = HEARTH_INT64;
    ckpt->pieces[PIECES - 1].ndim = 0;
    ckpt->bytes = hearth_save_bytes(ckpt->pieces, PIECES, NULL, 0);
}

int ckpt_open(struct model *model, struct ckpt **out)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_error err = { 0 };
    struct ckpt *ckpt = calloc(1, sizeof(*ckpt));

    if (!ckpt)
        return -1;
    ckpt->model = model;
    ckpt->bootstrap = hearth_bootstrap_init();
    ckpt->bootstrap.allgather = allgather;
    atomic_store(&ckpt->settled, true);
    describe(ckpt);
    opts.rank = model->rank;
    opts.world = model->world;
    opts.bootstrap = &ckpt->bootstrap;
    opts.object_bytes = &ckpt->bytes;
    opts.object_count = 1;
    if (hearth_opts_from_env(&opts, &err) != 0 || hearth_open(&opts, &ckpt->h, &err) != 0) {
        complain(ckpt, "cannot open Hearth", &err);
        free(ckpt);
        return -1;
    }
    *out = ckpt;
    return 0;
}

static void say_recovered(struct hearth_checkpoint *checkpoint, double ms, double load_ms)
{
    struct hearth_recovery info = HEARTH_RECOVERY_INIT;
    struct hearth_error err = { 0 };

    if (hearth_checkpoint_info(checkpoint, &info, &err) != 0)
        return;
    event("recovered",
            "\"step\":%llu,\"ms\":%.1f,\"load_ms\":%.1f,\"join_ms\":%u,\"inventory_ms\":%u,"
            "\"plan_ms\":%u,\"pull_ms\":%u,\"verify_ms\":%u,\"vote_ms\":%u,\"pulled_bytes\":%llu,"
            "\"sources\":%u,\"degraded\":%u,\"beyond\":%u,\"text\":\"%s\"",
            (unsigned long long)info.step, ms, load_ms, info.join_ms, info.inventory_ms,
            info.plan_ms, info.pull_ms, info.verify_ms, info.vote_ms,
            (unsigned long long)info.pulled_bytes, info.sources, info.degraded, info.beyond,
            plain(info.text));
}

int ckpt_recover(struct ckpt *ckpt)
{
    struct hearth_checkpoint *checkpoint = NULL;
    struct hearth_error err = { 0 };
    double started = now_ms(), recovered;
    int rc;

    if (hearth_recover(ckpt->h, NULL, &checkpoint, &err) != 0)
        return complain(ckpt, "cannot recover", &err);
    recovered = now_ms();
    if (!checkpoint) {
        event("scratch", "\"ms\":%.1f", recovered - started);
        return 0;
    }
    rc = hearth_load(checkpoint, ckpt->pieces, PIECES, 0, NULL, &err);
    if (rc == 0)
        say_recovered(checkpoint, recovered - started, now_ms() - recovered);
    hearth_checkpoint_close(checkpoint);
    return rc == 0 ? 0 : complain(ckpt, "cannot load", &err);
}

static void *wait_protected(void *arg)
{
    struct ckpt *ckpt = arg;
    struct hearth_status status = HEARTH_STATUS_INIT;
    struct hearth_error err = { 0 };
    int rc = hearth_wait(ckpt->handle, HEARTH_PROTECTED, PROTECT_MS, &err);

    if (rc == 0)
        rc = hearth_test(ckpt->handle, &status, &err);
    if (rc == 0 && status.level >= HEARTH_PROTECTED) {
        event("protected", "\"step\":%lld,\"ms\":%.1f,\"degraded\":%u", (long long)ckpt->step,
                now_ms() - ckpt->begun_ms, status.degraded);
        atomic_fetch_add(&ckpt->protected, 1);
    } else if (rc != 0) { /* training goes on; the next save may work */
        event("failed", "\"step\":%lld,\"code\":%d,\"text\":\"%s\"", (long long)ckpt->step, rc,
                plain(err.text));
    }
    atomic_store(&ckpt->settled, true);
    return NULL;
}

static void forget_last(struct ckpt *ckpt)
{
    if (!ckpt->handle)
        return;
    pthread_join(ckpt->waiter, NULL);
    hearth_handle_close(ckpt->handle);
    ckpt->handle = NULL;
}

static int add_all(
        struct ckpt *ckpt, struct hearth_save *save, bool middle, struct hearth_error *err)
{
    const size_t half = middle ? 1 : PIECES;
    int rc = hearth_save_add(save, ckpt->pieces, half, err);

    if (rc == 0 && middle)
        halt("middle", ckpt->step);
    if (rc == 0 && half < PIECES)
        rc = hearth_save_add(save, ckpt->pieces + half, PIECES - half, err);
    return rc;
}

/* A save that does not come about is no reason to stop training: it is recorded, the next may. */
int ckpt_save(struct ckpt *ckpt, bool middle)
{
    const struct hearth_begin_opts begin = { .struct_size = sizeof(begin), .wait_ms = ROOM_MS };
    struct hearth_error err = { 0 };
    struct hearth_save *save = NULL;
    int rc;

    forget_last(ckpt);
    ckpt->step = ckpt->model->step;
    ckpt->begun_ms = now_ms();
    rc = hearth_save_begin(ckpt->h, (uint64_t)ckpt->step, ckpt->bytes, &begin, &save, &err);
    if (rc == 0) {
        rc = add_all(ckpt, save, middle, &err);
        if (rc == 0)
            rc = hearth_save_commit(save, &ckpt->handle, &err);
        else
            hearth_save_abort(save);
    }
    if (rc != 0) {
        event("failed", "\"step\":%lld,\"code\":%d,\"text\":\"%s\"", (long long)ckpt->step, rc,
                plain(err.text));
        return 0;
    }
    event("saved", "\"step\":%lld,\"ms\":%.2f", (long long)ckpt->step, now_ms() - ckpt->begun_ms);
    atomic_store(&ckpt->settled, false);
    if (pthread_create(&ckpt->waiter, NULL, wait_protected, ckpt) == 0)
        return 0;
    fprintf(stderr, "hearth_train: no thread\n");
    return -1;
}

bool ckpt_settled(struct ckpt *ckpt)
{
    return atomic_load(&ckpt->settled);
}

uint32_t ckpt_protected(const struct ckpt *ckpt)
{
    return atomic_load(&ckpt->protected);
}

void ckpt_close(struct ckpt *ckpt, bool drop)
{
    if (!ckpt)
        return;
    forget_last(ckpt);
    hearth_close(ckpt->h, drop ? HEARTH_DROP : HEARTH_KEEP);
    free(ckpt);
}
