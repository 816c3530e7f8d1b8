/* SPDX-License-Identifier: Apache-2.0 */
/* The devices of this process that are saved and loaded. They stay until hth_gpus_close(). */
#ifndef HEARTH_CLIENT_GPU_H
#define HEARTH_CLIENT_GPU_H

#include "ring.h"

#define HTH_GPUS_MOST 64u

struct hth_gpu {
    const struct hth_driver *driver;
    struct hth_device_at at;
    void *stream; /* of all copies from and to it, in the order in which they were enqueued */
    struct hth_ring *ring; /* work.c's thread makes it where it is needed; NULL: not yet */
    struct hth_ring_job *first, *last; /* work.c's, which wait for the ring or for their time */
    uint64_t due_us;                   /* likewise: copies at a limited rate wait until then */
    unsigned errors;                   /* likewise, of the last looks at the ring */
};

/* The device, with a stream. At most HTH_GPUS_MOST of all contexts in a process. */
int hth_gpu_of(struct hth_gpu **out, const struct hth_driver *driver,
        const struct hth_device_at *at, struct hearth_error *err);
/* The i-th one; NULL: there are fewer. */
struct hth_gpu *hth_gpu_at(unsigned i);
/* Undoes pin() in the context `at`, or in another one that still works: registrations are for all.
 * An error: it stays registered, so it must stay mapped. */
int hth_gpus_unpin(const struct hth_driver *driver, const struct hth_device_at *at, void *base);
/* Enqueues copies of pinned memory, and records the event behind them. On error some may run:
 * *out_bad is one that was refused. *out_unmarked 1: the event was not recorded. */
int hth_gpu_copy(struct hth_gpu *gpu, enum hth_device_way way, void *event,
        const struct hth_device_copy *copies, size_t count, size_t *out_bad, int *out_unmarked,
        struct hearth_error *err);
void hth_gpus_close(void); /* no thread uses one any more */

#endif
