/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank of tests/install/slurm.sh: saves a step every 0.2 s, whose bytes are a function of step,
 * rank and place. After a recovery it compares each byte, saves one step more and ends.
 *
 *     slurm_job LAST        ends after step LAST, where nothing was to recover
 */
#include <hearth/hearth.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define WORDS 100000

static uint64_t data[WORDS];

static uint64_t word(uint64_t step, uint64_t rank, uint64_t i)
{
    uint64_t x = i + (step << 40) + (rank << 32);

    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ (x >> 31);
}

static int resume(struct hearth *h, uint32_t rank, const struct hearth_piece *piece, uint64_t *step,
        struct hearth_error *err)
{
    struct hearth_recovery from = HEARTH_RECOVERY_INIT;
    struct hearth_checkpoint *ckpt = NULL;
    size_t wrong = 0;
    int rc = hearth_recover(h, NULL, &ckpt, err);

    if (rc || !ckpt)
        return rc;
    if (!(rc = hearth_load(ckpt, piece, 1, 0, NULL, err)))
        rc = hearth_checkpoint_info(ckpt, &from, err);
    hearth_checkpoint_close(ckpt);
    if (rc)
        return rc;
    for (size_t i = 0; i < WORDS; i++)
        wrong += data[i] != word(from.step, rank, i);
    printf("rank %" PRIu32 ": resumed at step %" PRIu64 ", %zu words wrong\n", rank, from.step,
            wrong);
    fflush(stdout);
    *step = from.step;
    return 0;
}

static int save(struct hearth *h, uint32_t rank, uint64_t step, const struct hearth_piece *piece,
        struct hearth_error *err)
{
    struct hearth_begin_opts begin = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_save *save;
    struct hearth_handle *handle;
    int rc;

    begin.wait_ms = 20000;
    for (size_t i = 0; i < WORDS; i++)
        data[i] = word(step, rank, i);
    if ((rc = hearth_save_begin(
                 h, step, hearth_save_bytes(piece, 1, NULL, 0), &begin, &save, err)) ||
            (rc = hearth_save_add(save, piece, 1, err)) ||
            (rc = hearth_save_commit(save, &handle, err)))
        return rc;
    rc = hearth_wait(handle, HEARTH_PROTECTED, 60000, err);
    hearth_handle_close(handle);
    if (!rc)
        printf("rank %" PRIu32 ": protected step %" PRIu64 "\n", rank, step), fflush(stdout);
    return rc;
}

static int job(
        struct hearth *h, const struct hearth_opts *opts, uint64_t last, struct hearth_error *err)
{
    const int64_t shape = WORDS, global = (int64_t)WORDS * opts->world,
                  offset = (int64_t)WORDS * opts->rank;
    struct hearth_piece piece = { .struct_size = sizeof(piece),
        .key = "words",
        .key_len = 5,
        .data = data,
        .dtype = HEARTH_INT64,
        .ndim = 1,
        .shape = &shape,
        .global_shape = &global,
        .global_offset = &offset };
    uint64_t step = 0;
    int rc = resume(h, opts->rank, &piece, &step, err);

    if (step)
        last = step + 1;
    while (!rc && step < last) {
        rc = save(h, opts->rank, ++step, &piece, err);
        usleep(200000);
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;
    struct hearth_bootstrap *bootstrap = NULL;
    struct hearth *h = NULL;
    struct hearth_error err = { 0 };
    uint32_t rank, world;
    int rc = hearth_bootstrap_pmix(30000, &bootstrap, &rank, &world, &err);

    if (!rc && !(rc = hearth_opts_from_env(&opts, &err))) {
        opts.rank = rank, opts.world = world, opts.bootstrap = bootstrap;
        rc = hearth_open(&opts, &h, &err);
    }
    if (!rc)
        rc = job(h, &opts, argc > 1 ? strtoull(argv[1], NULL, 10) : 3, &err);
    hearth_close(h, HEARTH_KEEP);
    hearth_bootstrap_close(bootstrap);
    if (rc)
        fprintf(stderr, "rank: %s\n", err.text);
    return rc ? 1 : 0;
}
