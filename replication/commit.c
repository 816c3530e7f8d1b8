/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member's part of a save; drawn in commit_state.h. Facts go up (DONE, HELD, PROMISE, FAILED) and
 * are repeated until the coordinator's word shows that they were heard; its word comes down
 * (COMPLETE, PROTECTED, CANCELLED, ASSIGN) and may come twice. Nothing here waits.
 */
#include "commit_state.h"

#include <hearth/internal/core/bytes.h>

#include <stdio.h>
#include <stdlib.h>

static void on_complete(struct hth_commit *c, struct hth_save_id save);

static void say_level(struct hth_commit *c, struct track *t, enum hearth_level level)
{
    if (t->level >= level)
        return;
    t->level = level;
    c->events.on_level(c->events.self, t->id, HTH_NODE_NONE, level, 0, HEARTH_OK, "");
}

static struct local_rank *local_find(struct hth_commit *c, uint32_t rank)
{
    for (uint32_t i = 0; i < c->locals; i++)
        if (c->local[i].rank == rank)
            return &c->local[i];
    return NULL;
}

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

static int find_locals(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_epoch *e = c->ctx->epoch;
    uint32_t n = 0;

    for (uint32_t r = 0; r < e->world; r++)
        n += e->rank_node[r] == e->self;
    free(c->local);
    c->locals = 0;
    c->local = calloc(n ? n : 1, sizeof(*c->local));
    if (!c->local)
        return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " ranks", n);
    for (uint32_t r = 0; r < e->world; r++)
        if (e->rank_node[r] == e->self)
            c->local[c->locals++] = (struct local_rank){ .rank = r, .last_step = HTH_NEVER };
    return HEARTH_OK;
}

int hth_commit_join(struct hth_commit *c, struct hearth_error *err)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    char text[160];
    int rc;

    while (c->tracks)
        track_remove(c, c->tracks);
    hth_placement_fini(&c->placement);
    free(c->override);
    c->override = NULL;
    c->overrides = 0;
    c->serial = 0;
    c->running = 0;
    c->look = 0;
    c->degraded = 0;
    c->silent_since_ms = 0;
    c->chosen = (struct hth_save_id){ 0 };
    rc = hth_placement_make(
            &c->placement, c->ctx->epoch, o->copies, o->min_copies, (int)o->allow_degraded, err);
    if (rc)
        return rc;
    hth_placement_text(&c->placement, c->ctx->epoch, text, sizeof(text));
    hth_say(&c->ctx->log, HEARTH_LOG_INFO, "placement", "%s", text);
    return find_locals(c, err);
}

void hth_commit_go(struct hth_commit *c, struct hth_save_id chosen)
{
    struct track *t;

    c->running = 1;
    c->chosen = chosen;
    if (hth_save_none(chosen))
        return;
    t = track_get(c, chosen);
    if (!t)
        return;
    on_complete(c, chosen);
    t->recovered = 1;
    t->complete = 1;
    t->repair_ms = hth_now_ms(&c->ctx->clock);
    t->level = HEARTH_COMPLETE;
    member_check(c, t);
}

void hth_commit_resume(struct hth_commit *c)
{
    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = s->next) {
        struct track *t;

        if (s->removed || s->id.epoch != c->ctx->epoch->epoch ||
                s->id.nonce != c->ctx->epoch->nonce || hth_keep_has(&c->ctx->keep, s->id))
            continue;
        t = track_get(c, s->id);
        if (!t)
            continue;
        t->done_sent = s->has_manifest;
        t->complete = s->published;
        t->repair_ms = s->has_manifest ? hth_now_ms(&c->ctx->clock) : HTH_NEVER;
        member_check(c, t);
    }
}

/* ---- Tracks ------------------------------------------------------------------------------- */

void save_put(unsigned char *out, struct hth_save_id s)
{
    hth_put64(out, s.epoch);
    hth_put64(out + 8, s.nonce);
    hth_put64(out + 16, s.step);
    hth_put32(out + 24, s.attempt);
    hth_put32(out + 28, 0);
}

struct hth_save_id save_get(const unsigned char *in)
{
    return (struct hth_save_id){ hth_get64(in), hth_get64(in + 8), hth_get64(in + 16),
        hth_get32(in + 24) };
}

struct track *track_find(struct hth_commit *c, struct hth_save_id id)
{
    struct track *t = c->tracks;

    while (t && hth_save_cmp(t->id, id) != 0)
        t = t->next;
    return t;
}

struct track *track_get(struct hth_commit *c, struct hth_save_id id)
{
    struct track *t = track_find(c, id);
    struct track **at = &c->tracks;
    const struct hth_ctx *ctx = c->ctx;

    if (t)
        return t;
    t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->id = id;
    t->since_ms = hth_now_ms(&ctx->clock);
    t->repair_ms = HTH_NEVER;
    t->rank = calloc(c->locals ? c->locals : 1, 1);
    if (hth_is_coordinator(ctx))
        t->node = calloc(ctx->epoch->nodes, sizeof(*t->node));
    if (!t->rank || (hth_is_coordinator(ctx) && !t->node)) {
        free(t->rank);
        free(t->node);
        free(t);
        return NULL;
    }
    while (*at && hth_save_cmp((*at)->id, id) > 0)
        at = &(*at)->next;
    t->next = *at;
    *at = t;
    return t;
}

