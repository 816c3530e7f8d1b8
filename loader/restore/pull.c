/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work that a plan waits for on a member: objects and raw objects in flight to it, and copies
 * that are being verified. When the last has ended, this node votes.
 */
#include "restore_state.h"

#include "replication/held/seal.h"

#include <stdlib.h>
#include <string.h>

#define LATER_MS 5u

/* ---- What a plan waits for ------------------------------------------------------------------- */

void pull_ended(struct hth_restore *r)
{
    r->waiting--;
    if (r->waiting == 0 && r->state == PULLING)
        vote_cast(r);
}

/* One thing that a plan waits for; it may end after the plan has been replaced. */
struct wait {
    struct hth_restore *r;
    uint32_t generation;
    uint32_t index; /* in the manifest; of an object that is put off, or a raw one */
    struct wait *next;
    struct wait *all,
            **at; /* of r->waits: fetches and workers do not call back once the engine ends */
};

static struct wait *wait_new(struct hth_restore *r)
{
    struct wait *w = malloc(sizeof(*w));

    if (!w)
        return NULL;
    *w = (struct wait){ .r = r, .generation = r->generation, .all = r->waits, .at = &r->waits };
    if (w->all)
        w->all->at = &w->all;
    r->waits = w;
    return w;
}

static void wait_free(struct wait *w)
{
    if (!w)
        return;
    *w->at = w->all;
    if (w->all)
        w->all->at = w->at;
    free(w);
}

static void waits_free(struct wait **list)
{
    struct wait *w;

    while ((w = *list)) {
        *list = w->next;
        wait_free(w);
    }
}

void pull_begin(struct hth_restore *r)
{
    r->generation++;
    waits_free(&r->raws);
    r->waiting = 1; /* the caller, until it has begun all: its pull_ended() */
}

/* Frees w. The recovery, or NULL where it does not wait for it any more. */
static struct hth_restore *wait_end(struct wait *w)
{
    struct hth_restore *r = w->r;
    int stale = w->generation != r->generation || r->state != PULLING;

    wait_free(w);
    return stale ? NULL : r;
}

static void pull_on_fetched(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct hth_restore *r = wait_end(self);

    if (!r)
        return;
    r->t_pull = hth_now_ms(&r->ctx->clock);
    if (code)
        vote_no(r, code == HEARTH_ELOST && hth_fetch_unreached(fetch) ? HEARTH_EPEER : code,
                err->text);
    pull_ended(r);
}

uint32_t hth_restore_left_ms(const struct hth_restore *r)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);

    return r->deadline_ms > now_ms ? (uint32_t)(r->deadline_ms - now_ms) : 1;
}

/* There is no slot yet, as on every node that has just started: no reason to vote no. */
static void pull_put_off(struct hth_restore *r, struct wait *w, uint32_t index)
{
    w->index = index;
    w->next = r->later;
    r->later = w;
    r->later_ms = hth_now_ms(&r->ctx->clock) + LATER_MS;
    r->waiting++;
}

static int pull_nobody_has(struct hth_restore *r, const struct hth_object *o)
{
    struct hearth_error err;

    hth_fail(&err, HEARTH_ELOST, 0, HTH_SAVE ": no other node has %s",
            HTH_SAVE_ARGS(r->plan.chosen), o->name);
    vote_no(r, err.code, err.text);
    return err.code;
}

/* NULL, and this node votes no: it does not hold the manifest any more, because the save was
 * removed from outside. */
static const struct hth_object *pull_which(struct hth_restore *r, uint32_t index)
{
    const struct hth_manifest *m = restore_manifest(r);

    if (m && index < m->objects)
        return &m->object[index];
    vote_no(r, HEARTH_ENOENT, "the manifest of the chosen save is gone");
    return NULL;
}

static uint32_t pull_index(const struct hth_restore *r, uint64_t object)
{
    const struct hth_manifest *m = restore_manifest(r);
    const struct hth_object *o = m ? hth_manifest_find(m, object) : NULL;

    return o ? (uint32_t)(o - m->object) : UINT32_MAX;
}

