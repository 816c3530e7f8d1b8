/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects that a rank has written become the node's: an object by SEAL or COMMON, the save by
 * COMMIT. From then on the slot belongs to the holdings, and the save's decision to
 * replication/commit/.
 */
#include "handover.h"

#include "committed.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "loan.h"
#include "reserve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HANDED_COMMON UINT32_C(0x80000000) /* in the index of a common object */

static void handover_refuse(struct hth_node *n, uint32_t client, uint64_t request)
{
    struct hearth_error err;

    loan_unknown(&err);
    reply_error(n, client, request, &err);
}

/* ---- SEAL, COMMON, COMMIT -------------------------------------------------------------------- */

static void handover_on_sealed(void *self, struct hth_held_save *save, struct hth_held *held,
        int code, const struct hearth_error *err)
{
    struct hth_node *n = self;

    if (code) {
        hth_commit_fail(n->commit, save->id, code, err->text);
        if (code == HEARTH_ECORRUPT && !held->dropped) /* else its rank is lent this memory again */
            hth_held_condemn(&n->ctx, save, held, "payload");
        return;
    }
    held->verified = 1;
    hth_commit_sealed(n->commit, save, held);
}

static int handover_fits(
        const struct hth_node *n, const struct hth_local_seal *m, const struct hth_slot *slot)
{
    uint64_t data_max = slot->capacity - HTH_BLOCK;

    return m->slot == slot->id && m->generation == slot->generation && m->data_len <= data_max &&
           m->items_len <= data_max &&
           HTH_ALIGN(HTH_BLOCK + m->data_len) +
                           hth_table_bytes(m->data_len, m->items_len, n->ctx.opts.strong) <=
                   slot->capacity;
}

/* Fails if the save is decided already or its epoch is over, because no node would keep the
 * object. */
static int handover_is_over(struct hth_node *n, const struct loan *l, struct hearth_error *err)
{
    enum hearth_level level;
    char text[256] = "";
    int degraded, code = HEARTH_OK;

    if (hth_commit_status(n->commit, l->save, &level, &degraded, &code, text))
        code = HEARTH_EFAILED;
    if (!l->dead && !code)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EFAILED, 0, HTH_SAVE ": %s", HTH_SAVE_ARGS(l->save),
            l->dead ? "its epoch is over" : text);
}

/* From here on the slot belongs to the holdings, and sealing has begun. */
static int handover_start(struct hth_node *n, const struct hth_handed *h, struct hth_slot *slot,
        uint32_t early, struct hearth_error *err)
{
    struct hth_seal_part part = { h->items, h->items_len, h->summed != 0, early };
    struct hth_object object = { .kind = HTH_OBJECT_SHARD,
        .owner = h->rank,
        .id = hth_object_id(h->rank, h->index),
        .data_len = h->data_len };
    struct hth_held_save *save = hth_holdings_get(&n->ctx, h->save);
    struct hth_held *held;
    int rc;

    snprintf(object.name, sizeof(object.name), "%.*s", (int)sizeof(object.name) - 1, h->name);
    held = save ? hth_held_add(save, &object, HTH_HELD_LENT, slot) : NULL;
    if (!held) {
        n->env.store->ops->give(n->env.store, slot);
        return hth_fail(err, HEARTH_ENOMEM, 0, "object %s", h->name);
    }
    rc = hth_seal_start(&n->ctx, save, held, &part, handover_on_sealed, n, err);
    if (rc)
        hth_held_drop(&n->ctx, save, held);
    return rc;
}

/* Describes the object as the commit record will have it. */
static void handover_describe(struct loan *l, struct lent *o, const struct hth_local_seal *m)
{
    o->sealed = (struct hth_handed){ .save = l->save,
        .slot = m->slot,
        .generation = m->generation,
        .summed = m->summed == 1,
        .data_len = m->data_len,
        .items_len = m->items_len,
        .items = m->items,
        .rank = l->rank,
        .index = m->index };
    memcpy(o->sealed.name, o->name, sizeof(o->name));
    l->bytes += m->data_len;
}

static int handover_seal_object(struct hth_node *n, struct loan *l, const struct hth_local_seal *m,
        struct hearth_error *err)
{
    struct lent *o = m->index < l->objects ? &l->object[m->index] : NULL;
    struct hth_slot *slot = o ? o->slot : NULL;
    int rc;

