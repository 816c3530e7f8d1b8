/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory registered with the transport: once, by a worker, for all that is ever pulled from it and
 * into it. Pinning takes up to 0.12 s a GiB, so the engine's thread never does it, and code that
 * needs the region waits for it.
 *
 *   QUEUED ─► RUNNING ─► HERE ─end─► ENDING ─► gone        end before HERE: gone once the worker is
 *                └─failed─► gone, and the waiters get it             done, which cannot be stopped
 *
 * A slot's region is the slot's (slot->user), not its save's: it is begun when the slot is lent or
 * taken for a copy, or first wanted where an engine before us sealed it. A slot that is given back
 * keeps it, also one under way, and the next that has the slot finds it there; slots never grow.
 * Only what takes the memory away ends it: a slot that is put aside, a file of another's container
 * that is unlinked, a blob that is forgotten. Their memory stays until the region is gone.
 */
#ifndef HEARTH_REPLICATION_REGION_H
#define HEARTH_REPLICATION_REGION_H

#include "ctx.h"

struct hth_reg; /* one registration */

/* A wait for a region, embedded in the struct that waits. */
struct hth_reg_wait {
    /* Runs once, on the engine's thread, never in the call that began to wait. code 0: the region
     * is there. HEARTH_EIO: err names node, bytes, cause and remedy, and the registration is gone.
     * HEARTH_ECANCELED: the memory goes away. */
    void (*ready)(struct hth_reg_wait *wait, struct hth_region *region, int code,
            const struct hearth_error *err);
    struct hth_reg *reg; /* NULL: it does not wait */
    struct hth_reg_wait *next;
};

/* *out: the slot's region. If there is none, its registration begins. HEARTH_EBUSY: it is under
 * way, and `wait` is called when it ends (NULL: no call). Errors: HEARTH_ENOMEM. */
int hth_slot_region(struct hth_ctx *ctx, struct hth_slot *slot, struct hth_reg_wait *wait,
        struct hth_region **out, struct hearth_error *err);
/* The slot goes away, so its region ends. The slot stays leased until then. */
void hth_slot_region_end(struct hth_ctx *ctx, struct hth_slot *slot);

/* Registers other memory, which must stay until hth_reg_drop() returns 0 or `gone` has run. `wait`
 * is called. NULL: no memory. */
struct hth_reg *hth_reg_begin(
        struct hth_ctx *ctx, void *base, uint64_t len, struct hth_reg_wait *wait);
/* HEARTH_EBUSY: the registration is under way, or a pull uses it; nothing has changed. */
int hth_reg_drop(struct hth_reg *reg);
/* Ends it as soon as possible and then calls gone(self), maybe within this call. */
void hth_reg_end(struct hth_reg *reg, void (*gone)(void *self), void *self);

void hth_reg_leave(struct hth_reg_wait *wait); /* ends the wait, if there is one */

/* Tries again to end the registrations that the transport still uses. */
void hth_regs_tick(struct hth_ctx *ctx);
uint64_t hth_regs_due_ms(const struct hth_ctx *ctx);
void hth_regs_close(struct hth_ctx *ctx); /* after the transport's close() and the last work */

#endif
