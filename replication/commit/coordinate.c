/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's part: it gathers facts, and decides each save once, PROTECTED or CANCELLED, in
 * order. Facts only mark; tick decides, so that no track is freed in a caller that still uses it. The
 * decision is in our own keep record before anybody hears of it; a late fact about a decided save is
 * answered with the decision.
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>

static struct track *coord_fact(
        struct hth_commit *c, const unsigned char *bytes, size_t len, size_t want, uint32_t origin)
{
    struct hth_save_id save;
    const struct outcome *o;
    unsigned char word[SAVE_BYTES + 4 + 200];
    struct track *t;
    size_t text;

    if (len < want || origin >= c->ctx->epoch->nodes)
        return NULL;
    save = save_get(bytes);
    o = outcome_find(c, save);
    t = track_find(c, save);
    if (o && !t && o->code) {
        text = strlen(o->text);
        save_put(word, save);
        hth_put32(word + SAVE_BYTES, (uint32_t)o->code);
        memcpy(word + SAVE_BYTES + 4, o->text, text);
        hth_tree_to(c->ctx, origin, HTH_KIND_CANCELLED, word, SAVE_BYTES + 4 + text);
        return NULL;
    }
    if ((o && !t) || (!t && hth_keep_has(&c->ctx->keep, save))) {
        unsigned char record[HTH_KEEP_BYTES];

        hth_keep_encode(&c->ctx->keep, record);
        hth_tree_to(c->ctx, origin, HTH_KIND_PROTECTED, record, sizeof(record));
        return NULL;
    }
    return t ? t : track_get(c, save);
}

/* ---- DONE → manifest ------------------------------------------------------------------------ */

static int coord_take_objects(struct track *t, const unsigned char *bytes, uint32_t count)
{
    if (t->objects + count > t->object_cap) {
        uint32_t cap = 2 * t->object_cap + count;
        struct hth_object *more = realloc(t->object, cap * sizeof(*more));

        if (!more)
            return HEARTH_ENOMEM;
        t->object = more;
        t->object_cap = cap;
    }
    for (uint32_t i = 0; i < count; i++)
        if (hth_object_decode(
                    &t->object[t->objects + i], bytes + (size_t)i * HTH_MANIFEST_OBJECT, NULL))
            return HEARTH_EPROTO;
    t->objects += count;
    return HEARTH_OK;
}

static void coord_fail(struct hth_commit *c, struct track *t, int code, const char *why)
{
    if (!t->failing) {
        t->failing = 1;
        t->fail_code = code;
        snprintf(t->why, sizeof(t->why), "%.199s", why);
    }
    c->look = 1;
}

void coord_done(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct track *t = coord_fact(c, bytes, len, SAVE_BYTES + 16, origin);
    struct node_state *n;
    uint32_t part;
    uint32_t parts;
    uint32_t count;

    if (!t)
        return;
    n = &t->node[origin];
    part = hth_get32(bytes + SAVE_BYTES);
    parts = hth_get32(bytes + SAVE_BYTES + 4);
    count = hth_get32(bytes + SAVE_BYTES + 8);
    if (part >= parts || parts > 64 || n->done || n->parts & UINT64_C(1) << part ||
            len != SAVE_BYTES + 16 + (size_t)count * HTH_MANIFEST_OBJECT)
        return;
    if (coord_take_objects(t, bytes + SAVE_BYTES + 16, count)) {
        coord_fail(c, t, HEARTH_EPROTO, "a report of objects that makes no sense");
        return;
    }
    n->parts |= UINT64_C(1) << part;
    if (n->parts != (parts == 64 ? UINT64_MAX : (UINT64_C(1) << parts) - 1))
        return;
    n->done = 1;
    t->nodes_done++;
    c->look = 1;
}