void track_remove(struct hth_commit *c, struct track *t)
{
    struct track **at = &c->tracks;

    while (*at && *at != t)
        at = &(*at)->next;
    if (*at)
        *at = t->next;
    free(t->rank);
    free(t->node);
    free(t->object);
    free(t);
}

void remember(struct hth_commit *c, struct hth_save_id id, enum hearth_level level, int degraded,
        int code, const char *text)
{
    struct outcome *o = NULL;

    for (uint32_t i = 0; i < OUTCOMES && !o; i++)
        if (hth_save_cmp(c->outcome[i].id, id) == 0)
            o = &c->outcome[i];
    if (!o)
        o = &c->outcome[c->outcomes++ % OUTCOMES];
    *o = (struct outcome){ .id = id, .level = level, .degraded = degraded, .code = code };
    snprintf(o->text, sizeof(o->text), "%s", text);
}

const struct outcome *recall(const struct hth_commit *c, struct hth_save_id id)
{
    for (uint32_t i = 0; i < OUTCOMES; i++)
        if (c->outcome[i].level && hth_save_cmp(c->outcome[i].id, id) == 0)
            return &c->outcome[i];
    return NULL;
}

/* ---- Saving ------------------------------------------------------------------------------- */

/* Room is for keep saves and one more. */
static int no_room(struct hth_commit *c, struct hth_save_id id, struct hearth_error *err)
{
    struct hth_ctx *ctx = c->ctx;
    char whom[160] = "the coordinator";
    uint32_t others = 0;
    const struct track *t = c->tracks;

    for (struct hth_held_save *s = hth_holdings_first(ctx); s; s = s->next)
        others += !s->removed && s->id.epoch && hth_save_cmp(s->id, id) != 0;
    if (others <= ctx->opts.keep)
        return HEARTH_OK;
    while (t && hth_save_cmp(t->id, id) == 0)
        t = t->next;
    if (!t)
        return hth_fail(err, HEARTH_EBUSY, 0,
                "%" PRIu32 " saves are here and keep is %" PRIu32
                ": the newest is not protected yet, wait for it",
                others, ctx->opts.keep);
    if (hth_is_coordinator(ctx))
        coord_waits_for(c, t, whom, sizeof(whom));
    return hth_fail(err, HEARTH_EBUSY, 0,
            HTH_SAVE " is undecided and takes the room; it waits for %s", HTH_SAVE_ARGS(t->id),
            whom);
}

static int next_attempt(struct hth_commit *c, uint32_t rank, uint64_t step, struct hth_save_id *out,
        struct hearth_error *err)
{
    struct local_rank *l = local_find(c, rank);
    const struct hth_epoch *e = c->ctx->epoch;

    if (!c->running || !l)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "rank %" PRIu32 " begins step %" PRIu64 " before recover has ended in this epoch",
                rank, step);
    if (l->last_step != HTH_NEVER && step < l->last_step)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "rank %" PRIu32 " begins step %" PRIu64 " after step %" PRIu64
                ": going back is hearth_recover()",
                rank, step, l->last_step);
    l->attempts = step == l->last_step ? l->attempts + 1 : 1;
    l->last_step = step;
    *out = (struct hth_save_id){ e->epoch, e->nonce, step, l->attempts };
    if (hth_breaks(c->ctx, HTH_BREAK_EPOCH))
        *out = (struct hth_save_id){ 1, 1, step, 1 };
    return HEARTH_OK;
}

int hth_commit_room(struct hth_commit *c, uint32_t rank, uint64_t step, struct hearth_error *err)
{
    const struct local_rank *l = local_find(c, rank);
    const struct hth_epoch *e = c->ctx->epoch;

    if (!c->running || !l)
        return HEARTH_OK; /* begin says what is wrong */
    return no_room(c,
            (struct hth_save_id){
                    e->epoch, e->nonce, step, step == l->last_step ? l->attempts + 1 : 1 },
            err);
}

void hth_commit_make_room(struct hth_commit *c)
{
    struct track *oldest = c->tracks;

    while (oldest && oldest->next && !oldest->next->recovered)
        oldest = oldest->next;
    if (oldest && !oldest->recovered && !oldest->failing)
        hth_commit_fail(c, oldest->id, HEARTH_ECANCELED, "cancelled to make room for a newer one");
}

int hth_commit_begin(struct hth_commit *c, uint32_t rank, uint64_t step,
        struct hth_save_id *out_save, struct hearth_error *err)
{
    struct hth_save_id id;
    struct hearth_error cause;
    struct track *t;
    const struct outcome *o;
    int rc = next_attempt(c, rank, step, &id, err);