    if (o && o->regained && l->has_id) {
        handover_describe(l, o, m);
        return HEARTH_OK;
    }
    if (!slot || !l->has_id || !handover_fits(n, m, slot))
        return hth_fail(err, HEARTH_EINVAL, 0, "a seal of an object that was not lent like this");
    if ((rc = handover_is_over(n, l, err)))
        return rc;
    handover_describe(l, o, m);
    o->slot = NULL; /* the holdings own it from here on */
    return handover_start(n, &o->sealed, slot, o->early, err);
}

/* No answer. A message that does not fit its loan has no effect: the object is offered once it is
 * sealed. */
void handover_written(
        struct hth_node *n, struct client *c, const struct hth_local_written_chunks *m)
{
    struct loan *l = loan_open(n, c, m->head.token);
    struct lent *o = l && m->index < l->objects ? &l->object[m->index] : NULL;
    struct hth_object object = { .kind = HTH_OBJECT_SHARD };

    if (!o || !o->slot || !l->has_id || l->dead || n->ctx.opts.strong || o->asked < HTH_BLOCK ||
            m->chunks > (o->asked - HTH_BLOCK) / HTH_CHUNK)
        return;
    object.owner = l->rank;
    object.id = hth_object_id(l->rank, m->index);
    object.data_len = o->asked;
    memcpy(object.name, o->name, sizeof(object.name));
    if (hth_commit_writing(n->commit, l->save, &object, o->slot, m->chunks) && m->chunks > o->early)
        o->early = m->chunks;
}

void handover_seal(struct hth_node *n, struct client *c, const struct hth_local_seal *m)
{
    struct loan *l = loan_open(n, c, m->head.token);
    struct hearth_error err;

    c->pinned = m->pinned ? m->pinned : c->pinned;
    if (!l) {
        handover_refuse(n, c->id, m->head.request);
    } else if (handover_seal_object(n, l, m, &err)) {
        loan_not_written(n, l, m->index);
        if (l->has_id && !l->dead)
            hth_commit_fail(n->commit, l->save, err.code, err.text);
        reply_error(n, c->id, m->head.request, &err);
    } else {
        reply_ok(n, c->id, m->head.request);
    }
}

static void handover_on_common(void *self, struct hth_held_save *save, struct hth_held *held,
        int code, const struct hearth_error *err)
{
    struct hth_node *n = self;

    if (held->dropped || save->id.epoch != n->epoch.epoch || save->id.nonce != n->epoch.nonce)
        return; /* its save is decided, or its epoch over */
    if (code) {
        hth_commit_fail(n->commit, save->id, code, err->text);
        return;
    }
    committed_digested(n, save, held);
    hth_commit_common(n->commit, save, held);
}

/* The save's DONE waits for this object from here on, however early COMMIT comes. */
static int handover_put_common(struct hth_node *n, struct loan *l, const struct hth_local_common *m,
        struct hth_content *content, struct hearth_error *err)
{
    struct hth_object object = {
        .kind = HTH_OBJECT_RAW, .owner = l->rank, .data_len = content->len
    };
    size_t len = strlen(m->name);
    struct hth_held_save *save;
    struct hth_held *held;
    int rc = handover_is_over(n, l, err);

    if (!rc && content->len != m->len)
        rc = hth_fail(err, HEARTH_EPROTO, 0,
                "a common object of %" PRIu64 " bytes came with %" PRIu64, m->len, content->len);
    if (!rc && (len == 0 || len > HTH_NAME_MAX))
        rc = hth_fail(err, HEARTH_EINVAL, 0, "a common object needs a name of 1 to 64 bytes");
    if (!rc) {
        memcpy(object.name, m->name, len);
        rc = hth_object_name_check(object.name, err);
    }
    if (rc) {
        content->end(content);
        return rc;
    }
    object.id = hth_object_id(l->rank, HANDED_COMMON | l->commons);
    save = hth_holdings_get(&n->ctx, l->save);
    if (save && hth_held_find(save, object.id)) { /* the rank has sent it again */
        content->end(content);
        l->commons++;
        return HEARTH_OK;
    }
    held = save ? hth_held_add(save, &object, HTH_HELD_LENT, NULL) : NULL;
    if (!held) {
        content->end(content);
        return hth_fail(err, HEARTH_ENOMEM, 0, "common object");
    }
    rc = hth_raw_put(&n->ctx, save, held, content, handover_on_common, n, err);
    if (rc)
        hth_held_drop(&n->ctx, save, held);
    else
        l->commons++;
    return rc;
}

static int no_content_read(struct hth_content *content, uint64_t off, void *out, size_t len)
{
    (void)content, (void)off, (void)out;
    return len != 0;
}