static int coord_manifest(struct hth_commit *c, struct track *t, struct hearth_error *err)
{
    struct hth_ctx *ctx = c->ctx;
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, t->id, 0 };
    struct hth_held_save *s = hth_holdings_get(ctx, t->id);
    struct hth_manifest m = {
        .save = t->id,
        .from = c->chosen,
        .world = ctx->epoch->world,
        .nodes = ctx->epoch->nodes,
        .objects = t->objects,
        .object = t->object,
    };
    unsigned char *bytes = malloc(hth_manifest_bytes(&m));
    size_t len = hth_manifest_bytes(&m);
    int rc;

    if (!s || !bytes) {
        free(bytes);
        return hth_fail(err, HEARTH_ENOMEM, 0, "manifest of %zu bytes", len);
    }
    memcpy(m.job, ctx->opts.job, sizeof(m.job));
    rc = hth_manifest_encode(&m, bytes, err);
    if (rc) {
        free(bytes);
        return rc;
    }
    rc = hth_blob_give(ctx, &id, bytes, len, err);
    if (rc) {
        free(bytes);
        return rc;
    }
    hth_point(&ctx->points, "manifest");
    rc = hth_held_set_manifest(ctx, s, bytes, len, err);
    if (rc)
        return rc;
    member_manifest(c, t, s);
    return HEARTH_OK;
}

/* ---- HELD → COMPLETE, PROMISE → PROTECTED ---------------------------------------------------- */

void coord_held(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct track *t = coord_fact(c, bytes, len, SAVE_BYTES, origin);

    if (!t)
        return;
    if (!t->node[origin].held) {
        t->node[origin].held = 1;
        t->nodes_held++;
    } else if (t->complete) {
        hth_tree_to(c->ctx, origin, HTH_KIND_COMPLETE, bytes, SAVE_BYTES);
    }
    c->look = 1;
}

void coord_promise(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct track *t = coord_fact(c, bytes, len, SAVE_BYTES + 16, origin);
    uint32_t serial;

    if (!t)
        return;
    serial = hth_get32(bytes + SAVE_BYTES + 8);
    if (hth_get64(bytes + SAVE_BYTES) != c->ctx->epoch->member[origin].store)
        return; /* somebody else's memory */
    if (serial != c->serial) {
        coord_say_assign(c, origin);
        return;
    }
    if (t->node[origin].promised != serial + 1) {
        t->node[origin].promised = serial + 1;
        t->nodes_promised++;
    }
    c->look = 1;
}

/* The node has promised with the holders that are assigned now, and is not lost. */
static uint32_t coord_has_promised(const struct hth_commit *c, const struct track *t, uint32_t node)
{
    return !c->ctx->down[node] && t->node[node].promised == c->serial + 1;
}

static int coord_is_protected(struct hth_commit *c, const struct track *t, int *out_degraded)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    uint32_t holder[HTH_COPIES_MAX];

    *out_degraded = 0;
    for (uint32_t r = 0; r < c->ctx->epoch->world; r++) {
        uint32_t n = hth_commit_holders(c, r, holder);
        uint32_t have = coord_has_promised(c, t, c->ctx->epoch->rank_node[r]);
        uint32_t can = 0;
        uint32_t need;

        for (uint32_t i = 0; i < n; i++) {
            have += coord_has_promised(c, t, holder[i]);
            can += !c->ctx->down[holder[i]];
        }
        need = 1 + (o->allow_degraded && can < o->min_copies ? can : o->min_copies);
        if (have < need)
            return 0;
        *out_degraded |= have < 1 + o->copies;
    }
    return 1;
}

static void coord_decide_protected(struct hth_commit *c, const struct track *t, int degraded)
{
    struct hth_ctx *ctx = c->ctx;
    struct hth_keep keep = kept_with(ctx, t->id, (uint32_t)degraded);
    unsigned char record[HTH_KEEP_BYTES];
    struct hearth_error err;

    hth_keep_encode(&keep, record);
    hth_point(&ctx->points, "keep");
    if (ctx->store->ops->record_put(ctx->store, "keep", record, sizeof(record), &err)) {
        hth_say(&ctx->log, HEARTH_LOG_ERROR, "keep-failed", "%s", err.text);
        return; /* nobody heard; tick tries again */
    }
    ctx->keep = keep;
    hth_say(&ctx->log, HEARTH_LOG_DEBUG, "protected", HTH_SAVE "%s", HTH_SAVE_ARGS(t->id),
            degraded ? " (degraded)" : "");
    hth_tree_down(ctx, HTH_KIND_PROTECTED, record, sizeof(record));
}