    if (rc)
        return rc;
    hth_point(&c->ctx->points, "begin");
    *out_save = id;
    o = recall(c, id);
    if (o)
        return hth_fail(err, HEARTH_EFAILED, 0, HTH_SAVE ": %s", HTH_SAVE_ARGS(id), o->text);
    rc = no_room(c, id, &cause);
    if (rc) {
        hth_commit_fail(c, id, rc, cause.text);
        if (err)
            *err = cause;
        return rc;
    }
    t = track_get(c, id);
    if (!t)
        return hth_fail(err, HEARTH_ENOMEM, 0, HTH_SAVE, HTH_SAVE_ARGS(id));
    t->rank[local_find(c, rank) - c->local] |= RANK_BEGUN;
    return HEARTH_OK;
}

void hth_commit_fail(struct hth_commit *c, struct hth_save_id save, int code, const char *text)
{
    unsigned char body[SAVE_BYTES + 4 + 200];
    char cut[200];
    struct track *t;
    size_t len;

    if (recall(c, save))
        return;
    t = track_get(c, save);
    if (!t)
        return;
    t->failing = 1;
    t->fail_code = code;
    snprintf(t->why, sizeof(t->why), "node %.40s: %.150s",
            c->ctx->epoch->member[c->ctx->epoch->self].node, text);
    snprintf(cut, sizeof(cut), "%s", t->why);
    len = strlen(cut);
    save_put(body, save);
    hth_put32(body + SAVE_BYTES, (uint32_t)code);
    memcpy(body + SAVE_BYTES + 4, cut, len);
    t->repeat_ms = hth_now_ms(&c->ctx->clock) + c->ctx->opts.retry_ms;
    hth_tree_up(c->ctx, HTH_KIND_FAILED, body, SAVE_BYTES + 4 + len);
}

/* ---- DONE --------------------------------------------------------------------------------- */

#define DONE_HEAD  (SAVE_BYTES + 16u)
#define DONE_COUNT ((HTH_TREE_MAX - DONE_HEAD) / HTH_MANIFEST_OBJECT)

static int is_ours(const struct hth_ctx *ctx, const struct hth_held *h)
{
    return h->object.owner < ctx->epoch->world &&
           ctx->epoch->rank_node[h->object.owner] == ctx->epoch->self;
}

static int all_sealed(struct hth_commit *c, const struct track *t, const struct hth_held_save *s)
{
    for (uint32_t i = 0; i < c->locals; i++)
        if (!(t->rank[i] & RANK_DONE))
            return 0;
    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        if (is_ours(c->ctx, h) && h->state != HTH_HELD_SEALED)
            return 0;
    return 1;
}

static void send_done(struct hth_commit *c, struct track *t, struct hth_held_save *s)
{
    unsigned char body[HTH_TREE_MAX];
    uint32_t count = 0;
    uint32_t part = 0;
    uint32_t parts;
    uint32_t total = 0;

    for (struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        total += is_ours(c->ctx, h);
    parts = total ? (total + DONE_COUNT - 1) / DONE_COUNT : 1;
    save_put(body, t->id);
    for (struct hth_held *h = s ? s->held : NULL; h || part < parts; h = h ? h->next : NULL) {
        if (h && is_ours(c->ctx, h))
            hth_object_encode(&h->object, body + DONE_HEAD + HTH_MANIFEST_OBJECT * count++);
        if (count < DONE_COUNT && h)
            continue;
        hth_put32(body + SAVE_BYTES, part++);
        hth_put32(body + SAVE_BYTES + 4, parts);
        hth_put32(body + SAVE_BYTES + 8, count);
        hth_put32(body + SAVE_BYTES + 12, 0);
        hth_tree_up(c->ctx, HTH_KIND_DONE, body, DONE_HEAD + HTH_MANIFEST_OBJECT * count);
        count = 0;
    }
    t->done_sent = 1;
}

static void serve_raws(struct hth_commit *c, struct hth_held_save *s)
{
    for (struct hth_held *h = s ? s->held : NULL; h; h = h->next) {
        struct hth_blob_id id = { HTH_BLOB_RAW, s->id, h->object.id };
        void *bytes = NULL;
        size_t len = 0;

        if (h->object.kind != HTH_OBJECT_RAW || !is_ours(c->ctx, h))
            continue;
        if (c->ctx->store->ops->raw_get(c->ctx->store, s->id, h->object.name, &bytes, &len, NULL))
            continue;
        hth_blob_serve(c->ctx, &id, bytes, len, NULL);
        free(bytes);
    }
}

static void check_done(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    if (t->done_sent || t->recovered || t->failing || !all_sealed(c, t, s))
        return;
    say_level(c, t, HEARTH_SEALED);
    serve_raws(c, s);
    t->repeat_ms = hth_now_ms(&c->ctx->clock) + c->ctx->opts.retry_ms;
    send_done(c, t, s);
}

/* ---- Copies ------------------------------------------------------------------------------- */

uint32_t hth_commit_holders(struct hth_commit *c, uint32_t rank, uint32_t *out)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < c->placement.copies && i < HTH_COPIES_MAX; i++) {
        uint32_t node = c->placement.holder[rank * c->placement.copies + i];

        if (node != HTH_NODE_NONE)
            out[n++] = node;
    }
    return n;
}

