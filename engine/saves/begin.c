/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BEGIN: a slot for an object, at once, or when older saves have made room:
 *
 *   BEGIN ─► room? ─► slot ─► LENT
 *     │        └─ none: refused, or kept until there is some or its time is up (tick)
 *     └─ of a save that is under way: one more object of it; refused, the save goes on without
 *
 *   BEGIN of a slot that was lent ahead ─► SAVE_ID (lend_ahead.c)
 *   SET_STEP ─► room? ─► SAVE_ID       of a loan that was begun without a step; said again: the same one
 */
#include "begin.h"

#include "engine/state/client.h"
#include "engine/state/history.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "lend_ahead.h"
#include "loan.h"
#include "mend.h"
#include "replication/held/region.h"
#include "replication/held/slots.h"
#include "replication/transfer/transfer.h"
#include "reserve.h"
#include "undecided.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEGIN_SIZES 64u
#define SOON_MS     20000u /* less than a rank waits for the answer, however large the slot */
#define LOOK_MS     100u   /* the kernel does not report when another process unmaps a slot */

union start {
    struct hth_local_head head;
    struct hth_local_begin begin;
    struct hth_local_set_step set_step;
};

struct pending { /* a BEGIN or SET_STEP that waits for room */
    struct pending *next;
    uint32_t client;
    uint64_t until_ms, room_ms; /* room_ms: since when only a slot is missing */
    union start start;
    struct hth_ranks *ranks; /* of BEGIN; NULL: all */
};

static void pending_free(struct pending *p)
{
    free(p->ranks);
    free(p);
}

/* The rank names the object of its save that comes next. Slots that were lent for that object and
 * for later ones were in answers for which the rank did not wait any more: they are given back. */
static int begin_rewind(
        struct hth_node *n, struct loan *l, uint32_t index, struct hearth_error *err)
{
    if (index > l->objects || (index == 0 && l->objects))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "object %" PRIu32 " of a save that has %" PRIu32 " objects", index, l->objects);
    while (l->objects > index) {
        struct lent *o = &l->object[l->objects - 1];

        if (!o->slot)
            return hth_fail(err, HEARTH_EINVAL, 0, "object %s is handed over already", o->name);
        loan_not_written(n, l, l->objects - 1);
        n->env.store->ops->give(n->env.store, o->slot);
        *o = (struct lent){ 0 };
        l->objects--;
    }
    return HEARTH_OK;
}

static int begin_check_object(
        const struct loan *l, const struct hth_local_begin *m, struct hearth_error *err)
{
    int rc;

    if (l->objects == LOAN_OBJECTS)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "more than %u objects in a save of one rank", LOAN_OBJECTS);
    if (m->bytes < 2 * HTH_BLOCK)
        return hth_fail(err, HEARTH_EINVAL, 0, "an object of %" PRIu64 " bytes", m->bytes);
    if ((rc = hth_object_name_check(m->name, err)))
        return rc;
    for (uint32_t i = 0; i < l->objects; i++)
        if (!strcmp(l->object[i].name, m->name))
            return hth_fail(err, HEARTH_EEXIST, 0,
                    "object %s is in this rank's save already: names are given once", m->name);
    return HEARTH_OK;
}

/* Registers the slot while the rank writes, not afterwards. In a job of one node no peer pulls, so
 * the slot is not registered. */
static void begin_register(struct hth_node *n, struct hth_slot *slot)
{
    struct hth_region *region;

    if (n->epoch.nodes > 1)
        (void)hth_slot_region(&n->ctx, slot, NULL, &region, NULL);
}

static int begin_take_slot(struct hth_node *n, struct loan *l, const struct hth_local_begin *m,
        struct hearth_error *err)
{
    struct lent *o;
    int rc;

