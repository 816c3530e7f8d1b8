/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rank saves its part of one global vector, and reads its neighbour's back: of this world, so
 * that the next run may have more ranks or fewer.
 *
 *     mpirun -n 4 mpi_job ROOT        Open MPI or another launcher that speaks PMIx
 */
#include <hearth/hearth.h>
#include <stdio.h>

#define TOTAL 1000000

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

/* What `rank` has of the vector. */
static void part_of(uint32_t rank, uint32_t world, int64_t *offset, int64_t *shape)
{
    *offset = (int64_t)TOTAL * rank / world;
    *shape = (int64_t)TOTAL * (rank + 1) / world - *offset;
}

static int load(struct hearth_checkpoint *ckpt, uint32_t rank, const struct hearth_piece *piece,
        uint64_t *step, struct hearth_error *err)
{
    struct hearth_recovery from = HEARTH_RECOVERY_INIT;
    int rc;

    if ((rc = hearth_load(ckpt, piece, 1, 0, NULL, err)) ||
            (rc = hearth_checkpoint_info(ckpt, &from, err)))
        return rc;
    *step = from.step;
    printf("rank %u: step %llu, at its neighbour's first place is %.3f\n", rank,
            (unsigned long long)*step, *(const double *)piece->data);
    return 0;
}

static int job(struct hearth *h, uint32_t rank, uint32_t world, struct hearth_error *err)
{
    static double part[TOTAL];
    const int64_t global = TOTAL;
    int64_t shape, offset;
    uint64_t step = 0;
    struct hearth_checkpoint *ckpt;
    struct hearth_piece piece = { .struct_size = sizeof(piece),
        .key = "vector",
        .key_len = 6,
        .data = part,
        .dtype = HEARTH_FLOAT64,
        .ndim = 1,
        .shape = &shape,
        .global_shape = &global,
        .global_offset = &offset };
    int rc;

    if ((rc = hearth_recover(h, NULL, &ckpt, err)))
        return rc;
    part_of((rank + 1) % world, world, &offset, &shape); /* wherever it is */
    if (ckpt)
        rc = load(ckpt, rank, &piece, &step, err);
    hearth_checkpoint_close(ckpt);
    part_of(rank, world, &offset, &shape);
    for (int64_t i = 0; i < shape; i++)
        part[i] = rank + 0.001 * (double)step;
    return rc ? rc : save(h, step + 1, &piece, err);
}

int main(int argc, char **argv)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_bootstrap *bootstrap = NULL;
    struct hearth *h = NULL;
    struct hearth_error err = { 0 };
    int rc = hearth_bootstrap_pmix(30000, &bootstrap, &opts.rank, &opts.world, &err);

    opts.root = argc > 1 ? argv[1] : "/dev/shm/hearth";
    opts.job = "mpi_job", opts.bootstrap = bootstrap;
    opts.allow_degraded = 1; /* all ranks may be on one node */
    if (!rc && !(rc = hearth_open(&opts, &h, &err)))
        rc = job(h, opts.rank, opts.world, &err);
    hearth_close(h, HEARTH_KEEP);
    hearth_bootstrap_close(bootstrap);
    if (rc)
        fprintf(stderr, "rank %u: %s\n", opts.rank, err.text);
    return rc ? 1 : 0;
}
