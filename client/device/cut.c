/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor as rows and planes of bytes, and parts of it. A part is whole planes, or whole rows of
 * one plane, or bytes of one row:
 *
 *     one side    | row |.| row |.| row |.| row |
 *     the other   | row |..| row |..| row |..| row |
 *
 * Dimensions are taken in the order of the device's steps, so that a tensor that is permuted there
 * and has no gaps is contiguous on the device's side: the ring's buffers are packed in the same
 * order, and one run of bytes moves each.
 */
#include "cut.h"

#include <stdlib.h>

struct dim {
    uint64_t count;
    int64_t host, device; /* bytes */
};

/* 1: `a` lies outside of `b`. A dimension whose elements are all at one address lies outside of all
 * others. */
static int dim_is_outside(const struct dim *a, const struct dim *b)
{
    return a->device && b->device ? llabs(a->device) > llabs(b->device)
                                  : !a->device && b->device != 0;
}

/* Those of more than one element, innermost first. */
static uint32_t dims_sort(struct dim *dim, uint32_t elem, uint32_t ndim, const int64_t *shape,
        const int64_t *host, const int64_t *device)
{
    int64_t packed = elem;
    uint32_t n = 0;

    for (uint32_t i = ndim; i-- > 0;) {
        struct dim d = { (uint64_t)shape[i], host ? host[i] * elem : packed,
            device ? device[i] * elem : packed };
        uint32_t at = n;

        packed *= shape[i];
        if (shape[i] == 1)
            continue;
        for (; at && dim_is_outside(&dim[at - 1], &d); at--)
            dim[at] = dim[at - 1];
        dim[at] = d;
        n++;
    }
    return n;
}

static uint32_t dims_merge(struct dim *dim, uint32_t n)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < n; i++) {
        struct dim *last = &dim[kept - (kept != 0)];

        if (kept && dim[i].host == last->host * (int64_t)last->count &&
                dim[i].device == last->device * (int64_t)last->count)
            last->count *= dim[i].count;
        else
            dim[kept++] = dim[i];
    }
    return kept;
}

/* Takes the dimension with the most elements, so that few copies are left. */
static struct dim dims_take(struct dim *dim, uint32_t at, uint32_t n)
{
    uint32_t most = at;
    struct dim out;

    for (uint32_t i = at + 1; i < n; i++)
        if (dim[i].count > dim[most].count)
            most = i;
    out = dim[most];
    dim[most] = dim[at];
    return out;
}

void hth_device_shape(struct hth_device_shape *out, uint32_t elem, uint32_t ndim,
        const int64_t *shape, const int64_t *host, const int64_t *device)
{
    struct dim dim[HTH_DIMS_MAX], planes;
    uint32_t n = dims_merge(dim, dims_sort(dim, elem, ndim, shape, host, device)), at = 0;
    struct hth_device_copy *c = &out->copy;

    *c = (struct hth_device_copy){ .width = elem, .rows = 1, .planes = 1 };
    if (n && dim[0].host == (int64_t)elem && dim[0].device == (int64_t)elem)
        c->width = elem * dim[at++].count;
    c->host_row = c->device_row = c->width;
    if (at < n) {
        c->rows = dim[at].count;
        c->host_row = (uint64_t)dim[at].host;
        c->device_row = (uint64_t)dim[at++].device;
    }
    c->host_plane = c->rows * c->host_row;
    c->device_plane = c->rows * c->device_row;
    if (at < n) {
        planes = dims_take(dim, at++, n);
        c->planes = planes.count;
        c->host_plane = (uint64_t)planes.host;
        c->device_plane = (uint64_t)planes.device;
    }
    out->copies = 1;
    for (out->outer = 0; at < n; at++, out->outer++) {
        out->copies *= dim[at].count;
        out->count[out->outer] = dim[at].count;
        out->host[out->outer] = dim[at].host;
        out->device[out->outer] = dim[at].device;
    }
}

void hth_device_shape_at(const struct hth_device_shape *s, uint64_t i, void *host, uint64_t device,
        struct hth_device_copy *out)
{
    int64_t on_host = 0;

    *out = s->copy;
    for (uint32_t d = 0; d < s->outer; d++) {
        on_host += (int64_t)(i % s->count[d]) * s->host[d];
        device += (i % s->count[d]) * (uint64_t)s->device[d];
        i /= s->count[d];
    }
    out->host = (unsigned char *)host + on_host;
    out->device = device;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* How many of `count` lie within `reach` bytes of host memory, if the first does. */
static uint64_t cut_reached(uint64_t count, uint64_t first, uint64_t step, uint64_t reach)
{
    return step ? least(count, (reach - first) / step + 1) : count;
}

void *hth_device_host(const struct hth_device_copy *c, uint64_t off)
{
    uint64_t plane = c->width * c->rows;

    return (unsigned char *)c->host + off / plane * c->host_plane +
           off % plane / c->width * c->host_row + off % c->width;
}

uint64_t hth_device_part(const struct hth_device_copy *c, uint64_t off, uint64_t most,
        uint64_t reach, struct hth_device_copy *out)
{
    uint64_t plane = c->width * c->rows, in_row = off % c->width, row = off % plane / c->width;
    uint64_t extent = (c->rows - 1) * c->host_row + c->width; /* of a plane, in host memory */

    *out = *c;
    out->host = hth_device_host(c, off);
    out->device = c->device + off / plane * c->device_plane + row * c->device_row + in_row;
    out->rows = out->planes = 1;
    if (in_row || least(most, reach) < c->width) {
        out->width = least(c->width - in_row, least(most, reach));
    } else if (row || most < plane || reach < extent) {
        out->rows =
                cut_reached(least(c->rows - row, most / c->width), c->width, c->host_row, reach);
    } else {
        out->rows = c->rows;
        out->planes = cut_reached(
                least(c->planes - off / plane, most / plane), extent, c->host_plane, reach);
    }
    return hth_device_bytes(out);
}
