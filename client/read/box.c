/* SPDX-License-Identifier: Apache-2.0 */
/* Boxes in a tensor: where two meet, and what is left of one when others were cut out. */
#include "box.h"

#include "core/base/grow.h"

#include <stdlib.h>
#include <string.h>

#define REST_MAX 65536u /* pieces that one wanted box may fall into */

int hth_box_check(const struct hth_item *item, const int64_t *offset, const int64_t *shape,
        struct hth_box *out, struct hearth_error *err)
{
    char key[HTH_KEY_TEXT];

    if (item->kind != HTH_ITEM_TENSOR)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "item %s is a byte string and has no boxes: use hearth_read_bytes()",
                hth_key_text(item->key, item->key_len, key));
    for (uint32_t i = 0; i < item->ndim; i++) {
        int64_t end;

        if (offset[i] < 0 || shape[i] < 0 || __builtin_add_overflow(offset[i], shape[i], &end) ||
                end > item->shape[i])
            return hth_fail(err, HEARTH_EINVAL, 0,
                    "the box reaches out of piece %s in dimension %u, which has %" PRId64
                    " elements",
                    hth_key_text(item->key, item->key_len, key), i, item->shape[i]);
        out->offset[i] = offset[i];
        out->shape[i] = shape[i];
    }
    return HEARTH_OK;
}

int hth_box_meet(
        uint32_t ndim, const struct hth_box *a, const struct hth_box *b, struct hth_box *out)
{
    for (uint32_t i = 0; i < ndim; i++) {
        int64_t low = a->offset[i] > b->offset[i] ? a->offset[i] : b->offset[i];
        int64_t a_end = a->offset[i] + a->shape[i], b_end = b->offset[i] + b->shape[i];
        int64_t end = a_end < b_end ? a_end : b_end;

        if (end <= low)
            return 0;
        out->offset[i] = low;
        out->shape[i] = end - low;
    }
    return 1;
}

static int rest_push(struct hth_rest *rest, const struct hth_box *box)
{
    struct hth_box *at = NULL;

    if (rest->count < REST_MAX)
        at = hth_grow(rest->box, &rest->room, rest->count + 1, 4, sizeof(*at));
    if (!at)
        return HEARTH_ENOMEM;
    rest->box = at;
    rest->box[rest->count++] = *box;
    return HEARTH_OK;
}

int hth_rest_init(struct hth_rest *rest, uint32_t ndim, const struct hth_box *whole)
{
    *rest = (struct hth_rest){ .ndim = ndim };
    return rest_push(rest, whole);
}

/*
 *     +-------+      before the cut in dimension 0, after it; then the same in dimension 1 of what
 *     |  cut  |      lies beside it, and so on: at most two slabs for each dimension
 *     +-------+
 */
int hth_rest_cut(struct hth_rest *rest, size_t i, const struct hth_box *cut)
{
    struct hth_box left = rest->box[i];

    rest->box[i] = rest->box[--rest->count];
    for (uint32_t d = 0; d < rest->ndim; d++) {
        int64_t end = left.offset[d] + left.shape[d], cut_end = cut->offset[d] + cut->shape[d];
        struct hth_box slab = left;

        slab.shape[d] = cut->offset[d] - left.offset[d];
        if (slab.shape[d] > 0 && rest_push(rest, &slab))
            return HEARTH_ENOMEM;
        slab.offset[d] = cut_end;
        slab.shape[d] = end - cut_end;
        if (slab.shape[d] > 0 && rest_push(rest, &slab))
            return HEARTH_ENOMEM;
        left.offset[d] = cut->offset[d];
        left.shape[d] = cut->shape[d];
    }
    return HEARTH_OK;
}

void hth_rest_fini(struct hth_rest *rest)
{
    free(rest->box);
    *rest = (struct hth_rest){ 0 };
}
