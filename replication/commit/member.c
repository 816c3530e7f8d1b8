/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member's facts of a save, and their conditions: DONE when its ranks' objects are sealed,
 * HELD when manifest and raw objects are here, PROMISE when all that is assigned to it is here,
 * sealed and verified. Copies are offered to their holders; what is missing comes by repair.c.
 */
#include "commit_state.h"

#include <stdlib.h>
#include <string.h>

/* ---- DONE --------------------------------------------------------------------------------- */

/* 1: the local ranks that take part hand over no more objects. 0 too if no local rank takes part,
 * or the set is not known yet. */
static int member_all_committed(const struct hth_commit *c, const struct track *t)
{
    uint32_t part = 0;

    for (uint32_t i = 0; i < c->locals; i++) {
        if (!track_has(c, t, i))
            continue;
        part++;
        if (!(t->rank[i] & RANK_DONE))
            return 0;
    }
    return part != 0;
}

static int member_all_sealed(
        struct hth_commit *c, const struct track *t, const struct hth_held_save *s)
{
    if (!member_all_committed(c, t))
        return 0;
    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        if (local_owns(c->ctx, h) && h->state != HTH_HELD_SEALED)
            return 0;
    return 1;
}

/* Objects of local ranks. */
static uint32_t member_own_objects(const struct hth_commit *c, const struct hth_held_save *s)
{
    uint32_t n = 0;

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        n += local_owns(c->ctx, h) != 0;
    return n;
}

static void member_note(const struct hth_commit *c, struct hth_save_id save, enum hth_moment what)
{
    track_note(c, save, &(struct hth_happened){ .what = what });
}

static void member_note_sealed(
        const struct hth_commit *c, struct hth_save_id save, const struct hth_held_save *s)
{
    struct hth_happened happened = { .what = HTH_MOMENT_SEALED };

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        happened.bytes += local_owns(c->ctx, h) ? h->object.data_len : 0;
    track_note(c, save, &happened);
}

static void member_done(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    if (t->done_sent || !head_is_open(c, t->id) || t->fail_code || !member_all_sealed(c, t, s))
        return;
    if (member_own_objects(c, s) < t->objects) {
        hth_commit_fail(c, t->id, HEARTH_ECORRUPT,
                "an object that a rank of this node had handed over is lost here");
        return;
    }
    member_note_sealed(c, t->id, s);
    track_level(c, t, HEARTH_SEALED);
    facts_sent(c, t);
    fact_done(c, t, s);
}

/* ---- Copies ------------------------------------------------------------------------------- */

_Static_assert(HTH_HELD_COPIES >= HTH_COPIES_MAX, "each holder of an object is counted");

/* 1: the node has a place for the rank's objects and is not lost, so its pulls count. */
static int member_is_holder(struct hth_commit *c, uint32_t rank, uint32_t node)
{
    uint32_t holder[HTH_COPIES_MAX];
    uint32_t n = hth_commit_holders(c, rank, holder);

    for (uint32_t i = 0; i < n; i++)
        if (holder[i] == node)
            return !c->ctx->lost[node];
    return 0;
}

static void held_copy_add(struct hth_held *h, uint32_t node)
{
    for (uint32_t i = 0; i < h->copies; i++)
        if (h->copied[i] == node)
            return;
    if (h->copies < HTH_HELD_COPIES)
        h->copied[h->copies++] = node;
}

/* The map has changed: copies on nodes that are lost or have no place any more do not count. */
static void held_copies_mapped(struct hth_commit *c, struct hth_held *h)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < h->copies; i++)
        if (member_is_holder(c, h->object.owner, h->copied[i]))
            h->copied[left++] = h->copied[i];
    h->copies = left;
}

