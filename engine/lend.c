/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots in ranks' hands. A loan is one rank's part of one save:
 *
 *   BEGIN ──► lent ──SEAL (per object)──► sealing ──COMMIT──► followed by EVENTs until the client
 *     │ no room: refused, or waits        closes its handle (its connection), or the epoch ends
 *     └─ SET_STEP gives a staged loan its save
 *
 * A slot comes back from a rank only by SEAL, ABORT or the rank's end: never because an epoch or a
 * save is over, since the rank may be writing into it.
 */
#include "node_state.h"

#include <stdlib.h>
#include <string.h>

static struct loan *loan_find(struct hth_node *n, const struct client *c, uint64_t token)
{
    struct loan *l = n->loans;

    while (l && (l->token != token || l->client != c->id))
        l = l->next;
    return l;
}

void loan_free(struct hth_node *n, struct loan *l)
{
    struct loan **at = &n->loans;

    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    for (uint32_t i = 0; i < l->objects; i++)
        if (l->object[i].slot)
            n->env.store->ops->give(n->env.store, l->object[i].slot);
    free(l);
}

static void no_such_loan(struct hth_node *n, uint32_t client, uint64_t request)
{
    struct hearth_error err;

    hth_fail(&err, HEARTH_ESTATE, 0, "this save is not under way here (the engine may be new)");
    reply_error(n, client, request, &err);
}

/* ---- BEGIN ------------------------------------------------------------------------------------ */

static int take(struct hth_node *n, struct loan *l, const struct hth_local_begin *m,
        struct hearth_error *err)
{
    struct lent *o = &l->object[l->objects];
    int rc;

    if (l->objects == LOAN_OBJECTS)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "more than %u objects in a save of one rank", LOAN_OBJECTS);
    if (m->bytes < 2 * HTH_BLOCK)
        return hth_fail(err, HEARTH_EINVAL, 0, "an object of %" PRIu64 " bytes", m->bytes);
    rc = hth_object_name_check(m->name, err);
    if (rc)
        return rc;
    hth_point(&n->ctx.points, "reserve");
    rc = n->env.store->ops->take(n->env.store, m->bytes, &o->slot, err);
    if (rc)
        return rc;
    memcpy(o->name, m->name, sizeof(o->name));
    o->name[HTH_NAME_MAX] = '\0';
    l->objects++;
    return HEARTH_OK;
}

static void answer_lent(
        struct hth_node *n, const struct client *c, const struct loan *l, uint64_t request)
{
    const struct hth_slot *slot = l->object[l->objects - 1].slot;
    struct hth_local_lent answer = {
        .head = { sizeof(answer), HTH_LOCAL_LENT, request, l->token },
        .slot = slot->id,
        .generation = slot->generation,
        .capacity = slot->capacity,
    };

    if (l->has_id)
        answer.save = hth_local_save_of(l->save);
    n->env.reply(n->env.reply_self, c->id, &answer, sizeof(answer), slot->fd, NULL, 0);
}

static int begin_now(struct hth_node *n, struct client *c, const struct hth_local_begin *m,
        struct hearth_error *err)
{
    struct loan *l = m->head.token ? loan_find(n, c, m->head.token) : NULL;
    int rc = HEARTH_OK;

    if (m->head.token && !l)
        return hth_fail(err, HEARTH_ESTATE, 0, "a further object of a save that is not under way");
    if (!l) {
        l = calloc(1, sizeof(*l));
        if (!l)
            return hth_fail(err, HEARTH_ENOMEM, 0, "save");
        l->token = n->next_id++;
        l->client = c->id;
        l->rank = c->rank;
        if (m->step != UINT64_MAX) {
            rc = hth_commit_begin(n->commit, c->rank, m->step, &l->save, err);
            l->has_id = 1;
        }
        if (rc) {
            free(l);
            return rc;
        }
        l->next = n->loans;
        n->loans = l;
    }
    rc = take(n, l, m, err);
    if (rc) {
        if (l->has_id)
            hth_commit_fail(n->commit, l->save, rc, err ? err->text : hearth_strerror(rc));
        loan_free(n, l);
        return rc;
    }
    answer_lent(n, c, l, m->head.request);
    return HEARTH_OK;
}

