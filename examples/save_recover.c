/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Save and recover in one process. Run it twice: the second run goes on where the first one ended,
 * from memory that outlived it.
 *
 *     save_recover ROOT        ROOT: a folder of a tmpfs, for example /dev/shm/hearth
 */
#include <hearth/hearth.h>
#include <stdio.h>
#include <sys/stat.h>

#define ROWS  1000
#define COLS  1000
#define STEPS 5

static float weights[ROWS][COLS];

static int train(
        struct hearth *h, uint64_t first, struct hearth_piece *piece, struct hearth_error *err)
{
    struct hearth_handle *handle = NULL;
    uint64_t bytes = hearth_save_bytes(piece, 1, NULL, 0), step;
    int rc = 0;

    for (step = first; step < first + STEPS && !rc; step++) {
        struct hearth_save *save;

        weights[step % ROWS][0] += 1; /* what a real program is for */
        if ((rc = hearth_save_begin(h, step, bytes, NULL, &save, err)) ||
                (rc = hearth_save_add(save, piece, 1, err)) ||
                (rc = hearth_save_commit(save, &handle, err)))
            break;
        rc = hearth_wait(handle, HEARTH_PROTECTED, 60000, err); /* a job would go on meanwhile */
        hearth_handle_close(handle);
    }
    if (!rc)
        printf("saved steps %llu to %llu\n", (unsigned long long)first,
                (unsigned long long)step - 1);
    return rc;
}

int main(int argc, char **argv)
{
    const int64_t shape[] = { ROWS, COLS };
    struct hearth_piece piece = { .struct_size = sizeof(piece),
        .key = "weights",
        .key_len = 7,
        .data = weights,
        .dtype = HEARTH_FLOAT32,
        .ndim = 2,
        .shape = shape };
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_recovery from = HEARTH_RECOVERY_INIT;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth *h = NULL;
    struct hearth_error err = { 0 };
    int rc;

    opts.root = argc > 1 ? argv[1] : "/dev/shm/hearth";
    mkdir(opts.root, 0700); /* that it cannot be made, hearth_open() says */
    opts.job = "save_recover";
    opts.world = 1;
    opts.allow_degraded = 1; /* one node: there is nobody to copy to */
    if (!(rc = hearth_open(&opts, &h, &err)) && !(rc = hearth_recover(h, NULL, &ckpt, &err)) &&
            ckpt)
        if (!(rc = hearth_load(ckpt, &piece, 1, 0, NULL, &err)))
            rc = hearth_checkpoint_info(ckpt, &from, &err);
    if (!rc)
        printf(ckpt ? "recovered step %llu\n" : "nothing to recover\n",
                (unsigned long long)from.step);
    hearth_checkpoint_close(ckpt);
    if (!rc)
        rc = train(h, from.step + 1, &piece, &err);
    hearth_close(h, HEARTH_KEEP);
    if (rc)
        fprintf(stderr, "save_recover: %s\n", err.text);
    return rc ? 1 : 0;
}
