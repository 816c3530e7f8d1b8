/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for copies. While the map is not settled, copies of kept saves go first: a node pulls no
 * copy of an undecided save while it lacks a slot for a copy of a kept one. Copies of undecided
 * saves that are here already stay. After some tries under one map, undecided saves do not wait any
 * more.
 *
 * A copy of an undecided save that has no room: its holder reports it with HELD, in the sentence
 * that sends which node the save waits for, and once in the log. Room comes when an older save is
 * decided, or when a map is settled and copies that have moved are freed. Until then the save
 * waits. If neither can come (all that is here is kept, is this save, or is newer, or kept saves
 * have had their tries on all nodes), nothing makes room, and the save fails.
 */
#include "commit_state.h"

#include <stdio.h>
#include <string.h>

#define RETRY_MOST 500u /* ms */

/* ---- Kept saves go first ----------------------------------------------------------------- */

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

/* 1: a copy of the kept save is not here, and was not tried yet or had no slot at the last try. */
static int room_is_lacking(const struct hth_commit *c, const struct track *t)
{
    struct hth_held_save *s = room_goes_first(c, t) ? hth_holdings_find(c->ctx, t->id) : NULL;

    return s && s->has_manifest && (!t->tried || t->no_slot) && !room_has_all(c, s);
}

int room_waits(const struct hth_commit *c, struct hth_save_id save)
{
    const struct hth_epoch *e = c->ctx->epoch;

    /* the save that recovery chose does not wait either: it is of another epoch */
    if (save.epoch != e->epoch || save.nonce != e->nonce || head_fate(c, save) != FATE_OPEN)
        return 0;
    for (const struct track *t = c->tracks; t; t = t->next)
        if (t->vain < ROOM_TRIES && room_is_lacking(c, t))
            return 1;
    return 0;
}

uint64_t room_retry_ms(const struct hth_commit *c)
{
    return c->ctx->opts.retry_ms < RETRY_MOST ? c->ctx->opts.retry_ms : RETRY_MOST;
}

/* 1: on each node the tries of kept saves under this map are over. Then the map may be settled only
 * after undecided saves have ended. */
static int room_tries_are_over(const struct hth_commit *c)
{
    return hth_now_ms(&c->ctx->clock) >=
           c->mapped_ms + ROOM_TRIES * room_retry_ms(c) + 2 * (uint64_t)c->ctx->opts.dead_ms;
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
 * own copies or those of the save that it replaces. When the tries under the map are over, a save
 * that is not COMPLETE still waits: enough other holders may have it by then. */
static int room_may_come(const struct hth_commit *c, const struct track *t)
{
    if (c->ctx->keep.saves && !c->head.settled &&
            (!room_tries_are_over(c) || t->level < HEARTH_COMPLETE))
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
