/* SPDX-License-Identifier: Apache-2.0 */
/* Slots with objects by what is in them; the rest as the store reports it. */
#include "room.h"

#include "engine/state/node_state.h"

#include <string.h>

/* Slots of saves, by what is in them. */
struct used {
    uint64_t kept, undecided, copies;
};

static struct used room_used(struct hth_node *n)
{
    struct used u = { 0 };

    for (struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next)
        for (const struct hth_held *h = s->held; h; h = h->next) {
            uint64_t bytes = h->slot && !h->theirs ? h->slot->capacity : 0;
            int own = n->epoch.nodes && h->object.owner < n->epoch.world &&
                      n->epoch.rank_node[h->object.owner] == n->epoch.self;

            if (!own)
                u.copies += bytes;
            else if (hth_keep_has(&n->ctx.keep, s->id))
                u.kept += bytes;
            else
                u.undecided += bytes;
        }
    return u;
}

int room_look(struct hth_node *n, struct room_kind out[ROOM_KINDS])
{
    struct hth_store *store = n->env.store;
    struct hth_store_room room;
    struct used u;

    if (!store->ops->room || store->ops->room(store, &room))
        return 0;
    u = room_used(n);
    memcpy(out,
            (const struct room_kind[ROOM_KINDS]){ { "kept", u.kept }, { "undecided", u.undecided },
                    { "copies", u.copies }, { "free", room.free }, { "reserved", room.slots },
                    { "spare", room.spare }, { "max", room.max }, { "tmpfs_size", room.size },
                    { "tmpfs_free", room.left }, { "cgroup_max", room.cgroup_max },
                    { "cgroup_used", room.cgroup_used } },
            ROOM_KINDS * sizeof(*out));
    return 1;
}
