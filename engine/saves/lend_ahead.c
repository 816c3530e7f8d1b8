/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank's next slot is lent before it asks, so that its begin does not wait: once its epoch has
 * recovered, and whenever a save was handed over or decided, if there would be room for one more.
 *
 *     something changed ─► room, and a slot that is ready, with its pages cleared?
 *                             ├─ yes: LENT, unasked ─┬─► BEGIN of it, which names the save
 *                             │                      └─► BEGIN without it: the slot is taken back
 *                             └─ no: looked at again at the next change
 *
 * The slot is as large as the rank declared at joining, else as its last save. To a rank that has
 * a helper process nothing is lent ahead: the two would not know of each other's begins.
 */
#include "lend_ahead.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "loan.h"
#include "replication/held/region.h"
#include "replication/transfer/transfer.h"
#include "reserve.h"
#include "undecided.h"

#include <string.h>

static int lend_ahead_is_writing(const struct hth_node *n, const struct client *c)
{
    for (const struct loan *l = n->loans; l; l = l->next)
        if (l->rank == c->rank && !l->committed)
            return 1;
    for (const struct client *other = n->clients; other; other = other->next)
        if (other != c && other->attached && other->rank == c->rank)
            return 1;
    return 0;
}

static uint64_t lend_ahead_bytes(const struct hth_node *n, const struct client *c)
{
    uint64_t said = reserve_said(n, c->rank);

    if (said && n->objects[c->rank].count[1]) /* the first save shows which size comes first */
        said = 0;
    return c->ahead_bytes ? c->ahead_bytes : said;
}

static void lend_ahead_say(struct hth_node *n, const struct client *c, const struct loan *l,
        const struct hth_slot *slot)
{
    struct hth_local_lent m = { .head = { sizeof(m), HTH_LOCAL_LENT, 0, l->token },
        .slot = slot->id,
        .generation = slot->generation,
        .capacity = slot->capacity };
    struct hth_save_id last = { n->epoch.epoch, n->epoch.nonce, 0, 0 };

    last.attempt = hth_commit_counted(n->commit, c->rank, &last.step);
    m.save = hth_local_save_of(last);
    reply_packet_fd(n, c->id, &m, sizeof(m), slot->fd);
}

static void lend_ahead_slot(struct hth_node *n, struct client *c, uint64_t bytes)
{
    struct hth_region *region;
    struct hth_slot *slot;
    struct lent *o;
    struct loan *l;

    if (n->env.store->ops->lend(n->env.store, bytes, c->rank, &slot, NULL))
        return;
    l = loan_make(n, c);
    o = l ? loan_next(l) : NULL;
    if (!o) {
        if (l)
            loan_free(n, l);
        n->env.store->ops->give(n->env.store, slot);
        return;
    }
    l->ahead = 1;
    o->slot = slot;
    l->objects = 1;
    if (n->epoch.nodes > 1)
        (void)hth_slot_region(&n->ctx, slot, NULL, &region, NULL);
    lend_ahead_say(n, c, l, slot);
}

/* 1: a worker is making the slot, or clears its pages, and wakes the engine. A slot that is lent is
 * not cleared any more: its rank would do it, while training waits for its copy. */
static int lend_ahead_is_made_soon(struct hth_store *store, uint64_t bytes, uint32_t rank)
{
    return store->ops->soon(store, bytes) ||
           (store->ops->cold && store->ops->cold(store, bytes, rank));
}

void lend_ahead_tick(struct hth_node *n)
{
    struct hth_store *store = n->env.store;

    if (!n->lend_ahead_look || !n->ctx.epoch || !n->recovered || n->failure.code || n->pending)
        return;
    n->lend_ahead_look = 0;
    for (struct client *c = n->clients; c; c = c->next) {
        uint64_t bytes = lend_ahead_bytes(n, c);

        if (!c->ahead || !c->attached || !bytes || c->epoch != n->epoch.epoch ||
                c->nonce != n->epoch.nonce || lend_ahead_is_writing(n, c) ||
                hth_commit_room(n->commit, c->rank, HTH_STEP_MAX, NULL, NULL) ||
                undecided_room(n, c->rank, NULL, bytes, 1, NULL))
            continue;
        if (!store->ops->ready(store, bytes))
            n->lend_ahead_look |= hth_transfer_make_way(&n->ctx);
        if (lend_ahead_is_made_soon(store, bytes, c->rank))
            n->lend_ahead_look = 1;
        else if (store->ops->ready(store, bytes))
            lend_ahead_slot(n, c, bytes);
    }
}

void lend_ahead_withdraw(struct hth_node *n, const struct client *c)
{
    struct loan *l = n->loans;

    while (l && (l->client != c->id || !l->ahead))
        l = l->next;
    if (l)
        loan_free(n, l);
}

/* The rank keeps its slot even if this fails, because it is writing already. */
static int lend_ahead_name(struct hth_node *n, struct client *c, struct loan *l,
        const struct hth_local_begin *m, const struct hth_ranks *ranks, struct hearth_error *err)
{
    struct lent *o = &l->object[0];
    int rc;

    l->ahead = 0;
    if (m->index || m->bytes < 2 * HTH_BLOCK || m->bytes > o->slot->capacity)
        return hth_fail(err, HEARTH_EINVAL, 0, "%" PRIu64 " bytes in a slot of %" PRIu64, m->bytes,
                o->slot->capacity);
    if ((rc = hth_object_name_check(m->name, err)) || (rc = loan_name(l, ranks, err)))
        return rc;
    o->asked = c->ahead_bytes = m->bytes;
    memcpy(o->name, m->name, strlen(m->name) + 1);
    if (m->step == UINT64_MAX)
        return HEARTH_OK;
    l->has_id = 1;
    hth_commit_count(n->commit, c->rank, m->step, m->attempt ? m->attempt - 1 : 0);
    rc = hth_commit_begin(n->commit, c->rank, m->step, l->ranks, &l->save, err);
    if (!rc && l->save.attempt != m->attempt) {
        rc = hth_fail(err, HEARTH_ESTATE, 0,
                "another process of rank %" PRIu32 " has begun step %" PRIu64 " meanwhile", c->rank,
                m->step);
        hth_commit_fail(n->commit, l->save, rc, err->text);
    }
    return rc;
}

void lend_ahead_begin(struct hth_node *n, struct client *c, struct loan *l,
        const struct hth_local_begin *m, const struct hth_ranks *ranks)
{
    struct hearth_error err;

    if (lend_ahead_name(n, c, l, m, ranks, &err)) {
        l->has_id = l->dead = 1;
        reply_error(n, c->id, m->head.request, &err);
    } else {
        loan_answer_id(n, c, l, m->head.request);
    }
}