static int holds_for(struct hth_commit *c, uint32_t rank, uint32_t node)
{
    uint32_t holder[HTH_COPIES_MAX];
    uint32_t n = hth_commit_holders(c, rank, holder);

    if (c->ctx->epoch->rank_node[rank] == node)
        return 1;
    for (uint32_t i = 0; i < n; i++)
        if (holder[i] == node)
            return 1;
    return 0;
}

/* A rank is COPIED when each of its objects was pulled by min_copies others. */
static void check_copied(struct hth_commit *c, struct track *t, uint32_t rank)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);
    struct local_rank *l = local_find(c, rank);
    uint32_t holder[HTH_COPIES_MAX];
    uint32_t can = hth_commit_holders(c, rank, holder);
    uint32_t need = c->ctx->opts.min_copies < can ? c->ctx->opts.min_copies : can;

    if (!l || !s || !(t->rank[l - c->local] & RANK_DONE) || (t->rank[l - c->local] & RANK_COPIED))
        return;
    for (struct hth_held *h = s->held; h; h = h->next)
        if (h->object.owner == rank && h->object.kind != HTH_OBJECT_RAW && h->copies < need)
            return;
    t->rank[l - c->local] |= RANK_COPIED;
    c->events.on_level(
            c->events.self, t->id, rank, HEARTH_COPIED, can < c->ctx->opts.copies, HEARTH_OK, "");
}

static void on_offered(
        void *self, struct hth_save_id save, uint64_t object, uint32_t node, int code)
{
    struct hth_commit *c = self;
    struct hth_held_save *s = hth_holdings_find(c->ctx, save);
    struct hth_held *h = s ? hth_held_find(s, object) : NULL;
    struct track *t = track_find(c, save);

    (void)node;
    if (code || !h || !t)
        return;
    h->copies++;
    check_copied(c, t, h->object.owner);
}

static void offer(struct hth_commit *c, struct hth_held_save *s, struct hth_held *h)
{
    uint32_t holder[HTH_COPIES_MAX];
    uint32_t n = hth_commit_holders(c, h->object.owner, holder);

    for (uint32_t i = 0; i < n; i++)
        if (holder[i] != c->ctx->epoch->self && !c->ctx->down[holder[i]])
            hth_transfer_offer(c->ctx, s, h, holder[i], on_offered, c, NULL);
}

void hth_commit_sealed(struct hth_commit *c, struct hth_held_save *save, struct hth_held *held)
{
    struct track *t = track_find(c, save->id);

    if (!t)
        return;
    offer(c, save, held);
    check_done(c, t);
    member_check(c, t);
}

void hth_commit_common(struct hth_commit *c, struct hth_held_save *save, struct hth_held *held)
{
    struct track *t = track_find(c, save->id);

    (void)held;
    if (t)
        check_done(c, t);
}

void hth_commit_rank_done(struct hth_commit *c, struct hth_save_id save, uint32_t rank)
{
    struct track *t = recall(c, save) ? NULL : track_get(c, save);
    struct local_rank *l = local_find(c, rank);

    if (!t || !l)
        return;
    t->rank[l - c->local] |= RANK_BEGUN | RANK_DONE;
    check_done(c, t);
    check_copied(c, t, rank);
}

/* ---- HELD and PROMISE --------------------------------------------------------------------- */

static int raws_here(const struct hth_held_save *s)
{
    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        struct hth_held *h;

        if (o->kind != HTH_OBJECT_RAW)
            continue;
        h = hth_held_find((struct hth_held_save *)(uintptr_t)s, o->id);
        if (!h || h->state != HTH_HELD_SEALED)
            return 0;
    }
    return 1;
}

/* The first object that is assigned to us and is not here; NULL: all are. */
static const struct hth_object *first_missing(struct hth_commit *c, struct hth_held_save *s)
{
    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        struct hth_held *h;

        if (o->kind == HTH_OBJECT_RAW ||
                !holds_for(c, stand_in(c->ctx, o->owner), c->ctx->epoch->self))
            continue;
        h = hth_held_find(s, o->id);
        if (!h || h->state != HTH_HELD_SEALED || !h->verified ||
                memcmp(h->object.digest, o->digest, HTH_DIGEST) != 0)
            return o;
    }
    return NULL;
}

static void send_held(struct hth_commit *c, const struct track *t)
{
    unsigned char body[SAVE_BYTES];

    save_put(body, t->id);
    hth_tree_up(c->ctx, HTH_KIND_HELD, body, sizeof(body));
}

static void send_promise(struct hth_commit *c, const struct track *t)
{
    unsigned char body[SAVE_BYTES + 16];

    save_put(body, t->id);
    hth_put64(body + SAVE_BYTES, c->ctx->store->ops->id(c->ctx->store));
    hth_put32(body + SAVE_BYTES + 8, c->serial);
    hth_put32(body + SAVE_BYTES + 12, 0);
    hth_tree_up(c->ctx, HTH_KIND_PROMISE, body, sizeof(body));
}

