/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes in a tensor. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_BOX_H
#define HEARTH_CLIENT_BOX_H

#include "core/format/table.h"
#include "core/torch/header.h"
#include <stddef.h>

/* Boxes: [ndim] offset and shape. 1: they meet, in *out. */
struct hth_box { /* [ndim] used */
    int64_t offset[HTH_DIMS_MAX], shape[HTH_DIMS_MAX];
};
int hth_box_meet(
        uint32_t ndim, const struct hth_box *a, const struct hth_box *b, struct hth_box *out);

/* The parts of a box that are still missing. */
struct hth_rest {
    uint32_t ndim;
    struct hth_box *box;
    size_t count, room;
};
int hth_rest_init(struct hth_rest *rest, uint32_t ndim, const struct hth_box *whole);
/* Takes `cut` out of box i, in which it lies: the rest of the box is appended, and box i is
 * removed. */
int hth_rest_cut(struct hth_rest *rest, size_t i, const struct hth_box *cut);
void hth_rest_fini(struct hth_rest *rest);

/* A caller's box of a tensor, checked. */
int hth_box_check(const struct hth_item *item, const int64_t *offset, const int64_t *shape,
        struct hth_box *out, struct hearth_error *err);

#endif
