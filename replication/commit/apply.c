/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of the coordinator, applied by every member: COMPLETE, and the newest head. They may
 * come twice, late or not at all. Only a head frees anything, and it is on record here before that.
 * A head is a whole state: a member that missed some needs the last one only, and an older one has
 * no effect.
 */
#include "commit_state.h"
#include "release.h"

#include "core/base/bytes.h"

#include <string.h>

/* ---- COMPLETE ------------------------------------------------------------------------------- */

static void apply_free(struct hth_commit *c, struct hth_held_save *s)
{
    hth_point(&c->ctx->points, "free");
    hth_save_release(c->ctx, s);
}

/* Only if a simulator run leaves out the rule that only a head frees a save. */
static void apply_free_older(struct hth_commit *c, struct hth_save_id than)
{
    struct hth_held_save *next;

    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = next) {
        next = s->next;
        if (s->removed || hth_save_cmp(s->id, than) >= 0 ||
                (hth_keep_has(&c->ctx->keep, s->id) && !hth_breaks(c->ctx, HTH_BREAK_FREE_EARLY)))
            continue;
        apply_free(c, s);
    }
}

void apply_complete(struct hth_commit *c, struct hth_save_id save)
{
    struct track *t = track_find(c, save);
    struct hth_held_save *s = hth_holdings_find(c->ctx, save);

    if (!t || !s || t->level >= HEARTH_COMPLETE)
        return;
    member_publish(c, s);
    track_level(c, t, HEARTH_COMPLETE);
    if (hth_breaks(c->ctx, HTH_BREAK_FREE_EARLY))
        apply_free_older(c, save);
}

/* ---- What a head frees and ends -------------------------------------------------------------- */

static void apply_free_decided(struct hth_commit *c)
{
    struct hth_held_save *next;

    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = next) {
        next = s->next;
        if (!s->removed && head_frees(c, s->id))
            apply_free(c, s);
    }
}

static int apply_is_freed(const void *self, struct hth_save_id save)
{
    return head_frees(self, save);
}

/* When a save is decided, blobs of it may be on their way to this node. Perhaps no node can serve
 * them any more, and each counts against the limit of unsolicited blobs. If this node holds nothing
 * of the save, no other code forgets them. While a recovery runs, it has itself requested the blobs
 * that it needs, so they stay. */
static void apply_forget_decided(struct hth_commit *c)
{
    if (c->running)
        hth_blobs_forget_if(c->ctx, apply_is_freed, c);
}

static void apply_log_cancelled(
        const struct hth_commit *c, struct hth_save_id save, int code, const char *why)
{
    hth_say(&c->ctx->log, HEARTH_LOG_WARN, "save-cancelled", HTH_SAVE ": %s (%s)",
            HTH_SAVE_ARGS(save), why, hearth_strerror(code));
}

/* Why a save counts as decided that no head names: a newer save is PROTECTED, or a head had no
 * place for more names of cancelled saves. */
static const char *apply_why_superseded(const struct hth_commit *c, struct hth_save_id save)
{
    for (uint32_t i = 0; i < c->ctx->keep.saves; i++)
        if (hth_save_cmp(c->ctx->keep.save[i], save) > 0)
            return "a newer save was protected first";
    return "it was not protected before many newer saves were cancelled";
}

/* The code that ranks receive for a save that was cancelled with `code`. HEARTH_ENOSPC is passed on
 * because a caller can make room. */
static int apply_code(int code)
{
    return code == HEARTH_ENOSPC ? code : HEARTH_EFAILED;
}

/* A kept save at PROTECTED is only being protected again: its ranks were notified before. */
static void apply_to_track(struct hth_commit *c, struct track *t, enum fate fate)
{
    const struct hth_keep *k = &c->ctx->keep;
    const char *why;
    int code = head_code(c, t->id, &why);

    if (fate == FATE_SUPERSEDED && (t->level >= HEARTH_PROTECTED || t->id.epoch != c->head.epoch)) {
        track_remove(c, t); /* it was kept or of an earlier epoch; now it leaves */
    } else if (fate == FATE_KEPT && t->level < HEARTH_PROTECTED && k->epoch == c->head.epoch) {
        track_end(
                c, t, HEARTH_PROTECTED, hth_keep_degraded(k, hth_keep_at(k, t->id)), HEARTH_OK, "");
    } else if (fate == FATE_CANCELLED) {
        apply_log_cancelled(c, t->id, code, why);
        track_end(c, t, t->level, 0, apply_code(code), why);
    } else if (fate == FATE_SUPERSEDED && c->skipped) {
        track_end(c, t, t->level, 0, HEARTH_EUNKNOWN,
                "a newer save is protected, and decisions before that did not reach this node: "
                "this one may have been protected first");
    } else if (fate == FATE_SUPERSEDED) {
        track_end(c, t, t->level, 0, HEARTH_EFAILED, apply_why_superseded(c, t->id));
    }
}

/* Saves that no rank of this node has begun: their outcome is stored for a rank that begins them
 * later. */
static void apply_outcomes(struct hth_commit *c)
{
    const struct hth_keep *k = &c->ctx->keep;
    const struct outcome *o = k->saves ? outcome_find(c, k->save[0]) : NULL;

    for (uint32_t i = 0; i < c->head.cancels; i++) {
        const struct hth_cancelled *x = &c->head.cancelled[i];
        const char *why;

        if (outcome_find(c, x->save))
            continue;
        (void)head_code(c, x->save, &why);
        if (i + 1 == c->head.cancels)
            apply_log_cancelled(c, x->save, x->code, why);
        outcome_put(c, x->save, HEARTH_WRITTEN, 0, apply_code(x->code), why);
    }
    if (o && o->code == HEARTH_EUNKNOWN && k->epoch == c->head.epoch)
        outcome_put(c, k->save[0], HEARTH_PROTECTED, hth_keep_degraded(k, 0), HEARTH_OK, "");
}