static void member_elsewhere(struct hth_commit *c, struct track *t, uint32_t rank)
{
    const struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);
    const struct local_rank *l = local_find(c, rank);
    int all = 1;

    if (!l || !s)
        return;
    for (const struct hth_held *h = s->held; h; h = h->next)
        all &= h->object.owner != rank || h->object.kind == HTH_OBJECT_RAW || h->copies;
    t->rank[l - c->local] &= (uint8_t)~RANK_ELSEWHERE;
    t->rank[l - c->local] |= all ? RANK_ELSEWHERE : 0;
}

/* A rank is COPIED when each of its objects is sealed and was pulled by min_copies others; where
 * there are no others, that is at once. */
static void member_copied(struct hth_commit *c, struct track *t, uint32_t rank)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);
    struct local_rank *l = local_find(c, rank);
    uint32_t holder[HTH_COPIES_MAX];
    uint32_t can = hth_commit_holders(c, rank, holder);
    uint32_t need = c->ctx->opts.min_copies < can ? c->ctx->opts.min_copies : can;

    if (!l || !s || t->unknown || !(t->rank[l - c->local] & RANK_DONE) ||
            (t->rank[l - c->local] & RANK_COPIED))
        return;
    for (struct hth_held *h = s->held; h; h = h->next)
        if (h->object.owner == rank &&
                (h->state != HTH_HELD_SEALED ||
                        (h->object.kind != HTH_OBJECT_RAW && h->copies < need)))
            return; /* after COPIED a rank sends nothing again, so its common objects count too */
    t->rank[l - c->local] |= RANK_COPIED;
    c->events.on_level(
            c->events.self, t->id, rank, HEARTH_COPIED, can < c->ctx->opts.copies, HEARTH_OK, "");
}

int member_may_fail(const struct hth_commit *c, const struct track *t)
{
    return !t->fail_code && t->level < HEARTH_COMPLETE && head_is_open(c, t->id);
}

/* The result of an offer. If the system of either node refuses to register the memory, waiting does
 * not help, and the save fails. */
static void member_offered(void *self, struct hth_save_id save, uint64_t object, uint32_t node,
        int code, const char *text)
{
    struct hth_commit *c = self;
    struct hth_held_save *s = hth_holdings_find(c->ctx, save);
    struct hth_held *h = s ? hth_held_find(s, object) : NULL;
    struct track *t = track_find(c, save);

    if (code == HEARTH_EIO && t && member_may_fail(c, t))
        hth_commit_fail(c, save, code, text);
    if (code == HEARTH_ENOSPC && t)
        refusal_of(c, t, node, text);
    if (code || !h || !t || !member_is_holder(c, h->object.owner, node))
        return;
    held_copy_add(h, node);
    track_note(c, save, &(struct hth_happened){ .what = HTH_MOMENT_COPIED, .node = node });
    member_elsewhere(c, t, h->object.owner);
    member_copied(c, t, h->object.owner);
}

/* The other nodes that hold the rank's objects, and that this node can reach. Returns how many. */
static uint32_t member_holders(struct hth_commit *c, uint32_t owner, uint32_t out[HTH_COPIES_MAX])
{
    uint32_t holder[HTH_COPIES_MAX], count = 0;
    uint32_t n = hth_commit_holders(c, owner, holder);

    for (uint32_t i = 0; i < n; i++)
        if (holder[i] != c->ctx->epoch->self && !c->ctx->lost[holder[i]] &&
                !hth_tree_is_unreachable(c->ctx, c->ctx->epoch->self, holder[i]))
            out[count++] = holder[i];
    return count;
}

void member_offer(struct hth_commit *c, struct hth_held_save *s, struct hth_held *h)
{
    uint32_t holder[HTH_COPIES_MAX];
    uint32_t n = member_holders(c, h->object.owner, holder);

    if (n)
        member_note(c, s->id, HTH_MOMENT_OFFERED);
    for (uint32_t i = 0; i < n; i++)
        hth_transfer_offer(c->ctx, s, h, holder[i], member_offered, c, NULL);
}

