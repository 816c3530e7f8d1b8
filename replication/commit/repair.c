/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a member lacks of a save, and how it comes: the manifest and raw objects as blobs, copies
 * that no node has offered by fetches. A copy that an earlier engine sealed is verified, and one
 * that is lost is reported.
 */
#include "commit_state.h"
#include "replication/held/seal.h"

/* ---- Missing copies ------------------------------------------------------------------------ */

static void repair_gone(const struct hth_commit *c, struct track *t, uint32_t rank)
{
    if (!t->gone)
        t->gone_ms = hth_now_ms(&c->ctx->clock);
    t->gone = rank + 1;
}

static void repair_fetched(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct hth_commit *c = self;
    struct hth_save_id save;
    const struct hth_object *o = hth_fetch_object(fetch, &save);
    struct track *of = track_find(c, save);

    if (of && !code && of->gone == o->owner + 1)
        of->gone = 0;
    if (of && code == HEARTH_ELOST && !hth_fetch_unreached(fetch) &&
            head_fate(c, save) == FATE_KEPT)
        repair_gone(c, of, o->owner);
    if (code)
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "repair-failed", "%s", err->text);
    for (struct track *t = c->tracks, *next; t; t = next) {
        next = t->next;
        (void)member_check(c, t);
    }
    release_moved(c); /* the map may have moved the copy away while it was received */
}

/* 1: another node may have the object: each node has a common one, and this node knows that each
 * of the rank's shards has a copy, or has lost what it knew. */
static int repair_is_elsewhere(
        const struct track *t, const struct hth_held_save *s, uint32_t local_rank, uint64_t object)
{
    for (uint32_t i = 0; s && s->has_manifest && i < s->manifest.objects; i++)
        if (s->manifest.object[i].id == object && s->manifest.object[i].kind == HTH_OBJECT_RAW)
            return 1;
    return t->copies_unknown || (t->rank[local_rank] & RANK_ELSEWHERE);
}

/* An object of the rank is lost. 1: the rank is of this node, and no other node is known to have
 * the object, so a COMPLETE save fails too: it would wait for promises until its deadline, which
 * names no cause. */
static int repair_lost_own(
        struct hth_commit *c, const struct track *t, const struct hth_held_save *s, uint64_t object)
{
    const struct local_rank *l = local_find(c, hth_object_rank(object));

