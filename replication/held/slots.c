/* SPDX-License-Identifier: Apache-2.0 */
/* A slot stays registered through all its uses, and a registered slot is not removed. Only if room
 * is short and its size is not needed any more is it deregistered and removed: for example in a
 * world with other shards, or after the places for which it was made have moved. */
#include "slots.h"

#include "region.h"

static int slots_freed(struct hth_ctx *ctx)
{
    struct hth_store *store = ctx->store;
    struct hth_slot *slot;
    int any = 0;

    while (store->ops->surplus && (slot = store->ops->surplus(store))) {
        hth_slot_region_end(ctx, slot);
        any = 1;
    }
    return any;
}

int hth_slots_reserve(
        struct hth_ctx *ctx, const uint64_t *bytes, size_t count, struct hearth_error *err)
{
    struct hth_store *store = ctx->store;
    int rc = store->ops->reserve(store, bytes, count, err);

    return rc == HEARTH_ENOSPC && slots_freed(ctx) ? store->ops->reserve(store, bytes, count, err)
                                                   : rc;
}

int hth_slots_keep_only(struct hth_ctx *ctx, const uint64_t *bytes, size_t count)
{
    if (!ctx->store->ops->keep_only)
        return 0;
    ctx->store->ops->keep_only(ctx->store, bytes, count);
    return slots_freed(ctx);
}

int hth_slots_want(struct hth_ctx *ctx, const uint64_t *bytes, size_t count, enum hth_want how,
        struct hearth_error *err)
{
    struct hth_store *store = ctx->store;
    int rc;

    if (!store->ops->want)
        return HEARTH_OK;
    rc = store->ops->want(store, bytes, count, how, err);
    return rc == HEARTH_ENOSPC && slots_freed(ctx) ? store->ops->want(store, bytes, count, how, err)
                                                   : rc;
}