    if ((rc = begin_rewind(n, l, m->index, err)) || (rc = begin_check_object(l, m, err)))
        return rc;
    o = loan_next(l);
    if (!o)
        return hth_fail(err, HEARTH_ENOMEM, 0, "one more object of a save");
    hth_point(&n->ctx.points, "reserve");
    rc = n->env.store->ops->lend(n->env.store, m->bytes, l->rank, &o->slot, err);
    if (rc)
        return rc;
    begin_register(n, o->slot);
    o->asked = m->bytes;
    memcpy(o->name, m->name, strlen(m->name) + 1); /* it fits: begin_check_object() */
    l->objects++;
    return HEARTH_OK;
}

/* Warns that this save fits and the next saves will not, while the user can still do something
 * about it. Returns the bytes of text. */
static uint32_t begin_warning(struct hth_node *n, const struct client *c, const struct loan *l,
        char text[HTH_LOCAL_WARNING])
{
    uint64_t bytes = l->object[l->objects - 1].asked;
    struct hearth_error err;
    int len;

    if (reserve_said(n, c->rank) || !reserve_look(n, bytes, &err))
        return 0;
    len = snprintf(text, HTH_LOCAL_WARNING,
            "this save has room on node '%.64s' and the next will not: %" PRIu32
            " saves (keep + 1) lie there at once, with objects like this one of %" PRIu64
            " bytes: %.400s",
            n->epoch.member[n->epoch.self].node, n->ctx.opts.keep + 1, bytes, err.text);
    hth_say(&n->ctx.log, HEARTH_LOG_WARN, "room", "%s", text);
    return len < (int)HTH_LOCAL_WARNING ? (uint32_t)len : HTH_LOCAL_WARNING - 1;
}

static void begin_answer(
        struct hth_node *n, const struct client *c, const struct loan *l, uint64_t request)
{
    const struct hth_slot *slot = l->object[l->objects - 1].slot;
    struct {
        struct hth_local_lent lent;
        char text[HTH_LOCAL_WARNING];
    } answer = { 0 };
    uint32_t len = (uint32_t)sizeof(answer.lent) + begin_warning(n, c, l, answer.text);

    answer.lent = (struct hth_local_lent){
        .head = { len, HTH_LOCAL_LENT, request, l->token },
        .slot = slot->id,
        .generation = slot->generation,
        .capacity = slot->capacity,
    };
    if (l->has_id)
        answer.lent.save = hth_local_save_of(l->save);
    reply_packet_fd(n, c->id, &answer, len, slot->fd);
}

static int begin_save(struct hth_node *n, const struct client *c, struct loan *l,
        const struct hth_local_begin *m, struct hearth_error *err)
{
    hth_commit_count(n->commit, c->rank, m->step, m->attempt ? m->attempt - 1 : 0);
    l->has_id = 1;
    return hth_commit_begin(n->commit, c->rank, m->step, l->ranks, &l->save, err);
}

static int begin_now(struct hth_node *n, struct client *c, const struct hth_local_begin *m,
        const struct hth_ranks *ranks, struct hearth_error *err)
{
    struct loan *l = m->head.token ? loan_open(n, c, m->head.token) : NULL;
    int rc = HEARTH_OK;

    if (m->head.token && (!l || l->dead))
        return hth_fail(err, HEARTH_ESTATE, 0, "a further object of a save that is not under way");
    if (!l) {
        l = loan_make(n, c);
        if (!l)
            return hth_fail(err, HEARTH_ENOMEM, 0, "save");
        l->request = m->head.request;
        rc = loan_name(l, ranks, err);
        if (!rc && m->step != UINT64_MAX)
            rc = begin_save(n, c, l, m, err);
        if (rc) {
            loan_free(n, l);
            return rc;
        }
    }
    if (!m->head.token && m->step == UINT64_MAX)
        rc = undecided_room(n, c->rank, ranks, m->bytes, 0, err);
    if (!rc)
        rc = begin_take_slot(n, l, m, err);
    if (rc && m->head.token)
        return rc; /* the rank continues with the slots that it has */
    if (rc) {
        if (l->has_id)
            hth_commit_fail(n->commit, l->save, rc, err ? err->text : hearth_strerror(rc));
        loan_free(n, l);
        return rc;
    }
    if (!m->head.token)
        c->ahead_bytes = m->bytes;
    begin_answer(n, c, l, m->head.request);
    return HEARTH_OK;
}

