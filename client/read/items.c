/* SPDX-License-Identifier: Apache-2.0 */
/* The items of a checkpoint, as callers see them. */
#include "items.h"

#include "core/base/opts.h"
#include "index.h"
#include <string.h>

static int item_give(const struct hearth_checkpoint *c, const struct hth_entry *e, void *out,
        struct hearth_error *err)
{
    const struct hth_source *s = &c->source[e->source];
    const struct hth_item *i = &e->item;
    struct hearth_item item = { .key = i->key,
        .key_len = i->key_len,
        .object = s->object->name,
        .owner = s->object->owner,
        .kind = i->kind,
        .dtype = i->dtype,
        .ndim = i->ndim,
        .shape = i->shape,
        .global_shape = i->global_shape,
        .global_offset = i->global_offset,
        .offset = i->offset,
        .bytes = i->length - i->payload,
        .local = (uint32_t)s->local,
        .checkpoint = c->number,
        .handle = ((uint64_t)e->source + 1) << 32 | (uint64_t)(e - s->entry) };

    return hth_give(out, &item, sizeof(item), err);
}

int hth_item_taken(const struct hearth_checkpoint *c, const struct hearth_item *item,
        const struct hth_entry **out, struct hearth_error *err)
{
    const struct hth_source *s = NULL;
    uint32_t index = 0;
    int whole = item && item->struct_size <= HTH_STRUCT_MAX &&
                item->struct_size >= offsetof(struct hearth_item, handle) + sizeof(item->handle);

    if (whole && item->checkpoint == c->number) {
        uint64_t source = item->handle >> 32;

        index = (uint32_t)item->handle;
        s = source && source <= c->sources ? &c->source[source - 1] : NULL;
    }
    if (!s || !s->entry || index >= s->table.items)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%s: take it from hearth_item_at(), hearth_item_find() or hearth_item_in() of the "
                "one that is read",
                whole && item->checkpoint && item->checkpoint != c->number
                        ? "the item is of another checkpoint"
                        : "the item is none of this checkpoint");
    *out = &s->entry[index];
    return HEARTH_OK;
}

int hearth_item_at(struct hearth_checkpoint *ckpt, int all, size_t index, struct hearth_item *out,
        struct hearth_error *err)
{
    int rc;

    if ((rc = hth_checkpoint_enter(ckpt, err)) || (rc = hth_index(ckpt, all, err)))
        return rc;
    if (index >= hth_index_count(ckpt, all))
        return hth_fail(err, HEARTH_ENOENT, 0, "there is no item %zu", index);
    return item_give(ckpt, hth_entry_at(ckpt, index), out, err);
}

int hearth_item_find(struct hearth_checkpoint *ckpt, const void *key, size_t key_len,
        struct hearth_item *out, size_t cap, size_t *out_count, struct hearth_error *err)
{
    const struct hth_entry *e = NULL;
    size_t n = 0;
    int rc;

    if ((rc = hth_checkpoint_enter(ckpt, err)) || (rc = hth_index(ckpt, 1, err)))
        return rc;
    if (!key || !out_count || (cap && !out))
        return hth_fail(err, HEARTH_EINVAL, 0, "the key, out or out_count is NULL");
    while ((e = hth_entry_find(ckpt, key, key_len, e))) {
        char *at = n < cap ? (char *)out + n * out->struct_size : NULL;

        if (at && n) /* the size of the first is the size of all */
            memcpy(at, &out->struct_size, sizeof(out->struct_size));
        if (at && (rc = item_give(ckpt, e, at, err)))
            return rc;
        n++;
    }
    *out_count = n;
    return HEARTH_OK;
}

int hearth_item_in(struct hearth_checkpoint *ckpt, const char *object, uint64_t offset,
        struct hearth_item *out, struct hearth_error *err)
{
    const struct hth_entry *e;
    int rc;

    if ((rc = hth_checkpoint_enter(ckpt, err)))
        return rc;
    if (!object || !out)
        return hth_fail(err, HEARTH_EINVAL, 0, "the object's name or the item is NULL");
    if ((rc = hth_entry_in(ckpt, object, offset, &e, err)))
        return rc;
    return item_give(ckpt, e, out, err);
}