static void coord_decide_cancelled(struct hth_commit *c, const struct track *t)
{
    unsigned char word[SAVE_BYTES + 4 + 200];
    size_t len = strlen(t->why);

    save_put(word, t->id);
    hth_put32(word + SAVE_BYTES, (uint32_t)t->fail_code);
    memcpy(word + SAVE_BYTES + 4, t->why, len);
    hth_tree_down(c->ctx, HTH_KIND_CANCELLED, word, SAVE_BYTES + 4 + len);
}

void coord_failed(struct hth_commit *c, uint32_t origin, const unsigned char *bytes, size_t len)
{
    struct track *t = coord_fact(c, bytes, len, SAVE_BYTES + 4, origin);
    char why[200];

    if (!t || len - SAVE_BYTES - 4 >= sizeof(why))
        return;
    memcpy(why, bytes + SAVE_BYTES + 4, len - SAVE_BYTES - 4);
    why[len - SAVE_BYTES - 4] = '\0';
    coord_fail(c, t, (int)hth_get32(bytes + SAVE_BYTES), why);
}

/* What can be decided of one save is; 1: tracks may have been freed. */
static int coord_look_at(struct hth_commit *c, struct track *t)
{
    struct hth_ctx *ctx = c->ctx;
    struct hth_held_save *s = hth_holdings_find(ctx, t->id);
    unsigned char word[SAVE_BYTES];
    struct hearth_error err;
    int degraded;

    if (t->failing && !t->recovered) {
        coord_decide_cancelled(c, t);
        return 1;
    }
    if (t->nodes_done == ctx->epoch->nodes && (!s || !s->has_manifest) &&
            coord_manifest(c, t, &err)) {
        coord_fail(c, t, err.code, err.text);
        coord_decide_cancelled(c, t);
        return 1;
    }
    if (t->nodes_held == ctx->epoch->nodes && !t->complete) {
        save_put(word, t->id);
        hth_tree_down(ctx, HTH_KIND_COMPLETE, word, sizeof(word));
    }
    if (t->nodes_promised && t->complete && coord_is_protected(c, t, &degraded)) {
        coord_decide_protected(c, t, degraded);
        return 1;
    }
    return 0;
}

void coord_tick(struct hth_commit *c, uint64_t now_ms)
{
    int rounds = 8; /* tracks; each ends at most once, and what cannot be written waits */

    (void)now_ms;
    if (!c->look)
        return;
    c->look = 0;
    while (rounds-- > 0) {
        struct track *t = c->tracks;

        while (t && !coord_look_at(c, t))
            t = t->next;
        if (!t)
            return;
    }
}

void coord_give_up(struct hth_commit *c, struct track *t, uint64_t now_ms)
{
    const struct hth_ctx *ctx = c->ctx;
    char text[160];
    uint32_t node = 0;

    if (!hth_is_coordinator(ctx) || t->complete || t->recovered || t->failing ||
            hth_breaks(ctx, HTH_BREAK_DEADLINE))
        return;
    while (node < ctx->epoch->nodes && !(ctx->down[node] && !t->node[node].held))
        node++;
    if (node == ctx->epoch->nodes) {
        t->owed_ms = 0;
        return;
    }
    if (!t->owed_ms)
        t->owed_ms = now_ms;
    if (now_ms < t->owed_ms + 2 * (uint64_t)ctx->opts.dead_ms)
        return;
    snprintf(text, sizeof(text), "node %.64s is lost, and its part of the save with it",
            ctx->epoch->member[node].node);
    hth_commit_fail(c, t->id, HEARTH_EPEER, text);
}

