/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two pinned buffers of 16 MiB for each device, for host memory that is not pinned: the copy engine
 * fills or empties one while threads move the contents of the other. All functions are called by
 * the thread of work.c; hth_ring_open(), hth_ring_send() and hth_ring_mark() between enter() and
 * leave() of the device.
 *
 *     from a device    take ─► send ─► due: full    ─► land: into the slot ─► free
 *     to a device      take: out of the object ─► send ─► due: emptied ─► free
 */
#ifndef HEARTH_CLIENT_RING_H
#define HEARTH_CLIENT_RING_H

#include "driver.h"

#define HTH_RING_BYTES (UINT64_C(16) << 20) /* of a buffer */

struct hth_work;

/* Bytes that threads move between the host memory of a copy and `at`, where they are contiguous. */
struct hth_landing {
    struct hth_device_copy of;
    unsigned char *at;
};
/* HTH_FROM_DEVICE: out of `at`; HTH_TO_DEVICE: there. */
typedef int hth_land_fn(
        void *arg, enum hth_device_way way, const struct hth_landing *parts, size_t count);

/* Copies from or to one device, which take turns with those of other works. */
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
/* As much of the job as goes into a buffer; to a device it is moved there. There is room, and the
 * job is not at its end. 0 or HEARTH_ENOMEM, and the buffer is free. */
int hth_ring_take(struct hth_ring *ring, struct hth_ring_job *job, enum hth_device_way way,
        hth_land_fn *land, void *arg);
/* Enqueues its copies. The buffer is due some time, also where the call fails. */
int hth_ring_send(struct hth_ring *ring, void *stream, struct hearth_error *err);
/* 1: the event behind the copies of the buffer that is due was refused: mark it again. */
int hth_ring_is_unmarked(const struct hth_ring *ring);
int hth_ring_mark(struct hth_ring *ring, void *stream, struct hearth_error *err);
/* *out_work: whose copies use the buffer that is due, and *out_done 1 if they are done. An error
 * that stays: they never will. No buffer is due: HEARTH_OK and NULL. */
int hth_ring_look(
        struct hth_ring *ring, struct hth_work **out_work, int *out_done, struct hearth_error *err);
/* Moves what came from a device into the buffer that is due, unless land is NULL; it is free
 * then. */
int hth_ring_land(struct hth_ring *ring, hth_land_fn *land, void *arg);

#endif
