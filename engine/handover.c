/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank has written becomes the node's: an object by SEAL or COMMON, the save by COMMIT. From
 * then on the slot belongs to the holdings, and the save's decision to replication/commit/.
 */
#include "handover.h"

#include "client.h"
#include "loan.h"
#include "node_state.h"
#include "reply.h"
#include "reserve.h"

#include <stdlib.h>
#include <string.h>

static void handover_refuse(struct hth_node *n, uint32_t client, uint64_t request)
{
    struct hearth_error err;

    loan_unknown(&err);
    reply_error(n, client, request, &err);
}

/* ---- SEAL, COMMON, COMMIT ------------------------------------------------------------------------ */

static void handover_on_sealed(void *self, struct hth_held_save *save, struct hth_held *held,
        int code, const struct hearth_error *err)
{
    struct hth_node *n = self;

    if (code) {
        hth_commit_fail(n->commit, save->id, code, err->text);
        return;
    }
    held->verified = 1;
    hth_commit_sealed(n->commit, save, held);
}

static int handover_fits(const struct hth_local_seal *m, const struct hth_slot *slot)
{
    uint64_t data_max = slot->capacity - HTH_BLOCK;

    return m->slot == slot->id && m->generation == slot->generation && m->data_len <= data_max &&
           m->items_len <= data_max &&
           HTH_ALIGN(HTH_BLOCK + m->data_len) + hth_table_bytes(m->data_len, m->items_len) <=
                   slot->capacity;
}

/* Fails where the save is decided already or its epoch is over: nobody would keep what is handed over. */
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

static int handover_seal_object(struct hth_node *n, struct loan *l, const struct hth_local_seal *m,
        struct hearth_error *err)
{
    struct lent *o = m->index < l->objects ? &l->object[m->index] : NULL;
    struct hth_object object = { .kind = HTH_OBJECT_SHARD, .owner = l->rank };
    struct hth_held_save *save;
    struct hth_held *held;
    int rc;

    if (!o || !o->slot || !l->has_id || !handover_fits(m, o->slot))
        return hth_fail(err, HEARTH_EINVAL, 0, "a seal of an object that was not lent like this");
    if ((rc = handover_is_over(n, l, err)))
        return rc;
    save = hth_holdings_get(&n->ctx, l->save);
    object.id = hth_object_id(l->rank, m->index);
    object.data_len = m->data_len;
    memcpy(object.name, o->name, sizeof(object.name));
    held = save ? hth_held_add(save, &object, HTH_HELD_LENT, o->slot) : NULL;
    if (!held)
        return hth_fail(err, HEARTH_ENOMEM, 0, "object %s", o->name);
    o->slot = NULL; /* the holdings own it from here on */
    l->bytes += m->data_len;
    rc = hth_seal_start(&n->ctx, save, held, m->items, m->items_len, handover_on_sealed, n, err);
    if (rc)
        hth_held_drop(&n->ctx, save, held);
    return rc;
}

void handover_seal(struct hth_node *n, struct client *c, const struct hth_local_seal *m)
{
    struct loan *l = loan_open(n, c, m->head.token);
    struct hearth_error err;

    if (!l) {
        handover_refuse(n, c->id, m->head.request);
    } else if (handover_seal_object(n, l, m, &err)) {
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
    if (code)
        hth_commit_fail(n->commit, save->id, code, err->text);
    else
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
    object.id = hth_object_id(l->rank, UINT32_C(0x80000000) | l->commons);
    save = hth_holdings_get(&n->ctx, l->save);
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

void handover_commit(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = loan_open(n, c, m->token);

    if (!l || !l->has_id) {
        handover_refuse(n, c->id, m->request);
        return;
    }
    l->committed = 1;
    loan_answer_id(n, c, l, m->request);
    if (l->dead)
        return;
    reserve_ahead(n, l->save);
    hth_commit_rank_done(n->commit, l->save, l->rank);
}

void handover_abort(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = loan_find(n, c, m->token);

    if (l) {
        if (l->has_id && !l->dead && !l->committed)
            hth_commit_fail(n->commit, l->save, HEARTH_ECANCELED, "a rank gave the save up");
        loan_free(n, l);
    }
    reply_ok(n, c->id, m->request);
}

void handover_cancel(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = loan_find(n, c, m->token);

    if (l && l->has_id && !l->dead)
        hth_commit_fail(n->commit, l->save, HEARTH_ECANCELED, "cancelled by a rank");
    reply_ok(n, c->id, m->request);
}

/* ---- Ends ------------------------------------------------------------------------------------------ */

void handover_gone(struct hth_node *n, uint32_t client)
{
    struct loan *next;

    for (struct loan *l = n->loans; l; l = next) {
        next = l->next;
        if (l->client != client)
            continue;
        if (l->has_id && !l->dead && !l->committed)
            hth_commit_fail(n->commit, l->save, HEARTH_EFAILED, "a rank died while it was writing");
        loan_free(n, l);
    }
}

void handover_new_epoch(struct hth_node *n)
{
    for (struct loan *l = n->loans; l; l = l->next) {
        if (l->has_id && !l->dead)
            loan_event(n, l, HEARTH_WRITTEN, 0, HEARTH_EUNKNOWN,
                    "a new epoch began before this save was decided");
        l->dead |= l->has_id;
    }
}
