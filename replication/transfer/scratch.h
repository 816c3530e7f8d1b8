/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for transfers that are needed for a moment: ranges for readers, tables. It is no slot of
 * the store's, so a small thing never takes the room of a save, and a reader never waits for one.
 * There is HTH_SCRATCH_BYTES of it at once (one piece alone may be larger); what was used is kept,
 * registered, for the next, and given back to the system when it was not needed for a while.
 */
/* For this folder alone. */
#ifndef HEARTH_REPLICATION_SCRATCH_H
#define HEARTH_REPLICATION_SCRATCH_H

#include "replication/held/region.h"

#define HTH_SCRATCH_BYTES (UINT64_C(128) << 20)

struct hth_scratch {
    unsigned char *base;
    uint64_t capacity;
    struct hth_region *region; /* NULL: being registered */
    /* The region is registered, or (code) cannot be. Runs once, if it was not registered at
     * take(). */
    void (*ready)(void *user, struct hth_region *region, int code, const struct hearth_error *err);
    void *user; /* the transfer that uses it; NULL: it is free */

    struct hth_ctx *ctx;
    struct hth_scratch *next;
    struct hth_reg *reg; /* NULL: it could not be registered */
    struct hth_reg_wait wait;
    uint64_t since_ms; /* free since then */
    int ends;
};

struct hth_scratches {
    struct hth_scratch *list;
    uint64_t bytes; /* of those that do not end */
    int given;      /* memory was given back since a transfer last looked for room */
};

/* bytes > 0. ready and user as above. HEARTH_EBUSY: other transfers use all of it, try again when
 * memory is given back; HEARTH_ENOMEM. */
int hth_scratch_take(struct hth_ctx *ctx, uint64_t bytes,
        void (*ready)(void *, struct hth_region *, int, const struct hearth_error *), void *user,
        struct hth_scratch **out, struct hearth_error *err);
/* The caller gives it back; no pull into it may be under way. */
void hth_scratch_give(struct hth_scratch *s);
void hth_scratches_tick(struct hth_ctx *ctx, uint64_t now);
uint64_t hth_scratches_due_ms(const struct hth_ctx *ctx);
void hth_scratches_close(struct hth_ctx *ctx); /* after the last work and the transport's close() */

#endif