/* ---- SET_STEP
 * ------------------------------------------------------------------------------------- */

/* A rank that gave up waiting for the answer repeats SET_STEP. If the rank has counted on, it means
 * another attempt. */
static int begin_set_step_again(struct hth_node *n, const struct client *c, const struct loan *l,
        const struct hth_local_set_step *m, struct hearth_error *err)
{
    if (l->dead)
        return loan_unknown(err);
    if (l->save.step != m->step || m->attempt > l->save.attempt)
        return hth_fail(err, HEARTH_ESTATE, 0, "this save has its step: it is " HTH_SAVE,
                HTH_SAVE_ARGS(l->save));
    loan_answer_id(n, c, l, m->head.request);
    return HEARTH_OK;
}

static int begin_set_step_now(struct hth_node *n, struct client *c,
        const struct hth_local_set_step *m, struct hearth_error *err)
{
    struct loan *l = loan_open(n, c, m->head.token);
    int rc;

    if (!l)
        return loan_unknown(err);
    if (l->has_id)
        return begin_set_step_again(n, c, l, m, err);
    hth_commit_count(n->commit, c->rank, m->step, m->attempt ? m->attempt - 1 : 0);
    if ((rc = hth_commit_begin(n->commit, c->rank, m->step, l->ranks, &l->save, err)))
        return rc;
    l->has_id = 1;
    loan_answer_id(n, c, l, m->head.request);
    return HEARTH_OK;
}

/* ---- now, or later
 * -------------------------------------------------------------------------------- */

/* 1: the rank has begun another save and has not handed it over; or it has given that save up, and
 * its message has not come yet. */
static int begin_has_another(
        const struct hth_node *n, const struct client *c, const struct hth_local_begin *m)
{
    const struct loan *l = n->loans;

    while (l && (l->client != c->id || l->token == m->head.token || l->committed || l->dead ||
                        !l->objects))
        l = l->next;
    return l != NULL;
}

static int begin_may(const struct hth_node *n, const struct client *c,
        const struct hth_local_begin *m, const struct hth_ranks *ranks)
{
    return m->head.token ||
           (m->step != UINT64_MAX && !hth_commit_room(n->commit, c->rank, m->step, ranks, NULL));
}

/* The sizes of this object and of the objects of other waiting ranks, if these ranks have not sent
 * their sizes in advance. */
static size_t begin_sizes(struct hth_node *n, const struct client *c,
        const struct hth_local_begin *m, uint64_t bytes[BEGIN_SIZES])
{
    size_t count = 0;

    bytes[count++] = m->bytes;
    if (reserve_said(n, c->rank))
        return count;
    for (const struct pending *p = n->pending; p && count < BEGIN_SIZES; p = p->next) {
        const struct client *other = client_find(n, p->client);

        if (other && other->rank != c->rank && p->start.head.type == HTH_LOCAL_BEGIN &&
                !reserve_said(n, other->rank) && begin_may(n, other, &p->start.begin, p->ranks))
            bytes[count++] = p->start.begin.bytes;
    }
    return count;
}

/* A save's slot comes before chunks that peers' ranks still write (transfer/early.c). 1: it is free
 * in a moment. */
static int begin_makes_way(struct hth_node *n, uint64_t bytes)
{
    struct hth_store *store = n->env.store;

    return !store->ops->ready(store, bytes) && hth_transfer_make_way(&n->ctx) &&
           !store->ops->ready(store, bytes);
}