void apply_newest(struct hth_commit *c)
{
    const struct hth_keep *k = &c->ctx->keep;
    struct track *next;

    if (k->saves && k->epoch == c->head.epoch)
        apply_complete(c, k->save[0]);
    apply_free_decided(c);
    apply_forget_decided(c);
    for (struct track *t = c->tracks; t; t = next) {
        next = t->next;
        apply_to_track(c, t, head_fate(c, t->id));
    }
    apply_outcomes(c);
    release_moved(c);
    member_keep(c);
}

/* ---- A head ---------------------------------------------------------------------------------- */

/* 1: this node has the map that the head names, or the map came with the head (decoded into
 * *out). */
static int apply_has_map(const struct hth_commit *c, const struct hth_head *head,
        const unsigned char *bytes, size_t len, struct hth_places *out)
{
    unsigned char name[HTH_DIGEST];

    *out = (struct hth_places){ 0 };
    if (memcmp(head->map, c->head.map, HTH_DIGEST) == 0)
        return 1;
    hth_digest(name, bytes, len);
    return len && memcmp(head->map, name, HTH_DIGEST) == 0 &&
           hth_places_decode(out, bytes, len, NULL) == HEARTH_OK;
}

/* A map blob that has come stays, for the nodes below this one. A map blob that has not come is no
 * longer requested. */
static void apply_await_no_more(struct hth_commit *c)
{
    struct hth_blob_id id = head_map_id(&c->awaited);
    size_t len;

    if (!hth_blob_find(c->ctx, &id, &len))
        hth_blobs_forget(c->ctx, id.save);
    c->awaited = (struct hth_head){ 0 };
}

static void apply_take(struct hth_commit *c, const struct hth_head *head, struct hth_places *map)
{
    int mapped = memcmp(head->map, c->head.map, HTH_DIGEST) != 0;
    int skipped = head->epoch == c->head.epoch && head->position > c->head.position + 1;
    struct hearth_error err;
    int rc = head_put(c, head, mapped ? map : NULL, &err);

    hth_places_fini(map);
    if (!rc && c->awaited.position && head->position >= c->awaited.position)
        apply_await_no_more(c);
    if (rc) {
        hth_say(&c->ctx->log, HEARTH_LOG_ERROR, "head-failed",
                "nothing is promised or freed by a decision that cannot be put on record: %s",
                err.text);
        c->unsure = 1;
        c->alive_ms = hth_now_ms(&c->ctx->clock) + c->ctx->opts.retry_ms;
        return;
    }
    c->skipped = skipped;
    apply_newest(c);
    c->skipped = 0;
    facts_anew(c);
    if (mapped)
        member_mapped(c);
}

/* The map of the head that is awaited. */
static void apply_map(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    struct hth_head head = c->awaited;
    struct hth_places map;

    if (!c->joined || head.position <= c->head.position ||
            !apply_has_map(c, &head, bytes, len, &map))
        return;
    c->unsure = 0;
    apply_take(c, &head, &map);
    if (node_is_lost(c, c->ctx->epoch->self))
        heartbeat_behind(c, 0);
}

/* The head came without its map. The map comes as a blob, or with the head that answers this node's
 * ALIVE. */
static void apply_await(struct hth_commit *c, const struct hth_head *head)
{
    struct hth_blob_id id = head_map_id(head);
    const unsigned char *bytes;
    size_t len;

    if (head->position < c->awaited.position)
        return;
    if (c->awaited.position && c->awaited.mapped != head->mapped)
        hth_blobs_forget(c->ctx, head_map_id(&c->awaited).save);
    c->awaited = *head;
    (void)hth_blob_fetch(c->ctx, &id, HTH_NODE_NONE, NULL);
    if ((bytes = hth_blob_find(c->ctx, &id, &len))) /* the map was here before its head */
        apply_map(c, bytes, len);
}

/* A head of another epoch is ignored, unless a simulator run leaves out the fence. */
static int apply_is_ours(const struct hth_commit *c, const struct hth_head *head)
{
    const struct hth_epoch *e = c->ctx->epoch;

    return (head->epoch == e->epoch && head->nonce == e->nonce) ||
           hth_breaks(c->ctx, HTH_BREAK_FENCE);
}

void apply_head(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    const unsigned char *map_bytes;
    struct hth_places map;
    struct hth_head head;
    size_t map_len;
    int unsure = c->unsure;

    if (hth_is_coordinator(c->ctx)) {
        apply_newest(c); /* the coordinator's own head */
        if (c->head.mapped == c->head.position)
            member_mapped(c);
        return;
    }
    if (hth_head_decode(&head, &map_bytes, &map_len, bytes, len, NULL) || !apply_is_ours(c, &head))
        return;
    if (head.position < c->head.position && head.epoch == c->head.epoch)
        return;
    heartbeat_contact(c);
    if (!apply_has_map(c, &head, map_bytes, map_len, &map)) {
        apply_await(c, &head);
        if (c->awaited.position)
            heartbeat_behind(c, unsure);
        return;
    }
    c->unsure = 0;
    if (head.position > c->head.position || head.epoch != c->head.epoch) {
        apply_take(c, &head, &map);
    } else {
        hth_places_fini(&map);
        apply_newest(c);
    }
    if (node_is_lost(c, c->ctx->epoch->self))
        heartbeat_behind(c, unsure);
}

void hth_commit_map(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    apply_map(c, bytes, len);
}
