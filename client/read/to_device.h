/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes of one call into GPU memory: noted while they are laid out, enqueued together, and waited
 * for at the end, or ordered into the checkpoint's stream.
 *
 *     hth_to_begin ─► where ... ─► note ... ─► run ─► end
 *                                    └─ ready: what was noted of a window is read before it moves
 */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_TO_DEVICE_H
#define HEARTH_CLIENT_TO_DEVICE_H

#include "checkpoint.h"
#include "client/slots/devices.h"

struct hth_to_held;

struct hth_to {
    struct hearth_checkpoint *c;
    struct hth_devices devices;
    struct hth_device_list noted;
    int far;                  /* some of it lies in windows */
    int late;                 /* a GPU has not copied in time */
    struct hth_work *work;    /* NULL: nothing was enqueued so far */
    struct hth_to_held *held; /* what its copies read */
};

/* Asks once which driver the process has. */
void hth_to_begin(struct hth_to *to, struct hearth_checkpoint *c);
/* The device of a target with an element at least; NULL: it is host memory. Errors name the key. */
int hth_to_where(struct hth_to *to, const struct hth_memory *m, struct hth_gpu **out,
        struct hearth_error *err);
/* Notes the copies into a target of `gpu` from src, which lies in the source; strides in elements.
 */
int hth_to_note(struct hth_to *to, const struct hth_source *s, const struct hth_memory *m,
        struct hth_gpu *gpu, const void *src, const int64_t *src_strides, struct hearth_error *err);
/* Before hth_source_at() of these bytes. */
int hth_to_ready(struct hth_to *to, const struct hth_source *s, uint64_t off, uint64_t len,
        struct hearth_error *err);
/* Enqueues what was noted. */
int hth_to_run(struct hth_to *to, struct hearth_error *err);
/* rc: of the call so far. Once it returns, bytes of sources may be given back, but those that the
 * copies hold themselves. After an error no copy runs any more, but of a GPU that is late. */
int hth_to_end(struct hth_to *to, int rc, struct hearth_error *err);

#endif
