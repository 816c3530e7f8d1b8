/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Something done to bytes from the first to the last on the workers, one piece after the other, so
 * that a large object lets others' works between its own, and ends soon when it is given up.
 */
#ifndef REPLICATION_SWEEP_H
#define REPLICATION_SWEEP_H

#include "ctx.h"

/* Embedded in its owner, which fills the first part and keeps still until `done`. */
struct hth_sweep {
    struct hth_ctx *ctx;
    uint64_t len;
    /* Any thread. Also once for no bytes. Not 0: no more. */
    int (*piece)(struct hth_sweep *sweep, uint64_t off, uint64_t len);
    void (*done)(struct hth_sweep *sweep); /* the engine's thread, once, never in start */
    const int *vain;                       /* read on the engine's thread: not 0: no more pieces */

    int code; /* of the last piece */
    uint64_t at;
    struct hth_work work;
};

void hth_sweep_start(struct hth_sweep *sweep);

#endif
