/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a job whose pool is compared with what `hearth plan` says (plan.py).
 *
 *     planned_job BYTES OBJECTS SAVES COMMON
 *
 * It declares its objects, recovers, prints "open", and waits for a line. Then it saves, prints
 * "saved", and waits until its standard input ends. Options come from the environment.
 */
#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OBJECTS_MAX 8

static uint64_t each, objects, common;
static void *zeros;

static struct hearth_piece tensor(const char *key)
{
    static int64_t shape[1];
    struct hearth_piece p = HEARTH_PIECE_INIT;

    shape[0] = (int64_t)(each - 4096); /* header and key, too, are payload */
    p.key = key;
    p.key_len = strlen(key);
    p.from = zeros;
    p.dtype = HEARTH_UINT8;
    p.ndim = 1;
    p.shape = shape;
    return p;
}

static int save_objects(struct hearth_save *save, struct hearth_error *err)
{
    char key[32];
    int rc = 0;

    for (uint64_t i = 0; i < objects && !rc; i++) {
        struct hearth_piece piece;

        snprintf(key, sizeof(key), "part%d", (int)i);
        piece = tensor(key);
        if (i)
            rc = hearth_save_next_object(save, NULL, each, err);
        rc = rc ? rc : hearth_save_add(save, &piece, 1, err);
    }
    return rc;
}

static int save_step(struct hearth *h, uint32_t rank, uint64_t step, struct hearth_error *err)
{
    struct hearth_handle *handle = NULL;
    struct hearth_save *save = NULL;
    struct hearth_begin_opts opts = HEARTH_BEGIN_OPTS_INIT;
    int rc;

    opts.wait_ms = 20000;
    rc = hearth_save_begin(h, step, each, &opts, &save, err);
    rc = rc ? rc : save_objects(save, err);
    if (!rc && common && !rank)
        rc = hearth_save_put_common(save, ".metadata", zeros, common, err);
    rc = rc ? rc : hearth_save_commit(save, &handle, err);
    rc = rc ? rc : hearth_wait(handle, HEARTH_PROTECTED, 60000, err);
    hearth_handle_close(handle);
    return rc;
}

static int all_saves(struct hearth *h, uint32_t rank, uint64_t saves, struct hearth_error *err)
{
    int rc = 0;

    for (uint64_t step = 1; step <= saves && !rc; step++)
        rc = save_step(h, rank, step, err);
    return rc;
}

int main(int argc, char **argv)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_bootstrap *bootstrap = NULL;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err = { 0 };
    struct hearth *h = NULL;
    uint64_t bytes[OBJECTS_MAX];
    int rc;

    if (argc != 5)
        return 2;
    objects = strtoull(argv[2], NULL, 10);
    each = (strtoull(argv[1], NULL, 10) + objects - 1) / objects;
    common = strtoull(argv[4], NULL, 10);
    zeros = calloc(1, each > common ? each : common);
    for (uint64_t i = 0; i < objects; i++)
        bytes[i] = each;
    rc = hearth_bootstrap_tcp_from_env(60000, &bootstrap, &opts.rank, &opts.world, &err);
    opts.bootstrap = bootstrap;
    rc = rc ? rc : hearth_opts_from_env(&opts, &err);
    opts.object_bytes = bytes;
    opts.object_count = objects;
    rc = rc ? rc : hearth_open(&opts, &h, &err);
    rc = rc ? rc : hearth_recover(h, NULL, &ckpt, &err);
    puts(rc ? err.text : "open");
    fflush(stdout);
    if (!rc && getchar() != EOF) {
        rc = all_saves(h, opts.rank, strtoull(argv[3], NULL, 10), &err);
        puts(rc ? err.text : "saved");
        fflush(stdout);
    }
    while (!rc && getchar() != EOF) {
    }
    hearth_checkpoint_close(ckpt);
    hearth_close(h, HEARTH_KEEP);
    hearth_bootstrap_close(bootstrap);
    free(zeros);
    return rc ? 1 : 0;
}
