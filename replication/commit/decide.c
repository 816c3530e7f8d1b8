/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator decides each save once, PROTECTED or CANCELLED, and decides when a map is
 * settled. A decision depends only on the head and on what members have sent. Each decision is a
 * head.
 */
#include "commit_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- An epoch ------------------------------------------------------------------------------- */

void coord_stop(struct hth_commit *c)
{
    while (c->coord.tallies)
        tally_remove(c, c->coord.tallies);
    free(c->coord.live);
    c->coord = (struct coord){ .stable_ms = HTH_NEVER, .remind_ms = HTH_NEVER };
}

int coord_make(struct hth_commit *c, struct hearth_error *err)
{
    if (!hth_is_coordinator(c->ctx))
        return HEARTH_OK;
    c->coord.live = calloc(c->ctx->epoch->nodes, sizeof(*c->coord.live));
    if (!c->coord.live)
        return hth_fail(err, HEARTH_ENOMEM, 0, "%" PRIu32 " members", c->ctx->epoch->nodes);
    maps_begin(c);
    return HEARTH_OK;
}

/* Makes a head of the keep list that recovery has decided on. A head that an engine before this one
 * decided, and may not have sent, is sent. */
static void coord_send_begun(struct hth_commit *c)
{
    const struct hth_keep *k = &c->ctx->keep;
    struct hth_head next = c->head;
    int same = k->epoch == next.keep.epoch && k->serial == next.keep.serial;
    /* An empty list too: the lists of other nodes may name saves that recovery has ruled out. */
    int known = hth_breaks(c->ctx, HTH_BREAK_RULED_OUT) ? k->saves != 0 : k->epoch != 0;

    next.keep = *k;
    if (known && (!same || !c->head.position)) {
        c->coord.begins = head_append(c, &next, NULL) != HEARTH_OK;
        return;
    }
    c->coord.begins = 0;
    if (c->head.position)
        head_send(c, HTH_NODE_NONE, 1);
}

void coord_begin(struct hth_commit *c)
{
    c->coord.begins = c->coord.look = 1;
    coord_send_begun(c);
}

/* ---- Decisions ------------------------------------------------------------------------------ */

/* A save of this epoch is decided, so the job has continued from the save that it recovered
 * (loader/choice/tries.c). */
static void decide_end_tries(struct hth_head *next, struct hth_save_id decided)
{
    if (decided.epoch != next->epoch || decided.nonce != next->nonce ||
            hth_save_none(next->keep.tried))
        return;
    hth_keep_end_tries(&next->keep);
    next->keep.serial++;
}

/* With allow_degraded the holders that are not lost are enough, if they are fewer than PROTECTED
 * needs. Promised holders must stand in as many failure domains as PROTECTED needs, or, if the
 * holders that are not lost stand in fewer, in as many as these. */
static int decide_is_protected(
        struct hth_commit *c, const struct tally *t, int *out_degraded, int *out_full)
{
    const struct hth_ctx_opts *o = &c->ctx->opts;
    uint32_t holder[PLACES_MAX];

    *out_degraded = 0;
    *out_full = 1;
    for (uint32_t r = 0; r < c->ctx->epoch->world; r++) {
        uint32_t n = places_of(c, r, holder);
        uint32_t living = 0, need = 1 + o->min_copies;
        int full;
        uint32_t domains, have = tally_promised(c, t, r, &domains, &full);

        for (uint32_t i = 0; i < n; i++)
            if (!node_is_lost(c, holder[i]))
                holder[living++] = holder[i];
        if (o->allow_degraded && living < need)
            need = living ? living : 1;
        if (have < need || (domains < need && domains < places_domains(c, holder, living)))
            return 0;
        *out_degraded |= domains < 1 + o->copies;
        *out_full &= full;
    }
    return 1;
}

/* A head need not name cancelled saves that are older than `decided`. */
static void decide_prune(struct hth_head *h)
{
    uint32_t left = 0;

    for (uint32_t i = 0; i < h->cancels; i++)
        if (hth_save_cmp(h->cancelled[i].save, h->decided) > 0)
            h->cancelled[left++] = h->cancelled[i];
    if (left < h->cancels)
        memset(&h->cancelled[left], 0, (h->cancels - left) * sizeof(h->cancelled[0]));
    h->cancels = left;
    if (!left)
        memset(h->why, 0, sizeof(h->why));
}

/* 1: every save on the list is promised by every holder that it should have. *out_degraded: a bit
 * for each save that has too few holders. */
static int decide_all_full(struct hth_commit *c, const struct hth_keep *k, uint32_t *out_degraded)
{
    uint32_t mask = 0;

    for (uint32_t i = 0; i < k->saves; i++) {
        const struct tally *t = tally_find(c, k->save[i]);
        int degraded, full;

        if (!t || !decide_is_protected(c, t, &degraded, &full) || !full)
            return 0;
        mask |= (uint32_t)degraded << i;
    }
    *out_degraded = mask;
    return 1;
}

