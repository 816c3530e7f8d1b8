/* SPDX-License-Identifier: Apache-2.0 */
/* The front of the commit: joining, begin and its refusals, events and questions. */
#include "commit_state.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Joining ---------------------------------------------------------------------------- */

int hth_commit_open(struct hth_ctx *ctx, const struct hth_commit_events *events,
        struct hth_commit **out, struct hearth_error *err)
{
    struct hth_commit *c = calloc(1, sizeof(*c));

    if (!c)
        return hth_fail(err, HEARTH_ENOMEM, 0, "commit");
    c->ctx = ctx;
    c->events = *events;
    *out = c;
    return HEARTH_OK;
}

static void commit_forget(struct hth_commit *c)
{
    while (c->tracks)
        track_remove(c, c->tracks);
    coord_stop(c);
    c->joined = c->running = 0;
}

int hth_commit_join(struct hth_commit *c, struct hearth_error *err)
{
    int rc;

    commit_forget(c);
    c->silent_since_ms = c->contact_ms = 0;
    c->unsure = 0;
    unreachable_forget(c);
    c->awaited = (struct hth_head){ 0 };
    c->chosen = (struct hth_save_id){ 0 };
    rc = places_make(c, err);
    rc = rc ? rc : head_join(c, err);
    rc = rc ? rc : coord_make(c, err);
    rc = rc ? rc : locals_make(c, err);
    if (!rc)
        unreachable_mapped(c);
    c->joined = !rc;
    return rc;
}

void hth_commit_go(struct hth_commit *c, struct hth_save_id chosen)
{
    struct track *t;

    c->running = 1;
    c->chosen = chosen;
    heartbeat_contact(c);
    if (hth_is_coordinator(c->ctx))
        coord_begin(c);
    apply_newest(c); /* ends the saves that recovery ruled out */
    if (hth_save_none(chosen) || hth_save_foreign(chosen))
        return; /* a foreign container is not copied: the next save is */
    t = track_get(c, chosen);
    if (!t)
        return;
    apply_complete(c, chosen);
    t->repair_ms = hth_now_ms(&c->ctx->clock);
    if (t->level < HEARTH_COMPLETE)
        t->level = HEARTH_COMPLETE;
    (void)member_check(c, t);
}

static void commit_resume_save(struct hth_commit *c, struct hth_held_save *s)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, s->id, 0 };
    struct track *t = track_get(c, s->id);

    if (!t)
        return;
    if (s->has_manifest && hth_is_coordinator(c->ctx))
        (void)hth_blob_give_buf(c->ctx, &id, s->manifest_buf, NULL);
    /* without a manifest its holders cannot fetch it by themselves */
    for (struct hth_held *h = s->has_manifest ? NULL : s->held; h; h = h->next)
        if (local_owns(c->ctx, h) && h->state == HTH_HELD_SEALED && h->slot)
            member_offer(c, s, h);
    t->done_sent = t->copies_unknown = s->has_manifest;
    if (s->published)
        t->level = HEARTH_COMPLETE;
    t->repair_ms = s->has_manifest ? hth_now_ms(&c->ctx->clock) : HTH_NEVER;
    (void)member_check(c, t);
}

void hth_commit_resume(struct hth_commit *c)
{
    const struct hth_epoch *e = c->ctx->epoch;

    apply_newest(c); /* the engine before this one may have died after it wrote the head */
    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = s->next)
        if (!s->removed && s->id.epoch == e->epoch && s->id.nonce == e->nonce &&
                head_fate(c, s->id) == FATE_OPEN)
            commit_resume_save(c, s);
    member_resume(c);
    c->mapped_ms = hth_now_ms(&c->ctx->clock);
    c->contact_ms = 0; /* the head on record was sent to the engine before this one */
    c->unsure = !hth_is_coordinator(c->ctx);
    c->alives = 0;
    c->alive_ms = hth_now_ms(&c->ctx->clock);
}

void hth_commit_stop(struct hth_commit *c)
{
    commit_forget(c);
}

/* ---- Saving ------------------------------------------------------------------------------- */

/* The nodes that an undecided save waits for: at the coordinator the members that lack a part, at a
 * member the coordinator. */