static void no_content_end(struct hth_content *content)
{
    (void)content;
}

void handover_common(struct hth_node *n, struct client *c, const struct hth_local_common *m,
        struct hth_content **content)
{
    static struct hth_content none = { 0, no_content_read, no_content_end };
    struct loan *l = loan_open(n, c, m->head.token);
    struct hth_content *taken = *content ? *content : &none;
    struct hearth_error err;

    if (!l || !l->has_id || l->dead) {
        handover_refuse(n, c->id, m->head.request);
        return;
    }
    *content = NULL;
    if (handover_put_common(n, l, m, taken, &err)) {
        hth_commit_fail(n->commit, l->save, err.code, err.text);
        reply_error(n, c->id, m->head.request, &err);
    } else {
        reply_ok(n, c->id, m->head.request);
    }
}

/* Sends a rank that has reconnected the level of its save. */
static void handover_tell(struct hth_node *n, const struct loan *l)
{
    enum hearth_level level = HEARTH_WRITTEN;
    int degraded = 0, code = HEARTH_OK;
    char text[256] = "";

    if (!hth_commit_status(n->commit, l->save, &level, &degraded, &code, text))
        loan_event(n, l, level, degraded, code, text);
}

/* How many objects the rank has handed over. It may leave out a further object that it was lent. */
static uint32_t handover_objects(const struct loan *l)
{
    uint32_t objects = l->commons;

    for (uint32_t i = 0; i < l->objects; i++)
        objects += !hth_save_none(l->object[i].sealed.save);
    return objects;
}

void handover_commit(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = loan_open(n, c, m->token);

    if (!l || !l->has_id) {
        handover_refuse(n, c->id, m->request);
        return;
    }
    l->committed = 1;
    loan_give_back(n, l);
    n->lend_ahead_look = 1;
    if (committed_note(n, l))
        reply_ok(n, c->id, m->request); /* received, but not on record */
    else
        loan_answer_id(n, c, l, m->request);
    if (l->dead)
        return;
    reserve_ahead(n, l->save);
    if (!hth_keep_has(&n->ctx.keep, l->save))
        hth_commit_rank_done(n->commit, l->save, l->rank, handover_objects(l));
    if (m->token & HTH_LOCAL_OWN)
        handover_tell(n, l);
}

static void handover_give_up(struct hth_node *n, struct loan *l)
{
    if (l->has_id && !l->dead && !l->committed)
        hth_commit_fail(n->commit, l->save, HEARTH_ECANCELED, "a rank gave the save up");
    loan_free(n, l);
    n->lend_ahead_look = 1;
}

void handover_abort(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = loan_find(n, c, m->token);

    if (!l)
        l = loan_given(n, c, m->token);
    if (l)
        handover_give_up(n, l);
    reply_ok(n, c->id, m->request);
}

/* The rank has not received LENT, and when it comes it does not take the slot. */
void handover_forget(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = n->loans;

    while (l && (l->client != c->id || !l->request || l->request != m->token))
        l = l->next;
    if (l)
        handover_give_up(n, l);
    reply_ok(n, c->id, m->request);
}

