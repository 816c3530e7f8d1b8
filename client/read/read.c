/* SPDX-License-Identifier: Apache-2.0 */
/* Reading item by item: a box, bytes, and what is wanted soon. */
#include "items.h"

#include "box.h"
#include "client/base/args.h"
#include "foreign.h"
#include "part.h"
#include "window.h"
#include <string.h>

int hearth_read_box(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        const int64_t *offset, const int64_t *shape, void *dst, const int64_t *dst_strides,
        struct hearth_error *err)
{
    const struct hth_entry *e;
    struct hth_target target = { .dst = dst, .strides = dst_strides };
    struct hth_box box;
    int rc;

    if ((rc = hth_checkpoint_enter(ckpt, err)) || (rc = hth_item_taken(ckpt, item, &e, err)))
        return rc;
    if (!dst || (e->item.ndim && (!offset || !shape)))
        return hth_fail(err, HEARTH_EINVAL, 0, "offset, shape or dst is NULL");
    if ((rc = hth_box_check(&e->item, offset, shape, &box, err)))
        return rc;
    if ((rc = hth_read_part(ckpt, e, &box, &target, err)))
        return rc;
    return hth_sources_same(ckpt, err);
}

int hearth_read_bytes(struct hearth_checkpoint *ckpt, const struct hearth_item *item,
        uint64_t offset, void *dst, uint64_t len, struct hearth_error *err)
{
    const struct hth_entry *e;
    uint64_t have, at;
    int rc;

    if ((rc = hth_checkpoint_enter(ckpt, err)) || (rc = hth_item_taken(ckpt, item, &e, err)))
        return rc;
    have = e->item.length - e->item.payload;
    if (offset > have || len > have - offset || (len && !dst))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "bytes %" PRIu64 " to %" PRIu64 " are not in an item of %" PRIu64
                ", or dst is NULL",
                offset, hth_add_up(offset, len), have);
    at = e->item.offset + e->item.payload + offset;
    if ((rc = hth_read_data(ckpt, &ckpt->source[e->source], at, dst, len, err)))
        return rc;
    return hth_sources_same(ckpt, err);
}

int hearth_prefetch(struct hearth_checkpoint *ckpt, const struct hearth_item *items, size_t count,
        struct hearth_error *err)
{
    const struct hth_entry *e;
    int rc;

    if ((rc = hth_checkpoint_enter(ckpt, err)))
        return rc;
    if (count && !items)
        return hth_fail(err, HEARTH_EINVAL, 0, "the array of %zu items is NULL", count);
    for (size_t i = 0; i < count; i++) {
        const void *at = (const char *)items + i * items->struct_size;

        if ((rc = hth_item_taken(ckpt, at, &e, err)))
            return rc;
        if (!hth_source_has_ahead(&ckpt->source[e->source]) && hth_ahead_room(ckpt))
            hth_source_ahead(ckpt, &ckpt->source[e->source], e->item.offset + e->item.payload,
                    e->item.length - e->item.payload);
    }
    return HEARTH_OK;
}
