/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member's facts of a save, and their conditions: DONE when its ranks' objects are sealed,
 * HELD when manifest and raw objects are here, PROMISE when all that is assigned to it is here,
 * sealed and verified. Copies are offered to their holders; a copy that is not offered is fetched.
 */
#include "commit_state.h"
#include "replication/held/seal.h"

#include <stdlib.h>
#include <string.h>

/* ---- DONE --------------------------------------------------------------------------------- */

static int member_all_sealed(
        struct hth_commit *c, const struct track *t, const struct hth_held_save *s)
{
    uint32_t part = 0;

    for (uint32_t i = 0; i < c->locals; i++) {
        if (!track_has(c, t, i))
            continue;
        part++;
        if (!(t->rank[i] & RANK_DONE))
            return 0;
    }
    if (!part)
        return 0; /* no local rank takes part, or the set is not known yet */
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

/* 1: a failure of this node fails the save. For a save that is COMPLETE this node tries again. */
static int track_may_fail(const struct hth_commit *c, const struct track *t)
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

    if (code == HEARTH_EIO && t && track_may_fail(c, t))
        hth_commit_fail(c, save, code, text);
    if (code == HEARTH_ENOSPC && t)
        refusal_of(c, t, node, text);
    if (code || !h || !t || !member_is_holder(c, h->object.owner, node))
        return;
    held_copy_add(h, node);
    member_copied(c, t, h->object.owner);
}

void member_offer(struct hth_commit *c, struct hth_held_save *s, struct hth_held *h)
{
    uint32_t holder[HTH_COPIES_MAX];
    uint32_t n = hth_commit_holders(c, h->object.owner, holder);

    for (uint32_t i = 0; i < n; i++)
        if (holder[i] != c->ctx->epoch->self && !c->ctx->lost[holder[i]] &&
                !hth_tree_is_unreachable(c->ctx, c->ctx->epoch->self, holder[i]))
            hth_transfer_offer(c->ctx, s, h, holder[i], member_offered, c, NULL);
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

void hth_commit_rank_done(
        struct hth_commit *c, struct hth_save_id save, uint32_t rank, uint32_t objects)
{
    struct track *t =
            outcome_find(c, save) || head_fate(c, save) != FATE_OPEN ? NULL : track_get(c, save);
    struct local_rank *l = local_find(c, rank);

    if (!t || !l)
        return;
    if (!(t->rank[l - c->local] & RANK_DONE))
        t->objects += objects;
    t->rank[l - c->local] |= RANK_BEGUN | RANK_DONE;
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
    facts_sent(c, t);
    fact_promise(c, t);
    return 0;
}

/* ---- Missing copies ------------------------------------------------------------------------ */

static void member_repaired(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct hth_commit *c = self;

    (void)fetch;
    if (code)
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "repair-failed", "%s", err->text);
    for (struct track *t = c->tracks, *next; t; t = next) {
        next = t->next;
        (void)member_check(c, t);
    }
    release_moved(c); /* the map may have moved the copy away while it was received */
}

/* A kept save is complete, its ranks were notified, and it has no deadline. */
static void member_follow(const struct hth_commit *c, struct track *t)
{
    t->level = HEARTH_PROTECTED;
    t->repair_ms = hth_now_ms(&c->ctx->clock);
}

/* An object of the rank is lost. 1: the rank is of this node, and not all its objects are known to
 * have their copies. Perhaps no node has this one, so a COMPLETE save fails too: it would wait for
 * promises until its deadline, which names no cause. */
static int track_lost_own(struct hth_commit *c, const struct track *t, uint32_t rank)
{
    const struct local_rank *l = local_find(c, rank);

    return l && (!t || track_may_fail(c, t) ||
                        (!t->fail_code && head_is_open(c, t->id) && !t->unknown &&
                                !(t->rank[l - c->local] & RANK_COPIED)));
}

void hth_commit_copy_lost(
        struct hth_commit *c, struct hth_save_id save, uint64_t object, const char *why)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, save);
    struct hth_held *h = s ? hth_held_find(s, object) : NULL;
    struct track *t;

    hth_say(&c->ctx->log, HEARTH_LOG_WARN, "copy-lost", HTH_SAVE " object %" PRIx64 ": %s",
            HTH_SAVE_ARGS(save), object, why);
    if (h)
        hth_held_drop(c->ctx, s, h);
    t = s ? track_get(c, save) : track_find(c, save);
    if (track_lost_own(c, t, hth_object_rank(object)))
        hth_commit_fail(c, save, HEARTH_ECORRUPT, why);
    t = track_find(c, save);
    if (!t)
        return;
    if (head_fate(c, save) == FATE_KEPT)
        member_follow(c, t);
    t->promised = 0;
    t->repair_ms = hth_now_ms(&c->ctx->clock);
    facts_sent(c, t);
    fact_copy_lost(c, t);
}