int hth_commit_writing(struct hth_commit *c, struct hth_save_id save,
        const struct hth_object *object, struct hth_slot *slot, uint32_t chunks)
{
    const struct track *t = track_find(c, save);
    uint32_t holder[HTH_COPIES_MAX], n = 0;
    int may = 0;

    if (c->running && t && !t->fail_code && head_is_open(c, save))
        n = member_holders(c, object->owner, holder);
    for (uint32_t i = 0; i < n; i++) {
        if (!hth_session_version(c->ctx->session, holder[i])) {
            fact_dial(c, holder[i]); /* for the chunks that come next */
            continue;
        }
        hth_transfer_writing(c->ctx, save, object, slot, chunks, holder[i]);
        may = 1;
    }
    return may;
}

void hth_commit_sealed(struct hth_commit *c, struct hth_held_save *save, struct hth_held *held)
{
    struct track *t = track_find(c, save->id);

    if (!t)
        return;
    member_offer(c, save, held);
    member_done(c, t);
    member_copied(c, t, held->object.owner);
    (void)member_check(c, t);
}

void hth_commit_common(struct hth_commit *c, struct hth_held_save *save, struct hth_held *held)
{
    struct track *t = track_find(c, save->id);

    if (!t)
        return;
    member_done(c, t);
    member_copied(c, t, held->object.owner);
}

/* Ranks of this node that take part, and those of them that have handed over all objects. */
static void member_note_rank(const struct hth_commit *c, const struct track *t, uint32_t rank)
{
    struct hth_happened happened = { .what = HTH_MOMENT_RANK, .node = rank };

    for (uint32_t i = 0; i < c->locals; i++) {
        happened.due += track_has(c, t, i) != 0;
        happened.count += track_has(c, t, i) && t->rank[i] & RANK_DONE;
    }
    track_note(c, t->id, &happened);
}

void hth_commit_rank_done(
        struct hth_commit *c, struct hth_save_id save, uint32_t rank, uint32_t objects)
{
    struct track *t =
            outcome_find(c, save) || head_fate(c, save) != FATE_OPEN ? NULL : track_get(c, save);
    struct local_rank *l = local_find(c, rank);
    int first;

    if (!t || !l)
        return;
    first = !(t->rank[l - c->local] & RANK_DONE);
    if (first)
        t->objects += objects;
    t->rank[l - c->local] |= RANK_BEGUN | RANK_DONE;
    if (first)
        member_note_rank(c, t, rank);
    if (member_all_committed(c, t))
        member_note(c, t->id, HTH_MOMENT_COMMITTED);
    member_done(c, t);
    member_copied(c, t, rank);
}

/* ---- HELD and PROMISE --------------------------------------------------------------------- */

static int member_has_raws(const struct hth_commit *c, const struct hth_held_save *s)
{
    for (uint32_t i = 0; i < s->manifest.objects && !hth_breaks(c->ctx, HTH_BREAK_COMMON); i++) {
        const struct hth_object *o = &s->manifest.object[i];
        struct hth_held *h;

        if (o->kind != HTH_OBJECT_RAW)
            continue;
        h = hth_held_find((struct hth_held_save *)(uintptr_t)s, o->id);
        if (!h || h->state != HTH_HELD_SEALED || !h->verified)
            return 0;
    }
    return 1;
}

/* The first object that is assigned to this node and is not here; NULL: all are here. */
static const struct hth_object *member_first_missing(struct hth_commit *c, struct hth_held_save *s)
{
    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        struct hth_held *h;

        if (o->kind == HTH_OBJECT_RAW ||
                !places_have(c, stand_in(c->ctx, o->owner), c->ctx->epoch->self))
            continue;
        h = hth_held_find(s, o->id);
        if (!h || h->state != HTH_HELD_SEALED || !h->verified ||
                memcmp(h->object.digest, o->digest, HTH_DIGEST) != 0)
            return o;
    }
    return NULL;
}

