/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors between a device and host memory as copies of at most three dimensions, and parts of
 * these. */
#ifndef HEARTH_CLIENT_CUT_H
#define HEARTH_CLIENT_CUT_H

#include "core/torch/header.h"
#include "driver.h"

/* A tensor with an element at least, adjacent dimensions merged: `copies` copies that differ in
 * their addresses. */
struct hth_device_shape {
    struct hth_device_copy copy; /* without addresses */
    uint64_t copies;
    uint32_t outer; /* dimensions that the copies are counted in */
    uint64_t count[HTH_DIMS_MAX];
    int64_t host[HTH_DIMS_MAX], device[HTH_DIMS_MAX]; /* bytes */
};

/* strides: of each side, in elements; NULL: C order. Those of host memory are not negative. */
void hth_device_shape(struct hth_device_shape *out, uint32_t elem, uint32_t ndim,
        const int64_t *shape, const int64_t *host, const int64_t *device);
/* Copy i of the tensor whose first element lies at these addresses. */
void hth_device_shape_at(const struct hth_device_shape *s, uint64_t i, void *host, uint64_t device,
        struct hth_device_copy *out);

static inline uint64_t hth_device_bytes(const struct hth_device_copy *c)
{
    return c->width * c->rows * c->planes;
}

/* Its rows and planes follow each other in host memory, which begins at `host`. */
static inline void hth_device_pack(struct hth_device_copy *c, void *host)
{
    c->host = host;
    c->host_row = c->width;
    c->host_plane = c->width * c->rows;
}

/* Where byte `off` of the copy lies in host memory. */
void *hth_device_host(const struct hth_device_copy *c, uint64_t off);
/* The part of `c` that begins at its byte `off`: at most `most` bytes, which lie within `reach`
 * bytes of host memory; fewer where only so many are a copy of their own. Returns how many. */
uint64_t hth_device_part(const struct hth_device_copy *c, uint64_t off, uint64_t most,
        uint64_t reach, struct hth_device_copy *out);

#endif
