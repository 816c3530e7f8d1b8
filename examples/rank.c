/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of a job whose launcher sets variables: HEARTH_* as in hearth_opts(3), RANK, WORLD_SIZE,
 * MASTER_ADDR, MASTER_PORT. It resumes at the newest step, makes five more, and saves each:
 *
 *     rank
 */
#include <hearth/hearth.h>
#include <stdio.h>

#define COUNT 1000000
#define STEPS 5

static float part[COUNT]; /* of a vector that all ranks have together */

static int train(struct hearth *h, uint64_t first, const struct hearth_piece *piece,
        struct hearth_error *err)
{
    struct hearth_begin_opts begin = HEARTH_BEGIN_OPTS_INIT;
    uint64_t bytes = hearth_save_bytes(piece, 1, NULL, 0);
    int rc = 0;

    begin.wait_ms = 60000;
    for (uint64_t step = first; step < first + STEPS && !rc; step++) {
        struct hearth_handle *handle;
        struct hearth_save *save;

        part[step % COUNT] += 1;
        if ((rc = hearth_save_begin(h, step, bytes, &begin, &save, err)) ||
                (rc = hearth_save_add(save, piece, 1, err)) ||
                (rc = hearth_save_commit(save, &handle, err)))
            break;
        rc = hearth_wait(handle, HEARTH_PROTECTED, 60000, err); /* a job would go on meanwhile */
        hearth_handle_close(handle);
    }
    return rc;
}

static int resume(struct hearth *h, const struct hearth_piece *piece, struct hearth_recovery *from,
        struct hearth_error *err)
{
    struct hearth_checkpoint *ckpt = NULL;
    int rc = hearth_recover(h, NULL, &ckpt, err);

    if (!rc && ckpt && !(rc = hearth_load(ckpt, piece, 1, 0, NULL, err)))
        rc = hearth_checkpoint_info(ckpt, from, err);
    hearth_checkpoint_close(ckpt);
    return rc;
}

int main(void)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_recovery from = HEARTH_RECOVERY_INIT;
    struct hearth_bootstrap *meeting = NULL;
    struct hearth_error err = { 0 };
    struct hearth *h = NULL;
    int64_t shape[] = { COUNT }, whole[1], offset[1];
    const struct hearth_piece piece = { .struct_size = sizeof(piece),
        .key = "vector",
        .key_len = 6,
        .data = part,
        .dtype = HEARTH_FLOAT32,
        .ndim = 1,
        .shape = shape,
        .global_shape = whole,
        .global_offset = offset };
    int rc = hearth_opts_from_env(&opts, &err);

    rc = rc ? rc : hearth_bootstrap_tcp_from_env(60000, &meeting, &opts.rank, &opts.world, &err);
    whole[0] = (int64_t)COUNT * opts.world;
    offset[0] = (int64_t)COUNT * opts.rank;
    opts.bootstrap = meeting;
    rc = rc ? rc : hearth_open(&opts, &h, &err);
    if (!rc && !(rc = resume(h, &piece, &from, &err))) {
        printf("rank %u: resumes at step %llu, with %llu bytes of other nodes\n", opts.rank,
                (unsigned long long)from.step, (unsigned long long)from.pulled_bytes);
        rc = train(h, from.step + 1, &piece, &err);
    }
    if (rc)
        fprintf(stderr, "rank %u: %s\n", opts.rank, err.text);
    else
        printf("rank %u: step %llu is protected\n", opts.rank,
                (unsigned long long)from.step + STEPS);
    hearth_close(h, HEARTH_KEEP);
    hearth_bootstrap_close(meeting);
    return rc ? 1 : 0;
}