/* 0: the rank could be lent a slot now. HEARTH_EBUSY: not yet. */
static int begin_try(struct hth_node *n, const struct client *c, const struct hth_local_begin *m)
{
    struct hth_store *store = n->env.store;
    struct hth_slot *slot;
    int rc = store->ops->lend(store, m->bytes, c->rank, &slot, NULL);

    if (!rc)
        store->ops->give(store, slot);
    else if (rc == HEARTH_EBUSY && !store->ops->soon(store, m->bytes))
        reserve_for_readers(n, m->bytes);
    return rc;
}

/* A save that may begin has a slot. If all slots of its size hold bytes that are still needed, as
 * after the job has lost nodes and not yet saved, one more is made: a rank writes one save.
 * Readers have no more than lease_bytes. If the ranks have not declared sizes, the slots of the
 * first save are made here, those of all ranks side by side. If an object has grown and room is
 * short, slots of its earlier size make way. 1: they do when ranks have unmapped them. */
static int begin_foresee(struct hth_node *n, const struct client *c,
        const struct hth_local_begin *m, const struct hth_ranks *ranks)
{
    uint64_t said = reserve_said(n, c->rank), bytes[BEGIN_SIZES];
    struct hearth_error err;
    int rc;

    if ((said && m->bytes > said) || begin_has_another(n, c, m) || !begin_may(n, c, m, ranks))
        return 0;
    rc = hth_slots_want(&n->ctx, bytes, begin_sizes(n, c, m, bytes), HTH_WANT_OR_READERS, &err);
    if (rc)
        hth_say(&n->ctx.log, HEARTH_LOG_DEBUG, "no-slot", "%s", err.text);
    return rc == HEARTH_EBUSY;
}

/* 1: the request waits instead of being refused: older saves are undecided, or its slot is being
 * made. */
static int begin_must_wait(struct hth_node *n, const struct client *c, const union start *m,
        const struct hth_ranks *ranks)
{
    struct hth_store *store = n->env.store;
    int begin = m->head.type == HTH_LOCAL_BEGIN;
    const struct loan *l = begin ? NULL : loan_open(n, c, m->head.token);
    uint64_t step = begin ? m->begin.step : m->set_step.step;
    int rc = HEARTH_OK;

    if (l && l->has_id) /* its room was found, for the one before */
        return 0;
    if ((!begin || !m->head.token) && step != UINT64_MAX)
        rc = hth_commit_room(n->commit, c->rank, step, ranks, NULL);
    if (begin && !m->head.token && step == UINT64_MAX)
        rc = undecided_room(n, c->rank, ranks, m->begin.bytes, 1, NULL);
    if (!rc && begin && begin_makes_way(n, m->begin.bytes))
        return 1;
    if (!rc && begin &&
            (begin_foresee(n, c, &m->begin, ranks) || store->ops->soon(store, m->begin.bytes)))
        return 1;
    if (!rc && begin)
        rc = begin_try(n, c, &m->begin);
    return rc == HEARTH_EBUSY;
}

/* 0: older saves leave room for this one. */
static int begin_room(struct hth_node *n, const struct client *c, const struct hth_local_begin *m,
        const struct hth_ranks *ranks)
{
    if (m->head.token)
        return HEARTH_OK;
    return m->step != UINT64_MAX ? hth_commit_room(n->commit, c->rank, m->step, ranks, NULL)
                                 : undecided_room(n, c->rank, ranks, m->bytes, 1, NULL);
}

/* Milliseconds that a request may wait for a slot that the workers make, though its caller gave
 * no wait_ms, or for room that ranks `unmap`. 0: none of its size is being made. */
