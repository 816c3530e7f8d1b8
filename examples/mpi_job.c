/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rank saves a part of one global vector, and reads a part of its neighbour's back.
 *
 *     mpirun -n 4 mpi_job ROOT        Open MPI or another launcher that speaks PMIx
 */
#include <hearth/hearth.h>
#include <stdio.h>

#define PART 1000

static int save(
        struct hearth *h, uint64_t step, struct hearth_piece *piece, struct hearth_error *err)
{
    struct hearth_save *save;
    struct hearth_handle *handle;
    int rc;

    if ((rc = hearth_save_begin(h, step, hearth_save_bytes(piece, 1, NULL, 0), NULL, &save, err)) ||
            (rc = hearth_save_add(save, piece, 1, err)) ||
            (rc = hearth_save_commit(save, &handle, err)))
        return rc;
    rc = hearth_wait(handle, HEARTH_PROTECTED, 60000, err);
    hearth_handle_close(handle);
    return rc;
}

static int job(struct hearth *h, uint32_t rank, uint32_t world, struct hearth_error *err)
{
    static double part[PART];
    const int64_t shape[] = { PART }, global[] = { (int64_t)world * PART };
    int64_t offset[] = { (int64_t)((rank + 1) % world) * PART }; /* wherever it is */
    struct hearth_recovery from = { .struct_size = sizeof(from) };
    struct hearth_checkpoint *ckpt;
    struct hearth_piece piece = { .struct_size = sizeof(piece),
        .key = "vector",
        .key_len = 6,
        .data = part,
        .dtype = HEARTH_FLOAT64,
        .ndim = 1,
        .shape = shape,
        .global_shape = global,
        .global_offset = offset };
    int rc;

    if ((rc = hearth_recover(h, NULL, &ckpt, err)))
        return rc;
    if (ckpt) {
        if (!(rc = hearth_load(ckpt, &piece, 1, 0, NULL, err)))
            rc = hearth_checkpoint_info(ckpt, &from, err);
        printf("rank %u: step %llu, the neighbour had %g\n", rank, (unsigned long long)from.step,
                part[0]);
        hearth_checkpoint_close(ckpt);
    }
    offset[0] = (int64_t)rank * PART;
    for (int i = 0; i < PART; i++)
        part[i] = rank + 0.001 * (double)from.step;
    return rc ? rc : save(h, from.step + 1, &piece, err);
}

int main(int argc, char **argv)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_bootstrap *bootstrap = NULL;
    struct hearth *h = NULL;
    struct hearth_error err = { 0 };
    int rc = hearth_bootstrap_pmix(30000, &bootstrap, &opts.rank, &opts.world, &err);

    opts.root = argc > 1 ? argv[1] : "/dev/shm/hearth";
    opts.job = "mpi_job";
    opts.bootstrap = bootstrap;
    opts.allow_degraded = 1; /* all ranks may be on one node */
    rc = rc ? rc : hearth_open(&opts, &h, &err);
    rc = rc ? rc : job(h, opts.rank, opts.world, &err);
    hearth_close(h, HEARTH_KEEP);
    hearth_bootstrap_close(bootstrap);
    if (rc)
        fprintf(stderr, "rank %u: %s\n", opts.rank, err.text);
    return rc ? 1 : 0;
}