static void track_waits_for(const struct hth_commit *c, const struct track *t, char out[200])
{
    const struct hth_member *member = c->ctx->epoch->member;
    int n;

    if (hth_is_coordinator(c->ctx)) {
        coord_waits_for(c, t->id, out, 200);
        return;
    }
    n = snprintf(out, 200, "the decision of the coordinator, node %.64s", member[0].node);
    if (track_is_refused(c, t))
        snprintf(out + n, 200 - (size_t)n, "; node %.40s: %s", member[t->refusal.node].node,
                t->refusal.text);
}

/* A node has room for `keep` saves and one more. */
static int commit_no_room(struct hth_commit *c, struct hth_save_id id, struct hearth_error *err)
{
    struct hth_ctx *ctx = c->ctx;
    char whom[200];
    uint32_t others = 0;
    const struct track *t = NULL; /* the oldest: what hth_commit_make_room() would cancel */

    for (struct hth_held_save *s = hth_holdings_first(ctx); s; s = s->next)
        others += !s->removed && s->id.epoch && !hth_save_foreign(s->id) &&
                  hth_save_cmp(s->id, id) != 0;
    if (others <= ctx->opts.keep || hth_breaks(ctx, HTH_BREAK_BYTES))
        return HEARTH_OK;
    for (const struct track *i = c->tracks; i; i = i->next)
        if (hth_save_cmp(i->id, id) != 0 && head_fate(c, i->id) == FATE_OPEN)
            t = i;
    if (!t)
        return hth_fail(err, HEARTH_EBUSY, 0,
                "%" PRIu32 " saves are here and keep is %" PRIu32
                ": the newest is not protected yet, wait for it",
                others, ctx->opts.keep);
    track_waits_for(c, t, whom);
    return hth_fail(err, HEARTH_EBUSY, 0,
            HTH_SAVE " is undecided and takes the room; it waits for %s", HTH_SAVE_ARGS(t->id),
            whom);
}

/* The set has the caller's rank, only ranks of this world, and not all of them: for a save of all
 * ranks the caller passes no set. */
static int commit_check_ranks(const struct hth_commit *c, uint32_t rank,
        const struct hth_ranks *ranks, struct hearth_error *err)
{
    const struct hth_rank_run *last = &ranks->run[ranks->runs - 1];
    uint32_t world = c->ctx->epoch->world;

    if (last->first + (last->count - 1) * last->step >= world || hth_ranks_count(ranks) >= world)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "the set is not of some of %" PRIu32 " ranks", world);
    if (!hth_ranks_have(ranks, rank))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank %" PRIu32 " begins a save that it does not take part in", rank);
    return HEARTH_OK;
}

static uint32_t commit_count_one(
        const struct hth_commit *c, struct local_rank *l, uint64_t step, uint32_t bits)
{
    if (hth_breaks(c->ctx, HTH_BREAK_SET_COUNT))
        return bits | hth_attempts_next(&l->begun, step, 0);
    return hth_attempts_next(&l->begun, step, bits);
}

static int commit_next_attempt(struct hth_commit *c, uint32_t rank, uint64_t step,
        const struct hth_ranks *ranks, struct hth_save_id *out, struct hearth_error *err)
{
    struct local_rank *l = local_find(c, rank);
    const struct hth_epoch *e = c->ctx->epoch;
    uint32_t attempt;
    int rc;

    if (!c->running || !l)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "rank %" PRIu32 " begins step %" PRIu64 " before recover has ended in this epoch",
                rank, step);
    if (step > HTH_STEP_MAX)
        return hth_fail(err, HEARTH_EINVAL, 0, "%" PRIu64 " is not a step: at most %" PRIu64, step,
                HTH_STEP_MAX);
    if (ranks && (rc = commit_check_ranks(c, rank, ranks, err)))
        return rc;
    if (hth_attempts_passed(&l->begun, step) || step < l->passed)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "rank %" PRIu32 " begins step %" PRIu64 " after step %" PRIu64
                ": going back is hearth_recover()",
                rank, step, l->begun.step > l->passed ? l->begun.step : l->passed);
    attempt = commit_count_one(c, l, step, ranks ? hth_ranks_bits(ranks) : 0);
    if (!attempt)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank %" PRIu32 " has begun step %" PRIu64
                " too often, or with more than %u sets of ranks: it saves another step",
                rank, step, HTH_ATTEMPTS_SETS);
    local_passes(l, step);
    *out = (struct hth_save_id){ e->epoch, e->nonce, step, attempt };
    if (hth_breaks(c->ctx, HTH_BREAK_EPOCH))
        *out = (struct hth_save_id){ 1, 1, step, 1 };
    return HEARTH_OK;
}