static uint32_t begin_soon_ms(struct hth_node *n, const struct client *c,
        const struct hth_local_begin *m, const struct hth_ranks *ranks, int unmap)
{
    struct hth_store *store = n->env.store;
    uint64_t ms = hth_local_making_ms(m->bytes);

    if (begin_room(n, c, m, ranks))
        return 0;
    if (!unmap && !store->ops->ready(store, m->bytes) && !store->ops->soon(store, m->bytes))
        (void)begin_try(n, c, m); /* the call begins to make a slot */
    if (!unmap && !store->ops->soon(store, m->bytes))
        return 0;
    return ms < SOON_MS ? (uint32_t)ms : SOON_MS;
}

static int begin_wait(struct hth_node *n, struct client *c, const union start *m,
        const struct hth_ranks *ranks, uint32_t wait_ms)
{
    struct pending *p = calloc(1, sizeof(*p));
    struct pending **end = &n->pending;

    if (!p)
        return HEARTH_ENOMEM;
    *p = (struct pending){ .client = c->id,
        .until_ms = hth_now_ms(&n->ctx.clock) + wait_ms,
        .room_ms = hth_now_ms(&n->ctx.clock),
        .start = *m,
        .ranks = hth_ranks_copy(ranks) };
    if (ranks && !p->ranks) {
        pending_free(p);
        return HEARTH_ENOMEM;
    }
    while (*end)
        end = &(*end)->next;
    *end = p;
    return HEARTH_OK;
}

static void begin_start(
        struct hth_node *n, struct client *c, const union start *m, const struct hth_ranks *ranks)
{
    struct hearth_error err;
    int rc = m->head.type == HTH_LOCAL_BEGIN ? begin_now(n, c, &m->begin, ranks, &err)
                                             : begin_set_step_now(n, c, &m->set_step, &err);

    if (rc)
        reply_error(n, c->id, m->head.request, &err);
}

