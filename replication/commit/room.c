/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for copies. While the map is not settled, copies of kept saves go first: they are pulled
 * before copies of undecided saves. If there is no room for such a copy, a copy of an undecided
 * save that is not promised is dropped, and pulled again later. Promised copies stay, so nothing
 * undecided is promised before all that is kept has been tried. After some tries no save waits for
 * a kept one.
 *
 * A copy of an undecided save that has no room: its holder reports it with HELD, in the sentence
 * that sends which node the save waits for, and once in the log. Room comes when an older save is
 * decided, or when a map is settled and copies that have moved are freed. Until then the save
 * waits. If neither can come (all that is here is kept, is this save, or is newer), nothing makes
 * room, and the save fails.
 */
#include "commit_state.h"
#include "replication/held/seal.h"

#include <stdio.h>
#include <string.h>

/* ---- Kept saves go first ----------------------------------------------------------------- */

#define TRIES 8u /* of a kept save, under one map */

int room_goes_first(const struct hth_commit *c, const struct track *t)
{
    return !c->head.settled && head_fate(c, t->id) == FATE_KEPT &&
           !hth_breaks(c->ctx, HTH_BREAK_KEPT_FIRST);
}

int room_has_all(const struct hth_commit *c, struct hth_held_save *s)
{
    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];

        if (!hth_held_find(s, o->id) &&
                (o->kind == HTH_OBJECT_RAW ||
                        places_have(c, stand_in(c->ctx, o->owner), c->ctx->epoch->self)))
            return 0;
    }
    return 1;
}

/* 1: under this map the kept save has not been tried yet, or room is being made for it. */
static int room_is_waited_for(struct hth_commit *c, const struct track *t)
{
    struct hth_held_save *s;

    if (!room_goes_first(c, t))
        return 0;
    if (t->room_coming)
        return 1;
    s = t->repairs ? NULL : hth_holdings_find(c->ctx, t->id);
    return s && s->has_manifest && !room_has_all(c, s);
}

/* 1: the save is of this epoch, is not decided, and is not the save that recovery chose. */
static int room_is_undecided(const struct hth_commit *c, struct hth_save_id id)
{
    const struct hth_epoch *e = c->ctx->epoch;

    return id.epoch == e->epoch && id.nonce == e->nonce && head_fate(c, id) == FATE_OPEN;
}

int room_waits(struct hth_commit *c, struct hth_save_id save)
{
    if (!room_is_undecided(c, save))
        return 0;
    for (const struct track *t = c->tracks; t; t = t->next)
        if (room_is_waited_for(c, t))
            return 1;
    return 0;
}

static int room_may_drop(const struct hth_commit *c, const struct hth_held *h, uint64_t bytes)
{
    return (h->state == HTH_HELD_SEALED || h->state == HTH_HELD_RECEIVING) &&
           h->object.kind == HTH_OBJECT_SHARD && !h->theirs && h->slot &&
           h->slot->capacity >= bytes && !hth_job_runs(c->ctx, h) && !local_owns(c->ctx, h);
}

static int room_make_in(struct hth_commit *c, struct hth_held_save *s, uint64_t bytes)
{
    struct track *t = track_find(c, s->id);
    struct hth_held *h = s->held;

    if (t && t->promised && t->promised_map == c->head.mapped)
        return 0;
    while (h && !room_may_drop(c, h, bytes))
        h = h->next;
    if (!h)
        return 0;
    hth_say(&c->ctx->log, HEARTH_LOG_INFO, "gave-way",
            HTH_SAVE " object '%s' is dropped for a copy of a kept save, and is pulled again later",
            HTH_SAVE_ARGS(s->id), h->object.name);
    hth_point(&c->ctx->points, "free");
    hth_held_drop(c->ctx, s, h);
    if (t && t->repair_ms != HTH_NEVER)
        t->repair_ms = hth_now_ms(&c->ctx->clock) + 4 * (uint64_t)c->ctx->opts.retry_ms;
    return 1;
}

int room_make(struct hth_commit *c, struct track *t, uint64_t bytes)
{
    int made = 0;

    if (!room_goes_first(c, t) || t->repairs > TRIES)
        return 0;
    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s && !made; s = s->next)
        made = !s->removed && room_is_undecided(c, s->id) && room_make_in(c, s, bytes);
    t->room_coming |= made;
    return made;
}

/* ---- A copy that has no room ------------------------------------------------------------- */

/* The refusing node repeats its refusal at each offer. A part of the text in brackets is only for
 * that node's own log, and is cut off. */
static void refusal_set(struct hth_commit *c, struct track *t, uint32_t node, const char *text)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    const char *brackets = strstr(text, " (");
    size_t length = brackets ? (size_t)(brackets - text) : strlen(text);

    if (now_ms >= t->refusal.until_ms || t->refusal.node != node)
        t->refusal.since_ms = t->refusal.sure_ms = now_ms;
    t->refusal.until_ms = now_ms + 5 * (uint64_t)c->ctx->opts.retry_ms;
    t->refusal.node = node;
    if (length > sizeof(t->refusal.text) - 24)
        length = sizeof(t->refusal.text) - 24;
    snprintf(t->refusal.text, sizeof(t->refusal.text), "no room for a copy: %.*s", (int)length,
            text);
}

/* 1: room may come: an unsettled map still has copies to free, and a decided older save frees its
 * own copies or those of the save that it replaces. */
static int room_may_come(const struct hth_commit *c, const struct track *t)
{
    if (c->ctx->keep.saves && !c->head.settled)
        return 1;
    for (const struct track *o = t->next; o; o = o->next) /* older */
        if (head_is_open(c, o->id))
            return 1;
    return 0;
}

void refusal_of(struct hth_commit *c, struct track *t, uint32_t node, const char *text)
{
    if (!track_is_refused(c, t) || t->refusal.node != c->ctx->epoch->self)
        refusal_set(c, t, node, text);
}

/* It waits half of dead_ms, because another process or a worker of this engine may be giving memory
 * back. */
void hth_commit_no_room(struct hth_commit *c, struct hth_save_id save, int code, const char *text)
{
    struct track *t = track_find(c, save);
    uint64_t now_ms = hth_now_ms(&c->ctx->clock), most_ms = c->ctx->opts.dead_ms / 2;

    if (!t || t->fail_code || !head_is_open(c, save))
        return;
    refusal_set(c, t, c->ctx->epoch->self, text);
    if (code != HEARTH_ENOSPC || room_may_come(c, t))
        t->refusal.sure_ms = now_ms;
    if (now_ms < t->refusal.since_ms + most_ms)
        return;
    if (!t->refusal.warned)
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "no-room", HTH_SAVE ": no room for a copy: %s",
                HTH_SAVE_ARGS(save), text);
    t->refusal.warned = 1;
    if (now_ms >= t->refusal.sure_ms + most_ms)
        hth_commit_fail(c, save, HEARTH_ENOSPC, t->refusal.text);
}
