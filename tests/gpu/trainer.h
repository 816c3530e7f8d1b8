/* SPDX-License-Identifier: Apache-2.0 */
/* One job after the other: an engine in this process, one rank, GPU memory saved and read. */
#ifndef HEARTH_TESTS_GPU_TRAINER_H
#define HEARTH_TESTS_GPU_TRAINER_H

#include <hearth/hearth.h>
#include <stdint.h>

struct pinned {
    uint64_t bytes; /* of the first slot; 0: none was pinned, `why` has the log's line */
    double s;
    char why[600];
};

/* Open, with slots for `bytes` of a save; pin: enum hearth_pin. */
void trainer_open(const char *root, uint64_t bytes, uint32_t pin);
void trainer_close(void);

struct hearth_save *trainer_begin(const struct hearth_piece *pieces, size_t count, void *stream);
void trainer_add(struct hearth_save *save, const struct hearth_piece *pieces, size_t count);
/* The stream goes on behind the copies; NULL: the call waits for them. */
void trainer_fence(struct hearth_save *save, void *stream);
struct hearth_handle *trainer_commit(struct hearth_save *save);
void trainer_end(struct hearth_handle *handle); /* PROTECTED, or the program ends */
/* All of that, and the fence is waited for. */
void trainer_save(const struct hearth_piece *pieces, size_t count, void *stream);
/* Saves until the slots that come round are pinned. */
struct pinned trainer_pin(const struct hearth_piece *pieces, size_t count, void *stream);
/* The last save, into the pieces' `data`. HEARTH_EUNSUPPORTED: memory of a GPU is not loaded into;
 * any other error ends the program. */
int trainer_load(
        const struct hearth_piece *pieces, size_t count, double *out_s, char *why, size_t len);

struct hearth_piece trainer_piece(const char *key, const void *at, uint32_t dtype, uint32_t ndim,
        const int64_t *shape, const int64_t *strides);

#endif
