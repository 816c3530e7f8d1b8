/* SPDX-License-Identifier: Apache-2.0 */
/* Names that the blocks of C in the pages use without declaring them; see snippets.py. */
#include <hearth/hearth.h>

#include <string.h>

extern struct hearth *h;
extern struct hearth_opts opts;
extern struct hearth_error err;
extern const struct hearth_bootstrap *bootstrap;
extern struct hearth_checkpoint *ckpt;
extern struct hearth_recovery info;
extern struct hearth_save *save;
extern struct hearth_handle *handle;
extern struct hearth_piece piece, pieces[];
extern uint32_t rank, world;
extern uint64_t bytes, step, first, last;
extern size_t n;
extern int64_t offset[], shape[];
extern void *weights, *dst, *stream;
void train(uint64_t step);
