/* SPDX-License-Identifier: Apache-2.0 */
/* Slots whose files another program has removed or cut short under this engine. */
#include "holdings.h"

static struct hth_held *mend_find(
        struct hth_ctx *ctx, const struct hth_slot *slot, struct hth_held_save **out_save)
{
    for (struct hth_held_save *s = hth_holdings_first(ctx); s; s = s->next)
        for (struct hth_held *h = s->held; h; h = h->next)
            if (h->slot == slot || h->old == slot) {
                *out_save = s;
                return h;
            }
    return NULL;
}

void hth_held_mend(struct hth_ctx *ctx, hth_lost_fn *lost, void *self)
{
    struct hth_store *store = ctx->store;
    struct hth_held_save *save = NULL;
    struct hearth_error why = { 0 };
    struct hth_slot *slot;

    while (store->ops->broken && (slot = store->ops->broken(store, &why))) {
        struct hth_held *held = mend_find(ctx, slot, &save);
        int bad = held && held->old == slot; /* nothing is lost: a fetch replaces it */
        uint64_t object = held ? held->object.id : 0;
        struct hth_save_id id = held ? save->id : (struct hth_save_id){ 0 };

        hth_say(&ctx->log, HEARTH_LOG_WARN, "slot-broken", "%s", why.text);
        if (bad)
            held->old = NULL;
        if (held && !bad)
            hth_held_condemn(ctx, save, held, "cut");
        else
            hth_slot_condemn(ctx, slot, "cut");
        if (held && !bad && lost)
            lost(self, id, object, &why);
    }
}