int hth_commit_room(struct hth_commit *c, uint32_t rank, uint64_t step,
        const struct hth_ranks *ranks, struct hearth_error *err)
{
    struct local_rank *l = local_find(c, rank);
    const struct hth_epoch *e = c->ctx->epoch;
    struct hth_save_id id;

    if (!c->running || !l)
        return HEARTH_OK; /* begin reports what is wrong */
    id = (struct hth_save_id){ e->epoch, e->nonce, step, 0 };
    id.attempt = hth_attempts_peek(&l->begun, step, ranks ? hth_ranks_bits(ranks) : 0);
    if (outcome_find(c, id) || head_fate(c, id) != FATE_OPEN)
        return HEARTH_OK; /* begin reports that it is decided */
    return commit_no_room(c, id, err);
}

uint32_t hth_commit_decided(struct hth_commit *c)
{
    uint32_t saves = 0;

    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = s->next) {
        const struct track *t = track_find(c, s->id);

        saves += !s->removed && s->id.epoch && !hth_save_foreign(s->id) &&
                 !(t && head_is_open(c, t->id));
    }
    return saves;
}

enum hth_part hth_commit_part(
        struct hth_commit *c, uint32_t at, uint32_t rank, const struct hth_ranks **out_ranks)
{
    const struct local_rank *l = local_find(c, rank);
    const struct track *t = c->tracks;

    while (t && (!head_is_open(c, t->id) || at--))
        t = t->next;
    if (!t)
        return HTH_PART_NO_SAVE;
    *out_ranks = t->ranks;
    if (!l || !track_has(c, t, (uint32_t)(l - c->local)))
        return HTH_PART_NONE;
    return t->rank[l - c->local] & RANK_BEGUN ? HTH_PART_BEGUN : HTH_PART_TO_COME;
}

void hth_commit_make_room(struct hth_commit *c)
{
    struct track *oldest = c->tracks;

    while (oldest && oldest->next && head_is_open(c, oldest->next->id))
        oldest = oldest->next;
    if (oldest && head_is_open(c, oldest->id) && !oldest->fail_code)
        hth_commit_fail(c, oldest->id, HEARTH_ECANCELED, "cancelled to make room for a newer one");
}

/* The set that this rank names must be the set that other ranks have named, on this node and at the
 * coordinator. */
static int commit_name_ranks(struct hth_commit *c, struct track *t, const struct hth_ranks *ranks,
        struct hearth_error *err)
{
    struct tally *tally;
    int rc = track_name(t, ranks, err);

    if (rc || !hth_is_coordinator(c->ctx) || !(tally = tally_get(c, t->id)))
        return rc;
    return tally_name(c, tally, ranks, err);
}

int hth_commit_begin(struct hth_commit *c, uint32_t rank, uint64_t step,
        const struct hth_ranks *ranks, struct hth_save_id *out_save, struct hearth_error *err)
{
    struct hth_save_id id = { 0 };
    struct hearth_error cause;
    struct track *t;
    const struct outcome *o;
    int rc = commit_next_attempt(c, rank, step, ranks, &id, err);

    if (rc)
        return rc;
    hth_point(&c->ctx->points, "begin");
    *out_save = id;
    o = outcome_find(c, id);
    if (o || head_fate(c, id) != FATE_OPEN)
        return hth_fail(err, HEARTH_EFAILED, 0, HTH_SAVE ": %s", HTH_SAVE_ARGS(id),
                o ? o->text
                : hth_attempt_set(id.attempt) && head_fate(c, id) == FATE_SUPERSEDED
                        ? "a newer save is decided, and of one step a save of all ranks is newer than "
                          "one of some"
                        : "it is decided already");
    rc = commit_no_room(c, id, &cause);
    /* what could not be published later is refused now, while the caller waits for the answer */
    if (!rc && c->ctx->store->ops->vacant)
        rc = c->ctx->store->ops->vacant(c->ctx->store, id, &cause);
    if (rc) {
        hth_commit_fail(c, id, rc, cause.text);
        if (err)
            *err = cause;
        return rc;
    }
    t = track_get(c, id);
    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, HTH_SAVE, HTH_SAVE_ARGS(id));
    if ((rc = commit_name_ranks(c, t, ranks, &cause))) {
        hth_commit_fail(c, id, rc, cause.text);
        if (err)
            *err = cause;
        return rc;
    }
    t->rank[local_find(c, rank) - c->local] |= RANK_BEGUN;
    track_note(c, id, &(struct hth_happened){ .what = HTH_MOMENT_BEGUN });
    return HEARTH_OK;
}