void member_check(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);
    uint64_t soon = hth_now_ms(&c->ctx->clock) + c->ctx->opts.retry_ms;
    struct hth_save_id id = t->id;

    if (!s || !s->has_manifest)
        return;
    if (!t->held && raws_here(s)) {
        t->held = 1;
        t->repeat_ms = soon;
        send_held(c, t);
        t = track_find(c, id); /* at the coordinator the fact may have ended the save */
    }
    if (!t || !t->held || (t->promised && t->promised_serial == c->serial) || first_missing(c, s))
        return;
    hth_point(&c->ctx->points, "promise");
    t->promised = 1;
    t->promised_serial = c->serial;
    t->repeat_ms = soon;
    send_promise(c, t);
}

/* ---- Missing copies ------------------------------------------------------------------------ */

static void on_repaired(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct hth_commit *c = self;

    (void)fetch;
    if (code)
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "repair-failed", "%s", err->text);
    for (struct track *t = c->tracks, *next; t; t = next) {
        next = t->next;
        member_check(c, t);
    }
}

static void on_verified(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    struct hth_commit *c = self;
    struct track *t;

    if (code)
        hth_commit_copy_lost(c, save->id, held->object.id, err->text);
    t = track_find(c, save->id);
    if (t)
        member_check(c, t);
}

static void fetch_one(struct hth_commit *c, struct hth_held_save *s, const struct hth_object *o)
{
    uint32_t rank = stand_in(c->ctx, o->owner);
    uint32_t holder[HTH_COPIES_MAX + 1];
    uint32_t sources[HTH_COPIES_MAX + 1];
    uint32_t n = hth_commit_holders(c, rank, holder);
    uint32_t count = 0;
    struct hth_fetch *fetch;

    holder[n++] = c->ctx->epoch->rank_node[rank];
    while (n-- > 0)
        if (holder[n] != c->ctx->epoch->self && !c->ctx->down[holder[n]])
            sources[count++] = holder[n];
    if (count == 0)
        return;
    hth_fetch_start(c->ctx,
            &(struct hth_fetch_want){
                    .save = s->id,
                    .object = *o,
                    .sources = sources,
                    .count = count,
                    .class = HTH_FETCH_REPLICA,
                    .deadline_ms = c->ctx->opts.save_ms,
                    .done = on_repaired,
                    .self = c,
            },
            &fetch, NULL);
}

/* Fetch what is assigned to us and nobody has brought. */
void member_repair(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    if (!s || !s->has_manifest)
        return;
    for (uint32_t i = 0; i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];

        struct hth_held *h = hth_held_find(s, o->id);

        if (o->kind == HTH_OBJECT_RAW ||
                !holds_for(c, stand_in(c->ctx, o->owner), c->ctx->epoch->self))
            continue;
        if (!h)
            fetch_one(c, s, o);
        else if (h->state == HTH_HELD_SEALED && !h->verified)
            hth_verify_start(c->ctx, s, h, on_verified, c, NULL);
    }
}

int hth_commit_offer_wanted(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object)
{
    struct hth_commit *c = self;

    (void)from;
    if (recall(c, save))
        return HEARTH_EDENIED;
    if (!c->running)
        return HEARTH_EBUSY;
    if (!holds_for(c, stand_in(c->ctx, object->owner), c->ctx->epoch->self))
        return HEARTH_EDENIED;
    return track_get(c, save) ? HEARTH_OK : HEARTH_EBUSY;
}

void hth_commit_replica(void *self, struct hth_save_id save, uint64_t object)
{
    struct hth_commit *c = self;
    struct track *t = track_find(c, save);

    (void)object;
    if (t)
        member_check(c, t);
}

/* ---- Blobs ---------------------------------------------------------------------------------- */

static void keep_raw(struct hth_commit *c, struct hth_held_save *s, const struct hth_object *o,
        const unsigned char *bytes, size_t len)
{
    struct hth_ctx *ctx = c->ctx;
    unsigned char digest[HTH_DIGEST];
    struct hearth_error err;

    hth_digest(digest, bytes, len);
    if (len != o->data_len || memcmp(digest, o->digest, HTH_DIGEST) != 0) {
        hth_say(&ctx->log, HEARTH_LOG_WARN, "raw-wrong", HTH_SAVE ": %s is not what was announced",
                HTH_SAVE_ARGS(s->id), o->name);
        return;
    }
    if (ctx->store->ops->raw_put(ctx->store, s->id, o->name, bytes, len, &err)) {
        hth_say(&ctx->log, HEARTH_LOG_ERROR, "raw-failed", "%s", err.text);
        return;
    }
    hth_held_add(s, o, HTH_HELD_SEALED, NULL);
}

static void take_raws(struct hth_commit *c, struct hth_held_save *s)
{
    for (uint32_t i = 0; s->has_manifest && i < s->manifest.objects; i++) {
        const struct hth_object *o = &s->manifest.object[i];
        struct hth_blob_id id = { HTH_BLOB_RAW, s->id, o->id };
        const unsigned char *bytes;
        size_t len;

        if (o->kind != HTH_OBJECT_RAW || hth_held_find(s, o->id))
            continue;
        bytes = hth_blob_find(c->ctx, &id, &len);
        if (bytes)
            keep_raw(c, s, o, bytes, len);
    }
}