void begin_ask(struct hth_node *n, struct client *c, const struct hth_local_begin *m)
{
    struct loan *l = loan_ahead(n, c, m->head.token);
    union start start = { .begin = *m };
    struct hth_ranks set;
    const struct hth_ranks *ranks = loan_ranks(&m->head, sizeof(*m), &set);
    struct hearth_error err;
    uint32_t soon;
    int unmap;

    if (!n->ctx.epoch) {
        hth_fail(&err, HEARTH_ESTATE, 0, "begin before the node has joined");
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    mend_slots(n);
    if (l) {
        lend_ahead_begin(n, c, l, m, ranks);
        return;
    }
    if (!m->head.token)
        lend_ahead_withdraw(n, c);
    unmap = (!begin_room(n, c, m, ranks) && begin_makes_way(n, m->bytes)) ||
            begin_foresee(n, c, m, ranks);
    if ((m->wait_ms || m->cancel_old) && begin_must_wait(n, c, &start, ranks)) {
        if (m->cancel_old)
            hth_commit_make_room(n->commit);
        if (m->wait_ms && !begin_wait(n, c, &start, ranks, m->wait_ms))
            return;
    }
    if (!m->wait_ms && (soon = begin_soon_ms(n, c, m, ranks, unmap)) &&
            !begin_wait(n, c, &start, ranks, soon))
        return;
    begin_start(n, c, &start, ranks);
}

void begin_set_step(struct hth_node *n, struct client *c, const struct hth_local_set_step *m)
{
    const struct loan *l = loan_open(n, c, m->head.token);
    const struct hth_ranks *ranks = l ? l->ranks : NULL;
    union start start = { .set_step = *m };

    if (m->wait_ms && begin_must_wait(n, c, &start, ranks) &&
            !begin_wait(n, c, &start, ranks, m->wait_ms))
        return;
    begin_start(n, c, &start, ranks);
}

static uint64_t start_step(const union start *m)
{
    if (m->head.type == HTH_LOCAL_BEGIN)
        return m->head.token ? UINT64_MAX : m->begin.step;
    return m->set_step.step;
}

/* 1: another process of the rank waits to begin an earlier step, and must begin it first. */
static int begin_is_behind(const struct hth_node *n, uint32_t rank, uint64_t step)
{
    for (const struct pending *p = n->pending; p; p = p->next) {
        const struct client *c = client_find((struct hth_node *)(uintptr_t)n, p->client);

        if (c && c->rank == rank && start_step(&p->start) < step)
            return 1;
    }
    return 0;
}

/* A rank that waits to begin a step has passed the steps before it, unless it has still to name the
 * step of a save that it staged earlier, or waits to begin an earlier step too. A save that the
 * rank staged later has a later step. */
static void begin_passes(struct hth_node *n, const struct client *c, const union start *m)
{
    uint64_t step = start_step(m);

    if (step == UINT64_MAX || begin_is_behind(n, c->rank, step))
        return;
    for (const struct loan *l = m->head.type == HTH_LOCAL_BEGIN ? n->loans
                                                                : loan_open(n, c, m->head.token);
            l; l = l->next)
        if (loan_is_staged(l, c->rank) && l->token != m->head.token) /* newest first */
            return;
    hth_commit_passes(n->commit, c->rank, step);
}

/* A BEGIN has waited for its slot: the rank is not late by itself. A save without a step has no
 * record yet. */
static void begin_waited(struct hth_node *n, const struct client *c, const struct pending *p)
{
    const struct loan *l = n->loans;

    while (l && (l->client != c->id || l->request != p->start.head.request))
        l = l->next;
    if (l && l->has_id && p->start.head.type == HTH_LOCAL_BEGIN)
        history_slot(n->history, l->save, c->rank, hth_now_ms(&n->ctx.clock) - p->room_ms);
}

void begin_tick(struct hth_node *n, uint64_t now_ms)
{
    struct pending **at = &n->pending;

    n->begin_look_ms = now_ms + LOOK_MS;
    while (*at) {
        struct pending *p = *at;
        struct client *c = client_find(n, p->client);

        if (c && p->until_ms > now_ms && begin_must_wait(n, c, &p->start, p->ranks)) {
            begin_passes(n, c, &p->start);
            if (p->start.head.type == HTH_LOCAL_BEGIN &&
                    begin_room(n, c, &p->start.begin, p->ranks))
                p->room_ms = now_ms;
            at = &p->next;
            continue;
        }
        *at = p->next;
        if (c) {
            begin_start(n, c, &p->start, p->ranks);
            begin_waited(n, c, p);
        }
        pending_free(p);
    }
}

uint64_t begin_due_ms(const struct hth_node *n)
{
    uint64_t due_ms = HTH_NEVER;

    for (const struct pending *p = n->pending; p; p = p->next)
        due_ms = p->until_ms < due_ms ? p->until_ms : due_ms;
    return n->pending && n->begin_look_ms < due_ms ? n->begin_look_ms : due_ms;
}

void begin_fail_all(struct hth_node *n, const struct hearth_error *why)
{
    while (n->pending) {
        struct pending *p = n->pending;

        n->pending = p->next;
        reply_error(n, p->client, p->start.head.request, why);
        pending_free(p);
    }
}

void begin_forget(struct hth_node *n, struct client *c, uint64_t request)
{
    struct pending **at = &n->pending;
    struct pending *p;
    struct hearth_error err;

    while ((p = *at) && (p->client != c->id || p->start.head.request != request))
        at = &p->next;
    if (!p)
        return;
    *at = p->next;
    hth_fail(&err, HEARTH_ECANCELED, 0, "its caller does not wait any more");
    reply_error(n, c->id, request, &err);
    pending_free(p);
}

void begin_gone(struct hth_node *n, uint32_t client)
{
    struct pending **at = &n->pending;

    while (*at) {
        struct pending *p = *at;

        if (p->client != client) {
            at = &p->next;
            continue;
        }
        *at = p->next;
        pending_free(p);
    }
}

void begin_close(struct hth_node *n)
{
    while (n->pending) {
        struct pending *p = n->pending;

        n->pending = p->next;
        pending_free(p);
    }
}