const struct hth_ranks *hth_commit_ranks(struct hth_commit *c, struct hth_save_id save)
{
    const struct track *t = track_find(c, save);

    return t ? t->ranks : NULL;
}

/* 1: the save is older than a kept save and is not kept, so it was decided before. */
static int commit_is_superseded(const struct hth_commit *c, struct hth_save_id save)
{
    const struct hth_keep *keep = &c->ctx->keep;

    for (uint32_t i = 0; i < keep->saves; i++)
        if (hth_save_cmp(keep->save[i], save) > 0)
            return !hth_keep_has(keep, save);
    return 0;
}

int hth_commit_rejoin(struct hth_commit *c, uint32_t rank, struct hth_save_id save,
        const struct hth_ranks *ranks, struct hearth_error *err)
{
    const struct hth_epoch *e = c->ctx->epoch;
    struct local_rank *l = e ? local_find(c, rank) : NULL;
    const struct outcome *o;
    struct track *t;
    int rc;

    if (!c->running || !l || save.epoch != e->epoch || save.nonce != e->nonce)
        return hth_fail(err, HEARTH_EUNKNOWN, 0,
                "this node's engine is new, or in another epoch: what became of step %" PRIu64
                " shows at the next hearth_recover()",
                save.step);
    hth_commit_count(c, rank, save.step, save.attempt);
    o = outcome_find(c, save);
    if (o && o->level < HEARTH_PROTECTED)
        return hth_fail(err, HEARTH_EFAILED, 0, HTH_SAVE ": %s", HTH_SAVE_ARGS(save), o->text);
    if (commit_is_superseded(c, save))
        return hth_fail(err, HEARTH_EFAILED, 0, HTH_SAVE ": a newer save is PROTECTED",
                HTH_SAVE_ARGS(save));
    if (o || hth_keep_has(&c->ctx->keep, save))
        return HEARTH_OK;
    t = track_get(c, save);
    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, HTH_SAVE, HTH_SAVE_ARGS(save));
    if ((rc = track_name(t, ranks, err)))
        return rc;
    t->rank[l - c->local] |= RANK_BEGUN;
    return HEARTH_OK;
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Delivers a fact. 0: `kind` is not a fact, or this node is not the coordinator. */
static int commit_fact(struct hth_commit *c, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len)
{
    if (!hth_is_coordinator(c->ctx))
        return 0;
    if (kind == HTH_KIND_DONE)
        coord_done(c, origin, bytes, len);
    else if (kind == HTH_KIND_HELD)
        coord_held(c, origin, bytes, len);
    else if (kind == HTH_KIND_PROMISE)
        coord_promise(c, origin, bytes, len);
    else if (kind == HTH_KIND_FAILED)
        coord_failed(c, origin, bytes, len);
    else if (kind == HTH_KIND_COPY_LOST)
        coord_copy_lost(c, origin, bytes, len);
    else if (kind == HTH_KIND_WISH)
        wishes_receive(c, origin, bytes, len);
    else if (kind == HTH_KIND_UNREACHABLE)
        pairs_reported(c, origin, bytes, len);
    else if (kind == HTH_KIND_ALIVE)
        coord_alive(c, origin);
    else
        return 0;
    return 1;
}

void hth_commit_deliver(struct hth_commit *c, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len)
{
    if (!c->joined || commit_fact(c, origin, kind, bytes, len))
        return;
    if (kind == HTH_KIND_COMPLETE && len == SAVE_BYTES)
        apply_complete(c, save_get(bytes));
    else if (kind == HTH_KIND_HEAD)
        apply_head(c, bytes, len);
    else if (kind == HTH_KIND_POSITION)
        heartbeat_receive(c, bytes, len);
    else if (kind == HTH_KIND_WISH_RESULT)
        wish_result(c, bytes, len);
    else if (kind == HTH_KIND_AWAITED)
        steps_awaited(c, bytes, len);
}