void coord_waits_for(const struct hth_commit *c, const struct track *t, char *out, size_t len)
{
    const struct hth_epoch *e = c->ctx->epoch;
    const char *what = !t->recovered && t->nodes_done < e->nodes ? "the ranks of"
                       : !t->complete                            ? "the manifest on"
                                                                 : "the promise of";
    int n = snprintf(out, len, "%s", what);

    for (uint32_t i = 0, named = 0; i < e->nodes && n > 0 && (size_t)n < len; i++) {
        const struct node_state *s = &t->node[i];
        int there = !t->recovered && t->nodes_done < e->nodes ? (int)s->done
                    : !t->complete                            ? (int)s->held
                                                              : s->promised == c->serial + 1;

        if (there)
            continue;
        if (named++ == 3) {
            snprintf(out + n, len - (size_t)n, ", ...");
            return;
        }
        n += snprintf(out + n, len - (size_t)n, "%s node %s%s", named > 1 ? "," : "",
                e->member[i].node, c->ctx->down[i] ? " (lost)" : "");
    }
}

/* ---- Members that go and come ------------------------------------------------------------------ */

void coord_say_assign(struct hth_commit *c, uint32_t node)
{
    unsigned char body[HTH_TREE_MAX];
    struct hth_writer w = { body, sizeof(body), 0 };
    const struct hth_epoch *e = c->ctx->epoch;
    uint32_t lost = 0;

    for (uint32_t n = 0; n < e->nodes; n++)
        lost += c->ctx->down[n] != 0;
    hth_write32(&w, c->serial);
    hth_write32(&w, lost);
    hth_write32(&w, c->overrides);
    hth_write32(&w, c->ctx->keep.degraded & 1);
    for (uint32_t n = 0; n < e->nodes; n++)
        if (c->ctx->down[n])
            hth_write32(&w, n);
    for (uint32_t i = 0; i < c->overrides; i++) {
        hth_write32(&w, c->override[i].rank);
        hth_write32(&w, c->override[i].copy);
        hth_write32(&w, c->override[i].node);
    }
    if (w.len > sizeof(body)) {
        hth_say(&c->ctx->log, HEARTH_LOG_ERROR, "assign-too-large",
                "%" PRIu32 " lost members and %" PRIu32 " moved copies: restart the job", lost,
                c->overrides);
        return;
    }
    if (node == HTH_NODE_NONE)
        hth_tree_down(c->ctx, HTH_KIND_ASSIGN, body, w.len);
    else
        hth_tree_to(c->ctx, node, HTH_KIND_ASSIGN, body, w.len);
}

void coord_lost(struct hth_commit *c, uint32_t node)
{
    struct hth_ctx *ctx = c->ctx;
    uint32_t moved;
    uint32_t stuck;

    if (node >= ctx->epoch->nodes || ctx->down[node])
        return;
    ctx->down[node] = 1;
    holders_lost(c, node, &moved, &stuck);
    c->serial++;
    kept_degraded(c);
    hth_say(&ctx->log, HEARTH_LOG_WARN, "peer-lost",
            "node %s is lost: %" PRIu32 " ranks' copies move to others, %" PRIu32
            " have nowhere to go",
            ctx->epoch->member[node].node, moved, stuck);
    coord_say_assign(c, HTH_NODE_NONE);
    c->look = 1;
}

/* Somebody cannot reach a member: see for ourselves before anything is moved. */
void coord_report_lost(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    unsigned char echo[8] = { 0 };
    uint32_t node = len == 4 ? hth_get32(bytes) : 0;

    if (node == 0 || node >= c->ctx->epoch->nodes || c->ctx->down[node])
        return;
    hth_put32(echo, node);
    hth_put16(echo + 4, HTH_KIND_ECHO);
    hth_session_send(c->ctx->session, node, HTH_MSG_TO, echo, sizeof(echo));
}

void coord_returned(struct hth_commit *c, uint32_t node)
{
    if (node >= c->ctx->epoch->nodes)
        return;
    if (!c->ctx->down[node]) { /* it may have been away for a moment, and missed a word */
        if (c->serial)
            coord_say_assign(c, node);
        return;
    }
    c->ctx->down[node] = 0;
    c->serial++;
    hth_say(&c->ctx->log, HEARTH_LOG_INFO, "peer-back", "node %s is back",
            c->ctx->epoch->member[node].node);
    coord_say_assign(c, HTH_NODE_NONE);
}
