/* SPDX-License-Identifier: Apache-2.0 */
#include "rank.h"

#include "check.h"
#include "tmp_root.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void rank_start(struct rank *r)
{
    memset(r, 0, sizeof(*r));
    strcpy(r->root, "/dev/shm/hearth-api-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(r->root), NULL));
    alarm(60);
    r->fake = fake_start(r->root, "job");
    r->opts = (struct hearth_opts)HEARTH_OPTS_INIT;
    r->opts.root = r->root;
    r->opts.job = "job";
    r->opts.node = "fake";
    r->opts.world = 1;
    r->opts.allow_degraded = 1;
    r->opts.start = HEARTH_START_NEVER;
    r->opts.open_ms = 5000;
}

void rank_open(struct rank *r)
{
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_open(&r->opts, &r->h, &err), 0), "%s", err.text);
    cr_assert(eq(int, hearth_recover(r->h, NULL, &ckpt, &err), 0), "%s", err.text);
    cr_assert(eq(ptr, ckpt, NULL));
}

void rank_end(struct rank *r)
{
    hearth_close(r->h, HEARTH_KEEP);
    fake_stop(r->fake);
    tmp_root_remove(r->root);
}

struct hearth_piece rank_piece(const char *key, void *data, uint32_t ndim, const int64_t *shape)
{
    return (struct hearth_piece){ .struct_size = sizeof(struct hearth_piece),
        .key = key,
        .key_len = strlen(key),
        .data = data,
        .dtype = HEARTH_FLOAT32,
        .ndim = ndim,
        .shape = shape };
}

struct hearth_save *rank_begin(struct hearth *h, uint64_t step, uint64_t bytes)
{
    struct hearth_save *save = NULL;
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_save_begin(h, step, bytes, NULL, &save, &err), 0), "%s", err.text);
    return save;
}

struct hearth_handle *rank_commit(struct hearth_save *save)
{
    struct hearth_handle *handle = NULL;
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_save_commit(save, &handle, &err), 0), "%s", err.text);
    return handle;
}

void rank_protect(struct hearth_handle *handle)
{
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_wait(handle, HEARTH_PROTECTED, 20000, &err), 0), "%s", err.text);
    hearth_handle_close(handle);
}

void rank_save(struct hearth *h, uint64_t step, const struct hearth_piece *pieces, size_t count,
        const struct hearth_bytes *bytes, size_t byte_count)
{
    struct hearth_save *save =
            rank_begin(h, step, hearth_save_bytes(pieces, count, bytes, byte_count));
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_save_add(save, pieces, count, &err), 0), "%s", err.text);
    cr_assert(eq(int, hearth_save_add_bytes(save, bytes, byte_count, &err), 0), "%s", err.text);
    rank_protect(rank_commit(save));
}

struct hearth_checkpoint *rank_recover(struct hearth *h, uint64_t step)
{
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_recovery info = { .struct_size = sizeof(info) };
    struct hearth_error err = { 0 };

    cr_assert(eq(int, hearth_recover(h, NULL, &ckpt, &err), 0), "%s", err.text);
    cr_assert(ne(ptr, ckpt, NULL));
    must(hearth_checkpoint_info(ckpt, &info, NULL));
    cr_assert(eq(u64, info.step, step));
    return ckpt;
}

void rank_fill(float *at, size_t n, float seed)
{
    for (size_t i = 0; i < n; i++)
        at[i] = (float)(i % 100000) * 1.5f + seed;
}