static void member_verified(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    struct hth_commit *c = self;
    struct track *t;

    if (held->dropped)
        return; /* the object has no place here any more */
    if (code)
        hth_commit_copy_lost(c, save->id, held->object.id, err->text);
    t = track_find(c, save->id);
    if (t)
        (void)member_check(c, t);
}

#define STRANGERS 4u /* nodes that are asked for a copy though no map names them */

/* The nodes that may have the rank's objects: its holders, earlier holders and, if these do not
 * help, some random others. They are not asked in turn, because after each deadline the turn could
 * come to the same node again. */
static uint32_t member_sources(
        const struct hth_commit *c, uint32_t rank, int strangers, uint32_t *out)
{
    uint32_t nodes = c->ctx->epoch->nodes, n = 0, left = 0;
    uint64_t first = strangers ? hth_random_next(&c->ctx->random) : 0;
    uint32_t all[2 * PLACES_MAX + 1 + STRANGERS];

    all[n++] = c->ctx->epoch->rank_node[rank];
    n += places_of(c, rank, all + n);
    n += places_were(c, rank, all + n);
    for (uint32_t i = 0; i < STRANGERS && strangers; i++)
        all[n++] = (uint32_t)((first % nodes + i) % nodes);
    for (uint32_t i = 0; i < n; i++) {
        int known =
                all[i] == c->ctx->epoch->self || c->ctx->lost[all[i]] || unreachable_is(c, all[i]);

        for (uint32_t k = 0; k < left; k++)
            known |= out[k] == all[i];
        if (!known)
            out[left++] = all[i];
    }
    return left;
}

/* Fetches the object. If a fetch of it runs already, it gets the nodes that have the object by the
 * present map as additional sources. 1: it has no slot. */
static int member_fetch(struct hth_commit *c, struct track *t, struct hth_held_save *s,
        const struct hth_object *o, int runs)
{
    uint32_t sources[2 * PLACES_MAX + 1 + STRANGERS];
    int strangers = !head_is_open(c, t->id) && t->repairs > 1;
    uint32_t count = member_sources(c, stand_in(c->ctx, o->owner), strangers, sources);
    struct hth_fetch_want want = {
        .save = s->id,
        .object = *o,
        .sources = sources,
        .count = count,
        .class = room_goes_first(c, t) ? HTH_FETCH_REPAIR : HTH_FETCH_REPLICA,
        .deadline_ms = c->ctx->opts.save_ms,
        .done = member_repaired,
        .self = c,
    };
    struct hth_fetch *fetch;
    struct hearth_error err;
    int rc;

    if (runs)
        hth_fetch_add_sources(c->ctx, s->id, o->id, sources, count);
    if (runs || count == 0 || room_waits(c, t->id))
        return 0;
    rc = hth_fetch_start(c->ctx, &want, &fetch, &err);
    if (rc != HEARTH_EBUSY && rc != HEARTH_ENOSPC)
        return 0;
    if (rc == HEARTH_ENOSPC || !c->ctx->store->ops->soon(c->ctx->store, hth_object_file_bytes(o)))
        hth_commit_no_room(c, t->id, rc, err.text); /* none is being made */
    return 1;
}

/* This node reads and verifies again what an earlier engine sealed, before it promises it. */
static void member_verify(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    for (struct hth_held *h = s && s->has_manifest ? s->held : NULL; h; h = h->next)
        if (h->state == HTH_HELD_SEALED && !h->verified && !hth_job_runs(c->ctx, h) &&
                (h->object.kind == HTH_OBJECT_RAW ||
                        (h->slot && places_have(c, stand_in(c->ctx, h->object.owner),
                                            c->ctx->epoch->self))))
            hth_verify_start(c->ctx, s, h, member_verified, c, NULL);
}

/* *out: the node to request a blob of the save from. HTH_NODE_NONE: the parent in the tree. The
 * coordinator has no parent and asks `first`; for a kept save it asks any node after the first try,
 * since each may have the blob. 0: no node can be asked now. */
