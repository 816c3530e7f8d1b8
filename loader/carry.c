/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member carries out the plan: frees what it does not keep, verifies what is here of the chosen
 * save, fetches what is not, and votes when nothing is waited for any more.
 */
#include "recover_state.h"

#include "core/base/bytes.h"
#include "replication/commit/release.h"

#include <stdio.h>
#include <stdlib.h>

#define LATER_MS 20u

/* ---- Vote ------------------------------------------------------------------------------------ */

void carry_vote(struct hth_recover *r)
{
    unsigned char body[8 + 200];
    size_t len = r->failed_code ? strlen(r->failed) : 0;

    hth_put32(body, r->plan.serial);
    hth_put32(body + 4, (uint32_t)r->failed_code);
    memcpy(body + 8, r->failed, len);
    hth_tree_up(r->ctx, HTH_KIND_VOTE, body, 8 + len);
}

static void vote(struct hth_recover *r)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);

    r->t_vote = now_ms;
    r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
    r->state = VOTED;
    hth_point(&r->ctx->points, "vote");
    carry_vote(r);
}

static void no_longer_waiting(struct hth_recover *r)
{
    r->waiting--;
    if (r->waiting == 0 && r->state == PULLING)
        vote(r);
}

/* ---- What a plan waits for ---------------------------------------------------------------------- */

/* One thing that a plan waits for; it may end after the plan has been replaced. */
struct wait {
    struct hth_recover *r;
    uint32_t generation;
    uint32_t index; /* fetched later; a raw object */
    struct wait *next;
};

static struct wait *wait_new(struct hth_recover *r)
{
    struct wait *w = malloc(sizeof(*w));

    if (w)
        *w = (struct wait){ .r = r, .generation = r->generation };
    return w;
}

static void waits_free(struct wait **list)
{
    struct wait *w;

    while ((w = *list)) {
        *list = w->next;
        free(w);
    }
}

/* The recovery that still waits for it, or NULL. */
static struct hth_recover *wait_end(struct wait *w)
{
    struct hth_recover *r = w->r;
    int stale = w->generation != r->generation || r->state != PULLING;

    free(w);
    return stale ? NULL : r;
}

static void give_up_plan(struct hth_recover *r, int code, const char *text)
{
    if (r->failed_code)
        return;
    r->failed_code = code;
    snprintf(r->failed, sizeof(r->failed), "node %.40s: %.150s",
            r->ctx->epoch->member[r->ctx->epoch->self].node, text);
}

static void on_fetched(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct hth_recover *r = wait_end(self);

    (void)fetch;
    if (!r)
        return;
    r->t_pull = hth_now_ms(&r->ctx->clock);
    if (code)
        give_up_plan(r, code, err->text);
    no_longer_waiting(r);
}

/* Its slot is still being made, as on every node that has just come: no reason to refuse. */
static void fetch_later(struct hth_recover *r, struct wait *w, uint32_t index)
{
    w->index = index;
    w->next = r->later;
    r->later = w;
    r->later_ms = hth_now_ms(&r->ctx->clock) + LATER_MS;
    r->waiting++;
}

static int nobody_has(struct hth_recover *r, const struct hth_object *o)
{
    struct hearth_error err;

    hth_fail(&err, HEARTH_ELOST, 0, HTH_SAVE ": nobody else has %s", HTH_SAVE_ARGS(r->plan.chosen),
            o->name);
    give_up_plan(r, err.code, err.text);
    return err.code;
}

