/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor as rows and planes of bytes, and parts of it. A part is whole planes, or whole rows of
 * one plane, or bytes of one row:
 *
 *     host    | row | row | row | row |    contiguous, in C order
 *     device  | row |..| row |..| row |..| row |
 */
#include "cut.h"

/* Dimensions of the device's side, merged, innermost first. Those of one element are left out. */
static uint32_t cut_merge(uint32_t elem, uint32_t ndim, const int64_t *shape,
        const int64_t *strides, uint64_t *out_count, int64_t *out_step)
{
    int64_t packed = 1;
    uint32_t n = 0;

    for (uint32_t i = ndim; i-- > 0;) {
        int64_t step = strides ? strides[i] : packed;

        packed *= shape[i];
        if (shape[i] == 1)
            continue;
        step *= elem;
        if (n && step == out_step[n - 1] * (int64_t)out_count[n - 1]) {
            out_count[n - 1] *= (uint64_t)shape[i];
            continue;
        }
        out_count[n] = (uint64_t)shape[i];
        out_step[n++] = step;
    }
    return n;
}

int hth_device_shape(struct hth_device_copy *out, uint32_t elem, uint32_t ndim,
        const int64_t *shape, const int64_t *strides)
{
    uint64_t count[HTH_DIMS_MAX];
    int64_t step[HTH_DIMS_MAX];
    uint32_t n = cut_merge(elem, ndim, shape, strides, count, step), at = 0;

    *out = (struct hth_device_copy){ .width = elem, .rows = 1, .planes = 1 };
    if (n && step[0] == (int64_t)elem)
        out->width = elem * count[at++];
    if (n > at + 2)
        return -1;
    for (uint32_t i = at; i < n; i++)
        if (step[i] < (int64_t)out->width)
            return -1;
    if (at < n) {
        out->rows = count[at];
        out->device_row = (uint64_t)step[at++];
    }
    if (at < n) {
        out->planes = count[at];
        out->device_plane = (uint64_t)step[at];
    }
    out->host_row = out->width;
    out->host_plane = out->width * out->rows;
    if (!out->device_row)
        out->device_row = out->width;
    return 0;
}

uint64_t hth_device_part(
        const struct hth_device_copy *c, uint64_t off, uint64_t most, struct hth_device_copy *out)
{
    uint64_t plane = c->width * c->rows, in_plane = off % plane, in_row = in_plane % c->width;
    uint64_t row = in_plane / c->width;

    *out = *c;
    out->host = (unsigned char *)c->host + off;
    out->device = c->device + off / plane * c->device_plane + row * c->device_row + in_row;
    out->rows = out->planes = 1;
    if (in_row || most < c->width) {
        out->width = c->width - in_row < most ? c->width - in_row : most;
    } else if (row || most < plane) {
        out->rows = c->rows - row < most / c->width ? c->rows - row : most / c->width;
    } else {
        uint64_t left = c->planes - off / plane;

        out->rows = c->rows;
        out->planes = left < most / plane ? left : most / plane;
    }
    return hth_device_bytes(out);
}
