/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a one-node job in a root of its own, and verbs for what tests do most. */
#ifndef RANK_H
#define RANK_H

#include "fake_engine.h"

#include <hearth/hearth.h>

struct rank {
    char root[64];
    struct fake_engine *fake;
    struct hearth_opts opts;
    struct hearth *h;
};

void rank_start(struct rank *r); /* root and fake engine; options filled */
void rank_open(struct rank *r);  /* open and recover from scratch, or fail the test */
void rank_end(struct rank *r);

/* A float32 piece `key` of this shape; shape borrowed. */
struct hearth_piece rank_piece(const char *key, void *data, uint32_t ndim, const int64_t *shape);

/* Save these and wait until PROTECTED. */
void rank_save(struct hearth *h, uint64_t step, const struct hearth_piece *pieces, size_t count,
        const struct hearth_bytes *bytes, size_t byte_count);

/* The parts of it; rank_protect() waits, and closes the handle. */
struct hearth_save *rank_begin(struct hearth *h, uint64_t step, uint64_t bytes);
struct hearth_handle *rank_commit(struct hearth_save *save);
void rank_protect(struct hearth_handle *handle);

/* A new epoch's checkpoint, which must be there. */
struct hearth_checkpoint *rank_recover(struct hearth *h, uint64_t step);

/* float i: i * 1.5 + seed */
void rank_fill(float *at, size_t n, float seed);

#endif
