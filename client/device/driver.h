/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a GPU's driver can do, the same for CUDA and HIP. No driver is loaded here: device memory
 * comes from a process that has its driver already, so one that is not there has given none.
 *
 * All calls return 0 or an error of ours that names the driver's number and its call, and leave the
 * driver's own record of errors as it was. at(), facts() and done() are good in any thread; all
 * others are called between enter() and leave() of that thread, for the context that the stream,
 * the event or the memory belongs to.
 */
#ifndef HEARTH_CLIENT_DRIVER_H
#define HEARTH_CLIENT_DRIVER_H

#include <hearth/error.h>
#include <stddef.h>
#include <stdint.h>

/* Whose memory a pointer is of. Memory that the driver does not know is the host's. */
struct hth_device_at {
    int device;    /* the driver's ordinal; -1: memory that the processor reads */
    void *context; /* to enter before work on it; the caller's, never one of ours. HIP has none */
};

/* Facts that differ from device to device. */
struct hth_device_facts {
    int pin_read_only; /* mappings that are only read may be pinned, with read_only */
    int host_pages;    /* the device uses the processor's page tables: pin() makes pages present and
                          does not lock them */
};

/* One copy between host memory and a device: `planes` times `rows` times `width` bytes. Steps in
 * bytes; of what there is once (rows or planes 1) they count nothing. Host memory lies in one
 * pinned range, or in none: then the call may return only when the bytes are copied. */
struct hth_device_copy {
    void *host;
    uint64_t device; /* address */
    uint64_t width, rows, planes;
    uint64_t host_row, host_plane, device_row, device_plane;
};

enum hth_device_way { HTH_FROM_DEVICE, HTH_TO_DEVICE };

struct hth_driver {
    const char *name;  /* "CUDA" or "HIP" */
    int version;       /* as the driver counts: 12040 is CUDA 12.4 */
    uint64_t pin_most; /* bytes of a call that pins a slot; 0: the ring carries all, and its
                          buffers alone are pinned */

    /* out->device -1 for host memory; else `context` is current or can be made current. Fails where
     * the memory's device has no context in this process. */
    int (*at)(const void *p, struct hth_device_at *out, struct hearth_error *err);
    int (*facts)(int device, struct hth_device_facts *out, struct hearth_error *err);
    int (*enter)(const struct hth_device_at *at, struct hearth_error *err);
    void (*leave)(void); /* the context before is current again */
    /* HEARTH_EUNSUPPORTED: inside a graph capture of this stream. */
    int (*may_use)(void *stream, struct hearth_error *err);

    /* Host memory, page by page, for copies at the link's rate. */
    int (*pin)(void *base, uint64_t bytes, int read_only, struct hearth_error *err);
    int (*unpin)(void *base, struct hearth_error *err);

    int (*stream_open)(void **out, struct hearth_error *err); /* of the lowest priority */
    void (*stream_close)(void *stream);
    int (*event_open)(void **out, struct hearth_error *err);
    void (*event_close)(void *event);
    int (*record)(void *event, void *stream, struct hearth_error *err);
    int (*after)(void *stream, void *event, struct hearth_error *err); /* stream waits for event */
    /* *out_done 1: what was recorded is done. An error that stays: it will never be. */
    int (*done)(void *event, int *out_done, struct hearth_error *err);

    /* Enqueues them, in as few calls as the driver has; *out_calls counts these. They may run in
     * any order: none may read what another one writes. On error *out_bad is one that was refused,
     * of the others each may be enqueued or not: record an event and wait for it before the memory
     * is used for anything else. */
    int (*copy)(void *stream, enum hth_device_way way, const struct hth_device_copy *copies,
            size_t count, size_t *out_calls, size_t *out_bad, struct hearth_error *err);
};

/* The driver that this process has loaded and initialised; NULL: none so far, so no pointer is
 * device memory. An error names one that cannot be used: a toolkit's stub, a driver that is too
 * old, no device; host memory is saved all the same. A driver that was found stays. */
int hth_driver_find(const struct hth_driver **out, struct hearth_error *err);

/* cuda.c, hip.c: filled from the library that dlopen() returned. */
int hth_cuda_driver(void *library, struct hth_driver *out, struct hearth_error *err);
int hth_hip_driver(void *library, struct hth_driver *out, struct hearth_error *err);

#endif
