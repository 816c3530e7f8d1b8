/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member carries out the plan: it frees the saves that the plan does not keep, verifies the
 * objects of the chosen save that are here, fetches the others, and votes when it waits for nothing
 * any more.
 */
#include "restore_state.h"

#include "replication/commit/release.h"
#include "replication/held/slots.h"

#include <stdlib.h>
#include <string.h>

static int carry_is_needed(const struct hth_epoch *epoch, const struct hth_object *o)
{
    return o->kind == HTH_OBJECT_RAW || epoch->rank_node[o->owner % epoch->world] == epoch->self;
}

/* Makes slots for all objects that will be pulled, after the other saves were freed: a lack of room
 * is reported before the first byte is pulled. The engine waits for slots that readers of the old
 * epoch still use. */
static int carry_room(struct hth_restore *r, struct hth_held_save *s, struct hearth_error *err)
{
    const struct hth_manifest *m = &s->manifest;
    uint64_t *bytes = calloc(m->objects + 1, sizeof(*bytes));
    size_t count = 0;
    int rc = HEARTH_OK;

    if (!bytes)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a list of what is needed");
    for (uint32_t i = 0; i < m->objects; i++)
        if (m->object[i].kind == HTH_OBJECT_SHARD && !hth_held_find(s, m->object[i].id) &&
                carry_is_needed(r->ctx->epoch, &m->object[i]))
            bytes[count++] = hth_object_file_bytes(&m->object[i]);
    if (count)
        rc = hth_slots_want(r->ctx, bytes, count, HTH_WANT_FIRST, err);
    free(bytes);
    return rc == HEARTH_EBUSY ? HEARTH_OK : rc;
}

/* The objects of the chosen save that this node's ranks need: their own objects, and every raw
 * object. */
static void carry_needs(struct hth_restore *r, struct hth_held_save *s)
{
    const struct hth_epoch *epoch = r->ctx->epoch;
    const struct hth_manifest *m = &s->manifest;

    for (uint32_t i = 0; i < m->objects; i++) {
        const struct hth_object *o = &m->object[i];
        struct hth_held *h = hth_held_find(s, o->id);

        if (h && memcmp(h->object.digest, o->digest, HTH_DIGEST) != 0) {
            hth_held_drop(r->ctx, s, h); /* the plan has other bytes under this name */
            h = NULL;
        }
        if (!carry_is_needed(epoch, o))
            continue;
        if (!h && o->kind == HTH_OBJECT_RAW)
            pull_raw(r, i);
        else if (!h)
            pull_object(r, i);
        else if (!h->verified)
            pull_verify(r, s, h);
    }
}

static int carry_is_kept(const struct hth_plan *p, struct hth_save_id save)
{
    for (uint32_t i = 0; i < p->keeps; i++)
        if (hth_save_cmp(p->keep[i], save) == 0)
            return 1;
    return 0;
}

/* A save of this epoch: begun after GO, so newer than every plan, which may arrive late. */
static int carry_is_new(const struct hth_ctx *ctx, struct hth_save_id save)
{
    return save.epoch == ctx->epoch->epoch && save.nonce == ctx->epoch->nonce;
}

static void carry_free_the_rest(struct hth_restore *r)
{
    struct hth_ctx *ctx = r->ctx;
    struct hth_held_save *next;

    for (struct hth_held_save *s = hth_holdings_first(ctx); s; s = next) {
        next = s->next;
        if (s->removed || s->id.epoch == 0 || carry_is_kept(&r->plan, s->id) ||
                carry_is_new(ctx, s->id))
            continue;
        /* the container stays until a save is PROTECTED: it may be the only copy */
        if (hth_save_foreign(s->id)) {
            hth_transfer_forget(ctx, s->id);
            continue;
        }
        hth_say(&ctx->log, HEARTH_LOG_INFO, "plan-frees", HTH_SAVE, HTH_SAVE_ARGS(s->id));
        hth_point(&ctx->points, "free");
        hth_save_release(ctx, s);
    }
}

/* 1: an object of the chosen save is still being written or pulled, from the old epoch. */
static int carry_must_wait(const struct hth_restore *r)
{
    struct hth_held_save *s = hth_holdings_find(r->ctx, r->plan.chosen);

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        if (h->state != HTH_HELD_SEALED)
            return 1;
    return 0;
}

static void carry_chosen(struct hth_restore *r)
{
    struct hth_held_save *s;
    struct hearth_error err;
    int rc;

    hth_point(&r->ctx->points, "retrieve");
    s = hth_holdings_get(r->ctx, r->plan.chosen);
    if (!s) {
        vote_no(r, HEARTH_ENOMEM, "no memory for the save");
        return;
    }
    rc = manifest_hold(r, s, &err);
    if (!rc && !hth_save_foreign(s->id))
        rc = carry_room(r, s, &err);
    if (rc)
        vote_no(r, err.code, err.text);
    else if (hth_save_foreign(s->id))
        foreign_needs(r, s);
    else
        carry_needs(r, s);
}

/* The manifest has been read. */
static void carry_again(void *self)
{
    struct hth_restore *r = self;

    if (r->plan_waits && r->state == TOLD)
        carry_out(r);
}

void carry_out(struct hth_restore *r)
{
    r->plan_waits = carry_must_wait(r) || manifest_lacks(r, carry_again);
    if (r->plan_waits) {
        r->state = TOLD; /* tick looks again */
        return;
    }
    hth_point(&r->ctx->points, "plan");
    r->state = PULLING;
    r->failed_code = HEARTH_OK;
    pull_begin(r);
    carry_free_the_rest(r);
    r->t_plan = r->t_pull = r->t_verify = hth_now_ms(&r->ctx->clock);
    if (!hth_save_none(r->plan.chosen))
        carry_chosen(r);
    pull_ended(r);
}