int carry_fetch(struct hth_recover *r, uint32_t index)
{
    struct hth_ctx *ctx = r->ctx;
    const struct hth_sources *from = &r->plan.sources[index];
    uint32_t node[HTH_PLAN_SOURCES];
    uint32_t count = 0;
    uint64_t now_ms = hth_now_ms(&ctx->clock);
    struct hearth_error err;
    struct hth_fetch *f;
    struct hth_fetch_want want = {
        .save = r->plan.chosen,
        .object = r->plan.manifest.object[index],
        .sources = node,
        .class = HTH_FETCH_RECOVERY,
        .deadline_ms = r->deadline_ms > now_ms ? (uint32_t)(r->deadline_ms - now_ms) : 1,
        .done = on_fetched,
        .self = wait_new(r),
    };

    for (uint32_t i = 0; i < from->count; i++)
        if (from->node[i] != ctx->epoch->self && from->node[i] < ctx->epoch->nodes)
            node[count++] = from->node[i];
    want.count = count;
    if (!want.self) {
        give_up_plan(r, HEARTH_ENOMEM, "no memory");
        return HEARTH_ENOMEM;
    }
    if (count == 0) {
        free(want.self);
        return nobody_has(r, &want.object);
    }
    if (hth_fetch_start(ctx, &want, &f, &err)) {
        if (err.code == HEARTH_EBUSY) {
            fetch_later(r, want.self, index);
            return HEARTH_OK;
        }
        free(want.self);
        give_up_plan(r, err.code, err.text);
        return err.code;
    }
    r->waiting++;
    return HEARTH_OK;
}

void carry_fetch_later(struct hth_recover *r)
{
    struct wait *w = r->later, *next;

    r->later = NULL;
    for (; w; w = next) {
        uint32_t index = w->index;

        next = w->next;
        if (!wait_end(w))
            continue;
        carry_fetch(r, index);
        no_longer_waiting(r);
    }
}

uint32_t carry_index(const struct hth_manifest *m, uint64_t id)
{
    const struct hth_object *o = hth_manifest_find(m, id);

    return o ? (uint32_t)(o - m->object) : UINT32_MAX;
}

/* A raw object comes into its file by itself. */
static void fetch_raw(struct hth_recover *r, uint32_t index)
{
    struct hth_blob_id id = { HTH_BLOB_RAW, r->plan.chosen, r->plan.manifest.object[index].id };
    const struct hth_sources *from = &r->plan.sources[index];
    struct wait *w;
    struct hearth_error err;
    uint32_t i = 0;
    int rc;

    while (i < from->count && from->node[i] == r->ctx->epoch->self)
        i++;
    if (i == from->count) {
        nobody_has(r, &r->plan.manifest.object[index]);
        return;
    }
    w = wait_new(r);
    rc = w ? hth_blob_fetch(r->ctx, &id, from->node[i], &err)
           : hth_fail(&err, HEARTH_ENOMEM, 0, "no memory");
    if (rc) {
        free(w);
        give_up_plan(r, rc, err.text);
        return;
    }
    w->index = index;
    w->next = r->raws;
    r->raws = w;
    r->waiting++;
}

static void on_verified(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    struct hth_recover *r = wait_end(self);
    uint32_t index;

    if (!r)
        return;
    r->t_verify = hth_now_ms(&r->ctx->clock);
    if (code) {
        index = carry_index(&r->plan.manifest, held->object.id);
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "copy-bad", "%s: taken from another holder",
                err->text);
        hth_held_condemn(r->ctx, save, held, "payload");
        if (index != UINT32_MAX && r->plan.manifest.object[index].kind == HTH_OBJECT_RAW)
            fetch_raw(r, index);
        else if (index != UINT32_MAX)
            carry_fetch(r, index);
    }
    no_longer_waiting(r);
}

static void verify(struct hth_recover *r, struct hth_held_save *s, struct hth_held *h)
{
    struct wait *w = wait_new(r);
    struct hearth_error err;

    if (!w) {
        give_up_plan(r, HEARTH_ENOMEM, "no memory");
        return;
    }
    if (hth_verify_start(r->ctx, s, h, on_verified, w, &err)) {
        free(w);
        give_up_plan(r, err.code, err.text);
        return;
    }
    r->waiting++;
}

/* What our ranks need of the chosen save: their own objects, and every raw one. */
static void gather_needs(struct hth_recover *r, struct hth_held_save *s)
{
    const struct hth_epoch *epoch = r->ctx->epoch;
    const struct hth_manifest *m = &r->plan.manifest;

    for (uint32_t i = 0; i < m->objects; i++) {
        const struct hth_object *o = &m->object[i];
        struct hth_held *h = hth_held_find(s, o->id);

        if (h && memcmp(h->object.digest, o->digest, HTH_DIGEST) != 0) {
            hth_held_drop(r->ctx, s, h); /* not these bytes */
            h = NULL;
        }
        if (o->kind != HTH_OBJECT_RAW && epoch->rank_node[o->owner % epoch->world] != epoch->self)
            continue;
        if (!h && o->kind == HTH_OBJECT_RAW)
            fetch_raw(r, i);
        else if (!h)
            carry_fetch(r, i);
        else if (!h->verified)
            verify(r, s, h);
    }
}

