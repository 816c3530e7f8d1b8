/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of the job of docs/operate/a-night.md: recovers, prints the step that it goes on from, and
 * saves 8 MiB every 200 ms until its standard input ends. It prints each step that is PROTECTED.
 * After a save that fails it saves no more, as a rank that waits for one that is gone.
 * Options come from the environment.
 */
#include <hearth/hearth.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#define EVERY_MS 200

static float weight[2 << 20];
static const int64_t shape[] = { 2 << 20 };

static int save_step(struct hearth *h, uint64_t step, struct hearth_error *err)
{
    struct hearth_piece piece = HEARTH_PIECE_INIT;
    struct hearth_handle *handle = NULL;
    struct hearth_save *save = NULL;
    int rc;

    piece.key = "weight";
    piece.key_len = 6;
    piece.from = weight;
    piece.dtype = HEARTH_FLOAT32;
    piece.ndim = 1;
    piece.shape = shape;
    weight[0] = (float)step;
    rc = hearth_save_begin(h, step, hearth_save_bytes(&piece, 1, NULL, 0), NULL, &save, err);
    if (!rc)
        rc = hearth_save_add(save, &piece, 1, err);
    if (!rc)
        rc = hearth_save_commit(save, &handle, err);
    if (!rc)
        rc = hearth_wait(handle, HEARTH_PROTECTED, 60000, err);
    hearth_handle_close(handle);
    return rc;
}

/* 1: the input has not ended by then. */
static int goes_on(int ms)
{
    struct pollfd in = { .fd = 0, .events = POLLIN };

    return poll(&in, 1, ms) == 0;
}

static void run(struct hearth *h, uint64_t step)
{
    struct hearth_error err = { 0 };

    while (goes_on(EVERY_MS)) {
        if (save_step(h, ++step, &err)) {
            printf("failed %" PRIu64 ": %s\n", step, err.text);
            fflush(stdout);
            goes_on(-1);
            return;
        }
        printf("protected %" PRIu64 "\n", step);
        fflush(stdout);
    }
}

int main(void)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_bootstrap *bootstrap = NULL;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_recovery from = { .struct_size = sizeof(from) };
    struct hearth_error err = { 0 };
    struct hearth *h = NULL;
    int rc = hearth_bootstrap_tcp_from_env(60000, &bootstrap, &opts.rank, &opts.world, &err);

    opts.bootstrap = bootstrap;
    rc = rc ? rc : hearth_opts_from_env(&opts, &err);
    rc = rc ? rc : hearth_open(&opts, &h, &err);
    rc = rc ? rc : hearth_recover(h, NULL, &ckpt, &err);
    rc = rc || !ckpt ? rc : hearth_checkpoint_info(ckpt, &from, &err);
    hearth_checkpoint_close(ckpt);
    if (rc) {
        puts(err.text);
    } else {
        printf("recovered %" PRIu64 "\n", from.step);
        fflush(stdout);
        run(h, from.step);
    }
    hearth_close(h, HEARTH_KEEP);
    hearth_bootstrap_close(bootstrap);
    return rc ? 1 : 0;
}