void hth_commit_sign_of_life(struct hth_commit *c, uint32_t origin, uint64_t life, uint64_t count)
{
    if (c->joined && hth_is_coordinator(c->ctx))
        maps_sign_of_life(c, origin, life, count);
}

void hth_commit_peer_down(struct hth_commit *c, uint32_t node)
{
    if (!c->joined)
        return;
    if (hth_is_coordinator(c->ctx)) {
        maps_peer_down(c, node);
        return;
    }
    if (node == 0 && !c->silent_since_ms)
        c->silent_since_ms = hth_now_ms(&c->ctx->clock);
    if (node == 0 || node == hth_tree_parent(c->ctx, c->ctx->epoch->self))
        heartbeat_behind(c, 0); /* the nodes beyond that peer may call this node lost */
    facts_anew(c);
    unreachable_disconnected(c, node);
}

void hth_commit_pulled(struct hth_commit *c, uint32_t node, uint64_t len, int code)
{
    if (c->joined && node < c->ctx->epoch->nodes)
        unreachable_pulled(c, node, len, code);
}

void hth_commit_peer_up(struct hth_commit *c, uint32_t node)
{
    if (node == 0)
        c->silent_since_ms = 0;
    unreachable_connected(c, node);
    facts_anew(c);
    if (c->joined && hth_is_coordinator(c->ctx))
        maps_peer_up(c, node);
}

static void track_give_up(struct hth_commit *c, struct track *t, uint64_t now_ms)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    /* Other members wait dead_ms more: the coordinator can name the nodes that the save waited
     * for. */
    uint64_t late_ms = t->since_ms + o->save_ms + (hth_is_coordinator(c->ctx) ? 0 : o->dead_ms);
    char text[200], whom[200];

    if (hth_breaks(c->ctx, HTH_BREAK_DEADLINE) || !head_is_open(c, t->id) || t->unknown)
        return;
    if (now_ms >= late_ms && !t->fail_code) { /* after a stall too, when the rest is late as well */
        track_waits_for(c, t, whom);
        snprintf(text, sizeof(text), "not protected in time: it waited for %.160s", whom);
        hth_commit_fail(c, t->id, HEARTH_ETIMEOUT, text);
    }
    if (now_ms >= t->since_ms + o->save_ms + 4 * (uint64_t)o->dead_ms &&
            !hth_is_coordinator(c->ctx)) {
        snprintf(text, sizeof(text), "the coordinator, node %.64s, does not decide",
                c->ctx->epoch->member[0].node);
        (void)track_unknown(c, t, text); /* last: it may remove t */
    }
}

void hth_commit_tick(struct hth_commit *c)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    struct track *next;

    if (!c->joined)
        return;
    for (struct track *t = c->tracks; t; t = next) {
        next = t->next;
        if (now_ms >= t->repeat_ms) {
            t->repeat_ms = now_ms + c->ctx->opts.retry_ms;
            facts_repeat(c, t);
        }
        if (now_ms >= t->repair_ms) {
            t->repair_ms = now_ms + 4 * (uint64_t)c->ctx->opts.retry_ms;
            (void)repair_missing(c, t); /* last: it may remove t */
        }
    }
    if (hth_is_coordinator(c->ctx)) {
        coord_tick(c, now_ms);
        heartbeat_tick(c, now_ms);
    }
    heartbeat_alive(c, now_ms);
    unreachable_tick(c, now_ms);
    if (hth_is_coordinator(c->ctx))
        coord_give_up(c, now_ms);
    steps_member(c, now_ms);
    for (struct track *t = c->tracks; t; t = next) {
        next = t->next;
        track_give_up(c, t, now_ms);
    }
}

uint64_t hth_commit_due_ms(const struct hth_commit *c)
{
    uint64_t due_ms = c->joined && hth_is_coordinator(c->ctx) ? coord_due_ms(c) : HTH_NEVER;

    if (c->unsure && c->alive_ms < due_ms)
        due_ms = c->alive_ms;
    if (c->joined && unreachable_due_ms(c) < due_ms)
        due_ms = unreachable_due_ms(c);
    if (c->joined && hth_is_coordinator(c->ctx) && heartbeat_due_ms(c) < due_ms)
        due_ms = heartbeat_due_ms(c);

    for (const struct track *t = c->tracks; t; t = t->next) {
        due_ms = t->repeat_ms < due_ms ? t->repeat_ms : due_ms;
        due_ms = t->repair_ms < due_ms ? t->repair_ms : due_ms;
    }
    return due_ms;
}