static int member_blob_from(
        const struct hth_commit *c, const struct track *t, uint32_t first, uint32_t *out)
{
    const struct hth_epoch *e = c->ctx->epoch;
    int strangers = !head_is_open(c, t->id) && t->repairs > 1;

    *out = HTH_NODE_NONE;
    if (hth_is_coordinator(c->ctx))
        *out = strangers ? (uint32_t)(hth_random_next(&c->ctx->random) % e->nodes) : first;
    return *out != e->self;
}

/* Every node needs each raw object. The coordinator gets it from the owner's node, the other nodes
 * get it down the tree. */
static void member_want_raws(struct hth_commit *c, const struct track *t, struct hth_held_save *s)
{
    struct hearth_error err;

    for (uint32_t i = 0; s->has_manifest && i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        struct hth_blob_id id = { HTH_BLOB_RAW, s->id, o->id };
        uint32_t from, owner = c->ctx->epoch->rank_node[stand_in(c->ctx, o->owner)];

        if (o->kind != HTH_OBJECT_RAW || hth_held_find(s, o->id) ||
                !member_blob_from(c, t, owner, &from))
            continue;
        if (hth_blob_fetch(c->ctx, &id, from, &err))
            hth_say(&c->ctx->log, HEARTH_LOG_WARN, "raw-failed", "%s", err.text);
    }
}

static int member_take_blob(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len);

/* A manifest that came before this node learned that its save is kept was not read: it is read now.
 * A manifest that is damaged is pulled again. */
static int member_want_manifest(struct hth_commit *c, const struct track *t)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, t->id, 0 };
    size_t len;
    const unsigned char *bytes = hth_blob_find(c->ctx, &id, &len);
    uint32_t from;

    if (bytes)
        return member_take_blob(c, &id, bytes, len);
    if (member_blob_from(c, t, 0, &from))
        (void)hth_blob_fetch(c->ctx, &id, from, NULL);
    return 0;
}

/* Fetches the objects that are assigned to this node and that no node has offered. */
int member_repair(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    t->repairs++;
    t->no_slot = 0;
    if (!s || !s->has_manifest)
        return head_is_open(c, t->id) ? 0 : member_want_manifest(c, t);
    member_want_raws(c, t, s);
    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        const struct hth_held *h = hth_held_find(s, o->id);

        if (o->kind != HTH_OBJECT_RAW && (!h || h->state == HTH_HELD_RECEIVING) &&
                places_have(c, stand_in(c->ctx, o->owner), c->ctx->epoch->self))
            t->no_slot |= member_fetch(c, t, s, o, h != NULL);
    }
    if (t->no_slot && t->repairs <= ROOM_TRIES)
        t->repair_ms = hth_now_ms(&c->ctx->clock) + c->ctx->opts.retry_ms;
    member_verify(c, t);
    /* If the lost copy has no place here any more, no node sends it. */
    return t->lost ? member_check(c, t) : 0;
}

/* ---- Another map ----------------------------------------------------------------------------- */

/* Offers the object to the holders of the new map. A holder that has it reports so at once. Once
 * there is a manifest, a new holder fetches by itself and reports nothing; holders that were
 * counted still count, except those that have no place any more. */
static void member_offer_anew(struct hth_commit *c, struct hth_held_save *s, struct hth_held *h)
{
    if (s->has_manifest) {
        held_copies_mapped(c, h);
        return;
    }
    h->copies = 0;
    member_offer(c, s, h);
}