/* 1: the save is kept and the map is settled, so the coordinator needs no more facts of it. */
static int member_is_settled(const struct hth_commit *c, const struct track *t)
{
    return c->head.settled && head_fate(c, t->id) == FATE_KEPT;
}

/* 1: a newer save of the same step has the directory's name. */
static int member_is_replaced(const struct hth_commit *c, const struct hth_held_save *s)
{
    for (const struct hth_held_save *o = hth_holdings_first(c->ctx); o; o = o->next)
        if (!o->removed && o->published && o->id.step == s->id.step &&
                hth_save_cmp(o->id, s->id) > 0)
            return 1;
    return 0;
}

void member_publish(struct hth_commit *c, struct hth_held_save *s)
{
    struct hth_store *store = c->ctx->store;
    struct hearth_error err;

    if (s->published || member_is_replaced(c, s))
        return;
    if (!store->ops->publish(store, s->id, &err)) {
        s->published = 1;
        return;
    }
    hth_say(&c->ctx->log, HEARTH_LOG_WARN, "publish-failed", "%s", err.text);
    if (err.code == HEARTH_EEXIST)
        hth_commit_fail(c, s->id, err.code, err.text);
}

/* 0: the save cannot be published on this node, for example because another program has made its
 * directory; the save fails. */
static int member_has_place(
        struct hth_commit *c, const struct track *t, const struct hth_held_save *s)
{
    struct hth_store *store = c->ctx->store;
    struct hearth_error err;

    if (t->id.epoch != c->ctx->epoch->epoch) /* its directory is from its own epoch */
        return 1;
    if (t->fail_code)
        return 0;
    if (s->published || !store->ops->vacant || member_is_replaced(c, s) ||
            !store->ops->vacant(store, t->id, &err))
        return 1;
    hth_commit_fail(c, t->id, err.code, err.text);
    return 0;
}

int member_check(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);
    int here;

    if (!s || !s->has_manifest || (head_fate(c, t->id) == FATE_OPEN && !member_has_place(c, t, s)))
        return 0;
    if (!t->held && member_has_raws(c, s)) {
        t->held = 1;
        member_note(c, t->id, HTH_MOMENT_HELD);
        facts_sent(c, t);
        if (head_fate(c, t->id) == FATE_OPEN)
            fact_held(c, t);
    }
    here = t->held && member_has_raws(c, s) && !member_first_missing(c, s);
    if (here && member_is_settled(c, t)) {
        member_publish(c, s);
        track_remove(c, t);
        return 1;
    }
    if (!here || (t->promised && t->promised_map == c->head.mapped))
        return 0;
    if (head_fate(c, t->id) == FATE_KEPT)
        member_publish(c, s); /* the save came here after COMPLETE was sent */
    hth_point(&c->ctx->points, "promise");
    t->promised = 1;
    t->lost = 0;
    t->promised_map = c->head.mapped;
    member_note(c, t->id, HTH_MOMENT_PROMISED);
    facts_sent(c, t);
    fact_promise(c, t);
    return 0;
}

/* ---- Another map ----------------------------------------------------------------------------- */

/* Offers the object to the holders of the new map. A holder that has it reports so at once. Once
 * there is a manifest, a new holder fetches by itself and reports nothing; holders that were
 * counted still count, except those that have no place any more. */
static void member_offer_anew(
        struct hth_commit *c, struct track *t, struct hth_held_save *s, struct hth_held *h)
{
    if (s->has_manifest) {
        held_copies_mapped(c, h);
        member_elsewhere(c, t, h->object.owner);
        return;
    }
    h->copies = 0;
    member_offer(c, s, h);
}

