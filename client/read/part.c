/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A box of one stored piece into the caller's memory. From a slot it is one strided copy, or what a
 * GPU's copy engine does of it at once. From
 * another node the range of bytes that covers the box is fetched if the box is much of it, else
 * the box is halved along its slowest dimension, lower half first, so that chunks come in order:
 *
 *     [ box ] -> covers little of a long range? -> [ lower half ] [ upper half ] -> ...
 */
#include "part.h"

#include "window.h"

#include <stdlib.h>
#include <string.h>

#define FETCH_MAX (UINT64_C(32) << 20)
#define DEPTH_MAX 130 /* halvings: bits of all dimensions together, and one sibling each */

struct part {
    struct hearth_checkpoint *c;
    struct hth_source *source;
    uint64_t payload; /* where the payload begins in the data section */
    uint32_t elem, ndim;
    int64_t step[HTH_DIMS_MAX]; /* of the stored piece, elements */
    int64_t dst_step[HTH_DIMS_MAX];
    struct hth_box box; /* the whole one, to count dst from */
    const struct hth_target *target;
    const struct hth_item *item;
};

static uint64_t part_elements(const struct part *p, const struct hth_box *box)
{
    uint64_t n = 1;

    for (uint32_t i = 0; i < p->ndim; i++)
        n *= (uint64_t)box->shape[i];
    return n;
}

/* First byte of the box in the data section, and bytes to behind its last. */
static void part_cover(
        const struct part *p, const struct hth_box *box, uint64_t *off, uint64_t *len)
{
    int64_t first = 0, last = 0;

    for (uint32_t i = 0; i < p->ndim; i++) {
        first += box->offset[i] * p->step[i];
        last += (box->offset[i] + box->shape[i] - 1) * p->step[i];
    }
    *off = p->payload + (uint64_t)first * p->elem;
    *len = (uint64_t)(last - first + 1) * p->elem;
}

static int part_to_host(struct part *p, const struct hth_box *box, void *dst,
        const unsigned char *src, struct hearth_error *err)
{
    struct hth_copies now = { 0 }, *list = p->source->local ? p->target->list : NULL;
    struct hth_strided s;
    int plain = hth_strided_init(&s, p->elem, p->ndim, box->shape, p->dst_step, p->step);
    int rc = hth_copies_add(list ? list : &now, dst, src, s.count * p->elem, plain ? NULL : &s);

    if (rc)
        hth_fail(err, rc, 0, "no memory for a list of copies");
    else if (!list)
        hth_crew_run(p->c->h->crew, &now);
    hth_copies_fini(&now);
    return rc;
}

static int part_to_device(struct part *p, const struct hth_box *box, const void *dst,
        const unsigned char *src, struct hearth_error *err)
{
    struct hth_memory m = { .at = dst,
        .elem = p->elem,
        .ndim = p->ndim,
        .shape = box->shape,
        .strides = p->dst_step,
        .key = p->item->key,
        .key_len = p->item->key_len };

    return hth_to_note(p->target->to, p->source, &m, p->target->gpu, src, p->step, err);
}

static int part_copy(struct part *p, const struct hth_box *box, struct hearth_error *err)
{
    unsigned char *dst = p->target->dst;
    const unsigned char *src;
    uint64_t off, len;
    int64_t at = 0;
    int rc = HEARTH_OK;

    part_cover(p, box, &off, &len);
    if (p->target->to)
        rc = hth_to_ready(p->target->to, p->source, off, len, err);
    if (rc || (rc = hth_source_at(p->c, p->source, off, len, &src, err)))
        return rc;
    for (uint32_t i = 0; i < p->ndim; i++)
        at += (box->offset[i] - p->box.offset[i]) * p->dst_step[i];
    dst += at * (int64_t)p->elem;
    return p->target->gpu ? part_to_device(p, box, dst, src, err)
                          : part_to_host(p, box, dst, src, err);
}

/* Much of the `len` bytes that the box lies in is wanted, or they come as one chunk anyhow. */
static int part_is_dense(const struct part *p, const struct hth_box *box, uint64_t len)
{
    return len <= HTH_CHUNK || len / 4 <= part_elements(p, box) * p->elem;
}

static int part_is_worth_it(const struct part *p, const struct hth_box *box)
{
    uint64_t off, len;

    part_cover(p, box, &off, &len);
    return len <= FETCH_MAX && part_is_dense(p, box, len);
}

/* Halve along the first dimension that can be: the upper half into *upper. */
static int part_halve(const struct part *p, struct hth_box *box, struct hth_box *upper)
{
    for (uint32_t i = 0; i < p->ndim; i++) {
        int64_t half = box->shape[i] / 2;

        if (!half)
            continue;
        *upper = *box;
        upper->offset[i] += half;
        upper->shape[i] -= half;
        box->shape[i] = half;
        return 1;
    }
    return 0;
}

static int part_fetch(struct part *p, struct hearth_error *err)
{
    struct hth_box *stack = malloc(DEPTH_MAX * sizeof(*stack));
    int depth = 1, rc = HEARTH_OK;

    if (!stack)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to read a box");
    stack[0] = p->box;
    while (depth && !rc) {
        struct hth_box box = stack[--depth], upper;

        if (depth < DEPTH_MAX - 2 && !part_is_worth_it(p, &box) && part_halve(p, &box, &upper)) {
            stack[depth++] = upper;
            stack[depth++] = box;
            continue;
        }
        rc = part_copy(p, &box, err);
    }
    free(stack);
    return rc;
}

static void part_init(struct part *p, const struct hth_entry *entry, const struct hth_box *box)
{
    const struct hth_item *item = &entry->item;
    int tensor = item->kind == HTH_ITEM_TENSOR;
    int64_t len = (int64_t)item->length;

    p->payload = item->offset + item->payload;
    p->elem = tensor ? hearth_dtype_bytes(item->dtype) : 1;
    p->ndim = tensor ? item->ndim : 1;
    memcpy(p->box.offset, box->offset, p->ndim * sizeof(int64_t));
    memcpy(p->box.shape, box->shape, p->ndim * sizeof(int64_t));
    hth_c_order(p->ndim, tensor ? item->shape : &len, p->step);
}

int hth_part_cover(
        const struct hth_entry *entry, const struct hth_box *box, uint64_t *off, uint64_t *len)
{
    struct part p;

    part_init(&p, entry, box);
    *off = p.payload;
    *len = 0;
    if (!part_elements(&p, box))
        return 0;
    part_cover(&p, box, off, len);
    return part_is_dense(&p, box, *len);
}

int hth_read_part(struct hearth_checkpoint *c, const struct hth_entry *entry,
        const struct hth_box *box, const struct hth_target *target, struct hearth_error *err)
{
    struct part p; /* its arrays are long, and used as far as there are dimensions */

    part_init(&p, entry, box);
    p.c = c;
    p.source = &c->source[entry->source];
    p.target = target;
    p.item = &entry->item;
    if (target->strides && p.ndim)
        memcpy(p.dst_step, target->strides, p.ndim * sizeof(p.dst_step[0]));
    else
        hth_c_order(p.ndim, box->shape, p.dst_step);
    if (!part_elements(&p, box))
        return HEARTH_OK;
    return p.source->local ? part_copy(&p, box, err) : part_fetch(&p, err);
}