static void take_manifest(
        struct hth_commit *c, struct hth_save_id save, const unsigned char *bytes, size_t len)
{
    struct hth_held_save *s = hth_holdings_get(c->ctx, save);
    unsigned char *copy = malloc(len ? len : 1);
    struct hearth_error err;

    if (!s || !copy || s->has_manifest) {
        free(copy);
        return;
    }
    hth_point(&c->ctx->points, "manifest");
    memcpy(copy, bytes, len);
    if (hth_held_set_manifest(c->ctx, s, copy, len, &err))
        hth_say(&c->ctx->log, HEARTH_LOG_ERROR, "manifest-failed", "%s", err.text);
}

void hth_commit_blob(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct hth_held_save *s;
    struct track *t;

    if (id->kind == HTH_BLOB_PLAN || recall(c, id->save))
        return;
    if (id->kind == HTH_BLOB_MANIFEST)
        take_manifest(c, id->save, bytes, len);
    t = track_get(c, id->save);
    s = hth_holdings_find(c->ctx, id->save);
    if (!t || !s)
        return;
    if (t->repair_ms == HTH_NEVER)
        t->repair_ms = hth_now_ms(&c->ctx->clock) + 2 * c->ctx->opts.dead_ms;
    take_raws(c, s);
    member_check(c, t);
}

/* ---- The coordinator's word ----------------------------------------------------------------- */

static void free_save(struct hth_commit *c, struct hth_held_save *s)
{
    hth_point(&c->ctx->points, "free");
    hth_transfer_forget(c->ctx, s->id);
    hth_blobs_forget(c->ctx, s->id);
    hth_holdings_free_save(c->ctx, s);
}

static void free_older(struct hth_commit *c, struct hth_save_id than)
{
    struct hth_held_save *next;

    for (struct hth_held_save *s = hth_holdings_first(c->ctx); s; s = next) {
        next = s->next;
        if (s->removed || hth_save_cmp(s->id, than) >= 0 || hth_keep_has(&c->ctx->keep, s->id))
            continue;
        free_save(c, s);
    }
}

static void on_complete(struct hth_commit *c, struct hth_save_id save)
{
    struct track *t = track_find(c, save);
    struct hth_held_save *s = hth_holdings_find(c->ctx, save);
    struct hearth_error err;

    if (!t || !s || t->complete)
        return;
    t->complete = 1;
    if (!s->published && c->ctx->store->ops->publish(c->ctx->store, save, &err))
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "publish-failed", "%s", err.text);
    else
        s->published = 1;
    say_level(c, t, HEARTH_COMPLETE);
    if (hth_breaks(c->ctx, HTH_BREAK_FREE_EARLY))
        free_older(c, save);
}

static void end_track(struct hth_commit *c, struct track *t, enum hearth_level level, int degraded,
        int code, const char *text)
{
    struct hth_save_id id = t->id;

    remember(c, id, level, degraded, code, text);
    track_remove(c, t);
    c->events.on_level(c->events.self, id, HTH_NODE_NONE, level, degraded, code, text);
}

/* Write our own record unless it is the one we have; only then may we free by it. */
static int write_keep(struct hth_commit *c, const struct hth_keep *keep)
{
    unsigned char record[HTH_KEEP_BYTES];
    struct hth_ctx *ctx = c->ctx;
    struct hearth_error err;

    if (ctx->keep.epoch == keep->epoch && ctx->keep.serial >= keep->serial)
        return ctx->keep.serial == keep->serial ? HEARTH_OK : HEARTH_ESTATE;
    hth_keep_encode(keep, record);
    hth_point(&ctx->points, "keep");
    if (ctx->store->ops->record_put(ctx->store, "keep", record, sizeof(record), &err)) {
        hth_say(&ctx->log, HEARTH_LOG_ERROR, "keep-failed", "%s", err.text);
        return HEARTH_EIO;
    }
    ctx->keep = *keep;
    return HEARTH_OK;
}

static void on_protected(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    struct hth_keep keep;
    uint32_t degraded;
    struct track *next;

    if (len != HTH_KEEP_BYTES + 4 || hth_keep_decode(&keep, bytes, HTH_KEEP_BYTES, NULL) ||
            keep.epoch != c->ctx->epoch->epoch || keep.saves == 0)
        return;
    degraded = hth_get32(bytes + HTH_KEEP_BYTES);
    if (write_keep(c, &keep))
        return;
    c->degraded = (int)degraded;
    c->protected_ms = hth_now_ms(&c->ctx->clock);
    on_complete(c, keep.save[0]);
    free_older(c, keep.save[0]);
    for (struct track *t = c->tracks; t; t = next) {
        int order = hth_save_cmp(t->id, keep.save[0]);

        next = t->next;
        if (order == 0)
            end_track(c, t, HEARTH_PROTECTED, (int)degraded, HEARTH_OK, "");
        else if (order < 0)
            end_track(c, t, t->level, 0, HEARTH_EFAILED, "a newer save was protected first");
    }
}