    return l && (!t || member_may_fail(c, t) ||
                        (!t->fail_code && head_is_open(c, t->id) && !t->unknown &&
                                !repair_is_elsewhere(t, s, (uint32_t)(l - c->local), object)));
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
    if (repair_lost_own(c, t, s, object))
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

static void repair_verified(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    struct hth_commit *c = self;
    struct track *t;

    if (held->dropped)
        return; /* the object has no place here any more */
    if (code == HEARTH_ECORRUPT)
        hth_found_wrong(c->ctx, save->id, &held->object, "the copy", NULL);
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
static uint32_t repair_sources(
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
 * present map as additional sources. NO_SLOT: it has none; SLOT_SOON: one is being made, or free
 * once pulls of chunks that do not count have ended. */
static int repair_fetch(struct hth_commit *c, struct track *t, struct hth_held_save *s,
        const struct hth_object *o, int runs)
{
    uint32_t sources[2 * PLACES_MAX + 1 + STRANGERS];
    int strangers = !head_is_open(c, t->id) && t->repairs > 1;
    uint32_t count = repair_sources(c, stand_in(c->ctx, o->owner), strangers, sources);
    struct hth_fetch_want want = {
        .save = s->id,
        .object = *o,
        .sources = sources,
        .count = count,
        .class = room_goes_first(c, t) ? HTH_FETCH_REPAIR : HTH_FETCH_REPLICA,
        .deadline_ms = c->ctx->opts.save_ms,
        .done = repair_fetched,
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
    if (rc == HEARTH_EBUSY && (c->ctx->store->ops->soon(c->ctx->store, hth_object_file_bytes(o)) ||
                                      hth_transfer_make_way(c->ctx)))
        return SLOT_SOON;
    hth_commit_no_room(c, t->id, rc, err.text);
    return NO_SLOT;
}

/* This node reads and verifies again what an earlier engine sealed, before it promises it. */
static void repair_verify(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    for (struct hth_held *h = s && s->has_manifest ? s->held : NULL; h; h = h->next)
        if (h->state == HTH_HELD_SEALED && !h->verified && !hth_job_runs(c->ctx, h) &&
                (h->object.kind == HTH_OBJECT_RAW ||
                        (h->slot && places_have(c, stand_in(c->ctx, h->object.owner),
                                            c->ctx->epoch->self))))
            hth_verify_start(c->ctx, s, h, repair_verified, c, NULL);
}

/* *out: the node to request a blob of the save from. HTH_NODE_NONE: the parent in the tree. The
 * coordinator has no parent and asks `first`; for a kept save it asks any node after the first try,
 * since each may have the blob. 0: no node can be asked now. */
static int repair_blob_from(
        const struct hth_commit *c, const struct track *t, uint32_t first, uint32_t *out)
{
    const struct hth_epoch *e = c->ctx->epoch;
    int strangers = !head_is_open(c, t->id) && t->repairs > 1;

    *out = HTH_NODE_NONE;
    if (hth_is_coordinator(c->ctx))
        *out = strangers ? (uint32_t)(hth_random_next(&c->ctx->random) % e->nodes) : first;
    return *out != e->self;
}

/* Where a raw object begins its way: the coordinator gets it from the owner's node. If the two
 * cannot reach each other, the owner's parent in the tree gets it first. */
static int repair_raw_from(
        const struct hth_commit *c, const struct track *t, uint32_t owner, uint32_t *out)
{
    uint32_t parent =
            hth_tree_is_unreachable(c->ctx, 0, owner) ? hth_tree_parent(c->ctx, owner) : 0;

    if (parent && parent == c->ctx->epoch->self) {
        *out = owner;
        return 1;
    }
    return repair_blob_from(c, t, parent ? parent : owner, out);
}

/* Every node needs each raw object. The coordinator gets it, and the other nodes get it down the
 * tree. */
static void repair_want_raws(struct hth_commit *c, const struct track *t, struct hth_held_save *s)
{
    struct hearth_error err;

    for (uint32_t i = 0; s->has_manifest && i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        struct hth_blob_id id = { HTH_BLOB_RAW, s->id, o->id };
        uint32_t from, owner = c->ctx->epoch->rank_node[stand_in(c->ctx, o->owner)];

        if (o->kind != HTH_OBJECT_RAW || hth_held_find(s, o->id) ||
                !repair_raw_from(c, t, owner, &from))
            continue;
        if (hth_blob_fetch(c->ctx, &id, from, &err))
            hth_say(&c->ctx->log, HEARTH_LOG_WARN, "raw-failed", "%s", err.text);
    }
}

static int repair_take_blob(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len);

/* A manifest that came before this node learned that its save is kept was not read: it is read now.
 * A manifest that is damaged is pulled again. */
static int repair_want_manifest(struct hth_commit *c, const struct track *t)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, t->id, 0 };
    size_t len;
    const unsigned char *bytes = hth_blob_find(c->ctx, &id, &len);
    uint32_t from;

    if (bytes)
        return repair_take_blob(c, &id, bytes, len);
    if (repair_blob_from(c, t, 0, &from))
        (void)hth_blob_fetch(c->ctx, &id, from, NULL);
    return 0;
}

/* Fetches the objects that are assigned to this node and that no node has offered. */
int repair_missing(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    t->repairs++;
    t->no_slot = 0;
    if (!s || !s->has_manifest)
        return head_is_open(c, t->id) ? 0 : repair_want_manifest(c, t);
    repair_want_raws(c, t, s);
    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        const struct hth_held *h = hth_held_find(s, o->id);

        if (o->kind != HTH_OBJECT_RAW && (!h || h->state == HTH_HELD_RECEIVING) &&
                places_have(c, stand_in(c->ctx, o->owner), c->ctx->epoch->self))
            t->no_slot |= repair_fetch(c, t, s, o, h != NULL);
    }
    t->tried++;
    t->vain += (t->no_slot & NO_SLOT) != 0;
    if (t->no_slot && t->vain < ROOM_TRIES)
        t->repair_ms = hth_now_ms(&c->ctx->clock) + room_retry_ms(c);
    repair_verify(c, t);
    /* If a lost copy has no place here any more, no node sends it; and another reader may have had
     * a copy verified. */
    return member_check(c, t);
}

/* ---- Blobs ---------------------------------------------------------------------------------- */

/* This node cannot hold a part of the save, so it can never promise it: the save fails without a
 * wait for the deadline. */
static void repair_cannot(
        struct hth_commit *c, struct hth_save_id save, const struct hearth_error *err)
{
    const struct track *t = track_find(c, save);

