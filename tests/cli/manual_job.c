/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One of the two ranks of the job that the examples of the manual's section 1 look at. It saves
 * three steps, or as many as its first argument says: two tensors and a byte string at rank 0, one
 * tensor at rank 1, the first of 1,000 rows, or as many as its second argument says. Then it prints
 * "saved" and waits until its standard input ends: an `a` there makes it abort a save, an `l` save
 * larger tensors, successful or not. Options come from the environment.
 */
#include <hearth/hearth.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float weight[4 * 1000 * 1000], bias[2000];
static const int64_t bias_shape[] = { 2000 };
static int64_t weight_shape[] = { 1000, 1000 };

static struct hearth_piece tensor(
        const char *key, const float *from, uint32_t ndim, const int64_t *shape)
{
    struct hearth_piece p = HEARTH_PIECE_INIT;

    p.key = key;
    p.key_len = strlen(key);
    p.from = from;
    p.dtype = HEARTH_FLOAT32;
    p.ndim = ndim;
    p.shape = shape;
    return p;
}

static int save_step(struct hearth *h, uint32_t rank, uint64_t step, struct hearth_error *err)
{
    struct hearth_piece pieces[] = {
        tensor(rank ? "optim.weight" : "model.weight", weight, 2, weight_shape),
        tensor("model.bias", bias, 1, bias_shape),
    };
    struct hearth_bytes rng = HEARTH_BYTES_INIT;
    struct hearth_handle *handle = NULL;
    struct hearth_save *save = NULL;
    size_t count = rank ? 1 : 2;
    int rc;

    rng.key = "rng";
    rng.key_len = 3;
    rng.data = "0123456789";
    rng.len = 10;
    rc = hearth_save_begin(h, step, hearth_save_bytes(pieces, count, &rng, 1), NULL, &save, err);
    if (!rc)
        rc = hearth_save_add(save, pieces, count, err);
    if (!rc && !rank)
        rc = hearth_save_add_bytes(save, &rng, 1, err);
    if (!rc)
        rc = hearth_save_commit(save, &handle, err);
    if (!rc)
        rc = hearth_wait(handle, HEARTH_PROTECTED, 60000, err);
    hearth_handle_close(handle);
    return rc;
}

/* A save that fails on all ranks. */
static int abort_step(struct hearth *h, uint64_t step, struct hearth_error *err)
{
    struct hearth_piece piece = tensor("model.weight", weight, 2, weight_shape);
    struct hearth_save *save = NULL;
    int rc = hearth_save_begin(h, step, hearth_save_bytes(&piece, 1, NULL, 0), NULL, &save, err);

    if (!rc)
        hearth_save_abort(save);
    return rc;
}

int main(int argc, char **argv)
{
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 3;
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_bootstrap *bootstrap = NULL;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err = { 0 };
    struct hearth *h = NULL;
    int order, rc = hearth_bootstrap_tcp_from_env(60000, &bootstrap, &opts.rank, &opts.world, &err);

    if (argc > 2 && strtoll(argv[2], NULL, 10) < 1000)
        weight_shape[0] = strtoll(argv[2], NULL, 10);
    opts.bootstrap = bootstrap;
    rc = rc ? rc : hearth_opts_from_env(&opts, &err);
    rc = rc ? rc : hearth_open(&opts, &h, &err);
    rc = rc ? rc : hearth_recover(h, NULL, &ckpt, &err);
    for (uint64_t step = 3000; step < 3000 + steps * 1000 && !rc; step += 1000)
        rc = save_step(h, opts.rank, step, &err);
    puts(rc ? err.text : "saved");
    fflush(stdout);
    while (!rc && (order = getchar()) != EOF)
        if (order == 'a') {
            rc = abort_step(h, 3000 + steps++ * 1000, &err);
        } else if (order == 'l') {
            weight_shape[0] = 4000;
            (void)save_step(h, opts.rank, 3000 + steps++ * 1000, &err);
        }
    hearth_checkpoint_close(ckpt);
    hearth_close(h, HEARTH_KEEP);
    hearth_bootstrap_close(bootstrap);
    return rc ? 1 : 0;
}