static void on_cancelled(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    struct hth_save_id save;
    struct hth_held_save *s;
    struct track *t;
    char text[200];
    int code;

    if (len < SAVE_BYTES + 4 || len > SAVE_BYTES + 4 + sizeof(text) - 1)
        return;
    save = save_get(bytes);
    code = (int)hth_get32(bytes + SAVE_BYTES);
    memcpy(text, bytes + SAVE_BYTES + 4, len - SAVE_BYTES - 4);
    text[len - SAVE_BYTES - 4] = '\0';
    if (hth_keep_has(&c->ctx->keep, save) || (recall(c, save) && recall(c, save)->code == 0))
        return; /* it was PROTECTED: a late or wrong word */
    s = hth_holdings_find(c->ctx, save);
    if (s && !s->removed)
        free_save(c, s);
    t = track_find(c, save);
    hth_say(&c->ctx->log, HEARTH_LOG_WARN, "save-cancelled", HTH_SAVE ": %s (%s)",
            HTH_SAVE_ARGS(save), text, hearth_strerror(code));
    if (t)
        end_track(c, t, t->level, 0, HEARTH_EFAILED, text);
    else if (!recall(c, save))
        remember(c, save, HEARTH_WRITTEN, 0, HEARTH_EFAILED, text);
}

/* ---- Holders that change --------------------------------------------------------------------- */

static void apply_override(struct hth_commit *c, const struct override *o)
{
    if (o->rank < c->placement.world && o->copy < c->placement.copies &&
            (o->node < c->ctx->epoch->nodes || o->node == HTH_NODE_NONE))
        c->placement.holder[o->rank * c->placement.copies + o->copy] = o->node;
}

/* {u32 serial, u32 lost, u32 overrides, u32 zero, u32 lost[], {rank, copy, node}[]} */
static void on_assign(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    struct hth_reader r = { bytes, len, 0, 0 };
    uint32_t serial = hth_read32(&r);
    uint32_t lost = hth_read32(&r);
    uint32_t count = hth_read32(&r);
    struct hth_ctx *ctx = c->ctx;
    struct track *t;

    (void)hth_read32(&r);
    if (r.bad || len != 16 + 4 * (size_t)lost + 12 * (size_t)count ||
            (serial <= c->serial && !hth_is_coordinator(ctx)))
        return;
    c->serial = serial;
    for (uint32_t n = 0; n < ctx->epoch->nodes && !hth_is_coordinator(ctx); n++)
        ctx->down[n] = 0;
    for (uint32_t i = 0; i < lost; i++) {
        uint32_t node = hth_read32(&r);

        if (node < ctx->epoch->nodes && node != ctx->epoch->self)
            ctx->down[node] = 1;
    }
    for (uint32_t i = 0; i < count; i++) {
        struct override o = { hth_read32(&r), hth_read32(&r), hth_read32(&r) };

        apply_override(c, &o);
    }
    if (c->running && ctx->keep.saves && ctx->keep.epoch == ctx->epoch->epoch) {
        t = track_get(c, ctx->keep.save[0]); /* promise it again, with what is assigned now */
        if (t) {
            t->recovered = t->complete = 1;
            t->level = HEARTH_PROTECTED;
        }
    }
    for (struct track *next = t = c->tracks; t; t = next) {
        struct hth_held_save *s = hth_holdings_find(ctx, t->id);

        next = t->next;
        t->repair_ms = hth_now_ms(&ctx->clock);
        for (struct hth_held *h = s ? s->held : NULL; h; h = h->next)
            if (!s->has_manifest && is_ours(ctx, h) && h->state == HTH_HELD_SEALED && h->slot)
                offer(c, s, h);
        member_check(c, t);
    }
}

void hth_commit_peer_down(struct hth_commit *c, uint32_t node)
{
    unsigned char body[4];

    hth_put32(body, node);
    if (hth_is_coordinator(c->ctx)) {
        coord_lost(c, node);
        return;
    }
    if (node == 0 && !c->silent_since_ms)
        c->silent_since_ms = hth_now_ms(&c->ctx->clock);
    hth_tree_up(c->ctx, HTH_KIND_LOST, body, sizeof(body));
}

void hth_commit_peer_up(struct hth_commit *c, uint32_t node)
{
    if (node == 0)
        c->silent_since_ms = 0;
    if (hth_is_coordinator(c->ctx))
        coord_returned(c, node);
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
    t = s ? track_get(c, save) : NULL;
    if (!t)
        return;
    if (hth_keep_has(&c->ctx->keep, save)) {
        t->recovered = t->complete = 1;
        t->level = HEARTH_PROTECTED;
    }
    t->promised = 0;
    t->repair_ms = hth_now_ms(&c->ctx->clock);
}

/* ---- Events ---------------------------------------------------------------------------------- */

