/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The copies from devices that one save waits for, or those to devices of one load. They run on a
 * stream of ours for each device, after what was in the caller's stream, and a thread of ours looks
 * when they are done. The process has one such thread, from the first use of device memory on; it
 * blocks all signals.
 *
 *     hth_work_open ─► hth_work_add ... ─► hth_work_end ─► all arrived, or an error: done()
 *                            ├─ fence: another stream waits for what was added so far
 *                            └─ taken: host memory that is not pinned is not read any more
 *
 * Functions are good in any thread; one thread at a time adds. No function is called with a lock
 * that done() or land() needs.
 */
#ifndef HEARTH_CLIENT_WORK_H
#define HEARTH_CLIENT_WORK_H

#include "gpu.h"

struct hth_pin;

struct hth_work_owner {
    void *owner; /* the membership, for hth_works_drain() */
    enum hth_device_way way;
    uint32_t mib_s;    /* of its copies of each device; 0: no limit */
    hth_land_fn *land; /* copies between host memory, with owner */
    /* Called once, after hth_work_end(): all bytes are where they belong, or `err` says why not;
     * then none is written any more. */
    void (*done)(void *arg, const struct hearth_error *err);
    void *arg;
};

/* A tensor of a device, or a part of one, and its place in host memory. */
struct hth_work_piece {
    struct hth_device_copy copy;
    struct hth_gpu *gpu;
    const struct hth_pin *pin; /* of its host memory; NULL: none */
    const void *key;           /* [key_len] for errors */
    size_t key_len;
};

/* Before the first hth_work_open() of a membership, and after its last work was done. leave waits
 * for the thread's end, but not beyond until_ms. HEARTH_EFORK in a child of a process that had the
 * thread. */
int hth_works_enter(struct hearth_error *err);
void hth_works_leave(uint64_t until_ms);

/* hth_work_put() */
int hth_work_open(
        struct hth_work **out, const struct hth_work_owner *owner, struct hearth_error *err);
void hth_work_put(struct hth_work *work); /* NULL is fine; waits for nothing */

/* Enqueues the copies: each starts after what is in the caller's `stream` now (NULL: the default
 * stream of each device). The list and its keys are borrowed until return. On error either nothing
 * was enqueued, or the work has failed, and some of the copies may run until done(). */
int hth_work_add(struct hth_work *work, void *stream, const struct hth_work_piece *pieces,
        size_t count, struct hearth_error *err);
/* Nothing more is added. dropped: what was not enqueued yet is left out. */
void hth_work_end(struct hth_work *work, int dropped);

/* Work enqueued in `stream` from here on starts after all copies of the work; NULL: the call
 * itself waits for them. Where copies still wait for the ring or for the rate's limit, the call
 * waits until the last one is enqueued. HEARTH_ETIMEOUT; HEARTH_EFAILED: the work has failed. */
int hth_work_fence(
        struct hth_work *work, void *stream, uint64_t until_ms, struct hearth_error *err);

/* Waits until copies from host memory that is not pinned have read it: it may change then. Errors
 * as of the fence; the memory may still be read after one. */
int hth_work_taken(struct hth_work *work, uint64_t until_ms, struct hearth_error *err);

/* hth_work_end(dropped), and waits until all copies that were enqueued have ended, but not beyond
 * until_ms. When it returns, no processor reads or writes host memory for the work, and no copy
 * uses any but pinned memory and the ring's. */
void hth_work_stop(struct hth_work *work, uint64_t until_ms);

/* Waits until done() was called for all works of the owner; those that were not ended are dropped.
 * The rate has no limit any more.
 * Returns how many there are left when the time is over: done() and land() are not called for these
 * any more. */
unsigned hth_works_drain(const void *owner, uint64_t until_ms);

#endif
