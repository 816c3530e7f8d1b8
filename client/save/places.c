/* SPDX-License-Identifier: Apache-2.0 */
/* Where things lie in a save that is being written. */
#include "save.h"

int hearth_save_locate(struct hearth_save *save, const void *const *pointers, size_t count,
        uint64_t *out_offset, struct hearth_error *err)
{
    const struct hth_written *o;
    int rc;

    if (!save || (count && (!pointers || !out_offset)))
        return hth_fail(err, HEARTH_EINVAL, 0, "the save, the pointers or their places are NULL");
    if ((rc = hth_enter(save->h, err)))
        return rc;
    o = &save->object[save->objects - 1];
    for (size_t i = 0; i < count; i++) {
        uintptr_t data = (uintptr_t)o->base + HTH_BLOCK, at = (uintptr_t)pointers[i];

        out_offset[i] = at >= data && at - data < o->data_len ? at - data : UINT64_MAX;
    }
    return HEARTH_OK;
}

int hearth_save_places(struct hearth_save *save, struct hearth_place *out, size_t cap,
        size_t *out_count, struct hearth_error *err)
{
    const struct hth_written *o;
    struct hth_table table;
    struct hth_item item;
    uint64_t pos = 0;
    int rc;

    if (!save || !out_count || (cap && !out))
        return hth_fail(err, HEARTH_EINVAL, 0, "the save, out or out_count is NULL");
    if ((rc = hth_enter(save->h, err)))
        return rc;
    o = &save->object[save->objects - 1];
    table = (struct hth_table){ .data_len = o->data_len,
        .items = o->items,
        .items_at = save->scratch.items,
        .items_len = o->items_len };
    for (size_t i = 0; i < cap && !hth_item_next(&table, &pos, &item); i++)
        out[i] = (struct hearth_place){ .offset = item.offset, .length = item.length };
    *out_count = o->items;
    return HEARTH_OK;
}

int hearth_save_data(
        struct hearth_save *save, void **out_base, uint64_t *out_bytes, struct hearth_error *err)
{
    struct hth_written *o;
    int rc;

    if (!save || !out_base || !out_bytes)
        return hth_fail(err, HEARTH_EINVAL, 0, "the save, out_base or out_bytes is NULL");
    if ((rc = hth_enter(save->h, err)) || (rc = hth_save_not_sealed(save, err)))
        return rc;
    o = hth_save_open_object(save);
    o->summed = 0; /* the caller may write there */
    *out_base = o->base + HTH_BLOCK;
    *out_bytes = o->room;
    return HEARTH_OK;
}