void hth_commit_deliver(struct hth_commit *c, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len)
{
    int coordinator = hth_is_coordinator(c->ctx);

    if (coordinator && kind == HTH_KIND_DONE)
        coord_done(c, origin, bytes, len);
    else if (coordinator && kind == HTH_KIND_HELD)
        coord_held(c, origin, bytes, len);
    else if (coordinator && kind == HTH_KIND_PROMISE)
        coord_promise(c, origin, bytes, len);
    else if (coordinator && kind == HTH_KIND_FAILED)
        coord_failed(c, origin, bytes, len);
    else if (coordinator && kind == HTH_KIND_LOST)
        coord_report_lost(c, bytes, len);
    else if (kind == HTH_KIND_COMPLETE && len == SAVE_BYTES)
        on_complete(c, save_get(bytes));
    else if (kind == HTH_KIND_PROTECTED)
        on_protected(c, bytes, len);
    else if (kind == HTH_KIND_CANCELLED)
        on_cancelled(c, bytes, len);
    else if (kind == HTH_KIND_ASSIGN)
        on_assign(c, bytes, len);
}

/* Say again what has had no effect yet. */
static void repeat(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);

    if (t->failing && !hth_is_coordinator(c->ctx))
        hth_commit_fail(c, t->id, t->fail_code, t->why);
    else if (t->done_sent && (!s || !s->has_manifest))
        send_done(c, t, s);
    else if (t->promised)
        send_promise(c, t);
    else if (t->held && !t->complete)
        send_held(c, t);
}

static void give_up_on(struct hth_commit *c, struct track *t, uint64_t now_ms)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    char text[200];

    if (hth_breaks(c->ctx, HTH_BREAK_DEADLINE) || t->recovered)
        return;
    if (now_ms >= t->since_ms + o->save_ms + 4 * (uint64_t)o->dead_ms &&
            !hth_is_coordinator(c->ctx)) {
        snprintf(text, sizeof(text), "the coordinator, node %.64s, does not decide",
                c->ctx->epoch->member[0].node);
        end_track(c, t, t->level, 0, HEARTH_EUNKNOWN, text);
    } else if (now_ms >= t->since_ms + o->save_ms && !t->failing) {
        hth_commit_fail(c, t->id, HEARTH_ETIMEOUT, "not protected in time");
    }
}

void hth_commit_tick(struct hth_commit *c)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    struct track *next;

    for (struct track *t = c->tracks; t; t = next) {
        next = t->next;
        if (now_ms >= t->repair_ms) {
            t->repair_ms = now_ms + 4 * (uint64_t)c->ctx->opts.retry_ms;
            member_repair(c, t);
        }
        if (now_ms < t->repeat_ms)
            continue;
        t->repeat_ms = now_ms + c->ctx->opts.retry_ms;
        repeat(c, t);
    }
    if (hth_is_coordinator(c->ctx))
        coord_tick(c, now_ms);
    for (struct track *t = c->tracks; t; t = next) {
        next = t->next;
        give_up_on(c, t, now_ms);
    }
}

uint64_t hth_commit_due_ms(const struct hth_commit *c)
{
    uint64_t due_ms = c->look ? 0 : HTH_NEVER;

    for (const struct track *t = c->tracks; t; t = t->next) {
        due_ms = t->repeat_ms < due_ms ? t->repeat_ms : due_ms;
        due_ms = t->repair_ms < due_ms ? t->repair_ms : due_ms;
    }
    return due_ms;
}

/* ---- Questions -------------------------------------------------------------------------------- */

int hth_commit_status(struct hth_commit *c, struct hth_save_id save, enum hearth_level *out_level,
        int *out_degraded, int *out_code, char text[256])
{
    const struct outcome *o = recall(c, save);
    struct track *t = track_find(c, save);

    *out_degraded = 0;
    *out_code = HEARTH_OK;
    text[0] = '\0';
    if (o) {
        *out_level = o->level;
        *out_degraded = o->degraded;
        *out_code = o->code;
        snprintf(text, 256, "%s", o->text);
    } else if (hth_keep_has(&c->ctx->keep, save)) {
        *out_level = HEARTH_PROTECTED;
        *out_degraded = c->degraded;
    } else if (t) {
        *out_level = t->level;
        if (hth_is_coordinator(c->ctx))
            coord_waits_for(c, t, text, 256);
    } else {
        return HEARTH_ENOENT;
    }
    return HEARTH_OK;
}

void hth_commit_text(struct hth_commit *c, char *out, size_t len)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);
    char whom[160] = "the coordinator";
    int n = 0;

    if (c->ctx->keep.saves)
        n = snprintf(out, len, "newest protected: step %" PRIu64 "%s, %" PRIu64 " s ago",
                c->ctx->keep.save[0].step, c->degraded ? " (degraded)" : "",
                c->protected_ms ? (now_ms - c->protected_ms) / 1000 : 0);
    else
        n = snprintf(out, len, "nothing protected yet");
    if (n < 0 || (size_t)n >= len || !c->tracks)
        return;
    if (hth_is_coordinator(c->ctx))
        coord_waits_for(c, c->tracks, whom, sizeof(whom));
    snprintf(out + n, len - (size_t)n, "; undecided: step %" PRIu64 ", waits for %s",
            c->tracks->id.step, whom);
}

void hth_commit_close(struct hth_commit *c)
{
    if (!c)
        return;
    while (c->tracks)
        track_remove(c, c->tracks);
    hth_placement_fini(&c->placement);
    free(c->override);
    free(c->local);
    free(c);
}