    if (t && member_may_fail(c, t)) /* otherwise this node tries again */
        hth_commit_fail(c, save, err->code, err->text);
}

/* A buffer of the bytes: the blob's own buffer if it has these bytes, so that memory has them
 * once. */
static struct hth_buf *repair_buf(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct hth_buf *buf = hth_blob_buf(c->ctx, id);

    return buf && buf->at == bytes ? hth_buf_get(buf) : hth_buf_of(bytes, len);
}

static int repair_blob(struct hth_commit *c, struct track *t)
{
    /* A node that is out of reach offers nothing: then this node fetches at once. */
    if (t->repair_ms == HTH_NEVER)
        t->repair_ms = hth_now_ms(&c->ctx->clock) +
                       (unreachable_any(c) ? 0 : 2 * (uint64_t)c->ctx->opts.dead_ms);
    repair_verify(c, t);
    return member_check(c, t);
}

int repair_manifest(struct hth_commit *c, struct track *t, struct hth_held_save *s)
{
    repair_want_raws(c, t, s);
    return repair_blob(c, t);
}

/* A worker has read the manifest. If it is damaged and its save is kept, it is pulled again. */
static int repair_take_manifest(struct hth_commit *c, struct track *t)
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
        repair_cannot(c, t->id, &err);
        if (!head_is_open(c, t->id))
            hth_blobs_forget(c->ctx, t->id);
    }
    return s ? repair_manifest(c, t, s) : 0;
}

static void repair_read(void *self)
{
    struct hth_commit *c = self;
    struct track *t = c->tracks;

    while (t) {
        if (t->draft && hth_draft_ended(t->draft)) {
            (void)repair_take_manifest(c, t);
            t = c->tracks; /* the call may have removed other tracks too */
        } else {
            t = t->next;
        }
    }
}

/* The save's manifest has come. It is known already, or a worker reads it, or it is read now. */
static int repair_read_manifest(struct hth_commit *c, struct track *t, const struct hth_blob_id *id,
        const unsigned char *bytes, size_t len)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, id->save);
    struct hth_buf *buf;

    if (s && s->has_manifest)
        return repair_manifest(c, t, s);
    buf = t->draft ? NULL : repair_buf(c, id, bytes, len);
    if (buf)
        t->draft = hth_draft_read(c->ctx, buf, repair_read, c);
    hth_buf_put(buf);
    return t->draft && hth_draft_ended(t->draft) ? repair_take_manifest(c, t) : 0;
}

/* 1: this node may need the save's manifest and common objects: until it is decided, and while it
 * is kept. */
static int repair_may_need(const struct hth_commit *c, struct hth_save_id save)
{
    enum fate fate = head_fate(c, save);

    return (fate == FATE_KEPT && !kept_lost(c, &c->ctx->keep)) ||
           (fate == FATE_OPEN && !outcome_find(c, save));
}

static int repair_take_blob(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct track *t;

    if (id->kind == HTH_BLOB_PLAN)
        return 0;
    if (!repair_may_need(c, id->save)) {
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
        return repair_read_manifest(c, t, id, bytes, len);
    return hth_holdings_find(c->ctx, id->save) ? repair_blob(c, t) : 0;
}

void hth_commit_blob(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    (void)repair_take_blob(c, id, bytes, len);
}

void hth_commit_blob_failed(
        struct hth_commit *c, const struct hth_blob_id *id, const struct hearth_error *err)
{
    hth_say(&c->ctx->log, HEARTH_LOG_ERROR, "raw-failed", "%s", err->text);
    repair_cannot(c, id->save, err);
}