void member_mapped(struct hth_commit *c)
{
    struct hth_ctx *ctx = c->ctx;
    struct track *next;

    c->mapped_ms = hth_now_ms(&ctx->clock);
    for (struct track *t = c->tracks; t; t = next) {
        struct hth_held_save *s = hth_holdings_find(ctx, t->id);

        next = t->next;
        t->repair_ms = hth_now_ms(&ctx->clock);
        t->repairs = t->tried = t->vain = 0;
        for (struct hth_held *h = s ? s->held : NULL; h; h = h->next)
            if (local_owns(ctx, h) && h->state == HTH_HELD_SEALED && h->slot)
                member_offer_anew(c, t, s, h);
        (void)member_check(c, t);
    }
    unreachable_mapped(c);
}

/* Serves the manifest to nodes that lack it. */
static void member_serve(struct hth_commit *c, const struct hth_held_save *s)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, s->id, 0 };

    (void)hth_blob_serve_buf(c->ctx, &id, s->manifest_buf, NULL);
}

void member_follow(const struct hth_commit *c, struct track *t)
{
    t->level = HEARTH_PROTECTED;
    t->repair_ms = hth_now_ms(&c->ctx->clock);
}

void member_keep(struct hth_commit *c)
{
    const struct hth_keep *k = &c->ctx->keep;
    struct track *t, *next;

    for (t = c->tracks; t; t = next) {
        next = t->next;
        if (member_is_settled(c, t) && t->promised)
            track_remove(c, t);
    }
    if (kept_lost(c, k))
        return;
    for (uint32_t i = 0; i < k->saves && c->running && !c->head.settled; i++) {
        struct hth_held_save *s = hth_holdings_find(c->ctx, k->save[i]);

        if (head_fate(c, k->save[i]) != FATE_KEPT || track_find(c, k->save[i]) ||
                !(t = track_get(c, k->save[i])))
            continue;
        member_follow(c, t);
        if (s && s->has_manifest)
            member_serve(c, s);
        (void)member_check(c, t);
    }
}

void member_resume(struct hth_commit *c)
{
    const struct hth_keep k = c->ctx->keep;

    for (uint32_t i = 0; i < k.saves && k.epoch == c->ctx->epoch->epoch; i++) {
        struct hth_held_save *s = hth_holdings_find(c->ctx, k.save[i]);
        struct track *t;

        if (s && s->has_manifest && room_has_all(c, s))
            continue;
        t = track_get(c, k.save[i]);
        if (!t)
            continue;
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "copy-lost",
                HTH_SAVE ": not all that this node has to hold of it is here",
                HTH_SAVE_ARGS(k.save[i]));
        member_follow(c, t);
        facts_sent(c, t);
        fact_copy_lost(c, t);
    }
}

/* ---- Objects that come ----------------------------------------------------------------------- */

int hth_commit_early_wanted(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object)
{
    struct hth_commit *c = self;

    if (outcome_find(c, save) || head_fate(c, save) != FATE_OPEN)
        return HEARTH_EDENIED;
    if (!c->running || hth_tree_is_unreachable(c->ctx, c->ctx->epoch->self, from))
        return HEARTH_EBUSY;
    if (!places_have(c, stand_in(c->ctx, object->owner), c->ctx->epoch->self))
        return HEARTH_EDENIED;
    /* all saves of an epoch have the integrity that its ranks agreed on */
    if (save.epoch == c->ctx->epoch->epoch && save.nonce == c->ctx->epoch->nonce &&
            object->strong != c->ctx->opts.strong)
        return HEARTH_EDENIED;
    return room_waits(c, save) ? HEARTH_EBUSY : HEARTH_OK;
}

int hth_commit_offer_wanted(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object)
{
    int rc = hth_commit_early_wanted(self, from, save, object);

    return rc || track_get(self, save) ? rc : HEARTH_EBUSY;
}

void hth_commit_replica(void *self, struct hth_save_id save, uint64_t object)
{
    struct hth_commit *c = self;
    struct track *t = track_find(c, save);

    (void)object;
    if (t)
        (void)member_check(c, t);
    release_moved(c); /* the map may have moved the copy away while it was received */
}
