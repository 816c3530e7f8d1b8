/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdlib.h>
#include <string.h>

#define UNTOUCHED 0xa5

static const struct {
    const char *key;
    uint32_t dtype, ndim;
    int64_t shape[DIMS];
    enum cut cut;
} tensor[TENSORS] = {
    { "matrix", HEARTH_FLOAT32, 2, { 64, 48 }, CUT_ROWS },
    { "matrix.uneven", HEARTH_INT16, 2, { 64, 48 }, CUT_UNEVEN },
    { "cube", HEARTH_FLOAT32, 3, { 12, 7, 10 }, CUT_BOTH },
    { "cube.tall", HEARTH_UINT8, 3, { 5, 3, 33 }, CUT_COLUMNS },
    { "scalar", HEARTH_INT64, 0, { 0 }, CUT_LAST },
    { "empty", HEARTH_FLOAT32, 2, { 0, 7 }, CUT_WHOLE },
    { "shared", HEARTH_UINT64, 2, { 5, 6 }, CUT_WHOLE },
    { "big", HEARTH_FLOAT32, 2, { 0, 1024 }, CUT_ROWS },
};

uint64_t element(uint32_t which, uint64_t step, uint64_t place)
{
    uint64_t x = (place + 1) * UINT64_C(0x9e3779b97f4a7c15) + step * 1000003 + which;

    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    return x ^ x >> 29;
}

enum cut cut_of(uint32_t which)
{
    return tensor[which].cut;
}

enum cut cut_other(enum cut cut, unsigned turn)
{
    return (enum cut)((cut + turn) % (CUT_WHOLE + 1));
}

/* How many parts dimension `d` falls into. */
static uint32_t parts(enum cut cut, uint32_t ndim, uint32_t d, uint32_t world)
{
    uint32_t both = world % 2 ? 1 : 2;

    if (ndim > 1 && cut == CUT_BOTH && d == ndim - 1)
        return both;
    if (d == 0 && cut == CUT_BOTH)
        return ndim > 1 ? world / both : world;
    if (d == 0 && (cut == CUT_ROWS || cut == CUT_UNEVEN))
        return world;
    return cut == CUT_COLUMNS && d == ndim - 1 ? world : 1;
}

static int64_t edge(enum cut cut, int64_t length, uint32_t i, uint32_t count)
{
    return cut == CUT_UNEVEN ? length * i * i / (count * count) : length * i / count;
}

static void set_layout(struct part *p, enum layout layout)
{
    uint32_t n = p->piece.ndim;
    int64_t step = 1, last = 0;

    for (uint32_t k = 0; k < n; k++) {
        uint32_t d = layout == LAYOUT_FORTRAN ? k : n - 1 - k;

        if (layout == LAYOUT_GAPS && k == 0)
            step = 2;
        p->strides[d] = step;
        step *= (p->shape[d] ? p->shape[d] : 1) + (layout == LAYOUT_GAPS);
        last += p->shape[d] ? (p->shape[d] - 1) * p->strides[d] : 0;
    }
    p->bytes = (size_t)(last + 1) * hearth_dtype_bytes((enum hearth_dtype)p->piece.dtype);
    free(p->data);
    p->data = malloc(p->bytes);
    if (!p->data)
        abort();
    memset(p->data, UNTOUCHED, p->bytes);
    p->piece.data = p->data;
    p->piece.strides = layout == LAYOUT_C ? NULL : p->strides;
}

int part_make(struct part *p, uint32_t which, enum cut cut, uint32_t rank, uint32_t world,
        int64_t big_rows, enum layout layout)
{
    uint32_t left = rank, n = tensor[which].ndim;

    memset(p, 0, sizeof(*p));
    if (cut == CUT_LAST && rank != world - 1)
        return 0;
    p->tensor = which;
    for (uint32_t d = 0; d < n; d++) {
        uint32_t count = parts(cut, n, d, world), i = left % count;

        left /= count;
        p->global[d] = which == BIG && d == 0 ? big_rows : tensor[which].shape[d];
        p->offset[d] = edge(cut, p->global[d], i, count);
        p->shape[d] = edge(cut, p->global[d], i + 1, count) - p->offset[d];
    }
    p->piece = (struct hearth_piece){ .struct_size = sizeof(p->piece),
        .key = tensor[which].key,
        .key_len = strlen(tensor[which].key),
        .dtype = tensor[which].dtype,
        .ndim = n,
        .shape = p->shape,
        .global_shape = p->global,
        .global_offset = p->offset };
    set_layout(p, layout);
    return 1;
}

void part_box(struct part *p, const int64_t *offset, const int64_t *shape, enum layout layout)
{
    memcpy(p->offset, offset, p->piece.ndim * sizeof(*offset));
    memcpy(p->shape, shape, p->piece.ndim * sizeof(*shape));
    set_layout(p, layout);
}

void part_free(struct part *p)
{
    free(p->data);
    p->data = NULL;
}

void part_fill(const struct part *p, uint64_t step, unsigned char *data)
{
    uint32_t elem = hearth_dtype_bytes((enum hearth_dtype)p->piece.dtype);
    uint64_t count = 1;

    for (uint32_t d = 0; d < p->piece.ndim; d++)
        count *= (uint64_t)p->shape[d];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t left = i, place = 0, unit = 1, value;
        int64_t at = 0;

        for (uint32_t d = p->piece.ndim; d-- > 0;) {
            int64_t k = (int64_t)(left % (uint64_t)p->shape[d]);

            left /= (uint64_t)p->shape[d];
            place += (uint64_t)(p->offset[d] + k) * unit;
            unit *= (uint64_t)p->global[d];
            at += k * p->strides[d];
        }
        value = element(p->tensor, step, place);
        memcpy(data + at * elem, &value, elem);
    }
}

int part_right(const struct part *p, uint64_t step)
{
    unsigned char *want = malloc(p->bytes);
    int same;

    if (!want)
        abort();
    memset(want, UNTOUCHED, p->bytes);
    part_fill(p, step, want);
    same = memcmp(want, p->data, p->bytes) == 0;
    free(want);
    return same;
}