static int wait_for_room(struct hth_node *n, struct client *c, const struct hth_local_begin *m)
{
    struct pending *p = calloc(1, sizeof(*p));
    struct pending **end = &n->pending;

    if (!p)
        return HEARTH_ENOMEM;
    *p = (struct pending){ NULL, c->id, hth_now_ms(&n->ctx.clock) + m->wait_ms, *m };
    while (*end)
        end = &(*end)->next;
    *end = p;
    return HEARTH_OK;
}

/* Why a begin is better kept than refused: older saves are undecided, or slots are still made. */
static int must_wait(struct hth_node *n, const struct client *c, const struct hth_local_begin *m)
{
    struct hth_store *store = n->env.store;
    struct hth_slot *slot;
    int rc = HEARTH_OK;

    if (!m->head.token && m->step != UINT64_MAX)
        rc = hth_commit_room(n->commit, c->rank, m->step, NULL);
    if (!rc && !(rc = store->ops->take(store, m->bytes, &slot, NULL)))
        store->ops->give(store, slot);
    return rc == HEARTH_EBUSY;
}

void lend_begin(struct hth_node *n, struct client *c, const struct hth_local_begin *m)
{
    struct hearth_error err;

    if (!n->ctx.epoch) {
        hth_fail(&err, HEARTH_ESTATE, 0, "begin before the node has joined");
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    if ((m->wait_ms || m->cancel_old) && must_wait(n, c, m)) {
        if (m->cancel_old)
            hth_commit_make_room(n->commit);
        if (m->wait_ms && !wait_for_room(n, c, m))
            return;
    }
    if (begin_now(n, c, m, &err))
        reply_error(n, c->id, m->head.request, &err);
}

void lend_tick(struct hth_node *n, uint64_t now_ms)
{
    struct pending **at = &n->pending;

    while (*at) {
        struct pending *p = *at;
        struct client *c = client_find(n, p->client);
        struct hearth_error err;

        if (c && p->until_ms > now_ms && must_wait(n, c, &p->begin)) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        if (c && begin_now(n, c, &p->begin, &err))
            reply_error(n, c->id, p->begin.head.request, &err);
        free(p);
    }
}

uint64_t lend_due_ms(const struct hth_node *n)
{
    uint64_t due_ms = HTH_NEVER;

    for (const struct pending *p = n->pending; p; p = p->next)
        due_ms = p->until_ms < due_ms ? p->until_ms : due_ms;
    return due_ms;
}

static void answer_save_id(
        struct hth_node *n, const struct client *c, const struct loan *l, uint64_t request)
{
    struct hth_local_save_id answer = {
        .head = { sizeof(answer), HTH_LOCAL_SAVE_ID, request, l->token },
        .save = hth_local_save_of(l->save),
    };

    n->env.reply(n->env.reply_self, c->id, &answer, sizeof(answer), -1, NULL, 0);
}

void lend_set_step(struct hth_node *n, struct client *c, const struct hth_local_set_step *m)
{
    struct loan *l = loan_find(n, c, m->head.token);
    struct hearth_error err;

    if (!l || l->has_id) {
        no_such_loan(n, c->id, m->head.request);
        return;
    }
    if (hth_commit_begin(n->commit, c->rank, m->step, &l->save, &err)) {
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    l->has_id = 1;
    answer_save_id(n, c, l, m->head.request);
}

/* ---- SEAL, COMMON, COMMIT ------------------------------------------------------------------------ */

static void on_sealed(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    struct hth_node *n = self;

    if (code) {
        hth_commit_fail(n->commit, save->id, code, err->text);
        return;
    }
    held->verified = 1;
    hth_commit_sealed(n->commit, save, held);
}

static int fits(const struct hth_local_seal *m, const struct hth_slot *slot)
{
    uint64_t data_max = slot->capacity - HTH_BLOCK;

    return m->slot == slot->id && m->generation == slot->generation && m->data_len <= data_max &&
           m->items_len <= data_max &&
           HTH_ALIGN(HTH_BLOCK + m->data_len) + hth_table_bytes(m->data_len, m->items_len) <=
                   slot->capacity;
}

/* An error when what is handed over for it has nowhere to go: decided already, or of an old epoch. */
static int is_over(struct hth_node *n, const struct loan *l, struct hearth_error *err)
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

static int seal(struct hth_node *n, struct loan *l, const struct hth_local_seal *m,
        struct hearth_error *err)
{
    struct lent *o = m->index < l->objects ? &l->object[m->index] : NULL;
    struct hth_object object = { .kind = HTH_OBJECT_SHARD, .owner = l->rank };
    struct hth_held_save *save;
    struct hth_held *held;
    int rc;

    if (!o || !o->slot || !l->has_id || !fits(m, o->slot))
        return hth_fail(err, HEARTH_EINVAL, 0, "a seal of an object that was not lent like this");
    if ((rc = is_over(n, l, err)))
        return rc;
    save = hth_holdings_get(&n->ctx, l->save);
    object.id = hth_object_id(l->rank, m->index);
    object.data_len = m->data_len;
    memcpy(object.name, o->name, sizeof(object.name));
    held = save ? hth_held_add(save, &object, HTH_HELD_LENT, o->slot) : NULL;
    if (!held)
        return hth_fail(err, HEARTH_ENOMEM, 0, "object %s", o->name);
    o->slot = NULL; /* the holdings' from here on */
    l->bytes += m->data_len;
    rc = hth_seal_start(&n->ctx, save, held, m->items, m->items_len, on_sealed, n, err);
    if (rc)
        hth_held_drop(&n->ctx, save, held);
    return rc;
}

void lend_seal(struct hth_node *n, struct client *c, const struct hth_local_seal *m)
{
    struct loan *l = loan_find(n, c, m->head.token);
    struct hearth_error err;

    if (!l) {
        no_such_loan(n, c->id, m->head.request);
    } else if (seal(n, l, m, &err)) {
        if (l->has_id && !l->dead)
            hth_commit_fail(n->commit, l->save, err.code, err.text);
        reply_error(n, c->id, m->head.request, &err);
    } else {
        reply_ok(n, c->id, m->head.request);
    }
}

static int put_common(struct hth_node *n, struct loan *l, const struct hth_local_common *m,
        const void *attach, size_t attach_len, struct hearth_error *err)
{
    struct hth_object object = { .kind = HTH_OBJECT_RAW, .owner = l->rank, .data_len = attach_len };
    struct hth_held_save *save;
    struct hth_held *held;
    size_t len = strnlen(m->name, sizeof(m->name));
    int rc;

    if ((rc = is_over(n, l, err)))
        return rc;
    save = hth_holdings_get(&n->ctx, l->save);

    if (len == 0 || len > HTH_NAME_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "a common object needs a name of 1 to 64 bytes");
    memcpy(object.name, m->name, len);
    rc = hth_object_name_check(object.name, err);
    if (rc)
        return rc;
    object.id = hth_object_id(l->rank, UINT32_C(0x80000000) | l->commons);
    hth_digest(object.digest, attach, attach_len);
    rc = n->env.store->ops->raw_put(n->env.store, l->save, object.name, attach, attach_len, err);
    if (rc)
        return rc;
    held = save ? hth_held_add(save, &object, HTH_HELD_SEALED, NULL) : NULL;
    if (!held)
        return hth_fail(err, HEARTH_ENOMEM, 0, "common object");
    held->verified = 1;
    l->commons++;
    hth_commit_common(n->commit, save, held);
    return HEARTH_OK;
}

void lend_common(struct hth_node *n, struct client *c, const struct hth_local_common *m,
        const void *attach, size_t attach_len)
{
    struct loan *l = loan_find(n, c, m->head.token);
    struct hearth_error err;

    if (!l || !l->has_id || l->dead) {
        no_such_loan(n, c->id, m->head.request);
    } else if (put_common(n, l, m, attach, attach_len, &err)) {
        hth_commit_fail(n->commit, l->save, err.code, err.text);
        reply_error(n, c->id, m->head.request, &err);
    } else {
        reply_ok(n, c->id, m->head.request);
    }
}

void lend_commit(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = loan_find(n, c, m->token);

    if (!l || !l->has_id) {
        no_such_loan(n, c->id, m->request);
        return;
    }
    l->committed = 1;
    answer_save_id(n, c, l, m->request);
    if (!l->dead)
        hth_commit_rank_done(n->commit, l->save, l->rank);
}

void lend_abort(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = loan_find(n, c, m->token);

    if (l) {
        if (l->has_id && !l->dead && !l->committed)
            hth_commit_fail(n->commit, l->save, HEARTH_ECANCELED, "a rank gave the save up");
        loan_free(n, l);
    }
    reply_ok(n, c->id, m->request);
}

void lend_cancel(struct hth_node *n, struct client *c, const struct hth_local_head *m)
{
    struct loan *l = loan_find(n, c, m->token);

    if (l && l->has_id && !l->dead)
        hth_commit_fail(n->commit, l->save, HEARTH_ECANCELED, "cancelled by a rank");
    reply_ok(n, c->id, m->request);
}

/* ---- After a reconnect --------------------------------------------------------------------------- */

static uint32_t objects_here(struct hth_node *n, struct hth_save_id save, uint32_t rank)
{
    struct hth_held_save *s = hth_holdings_find(&n->ctx, save);
    uint32_t count = 0;

    for (struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        count += h->object.owner == rank && h->state == HTH_HELD_SEALED;
    return count;
}

void lend_follow(struct hth_node *n, struct client *c, const struct hth_local_follow *m)
{
    struct hth_save_id save = hth_local_save_to(m->save);
    struct loan *l = calloc(1, sizeof(*l));
    struct hearth_error err;
    enum hearth_level level = HEARTH_WRITTEN;
    char text[256] = "";
    int degraded = 0;
    int code = HEARTH_OK;

    if (!l || !n->ctx.epoch) {
        hth_fail(&err, l ? HEARTH_EUNKNOWN : HEARTH_ENOMEM, 0,
                "this node's engine is new and in no epoch: what became of step %" PRIu64
                " shows at the next hearth_recover()",
                save.step);
        free(l);
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    *l = (struct loan){ .next = n->loans,
        .token = n->next_id++,
        .client = c->id,
        .rank = c->rank,
        .has_id = 1,
        .committed = 1,
        .save = save };
    n->loans = l;
    if (m->committed && objects_here(n, save, c->rank) >= m->objects)
        hth_commit_rank_done(n->commit, save, c->rank);
    else if (hth_commit_status(n->commit, save, &level, &degraded, &code, text) || !code)
        hth_commit_fail(
                n->commit, save, HEARTH_EENGINE, "the engine died while a rank was writing");
    hth_commit_status(n->commit, save, &level, &degraded, &code, text);
    reply_ok(n, c->id, m->head.request);
    serve_event(n, l, level, degraded, code, text);
}

struct hth_slot *hth_node_lent(struct hth_node *n, uint64_t slot)
{
    for (struct loan *l = n->loans; l; l = l->next)
        for (uint32_t i = 0; i < l->objects; i++)
            if (l->object[i].slot && l->object[i].slot->id == slot)
                return l->object[i].slot;
    return NULL;
}

/* ---- Ends ------------------------------------------------------------------------------------------ */

void lend_gone(struct hth_node *n, uint32_t client)
{
    struct loan *next;
    struct pending **at = &n->pending;

    for (struct loan *l = n->loans; l; l = next) {
        next = l->next;
        if (l->client != client)
            continue;
        if (l->has_id && !l->dead && !l->committed)
            hth_commit_fail(n->commit, l->save, HEARTH_EFAILED, "a rank died while it was writing");
        loan_free(n, l);
    }
    while (*at) {
        struct pending *p = *at;

        if (p->client != client) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        free(p);
    }
}

void lend_new_epoch(struct hth_node *n)
{
    for (struct loan *l = n->loans; l; l = l->next) {
        if (l->has_id && !l->dead)
            serve_event(n, l, HEARTH_WRITTEN, 0, HEARTH_EUNKNOWN,
                    "a new epoch began before this save was decided");
        l->dead |= l->has_id;
    }
}

void lend_close(struct hth_node *n)
{
    while (n->loans)
        loan_free(n, n->loans);
    while (n->pending) {
        struct pending *p = n->pending;

        n->pending = p->next;
        free(p);
    }
}