static int decide_protected(struct hth_commit *c, const struct tally *t, int degraded, int full)
{
    struct hth_head next = c->head;
    struct hth_save_id id = t->id;

    next.keep = kept_with(c, id, (uint32_t)degraded);
    next.settled = c->head.settled ? full : decide_all_full(c, &next.keep, &next.keep.degraded);
    decide_end_tries(&next, id);
    if (id.epoch == next.epoch && id.nonce == next.nonce)
        next.decided = id;
    decide_prune(&next);
    if (head_append(c, &next, NULL))
        return 0;
    hth_say(&c->ctx->log, HEARTH_LOG_DEBUG, "protected", HTH_SAVE "%s", HTH_SAVE_ARGS(id),
            degraded ? " (degraded)" : "");
    return 1;
}

/* Makes room for one more name. No node can have promised a save without a manifest, so its name is
 * dropped first. If all have a manifest, the oldest name goes, and all saves up to it count as
 * decided. */
static void decide_make_room(struct hth_head *h)
{
    uint32_t i = 0;

    while (i < h->cancels && h->cancelled[i].whole)
        i++;
    if (i == h->cancels) {
        h->decided = h->cancelled[0].save;
        for (uint32_t k = 1; k < h->cancels; k++)
            if (hth_save_cmp(h->cancelled[k].save, h->decided) < 0)
                h->decided = h->cancelled[k].save;
        decide_prune(h);
        return;
    }
    memmove(&h->cancelled[i], &h->cancelled[i + 1], (h->cancels - i - 1) * sizeof(h->cancelled[0]));
    memset(&h->cancelled[--h->cancels], 0, sizeof(h->cancelled[0]));
}

/* Older undecided saves stay undecided: a begin that is refused for lack of room is of a younger
 * save than the save that it would have waited for. */
static int decide_cancelled(struct hth_commit *c, const struct tally *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);
    struct hth_head next = c->head;

    next.keep = c->ctx->keep;
    decide_end_tries(&next, t->id);
    if (next.cancels == HTH_HEAD_CANCELLED)
        decide_make_room(&next);
    next.cancelled[next.cancels++] =
            (struct hth_cancelled){ t->id, t->fail_code, s && s->has_manifest };
    next.settled |= hth_breaks(c->ctx, HTH_BREAK_CANCEL_FREES);
    memset(next.why, 0, sizeof(next.why));
    snprintf(next.why, sizeof(next.why), "%s", t->why);
    return head_append(c, &next, NULL) == HEARTH_OK;
}

/* If a kept save has lost a copy, the coordinator writes it as DEGRADED before any node relies on
 * the other copies, and each member promises it again. Before the first save of this epoch is
 * PROTECTED, the list has no state of copies. */
static void decide_lost(struct hth_commit *c)
{
    struct hth_head next = c->head;
    uint32_t losses = c->coord.losses, lost = 0;

    c->coord.losses = 0;
    next.keep = c->ctx->keep;
    for (uint32_t i = 0; i < losses; i++) {
        int at = hth_keep_at(&next.keep, c->coord.loss[i]);

        lost |= at < 0 ? 0 : UINT32_C(1) << at;
    }
    if (!lost || next.keep.epoch != next.epoch ||
            (!c->head.settled && !(lost & ~next.keep.degraded)))
        return;
    next.keep.degraded |= lost;
    next.keep.serial++;
    next.settled = 0;
    if (head_append(c, &next, NULL))
        return; /* the members repeat COPY_LOST */
    for (uint32_t i = 0; i < losses; i++)
        hth_say(&c->ctx->log, HEARTH_LOG_WARN, "degraded",
                HTH_SAVE " has lost a copy: it is brought back", HTH_SAVE_ARGS(c->coord.loss[i]));
}

/* Settles the map when every holder of every kept save has promised it under this same map.
 * Promises of other nodes do not count. */
static void decide_settle(struct hth_commit *c)
{
    struct hth_head next = c->head;
    const struct hth_keep *k = &c->ctx->keep;

    if (c->head.settled || !k->saves)
        return;
    next.keep = *k;
    if (!decide_all_full(c, k, &next.keep.degraded))
        return;
    next.keep.serial = k->epoch == next.epoch ? k->serial + 1 : 1;
    next.keep.epoch = next.epoch;
    next.settled = 1;
    (void)head_append(c, &next, NULL);
}

/* ---- DONE → manifest ------------------------------------------------------------------------ */

static void decide_made(void *self)
{
    struct hth_commit *c = self;

    c->coord.look = 1;
}