void handover_cancel(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = loan_find(n, c, m->token);

    if (l && l->has_id && !l->dead)
        hth_commit_fail(n->commit, l->save, HEARTH_ECANCELED, "cancelled by a rank");
    reply_ok(n, c->id, m->request);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

void handover_gone(struct hth_node *n, uint32_t client)
{
    struct loan *next;

    for (struct loan *l = n->loans; l; l = next) {
        next = l->next;
        if (l->client != client)
            continue;
        if (l->has_id && !l->dead && !l->committed)
            hth_commit_fail(n->commit, l->save, HEARTH_EFAILED, "a rank died while it was writing");
        if (!l->given) /* no process writes a given save until another process takes it */
            loan_abandon(n, l);
        loan_free(n, l);
    }
}

/* ---- After a restart ------------------------------------------------------------------------- */

static struct hth_held *handover_here(struct hth_node *n, const struct hth_handed *row)
{
    struct hth_held_save *s = hth_holdings_find(&n->ctx, row->save);

    return s ? hth_held_find(s, hth_object_id(row->rank, row->index)) : NULL;
}

/* If this row is the last of its rank and save, and all objects that the rank handed over are here:
 * the number of these objects; else 0. */
static uint32_t handover_is_all(struct hth_node *n, size_t at)
{
    const struct hth_handed *row = &n->committed[at];
    uint32_t commons = 0, objects = 0;

    for (size_t i = 0; i < n->committed_rows; i++) {
        const struct hth_handed *o = &n->committed[i];

        if (o->rank != row->rank || hth_save_cmp(o->save, row->save))
            continue;
        if (i > at || !handover_here(n, o))
            return 0;
        objects++;
        commons += (o->index & HANDED_COMMON) != 0;
    }
    return commons == row->commons ? objects : 0;
}

/* The engine before this one has the object's digest on record, unless it ended right after it had
 * sealed the object. */
static void handover_on_taken(void *self, struct hth_held_save *save, struct hth_held *held,
        int code, const struct hearth_error *err)
{
    struct hth_node *n = self;
    struct hearth_error differs;

    if (!code && committed_differs(n, save, held)) {
        code = hth_fail(&differs, HEARTH_ECORRUPT, 0,
                HTH_SAVE " common object '%s' is not as rank %" PRIu32
                         " of this node has sent it: look at the node's memory",
                HTH_SAVE_ARGS(save->id), held->object.name, held->object.owner);
        err = &differs;
    }
    handover_on_common(n, save, held, code, err);
}

static int handover_take_common(
        struct hth_node *n, const struct hth_handed *row, struct hearth_error *err)
{
    struct hth_object object = { .kind = HTH_OBJECT_RAW,
        .owner = row->rank,
        .id = hth_object_id(row->rank, row->index),
        .data_len = row->data_len };
    struct hth_held_save *save = hth_holdings_get(&n->ctx, row->save);
    struct hth_held *held;
    int rc;

    memcpy(object.name, row->name, sizeof(object.name));
    held = save ? hth_held_add(save, &object, HTH_HELD_LENT, NULL) : NULL;
    if (!held)
        return hth_fail(err, HEARTH_ENOMEM, 0, "common object %s", row->name);
    rc = hth_raw_take(&n->ctx, save, held, handover_on_taken, n, err);
    if (rc)
        hth_held_drop(&n->ctx, save, held);
    return rc;
}

/* Goes on with an object that a rank handed over to the engine before this one. If a bit of it has
 * changed since, the rank's checksums show it; checksums made now would be those of wrong bytes. */
static int handover_take(
        struct hth_node *n, const struct hth_handed *row, int here, struct hearth_error *err)
{
    struct hth_store *store = n->env.store;
    const struct hth_ranks *ranks = committed_ranks(n, row->save);
    struct hth_slot *slot;
    int rc = hth_commit_rejoin(n->commit, row->rank, row->save, ranks, err);

    if (rc || here)
        return rc;
    if (row->index & HANDED_COMMON)
        return handover_take_common(n, row, err);
    rc = store->ops->claim(store, row->slot, row->generation, row->rank, &slot, err);
    return rc ? rc : handover_start(n, row, slot, LENT_EARLY_ALL, err);
}

/* Continues with the objects that ranks handed over to the engine before this one, of undecided
 * saves. */
void handover_resume(struct hth_node *n)
{
    for (size_t i = 0; i < n->committed_rows; i++) {
        const struct hth_handed *row = &n->committed[i];
        struct hearth_error err = { 0 };
        int here = handover_here(n, row) != NULL;
        uint32_t objects;
        int rc;

        if (!hth_commit_needs_ranks(n->commit, row->save))
            continue;
        rc = handover_take(n, row, here, &err);
        hth_say(&n->ctx.log, HEARTH_LOG_INFO, "handed-over",
                HTH_SAVE " object '%s' of rank %" PRIu32 ": %s", HTH_SAVE_ARGS(row->save),
                row->name, row->rank,
                rc     ? err.text
                : here ? "sealed already"
                       : "sealing goes on");
        /* If a common object was not whole when the engine ended, its rank sends it again. */
        if (rc && rc != HEARTH_EUNKNOWN && rc != HEARTH_EFAILED && !(row->index & HANDED_COMMON))
            hth_commit_fail(n->commit, row->save, rc, err.text);
        if (!rc && (objects = handover_is_all(n, i)))
            hth_commit_rank_done(n->commit, row->save, row->rank, objects);
    }
}

void handover_new_epoch(struct hth_node *n)
{
    committed_forget(n);
    for (struct loan *l = n->loans; l; l = l->next) {
        if (l->has_id && !l->dead)
            loan_event(n, l, HEARTH_WRITTEN, 0, HEARTH_EUNKNOWN,
                    "a new epoch began before this save was decided");
        l->dead |= l->has_id;
    }
}
