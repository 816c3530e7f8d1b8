/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two manifests of one save. No code makes them, and there is no proof that none ever will. An
 * inventory names objects by their places in the node's own manifest. If that is not the
 * candidate's manifest, the node is asked to send its inventory object by object. If it sends
 * places again meanwhile, it is asked again.
 */
#include "choice_state.h"

#include "core/base/bytes.h"

#include <string.h>

static int mismatch_ask(struct hth_choice *co, uint32_t node, struct hth_save_id save)
{
    unsigned char body[8];

    hth_say(&co->ctx->log, HEARTH_LOG_WARN, "manifest-other",
            "node %s has another manifest of " HTH_SAVE " than the one that counts",
            co->ctx->epoch->member[node].node, HTH_SAVE_ARGS(save));
    hth_put32(body, co->before);
    hth_put32(body + 4, 1);
    hth_tree_to(co->ctx, node, HTH_KIND_ASK_INVENTORY, body, sizeof(body));
    hth_inventory_fini(&co->from[node].inventory);
    co->from[node].complete = 0;
    co->complete--;
    return 1;
}

static int mismatch_node(struct hth_choice *co, uint32_t node)
{
    const struct hth_inventory *inv = &co->from[node].inventory;

    for (uint32_t i = 0; i < inv->saves; i++) {
        const struct hth_seen_save *s = &inv->save[i];
        const struct candidate *c = s->runs ? candidate_find(co, s->id) : NULL;

        if (c && memcmp(c->digest, s->manifest, HTH_DIGEST) != 0)
            return mismatch_ask(co, node, s->id);
    }
    return 0;
}

int manifests_mismatch(struct hth_choice *co)
{
    int any = 0;

    for (uint32_t n = 0; n < co->nodes; n++)
        any |= mismatch_node(co, n);
    if (any) {
        candidates_free(co->candidate, co->candidates);
        co->candidate = NULL;
        co->candidates = 0;
    }
    return any;
}
