/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GPU memory in a training loop of your own, as three functions to take over. CUDA or HIP is the
 * program's: here a stream is a pointer, and the pieces' `from` and `data` are GPU memory.
 *
 *     resume ─► for each step: forward, backward ─► before_step ─► optimizer ─► save_step
 */
#include <hearth/hearth.h>
#include <stddef.h>

/* The newest save into the tensors. The stream goes on with the new bytes, and no thread waits for
 * the GPU. *out_step 0: there is none yet. */
static int resume(struct hearth *h, const struct hearth_piece *tensors, size_t count, void *stream,
        uint64_t *out_step, struct hearth_error *err)
{
    struct hearth_recovery from = HEARTH_RECOVERY_INIT;
    struct hearth_checkpoint *ckpt = NULL;
    int rc = hearth_recover(h, NULL, &ckpt, err);

    *out_step = 0;
    if (rc || !ckpt)
        return rc;
    rc = hearth_checkpoint_info(ckpt, &from, err);
    *out_step = from.step;
    if (!rc)
        rc = hearth_checkpoint_stream(ckpt, stream, err);
    if (!rc)
        rc = hearth_load(ckpt, tensors, count, 0, NULL, err);
    hearth_checkpoint_close(ckpt);
    return rc;
}

/* Before anything changes the tensors: what is enqueued in the stream from here on runs after the
 * copies of the save. *handle NULL: no save is under way. */
static int before_step(struct hearth_handle **handle, void *stream, struct hearth_error *err)
{
    int rc = *handle ? hearth_handle_fence(*handle, stream, err) : 0;

    hearth_handle_close(*handle); /* the save goes on */
    *handle = NULL;
    return rc;
}

/* Behind the optimizer's step, which is in the stream: returns before the bytes are copied. */
static int save_step(struct hearth *h, uint64_t step, const struct hearth_piece *tensors,
        size_t count, void *stream, struct hearth_handle **out, struct hearth_error *err)
{
    struct hearth_begin_opts opts = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_save *save = NULL;
    int rc;

    opts.stream = stream;
    opts.wait_ms = 10000; /* for a slot, while older saves are undecided */
    rc = hearth_save_begin(h, step, hearth_save_bytes(tensors, count, NULL, 0), &opts, &save, err);
    if (!rc && (rc = hearth_save_add(save, tensors, count, err))) {
        hearth_save_abort(save);
        return rc;
    }
    return rc ? rc : hearth_save_commit(save, out, err);
}