int pull_object(struct hth_restore *r, uint32_t index)
{
    struct hth_ctx *ctx = r->ctx;
    const struct hth_object *o = pull_which(r, index);
    struct hth_sources from;
    uint32_t node[HTH_PLAN_SOURCES];
    uint32_t count = 0;
    struct hearth_error err;
    struct hth_fetch *f;
    struct hth_fetch_want want = {
        .save = r->plan.chosen,
        .sources = node,
        .class = HTH_FETCH_RECOVERY,
        .deadline_ms = hth_restore_left_ms(r),
        .done = pull_on_fetched,
    };

    if (!o)
        return HEARTH_ENOENT;
    hth_runs_get(&r->plan.from, index, &from);
    for (uint32_t i = 0; i < from.count; i++)
        if (from.node[i] != ctx->epoch->self && from.node[i] < ctx->epoch->nodes)
            node[count++] = from.node[i];
    want.object = *o;
    want.count = count;
    want.self = wait_new(r);
    if (!want.self) {
        vote_no(r, HEARTH_ENOMEM, "no memory");
        return HEARTH_ENOMEM;
    }
    if (count == 0) {
        wait_free(want.self);
        return pull_nobody_has(r, &want.object);
    }
    if (hth_fetch_start(ctx, &want, &f, &err)) {
        if (err.code == HEARTH_EBUSY) {
            pull_put_off(r, want.self, index);
            return HEARTH_OK;
        }
        wait_free(want.self);
        vote_no(r, err.code, err.text);
        return err.code;
    }
    r->waiting++;
    return HEARTH_OK;
}

void pull_tick(struct hth_restore *r, uint64_t now_ms)
{
    struct wait *w = r->later, *next;

    if (now_ms < r->later_ms)
        return;
    r->later = NULL;
    for (; w; w = next) {
        uint32_t index = w->index;

        next = w->next;
        if (!wait_end(w))
            continue;
        pull_object(r, index);
        pull_ended(r);
    }
}

unsigned hth_restore_put_off(const struct hth_restore *r)
{
    unsigned n = 0;

    if (r->state != PULLING)
        return UINT_MAX;
    for (const struct wait *w = r->later; w; w = w->next)
        n++;
    return n;
}

uint64_t pull_due_ms(const struct hth_restore *r)
{
    return r->later ? r->later_ms : HTH_NEVER;
}

/* A raw object has no slot: it is pulled as a blob, into its file. */
void pull_raw(struct hth_restore *r, uint32_t index)
{
    const struct hth_object *o = pull_which(r, index);
    struct hth_blob_id id = { HTH_BLOB_RAW, r->plan.chosen, o ? o->id : 0 };
    struct hth_sources from;
    struct wait *w;
    struct hearth_error err;
    uint32_t i = 0;
    int rc;

    if (!o)
        return;
    hth_runs_get(&r->plan.from, index, &from);
    while (i < from.count && from.node[i] == r->ctx->epoch->self)
        i++;
    if (i == from.count) {
        pull_nobody_has(r, o);
        return;
    }
    w = wait_new(r);
    rc = w ? hth_blob_fetch(r->ctx, &id, from.node[i], &err)
           : hth_fail(&err, HEARTH_ENOMEM, 0, "no memory");
    if (rc) {
        wait_free(w);
        vote_no(r, rc, err.text);
        return;
    }
    w->index = index;
    w->next = r->raws;
    r->raws = w;
    r->waiting++;
}

static void pull_on_verified(void *self, struct hth_held_save *save, struct hth_held *held,
        int code, const struct hearth_error *err)
{
    struct hth_restore *r = wait_end(self);
    uint32_t index;

    if (!r)
        return;
    r->t_verify = hth_now_ms(&r->ctx->clock);
    if (code) {
        index = pull_index(r, held->object.id);
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "copy-bad", "%s: taken from another holder",
                err->text);
        hth_held_condemn(r->ctx, save, held, "payload");
        if (index != UINT32_MAX && restore_manifest(r)->object[index].kind == HTH_OBJECT_RAW)
            pull_raw(r, index);
        else if (index != UINT32_MAX)
            pull_object(r, index);
    }
    pull_ended(r);
}

void pull_verify(struct hth_restore *r, struct hth_held_save *s, struct hth_held *h)
{
    struct wait *w = wait_new(r);
    struct hearth_error err;

    if (!w) {
        vote_no(r, HEARTH_ENOMEM, "no memory");
        return;
    }
    if (hth_verify_start(r->ctx, s, h, pull_on_verified, w, &err)) {
        wait_free(w);
        vote_no(r, err.code, err.text);
        return;
    }
    r->waiting++;
}

void pull_raw_ended(
        struct hth_restore *r, const struct hth_blob_id *id, const struct hearth_error *err)
{
    uint32_t index = pull_index(r, id->object);
    struct wait **at = &r->raws, *w;

    if (!r->has_plan || hth_save_cmp(id->save, r->plan.chosen) != 0)
        return;
    while ((w = *at) && w->index != index)
        at = &w->next;
    if (!w)
        return;
    *at = w->next;
    if (!wait_end(w))
        return;
    r->t_pull = hth_now_ms(&r->ctx->clock);
    if (err)
        vote_no(r, err->code, err->text);
    pull_ended(r);
}

void pull_close(struct hth_restore *r)
{
    while (r->waits)
        wait_free(r->waits);
}