/* ---- Questions ------------------------------------------------------------------------------- */

int hth_commit_needs_ranks(struct hth_commit *c, struct hth_save_id save)
{
    const struct hth_held_save *s = hth_holdings_find(c->ctx, save);

    return head_fate(c, save) == FATE_OPEN && !(s && s->has_manifest);
}

int hth_commit_status(struct hth_commit *c, struct hth_save_id save, enum hearth_level *out_level,
        int *out_degraded, int *out_code, char text[256])
{
    const struct outcome *o = outcome_find(c, save);
    struct track *t = track_find(c, save);

    *out_degraded = 0;
    *out_code = HEARTH_OK;
    text[0] = '\0';
    /* as it is now, which may differ from the outcome at its decision */
    if (hth_keep_has(&c->ctx->keep, save)) {
        *out_level = HEARTH_PROTECTED;
        *out_degraded = hth_keep_degraded(&c->ctx->keep, hth_keep_at(&c->ctx->keep, save));
    } else if (o) {
        *out_level = o->level;
        *out_degraded = o->degraded;
        *out_code = o->code;
        snprintf(text, 256, "%s", o->text);
    } else if (t) {
        *out_level = t->level;
        track_waits_for(c, t, text);
    } else {
        return HEARTH_ENOENT;
    }
    return HEARTH_OK;
}

/* All ranks of this node that take part are done, so the coordinator may have decided the save by
 * now. */
static int track_is_handed_over(const struct hth_commit *c, const struct track *t)
{
    uint32_t done = 0, part = 0;

    for (uint32_t i = 0; i < c->locals; i++) {
        done += track_has(c, t, i) && (t->rank[i] & RANK_DONE);
        part += track_has(c, t, i) != 0;
    }
    return t->done_sent || t->held || (part && done == part);
}

static int save_is_asked(const struct hth_commit *c, const uint64_t *step, struct hth_save_id id)
{
    const struct hth_epoch *e = c->ctx->epoch;

    return (!step || id.step == *step) && id.epoch == e->epoch && id.nonce == e->nonce &&
           !hth_keep_has(&c->ctx->keep, id);
}

int hth_commit_undecided(const struct hth_commit *c, const uint64_t *step,
        struct hth_save_id *out_save, int *out_unknown)
{
    int found = 0;

    *out_unknown = 0;
    for (const struct track *t = c->tracks; t && !found; t = t->next) { /* newest first */
        if (!save_is_asked(c, step, t->id) || !track_is_handed_over(c, t))
            continue;
        *out_save = t->id;
        *out_unknown = t->unknown;
        found = 1;
    }
    for (uint32_t i = 0; i < OUTCOMES; i++) {
        const struct outcome *o = &c->outcome[i];

        if (!o->level || o->code != HEARTH_EUNKNOWN || !save_is_asked(c, step, o->id) ||
                (found && hth_save_cmp(o->id, *out_save) < 0))
            continue;
        *out_save = o->id;
        *out_unknown = found = 1;
    }
    return found;
}

void hth_commit_text(struct hth_commit *c, char *out, size_t len)
{
    static const char *const words[] = {
        [HTH_KEPT_UNSURE] = " (as last known: its copies are not confirmed now)",
        [HTH_KEPT_DEGRADED] = " (degraded)",
        [HTH_KEPT_PROTECTED] = "",
    };
    const struct track *t = c->tracks;
    char whom[200];
    int n = 0;

    if (c->ctx->keep.saves)
        n = snprintf(out, len, "newest protected: step %" PRIu64 "%s, %" PRIu64 " s ago",
                c->ctx->keep.save[0].step, words[hth_commit_kept(c, 0)], hth_commit_kept_s(c, 0));
    else
        n = snprintf(out, len, "nothing protected yet");
    while (t && head_fate(c, t->id) != FATE_OPEN)
        t = t->next;
    if (n < 0 || (size_t)n >= len || !t)
        return;
    track_waits_for(c, t, whom);
    snprintf(out + n, len - (size_t)n, "; undecided: step %" PRIu64 ", waits for %s", t->id.step,
            whom);
}

void hth_commit_close(struct hth_commit *c)
{
    if (!c)
        return;
    commit_forget(c);
    places_fini(c);
    free(c->local);
    free(c);
}
