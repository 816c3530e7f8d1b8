/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two pinned buffers of 16 MiB for each device, for slots that are not pinned: the copy engine
 * fills one while threads move the other into the slot. All functions are called by the thread of
 * work.c, between enter() and leave() of the device, except hth_ring_look(), hth_ring_land() and
 * hth_ring_close().
 */
#ifndef HEARTH_CLIENT_RING_H
#define HEARTH_CLIENT_RING_H

#include "driver.h"

#define HTH_RING_BYTES (UINT64_C(16) << 20) /* of a buffer */

struct hth_work;

/* Bytes that are to be moved within host memory. */
struct hth_landing {
    void *dst;
    const void *src;
    uint64_t bytes;
};
typedef int hth_land_fn(void *arg, const struct hth_landing *parts, size_t count);

/* Copies from one device, host memory contiguous, that take turns with those of other saves. */
struct hth_ring_job {
    struct hth_ring_job *next;
    struct hth_work *work;
    int straight;     /* into pinned memory, without a buffer; none crosses a registration */
    uint64_t taken;   /* bytes so far */
    size_t count, at; /* copies; the one that is next */
    uint64_t off;     /* of its bytes that are next */
    struct hth_device_copy copy[];
};

struct hth_ring;
/* The buffers are pinned; where the driver refuses that, they are not, and copies are slower. */
int hth_ring_open(struct hth_ring **out, const struct hth_driver *driver, struct hearth_error *err);
/* The address to undo with hth_gpus_unpin(); NULL: none. */
void *hth_ring_pinned(const struct hth_ring *ring);
/* NULL is fine. keep: the buffers stay mapped. */
void hth_ring_close(struct hth_ring *ring, int keep);

/* The next copy of a job that is not at its end, of at most `most` bytes. Returns its bytes. */
uint64_t hth_ring_job_next(struct hth_ring_job *job, uint64_t most, struct hth_device_copy *out);

int hth_ring_has_room(const struct hth_ring *ring);
/* Enqueues as much of the job as goes into a buffer. There is room, and the job is not at its end.
 * *out_filled 1: the buffer is due some time, also where the call fails. */
int hth_ring_fill(struct hth_ring *ring, void *stream, struct hth_ring_job *job, int *out_filled,
        struct hearth_error *err);
/* *out_work: whose copies fill the buffer that is due, and *out_done 1 if they have. An error that
 * stays: they never will. No buffer is due: HEARTH_OK and NULL. */
int hth_ring_look(
        struct hth_ring *ring, struct hth_work **out_work, int *out_done, struct hearth_error *err);
/* Moves the contents of the buffer that is due, unless land is NULL; it is free then. */
int hth_ring_land(struct hth_ring *ring, hth_land_fn *land, void *arg);

#endif