static int is_kept(const struct hth_plan *p, struct hth_save_id save)
{
    for (uint32_t i = 0; i < p->keeps; i++)
        if (hth_save_cmp(p->keep[i], save) == 0)
            return 1;
    return 0;
}

/* Of this epoch: newer than any plan of it, which may come late. */
static int is_new(const struct hth_ctx *ctx, struct hth_save_id save)
{
    return save.epoch == ctx->epoch->epoch && save.nonce == ctx->epoch->nonce;
}

static void free_the_rest(struct hth_recover *r)
{
    struct hth_ctx *ctx = r->ctx;
    struct hth_held_save *next;

    for (struct hth_held_save *s = hth_holdings_first(ctx); s; s = next) {
        next = s->next;
        if (s->removed || s->id.epoch == 0 || is_kept(&r->plan, s->id) || is_new(ctx, s->id))
            continue;
        if (hth_save_foreign(s->id)) { /* it may be all there is until a save is PROTECTED */
            hth_transfer_forget(ctx, s->id);
            continue;
        }
        hth_say(&ctx->log, HEARTH_LOG_INFO, "plan-frees", HTH_SAVE, HTH_SAVE_ARGS(s->id));
        hth_point(&ctx->points, "free");
        hth_save_release(ctx, s);
    }
}

static int take_manifest(struct hth_recover *r, struct hth_held_save *s)
{
    unsigned char *copy;
    struct hearth_error err;

    if (s->has_manifest && memcmp(s->manifest.digest, r->plan.manifest.digest, HTH_DIGEST) == 0)
        return HEARTH_OK;
    copy = malloc(r->plan.manifest_len);
    if (!copy)
        return HEARTH_ENOMEM;
    if (hth_save_foreign(s->id)) /* made anew in each recovery, from what is there then */
        hth_held_forget_manifest(s);
    memcpy(copy, r->plan.manifest_bytes, r->plan.manifest_len);
    if (hth_held_set_manifest(r->ctx, s, copy, r->plan.manifest_len, &err)) {
        give_up_plan(r, err.code, err.text);
        return err.code;
    }
    return HEARTH_OK;
}

/* An object of the chosen save that something of the old epoch still has its hands on. */
static int still_moving(const struct hth_recover *r)
{
    struct hth_held_save *s = hth_holdings_find(r->ctx, r->plan.chosen);

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        if (h->state != HTH_HELD_SEALED)
            return 1;
    return 0;
}

void carry_out(struct hth_recover *r)
{
    struct hth_held_save *s;

    r->plan_waits = still_moving(r);
    if (r->plan_waits) {
        r->state = TOLD; /* tick looks again */
        return;
    }
    hth_point(&r->ctx->points, "plan");
    r->state = PULLING;
    r->generation++;
    waits_free(&r->raws); /* of the plan before */
    r->waiting = 1;       /* ourselves, until all is begun */
    r->failed_code = HEARTH_OK;
    free_the_rest(r);
    r->t_plan = r->t_pull = r->t_verify = hth_now_ms(&r->ctx->clock);
    if (!hth_save_none(r->plan.chosen)) {
        hth_point(&r->ctx->points, "retrieve");
        s = hth_holdings_get(r->ctx, r->plan.chosen);
        if (!s || take_manifest(r, s))
            give_up_plan(r, HEARTH_ENOMEM, "no memory for the manifest");
        else if (hth_save_foreign(s->id))
            foreign_needs(r, s);
        else
            gather_needs(r, s);
    }
    no_longer_waiting(r);
}

void carry_raw(struct hth_recover *r, const struct hth_blob_id *id, const struct hearth_error *err)
{
    uint32_t index = carry_index(&r->plan.manifest, id->object);
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
        give_up_plan(r, err->code, err->text);
    no_longer_waiting(r);
}

void carry_close(struct hth_recover *r)
{
    waits_free(&r->later);
    waits_free(&r->raws);
}