/* The objects of all DONEs go to the worker that makes the manifest. All nodes have sent DONE, so
 * none comes meanwhile. */
static int decide_draft(struct hth_commit *c, struct tally *t, struct hearth_error *err)
{
    const struct hth_ctx *ctx = c->ctx;
    struct hth_manifest m = {
        .save = t->id,
        .from = c->chosen,
        .world = ctx->epoch->world,
        .nodes = ctx->epoch->nodes,
        .strong = ctx->opts.strong,
        .objects = t->objects,
    };

    memcpy(m.job, ctx->opts.job, sizeof(m.job));
    t->draft = hth_draft_make(c->ctx, &m, t->object, decide_made, c);
    if (!t->draft)
        return hth_fail(err, HEARTH_ENOMEM, 0, "manifest of %zu bytes", hth_manifest_bytes(&m));
    t->object = NULL;
    return HEARTH_OK;
}

/* The manifest is made: gives it to the tree and writes it to the record. */
static int decide_give(struct hth_commit *c, const struct tally *t, struct hearth_error *err)
{
    struct hth_ctx *ctx = c->ctx;
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, t->id, 0 };
    struct hth_held_save *s = hth_holdings_get(ctx, t->id);
    struct track *track = track_get(c, t->id);
    struct hth_buf *buf;
    int rc = hth_draft_result(t->draft, &buf, err);

    if (rc)
        return rc;
    if (!s || !track)
        return hth_fail(err, HEARTH_ENOMEM, 0, "manifest of %zu bytes", buf->len);
    rc = hth_blob_give_buf(ctx, &id, buf, err);
    if (!rc)
        hth_point(&ctx->points, "manifest");
    rc = rc ? rc : hth_held_keep_draft(ctx, s, t->draft, err);
    if (!rc)
        (void)repair_manifest(c, track, s);
    return rc;
}

/* Begins the manifest, or waits while a worker makes it: decide_made() causes another look. */
static int decide_manifest(struct hth_commit *c, struct tally *t, struct hearth_error *err)
{
    int rc = t->draft ? HEARTH_OK : decide_draft(c, t, err);

    if (rc || !hth_draft_ended(t->draft))
        return rc;
    t->object = hth_draft_objects(t->draft);
    rc = decide_give(c, t, err);
    hth_draft_free(t->draft);
    t->draft = NULL;
    return rc;
}

/* ---- Looking -------------------------------------------------------------------------------- */

static void decide_complete(struct hth_commit *c, struct tally *t)
{
    unsigned char word[SAVE_BYTES];

    t->complete = 1;
    save_put(word, t->id);
    hth_tree_down(c->ctx, HTH_KIND_COMPLETE, word, sizeof(word));
}

/* Decides the save if that is possible. 1: it was decided, and tallies may have been freed. */
static int decide_look_at(struct hth_commit *c, struct tally *t)
{
    struct hth_ctx *ctx = c->ctx;
    struct hth_held_save *s = hth_holdings_find(ctx, t->id);
    struct hearth_error err;
    int degraded, full;

    if (head_fate(c, t->id) != FATE_OPEN)
        return 0;
    t->complete |= s && s->published;
    if (!t->fail_code && t->nodes_due && t->nodes_done == t->nodes_due &&
            (!s || !s->has_manifest) && decide_manifest(c, t, &err)) {
        t->fail_code = err.code;
        snprintf(t->why, sizeof(t->why), "%.199s", err.text);
    }
    if (t->fail_code && head_is_open(c, t->id))
        return decide_cancelled(c, t);
    if (t->nodes_held == ctx->epoch->nodes && !t->complete)
        decide_complete(c, t);
    if (t->fail_code && head_is_open(c, t->id)) /* this node cannot publish it */
        return 0;
    return t->nodes_promised && (t->complete || !head_is_open(c, t->id)) &&
           decide_is_protected(c, t, &degraded, &full) && decide_protected(c, t, degraded, full);
}

/* Frees the facts of decided saves. Those of kept saves stay until the map is settled. */
static void decide_tidy(struct hth_commit *c)
{
    struct tally *next;

    for (struct tally *t = c->coord.tallies; t; t = next) {
        enum fate fate = head_fate(c, t->id);

        next = t->next;
        if (fate != FATE_OPEN && (fate != FATE_KEPT || c->head.settled))
            tally_remove(c, t);
    }
}

void coord_tick(struct hth_commit *c, uint64_t now_ms)
{
    int rounds = 8; /* a round decides at most one save; a head that cannot be written waits */

    if (now_ms < c->coord.look_ms)
        return;
    maps_tick(c, now_ms);
    if (!c->coord.look || now_ms < c->coord.look_ms)
        return;
    c->coord.look = 0;
    if (c->coord.begins)
        coord_send_begun(c);
    decide_lost(c);
    wishes_tick(c);
    while (rounds-- > 0) {
        struct tally *t = c->coord.tallies;

        while (t && !decide_look_at(c, t))
            t = t->next;
        if (!t)
            break;
    }
    c->coord.look |= rounds < 0; /* more saves may be due */
    if (c->running)
        decide_settle(c);
    decide_tidy(c);
}

