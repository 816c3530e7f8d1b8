/* SPDX-License-Identifier: Apache-2.0 */
/* Copies between host memory and a device: what a driver demands of them, and boxes of them. */
#include "inside.h"

#include <inttypes.h>
#include <stdlib.h>

static uint64_t piece_extent(const struct fgpu_piece *p, int of_host)
{
    size_t row = of_host ? p->host_row : p->device_row;
    size_t plane = of_host ? p->host_plane : p->device_plane;

    return (p->planes - 1) * plane + (p->rows - 1) * row + p->width;
}

/* Rows may not overlap, and their step has a limit. */
static int piece_steps(const struct fgpu_piece *p)
{
    if (!p->width || !p->rows || !p->planes)
        return CU_INVALID_VALUE;
    if (p->rows > 1 || p->planes > 1)
        if (p->host_row < p->width || p->device_row < p->width || p->host_row > CU_MAX_PITCH ||
                p->device_row > CU_MAX_PITCH)
            return CU_INVALID_VALUE;
    return CU_OK;
}

/* What one copy is allowed to do: its box, and is the host's memory registered? */
static int piece_check(
        struct fgpu_stream *s, const struct fgpu_piece *p, struct fgpu_box *out, int *out_staged)
{
    struct fgpu_memory *memory;
    unsigned char *device, *host = (unsigned char *)(uintptr_t)p->host;
    int read_only, in, rc = piece_steps(p);

    if (rc)
        return rc;
    device = fgpu_bytes(p->device, piece_extent(p, 0), &memory);
    if (!device)
        return CU_INVALID_VALUE;
    if (memory->context && memory->context->device != fgpu_stream_context(s)->device)
        fgpu_sin("device", "memory of device %d is copied on a stream of device %d",
                memory->context->device, fgpu_stream_context(s)->device);
    in = fgpu_registered(p->host, piece_extent(p, 1), &read_only);
    if (in < 0 || (read_only && !p->to_device) || fgpu_memory_at(p->host))
        return CU_INVALID_VALUE;
    *out_staged = !in;
    *out = (struct fgpu_box){
        .dst = p->to_device ? device : host,
        .src = p->to_device ? host : device,
        .width = p->width,
        .rows = p->rows,
        .planes = p->planes,
        .dst_row = p->to_device ? p->device_row : p->host_row,
        .dst_plane = p->to_device ? p->device_plane : p->host_plane,
        .src_row = p->to_device ? p->host_row : p->device_row,
        .src_plane = p->to_device ? p->host_plane : p->device_plane,
    };
    return CU_OK;
}

static void range_grow(struct fgpu_range *r, const struct fgpu_piece *p)
{
    uint64_t to = p->host + piece_extent(p, 1);

    if (p->host < r->from)
        r->from = p->host;
    if (to > r->to)
        r->to = to;
}

static int copy_boxes(struct fgpu_stream *s, const struct fgpu_piece *pieces, size_t count,
        struct fgpu_box *boxes, size_t *out_bad, int *out_enqueued)
{
    struct fgpu_range host = { UINT64_MAX, 0 };
    int any_staged = 0, to_host = 0, rc;
    uint64_t bytes = 0;

    for (size_t i = 0; i < count; i++) {
        int staged;

        *out_bad = i;
        rc = piece_check(s, &pieces[i], &boxes[i], &staged);
        if (rc && i && fakegpu()->partial) {
            *out_enqueued = 1;
            fgpu_stream_copy(s, boxes, i, host, to_host, any_staged);
        }
        if (rc)
            return rc;
        any_staged |= staged;
        to_host |= !pieces[i].to_device;
        range_grow(&host, &pieces[i]);
        bytes += staged ? pieces[i].width * pieces[i].rows * pieces[i].planes : 0;
    }
    if (any_staged) {
        fakegpu()->staged++;
        fakegpu()->staged_bytes += bytes;
    }
    *out_enqueued = 1;
    return fgpu_stream_copy(s, boxes, count, host, to_host, any_staged);
}

int fgpu_copy(void *stream, const struct fgpu_piece *pieces, size_t count, size_t *out_bad)
{
    struct fgpu_stream *s;
    struct fgpu_box *boxes;
    int enqueued = 0, rc;

    *out_bad = SIZE_MAX;
    rc = fgpu_stream_of(stream, &s);
    if (rc)
        return rc;
    if (fgpu_capture_of(s))
        fgpu_sin("capture", "a copy becomes a part of the caller's graph");
    if (!count)
        return CU_INVALID_VALUE;
    boxes = calloc(count, sizeof(*boxes));
    if (!boxes)
        return CU_OUT_OF_MEMORY;
    rc = copy_boxes(s, pieces, count, boxes, out_bad, &enqueued);
    if (!enqueued)
        free(boxes);
    return rc;
}
