/* SPDX-License-Identifier: Apache-2.0 */
/* Callers' tensors in GPU memory, for what saves and what loads. */
#ifndef HEARTH_CLIENT_DEVICES_H
#define HEARTH_CLIENT_DEVICES_H

#include "client/base/member.h"
#include "client/device/work.h"

/* The driver that the process has loaded, asked for once in a call. */
struct hth_devices {
    const struct hth_driver *driver; /* NULL: none that can be used */
    struct hearth_error why;         /* then: why not; code 0: there is none */
};
void hth_devices_find(struct hth_devices *out);

/* A caller's tensor with an element at least. */
struct hth_memory {
    const void *at;  /* its first element */
    uint32_t memory; /* enum hearth_memory, as the caller says */
    uint32_t elem, ndim;
    const int64_t *shape, *strides; /* NULL: C order */
    const void *key;                /* [key_len] for errors */
    size_t key_len;
};

struct hth_memory hth_memory_of(const struct hearth_piece *p);

/* 1: it lies in GPU memory, at *out; 0: it does not; an error names the key. */
int hth_devices_at(const struct hth_devices *d, const struct hth_memory *m,
        struct hth_device_at *out, struct hearth_error *err);
/* The device of such a tensor, for copies of this membership, which has its h->device from here on.
 * Errors name the key. */
int hth_devices_use(const struct hth_devices *d, struct hearth *h, const struct hth_memory *m,
        const struct hth_device_at *at, struct hth_gpu **out, struct hearth_error *err);

/* The hth_land_fn of a membership: by its copying threads. */
int hth_devices_land(
        void *h, enum hth_device_way way, const struct hth_landing *parts, size_t count);

/* The copies of one call; its memory may go from call to call. */
struct hth_device_list {
    struct hth_work_piece *piece;
    size_t count, room;
};

/* Notes the copies of a tensor and its place in host memory, with the strides of both in elements
 * (NULL: C order). Errors: HEARTH_ENOMEM. */
int hth_device_note(struct hth_device_list *list, const struct hth_memory *m, struct hth_gpu *gpu,
        const void *host, const int64_t *host_strides, struct hearth_error *err);

#endif