uint64_t coord_due_ms(const struct hth_commit *c)
{
    uint64_t due_ms = c->coord.look ? c->coord.look_ms : HTH_NEVER;

    due_ms = c->coord.stable_ms < due_ms ? c->coord.stable_ms : due_ms;
    return c->coord.remind_ms < due_ms ? c->coord.remind_ms : due_ms;
}

/* ---- What takes too long -------------------------------------------------------------------- */

/* A lost node has been silent for dead_ms already. It gets half of that again, in case it was only
 * stopped for a moment. A longer wait would delay the ranks, which need this decision before they
 * restart without the node. */
static void decide_owed(struct hth_commit *c, struct tally *t, uint64_t now_ms)
{
    const struct hth_ctx *ctx = c->ctx;
    char text[160];
    uint32_t node = 0;

    while (node < ctx->epoch->nodes && !(node_is_lost(c, node) && !t->node[node].held))
        node++;
    if (node == ctx->epoch->nodes) {
        t->owed_ms = 0;
        return;
    }
    if (!t->owed_ms)
        t->owed_ms = now_ms;
    if (now_ms < t->owed_ms + ctx->opts.dead_ms / 2)
        return;
    snprintf(text, sizeof(text), "node %.64s is lost, and its part of the save with it",
            ctx->epoch->member[node].node);
    hth_commit_fail(c, t->id, HEARTH_EPEER, text);
}

static void decide_late(struct hth_commit *c, const struct tally *t)
{
    char text[200], whom[200];

    coord_waits_for(c, t->id, whom, sizeof(whom));
    snprintf(text, sizeof(text), "not protected in time: it waited for %.160s", whom);
    hth_commit_fail(c, t->id, HEARTH_ETIMEOUT, text);
}

void coord_give_up(struct hth_commit *c, uint64_t now_ms)
{
    if (hth_breaks(c->ctx, HTH_BREAK_DEADLINE))
        return;
    steps_coord(c, now_ms);
    for (struct tally *t = c->coord.tallies; t; t = t->next) {
        if (t->fail_code || !head_is_open(c, t->id))
            continue;
        if (now_ms >= t->since_ms + c->ctx->opts.save_ms)
            decide_late(c, t);
        else if (!t->complete)
            decide_owed(c, t, now_ms);
    }
}

/* *out_what: the part of the save that is missing; 1: this member has sent it. */
static int tally_has(
        const struct hth_commit *c, const struct tally *t, uint32_t node, const char **out_what)
{
    const struct report *s = &t->node[node];

    if (head_is_open(c, t->id) && (!t->nodes_due || t->nodes_done < t->nodes_due)) {
        *out_what = "the ranks of";
        return (int)(s->done || (t->nodes_due && !s->due));
    }
    *out_what = t->complete || !head_is_open(c, t->id) ? "the promise of" : "the manifest on";
    return (int)(t->complete || !head_is_open(c, t->id) ? s->promised : s->held);
}

/* Appends, after the nodes that are waited for, a copy that has no room. */
static void tally_text_refusal(
        const struct hth_commit *c, const struct tally *t, char *out, size_t len)
{
    size_t n = strlen(out);

    if (t && t->refusal[0] && !t->node[t->refusal_node].promised)
        snprintf(out + n, len - n, "; node %.40s: %s", c->ctx->epoch->member[t->refusal_node].node,
                t->refusal);
}

void coord_waits_for(const struct hth_commit *c, struct hth_save_id save, char *out, size_t len)
{
    const struct hth_epoch *e = c->ctx->epoch;
    const struct tally *t = c->coord.tallies;
    const char *what = "the ranks of";
    int n;

    while (t && hth_save_cmp(t->id, save) != 0)
        t = t->next;
    if (t)
        (void)tally_has(c, t, 0, &what);
    n = snprintf(out, len, "%s", what);
    for (uint32_t i = 0, named = 0; i < e->nodes && n > 0 && (size_t)n < len; i++) {
        if (t && tally_has(c, t, i, &what))
            continue;
        if (named++ == 3) {
            snprintf(out + n, len - (size_t)n, ", ...");
            break;
        }
        n += snprintf(out + n, len - (size_t)n, "%s node %s%s", named > 1 ? "," : "",
                e->member[i].node, node_is_lost(c, i) ? " (lost)" : "");
    }
    tally_text_refusal(c, t, out, len);
}