void member_mapped(struct hth_commit *c)
{
    struct hth_ctx *ctx = c->ctx;
    struct track *next;

    for (struct track *t = c->tracks; t; t = next) {
        struct hth_held_save *s = hth_holdings_find(ctx, t->id);

        next = t->next;
        t->repair_ms = hth_now_ms(&ctx->clock);
        t->repairs = 0;
        for (struct hth_held *h = s ? s->held : NULL; h; h = h->next)
            if (local_owns(ctx, h) && h->state == HTH_HELD_SEALED && h->slot)
                member_offer_anew(c, s, h);
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

int hth_commit_offer_wanted(
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
    if (room_waits(c, save))
        return HEARTH_EBUSY;
    return track_get(c, save) ? HEARTH_OK : HEARTH_EBUSY;
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

/* ---- Blobs ---------------------------------------------------------------------------------- */

/* This node cannot hold a part of the save, so it can never promise it: the save fails without a
 * wait for the deadline. */
static void member_cannot(
        struct hth_commit *c, struct hth_save_id save, const struct hearth_error *err)
{
    const struct track *t = track_find(c, save);

    if (t && track_may_fail(c, t)) /* otherwise this node tries again */
        hth_commit_fail(c, save, err->code, err->text);
}

/* A buffer of the bytes: the blob's own buffer if it has these bytes, so that memory has them
 * once. */
static struct hth_buf *member_buf(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct hth_buf *buf = hth_blob_buf(c->ctx, id);

    return buf && buf->at == bytes ? hth_buf_get(buf) : hth_buf_of(bytes, len);
}

static int member_blob(struct hth_commit *c, struct track *t)
{
    /* A node that is out of reach offers nothing: then this node fetches at once. */
    if (t->repair_ms == HTH_NEVER)
        t->repair_ms = hth_now_ms(&c->ctx->clock) +
                       (unreachable_any(c) ? 0 : 2 * (uint64_t)c->ctx->opts.dead_ms);
    member_verify(c, t);
    return member_check(c, t);
}

int member_manifest(struct hth_commit *c, struct track *t, struct hth_held_save *s)
{
    member_want_raws(c, t, s);
    return member_blob(c, t);
}

/* A worker has read the manifest. If it is damaged and its save is kept, it is pulled again. */
static int member_take_manifest(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_get(c->ctx, t->id);
    struct hearth_error err;
    int rc;

    hth_point(&c->ctx->points, "manifest");
    rc = s ? hth_held_keep_draft(c->ctx, s, t->draft, &err)
           : hth_fail(&err, HEARTH_ENOMEM, 0, "no memory for " HTH_SAVE, HTH_SAVE_ARGS(t->id));
    hth_draft_free(t->draft);
    t->draft = NULL;
    if (rc) {
        hth_say(&c->ctx->log, HEARTH_LOG_ERROR, "manifest-failed", "%s", err.text);
        member_cannot(c, t->id, &err);
        if (!head_is_open(c, t->id))
            hth_blobs_forget(c->ctx, t->id);
    }
    return s ? member_manifest(c, t, s) : 0;
}

static void member_read(void *self)
{
    struct hth_commit *c = self;
    struct track *t = c->tracks;

    while (t) {
        if (t->draft && hth_draft_ended(t->draft)) {
            (void)member_take_manifest(c, t);
            t = c->tracks; /* the call may have removed other tracks too */
        } else {
            t = t->next;
        }
    }
}

/* The save's manifest has come. It is known already, or a worker reads it, or it is read now. */
static int member_read_manifest(struct hth_commit *c, struct track *t, const struct hth_blob_id *id,
        const unsigned char *bytes, size_t len)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, id->save);
    struct hth_buf *buf;

    if (s && s->has_manifest)
        return member_manifest(c, t, s);
    buf = t->draft ? NULL : member_buf(c, id, bytes, len);
    if (buf)
        t->draft = hth_draft_read(c->ctx, buf, member_read, c);
    hth_buf_put(buf);
    return t->draft && hth_draft_ended(t->draft) ? member_take_manifest(c, t) : 0;
}

/* 1: this node may need the save's manifest and common objects: until it is decided, and while it
 * is kept. */
static int member_may_need(const struct hth_commit *c, struct hth_save_id save)
{
    enum fate fate = head_fate(c, save);

    return (fate == FATE_KEPT && !kept_lost(c, &c->ctx->keep)) ||
           (fate == FATE_OPEN && !outcome_find(c, save));
}

static int member_take_blob(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct track *t;

    if (id->kind == HTH_BLOB_PLAN)
        return 0;
    if (!member_may_need(c, id->save)) {
        /* the nodes below receive the same head, so they do not need it either */
        if (head_frees(c, id->save))
            hth_blobs_forget(c->ctx, id->save);
        return 0;
    }
    t = track_get(c, id->save);
    if (!t)
        return 0;
    if (head_fate(c, id->save) == FATE_KEPT)
        member_follow(c, t);
    if (id->kind == HTH_BLOB_MANIFEST)
        return member_read_manifest(c, t, id, bytes, len);
    return hth_holdings_find(c->ctx, id->save) ? member_blob(c, t) : 0;
}

void hth_commit_blob(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    (void)member_take_blob(c, id, bytes, len);
}

void hth_commit_blob_failed(
        struct hth_commit *c, const struct hth_blob_id *id, const struct hearth_error *err)
{
    hth_say(&c->ctx->log, HEARTH_LOG_ERROR, "raw-failed", "%s", err->text);
    member_cannot(c, id->save, err);
}
