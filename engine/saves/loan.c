/* SPDX-License-Identifier: Apache-2.0 */
/* The list of loans, and the events of a loan for the rank that has it. */
#include "loan.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"

#include "core/base/grow.h"
#include "replication/transfer/transfer.h"
#include <stdio.h>
#include <stdlib.h>

struct loan *loan_make(struct hth_node *n, const struct client *c)
{
    struct loan *l = calloc(1, sizeof(*l));

    if (!l)
        return NULL;
    l->token = n->next_id++;
    l->client = c->id;
    l->rank = c->rank;
    l->next = n->loans;
    n->loans = l;
    return l;
}

int loan_name(struct loan *l, const struct hth_ranks *ranks, struct hearth_error *err)
{
    free(l->ranks);
    l->ranks = hth_ranks_copy(ranks);
    return l->ranks || !ranks ? HEARTH_OK : hth_fail(err, HEARTH_ENOMEM, 0, "a set of ranks");
}

const struct hth_ranks *loan_ranks(
        const struct hth_local_head *m, size_t fixed, struct hth_ranks *out)
{
    const unsigned char *runs = (const unsigned char *)m + fixed;

    return m->length > fixed && !hth_ranks_decode(out, runs, m->length - fixed, NULL) ? out : NULL;
}

/* Most saves have one object of each rank. */
struct lent *loan_next(struct loan *l)
{
    struct lent *object =
            hth_grow(l->object, &l->object_room, (size_t)l->objects + 1, 1, sizeof(*l->object));

    if (!object)
        return NULL;
    l->object = object;
    object += l->objects;
    *object = (struct lent){ 0 };
    return object;
}

struct loan *loan_find(struct hth_node *n, const struct client *c, uint64_t token)
{
    struct loan *l = n->loans;

    while (l && (l->token != token || l->client != c->id || l->given))
        l = l->next;
    return l;
}

struct loan *loan_given(struct hth_node *n, const struct client *c, uint64_t token)
{
    struct loan *l = n->loans;

    while (l && (l->token != token || l->client != c->id || !l->given))
        l = l->next;
    return l;
}

struct loan *loan_open(struct hth_node *n, const struct client *c, uint64_t token)
{
    struct loan *l = loan_find(n, c, token);

    return l && !l->committed && !l->ahead ? l : NULL;
}

struct loan *loan_ahead(struct hth_node *n, const struct client *c, uint64_t token)
{
    struct loan *l = token ? loan_find(n, c, token) : NULL;

    return l && l->ahead ? l : NULL;
}

void loan_not_written(struct hth_node *n, const struct loan *l, uint32_t index)
{
    if (l->has_id && n->ctx.transfer)
        hth_transfer_not_written(&n->ctx, l->save, hth_object_id(l->rank, index));
}

void loan_give_back(struct hth_node *n, struct loan *l)
{
    for (uint32_t i = 0; i < l->objects; i++) {
        if (l->object[i].slot) {
            loan_not_written(n, l, i);
            n->env.store->ops->give(n->env.store, l->object[i].slot);
        }
        l->object[i].slot = NULL;
    }
}

void loan_let_go(struct hth_node *n, const struct loan *but, uint64_t slot)
{
    struct hth_local_let_go m = { .head = { sizeof(m), HTH_LOCAL_LET_GO, 0, 0 }, .slot = slot };

    for (const struct client *c = n->clients; c; c = c->next)
        if (c->attached && (!but || c->id != but->client))
            reply_packet(n, c->id, &m, sizeof(m));
}

void loan_abandon(struct hth_node *n, struct loan *l)
{
    for (uint32_t i = 0; i < l->objects; i++) {
        struct hth_slot *slot = l->object[i].slot;

        if (!slot)
            continue;
        l->object[i].slot = NULL;
        loan_not_written(n, l, i);
        if (hth_breaks(&n->ctx, HTH_BREAK_WRITER)) {
            n->env.store->ops->give(n->env.store, slot);
            continue;
        }
        n->env.store->ops->abandon(n->env.store, slot);
        loan_let_go(n, l,
                slot->id); /* others' mappings are of the open file that this rank may still write */
    }
}

void loan_free(struct hth_node *n, struct loan *l)
{
    struct loan **at = &n->loans;

    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    loan_give_back(n, l);
    free(l->object);
    free(l->ranks);
    free(l);
}

int loan_unknown(struct hearth_error *err)
{
    return hth_fail(
            err, HEARTH_ESTATE, 0, "this save is not under way here (the engine may be new)");
}

struct hth_slot *loan_slot(const struct hth_node *n, uint64_t slot)
{
    for (const struct loan *l = n->loans; l; l = l->next)
        for (uint32_t i = 0; i < l->objects; i++)
            if (l->object[i].slot && l->object[i].slot->id == slot)
                return l->object[i].slot;
    return NULL;
}

void loan_close(struct hth_node *n)
{
    while (n->loans)
        loan_free(n, n->loans);
}

void loan_answer_id(
        struct hth_node *n, const struct client *c, const struct loan *l, uint64_t request)
{
    struct hth_local_save_id answer = {
        .head = { sizeof(answer), HTH_LOCAL_SAVE_ID, request, l->token },
        .save = hth_local_save_of(l->save),
    };

    reply_packet(n, c->id, &answer, sizeof(answer));
}

void loan_event(struct hth_node *n, const struct loan *l, enum hearth_level level, int degraded,
        int code, const char *text)
{
    struct hth_local_event event = {
        .head = { sizeof(event), HTH_LOCAL_EVENT, 0, l->token },
        .save = hth_local_save_of(l->save),
        .level = level,
        .degraded = (uint32_t)degraded,
        .code = code,
        .bytes = l->bytes,
        .copied = l->copied,
    };

    snprintf(event.text, sizeof(event.text), "%s", text);
    reply_packet(n, l->client, &event, sizeof(event));
}

void loan_fail_all(struct hth_node *n, const struct hearth_error *why)
{
    for (struct loan *l = n->loans; l; l = l->next)
        if (l->has_id && !l->dead)
            loan_event(n, l, HEARTH_WRITTEN, 0, HEARTH_EUNKNOWN, why->text);
}
