/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's part of recovery. When every member has sent its inventory:
 *
 *   candidates: every save of which a member has a valid manifest, newest first
 *   look at each from the newest down: fetch its manifest; a worker finds every object's holders
 *   chosen:     the first that is whole and not marked bad; where there is none, the first that is whole
 *   go on down to the newest save that a keep list names: what is whole on the way is kept, and what
 *   is on our own list, however old
 *
 * then the plan goes to all by blob, votes come back, and GO is sent when all agree. After a no the
 * next plan is made in the same epoch; it may be of the next older whole save. If a member is
 * silent, the epoch fails and names it.
 */
#include "choice_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>

#define PLAN_TRIES 3 /* a PROTECTED save is not given up because of one bad cable */

/* ---- Choice
 * ------------------------------------------------------------------------------------ */

/* A wait of the choice has ended: a `.metadata` has been fetched or read, or a worker has
 * looked. */
static void choice_again(struct hth_choice *co)
{
    hth_choice_tick(co, hth_now_ms(&co->ctx->clock));
}

/* 1: the choice does not look whether the save is whole: it is older than the watermark and not on
 * the keep list, or it is foreign. */
static int choice_passes_over(const struct hth_choice *co, struct hth_save_id id)
{
    return hth_save_foreign(id) ||
           (hth_save_cmp(id, co->watermark) < 0 && !hth_keep_has(&co->ctx->keep, id));
}

static int choice_is_eligible(const struct hth_choice *co, struct hth_save_id id)
{
    const struct hth_save_id *w = &co->wanted;

    return !co->wants || (w->epoch ? hth_save_cmp(id, *w) == 0 : id.step == w->step);
}

/* 1: it is known whether the candidate is whole; 0: the choice waits for its manifest, its
 * `.metadata` or a worker. */
static int choice_look_at(struct hth_choice *co, struct candidate *c, uint64_t now_ms)
{
    if (c->lost || c->whole)
        return 1;
    if (!candidate_has_manifest(co, c, now_ms) ||
            (hth_save_foreign(c->id) && !foreign_look(co, c, choice_again)))
        return 0;
    if (!c->lost)
        background_check(co, c, choice_again);
    return c->lost;
}

/* Looks at the candidates from the newest down to the first whole one, then down to the watermark;
 * of older saves only at kept ones. 0: a manifest, a `.metadata` or a worker is waited for. */
static int choice_look_at_all(struct hth_choice *co, uint64_t now_ms, struct candidate **out_chosen)
{
    int settled = 0; /* 1: no older save is chosen instead */

    *out_chosen = NULL;
    for (uint32_t i = 0; i < co->candidates; i++) {
        struct candidate *c = &co->candidate[i];

        if ((settled && choice_passes_over(co, c->id)) || (*out_chosen && hth_save_foreign(c->id)))
            continue;
        if (!choice_look_at(co, c, now_ms))
            return 0;
        if (!c->whole || settled || !choice_is_eligible(co, c->id))
            continue;
        settled = !tries_pass_over(co, c->id) || co->wants;
        if (settled || !*out_chosen)
            *out_chosen = c;
    }
    return 1;
}

static int choice_has_foreign(const struct hth_choice *co)
{
    for (uint32_t i = 0; i < co->candidates; i++)
        if (hth_save_foreign(co->candidate[i].id))
            return 1;
    return 0;
}

/* No candidate is whole. 1: that is an error, since a PROTECTED save or a container is lost; out
 * names it. */
static int choice_is_loss(const struct hth_choice *co, char *out, size_t len)
{
    if (!hth_save_none(co->watermark)) {
        snprintf(out, len,
                "beyond redundancy: step %" PRIu64
                " was protected and cannot be had, and there is no older one (%s); end the engines, "
                "run `hearth rm --root ROOT %s/step-%" PRIu64 "_ckpt` on every node with its root "
                "and load from storage, or recover with accept_loss",
                co->watermark.step, co->lost_text[0] ? co->lost_text : "no manifest is left",
                co->ctx->opts.job, co->watermark.step);
        return 1;
    }
    if (!choice_has_foreign(co))
        return 0;
    snprintf(out, len,
            "no container that was found is whole (%.190s); bring back what is missing, or remove "
            "by hand what another program wrote and load from storage, or recover with accept_loss",
            co->lost_text);
    return 1;
}

/* The requested step is not whole on the nodes: writes the steps that are. */
static void choice_cannot_give(const struct hth_choice *co, char *out, size_t len)
{
    int n = snprintf(out, len,
            "step %" PRIu64 " is asked for and cannot be had; there is:", co->wanted.step);
    int any = 0;

    for (uint32_t i = 0; i < co->candidates && n > 0 && (size_t)n < len; i++) {
        if (!co->candidate[i].whole)
            continue;
        n += snprintf(out + n, len - (size_t)n, " %" PRIu64, co->candidate[i].id.step);
        any = 1;
    }
    if (!any && n > 0 && (size_t)n < len)
        snprintf(out + n, len - (size_t)n, " none");
}

/* A foreign container is chosen before saves of Hearth: the ranks get the steps of both. */
static void choice_say_foreign(struct hth_choice *co, const struct candidate *chosen)
{
    const struct candidate *end = co->candidate + co->candidates, *own = chosen + 1;

    if (!hth_save_foreign(chosen->id))
        return;
    while (own < end && (!own->whole || hth_save_foreign(own->id)))
        own++;
    if (own < end)
        rule_out(co, "foreign-newer",
                "step %" PRIu64 ", which Hearth did not write, is whole and newer than Hearth's "
                "step %" PRIu64 " of epoch %" PRIu64 ", and is chosen; that one is kept until a "
                "save is PROTECTED",
                chosen->id.step, own->id.step, own->id.epoch);
}

static void choice_decide(struct hth_choice *co, uint64_t now_ms)
{
    struct candidate *chosen;
    uint32_t newer;
    char text[400];

    if (co->background || !choice_look_at_all(co, now_ms, &chosen))
        return;
    newer = chosen ? (uint32_t)(chosen - co->candidate) : co->candidates;
    co->beyond = co->passed = 0;
    tries_mark(co, chosen);
    for (uint32_t i = 0; i < newer; i++) {
        const struct candidate *c = &co->candidate[i];

        co->beyond += !c->whole && hth_save_cmp(c->id, co->watermark) <= 0;
        co->passed += c->whole && !co->wants && hth_keep_is_bad(&co->ctx->keep, c->id);
    }
    if (!chosen && co->wants) {
        choice_cannot_give(co, text, sizeof(text));
        hth_choice_fail(co, HEARTH_ENOENT, text);
        return;
    }
    if (co->passed)
        hth_say(&co->ctx->log, HEARTH_LOG_WARN, "bad-passed",
                "%" PRIu32 " newer saves are whole and marked bad: passed over", co->passed);
    if (co->tries)
        hth_say(&co->ctx->log, HEARTH_LOG_WARN, "bad-by-count",
                "step %" PRIu64 " is marked bad: %" PRIu32 " jobs in a row recovered it and ended "
                "before a save of theirs was decided; `hearth keep --root ROOT %s good %" PRIu64
                "` takes the mark away",
                co->ctx->keep.tried.step, co->tries, co->ctx->opts.job, co->ctx->keep.tried.step);
    if (!chosen && choice_is_loss(co, text, sizeof(text))) {
        if (!co->accept_loss) {
            hth_choice_fail(co, HEARTH_ELOST, text);
            return;
        }
        hth_say(&co->ctx->log, HEARTH_LOG_WARN, "loss-accepted", "%s", text);
    }
    hth_say(&co->ctx->log, HEARTH_LOG_INFO, "chosen",
            chosen ? "step %" PRIu64 " of epoch %" PRIu64
                   : "nothing to recover (%" PRIu64 ", %" PRIu64 ")",
            chosen ? chosen->id.step : 0, chosen ? chosen->id.epoch : 0);
    if (chosen)
        choice_say_foreign(co, chosen);
    send_plan(co, chosen);
}

static void choice_find_candidates(struct hth_choice *co)
{
    if (candidates_find(co)) {
        hth_choice_fail(co, HEARTH_ENOMEM, "the coordinator has no memory for the inventory");
        return;
    }
    if (manifests_mismatch(co))
        return;
    if ((hth_save_none(co->watermark) || !co->ctx->opts.foreign_last) && foreign_candidates(co)) {
        hth_choice_fail(
                co, HEARTH_ENOMEM, "the coordinator has no memory for the containers found");
        return;
    }
    candidates_sort(co);
    co->serial = co->before + 1;
}

void hth_choice_tick(struct hth_choice *co, uint64_t now_ms)
{
    if (hth_restore_ended(co->restore) || co->gone || !co->from)
        return;
    if (co->complete < co->nodes) {
        send_ask(co, now_ms);
        return;
    }
    if (co->serial == 0)
        choice_find_candidates(co);
    if (!co->serial || hth_restore_ended(co->restore) ||
            hth_restore_has_plan(co->restore, co->serial))
        return;
    choice_decide(co, now_ms);
}

/* ---- What members say
 * --------------------------------------------------------------------------- */

/* The member sent this inventory before it learned that the plans of the engine before this one
 * are void. It may have carried out such a plan since, and freed objects that the inventory
 * lists. It is asked again. After GO no plan is made, and a member that sends an inventory needs
 * the plan that there is. */
static int choice_is_outdated(const struct hth_choice *co, uint32_t origin, uint32_t void_here)
{
    return !co->gone && origin != co->ctx->epoch->self && void_here < co->before;
}

static void choice_on_inventory(
        struct hth_choice *co, uint32_t origin, const unsigned char *bytes, size_t len)
{
    uint32_t part = len >= HTH_INVENTORY_HEAD ? hth_get32(bytes) : 0;
    uint32_t parts = len >= HTH_INVENTORY_HEAD ? hth_get32(bytes + 4) : 0;
    struct gathered *g;

    if (!gather_ready(co) || parts == 0 || parts > 65536 || part >= parts)
        return;
    if (part == 0 && fail_again(co, origin))
        return;
    g = &co->from[origin];
    if (g->complete && part == 0)
        send_plan_again(co, g, origin);
    if (g->complete || hth_restore_ended(co->restore) ||
            choice_is_outdated(co, origin, hth_get32(bytes + 8)))
        return;
    if (gather_part(co, origin, part, parts, hth_get32(bytes + 12), bytes + HTH_INVENTORY_HEAD,
                len - HTH_INVENTORY_HEAD))
        hth_choice_tick(co, hth_now_ms(&co->ctx->clock));
}

void hth_choice_manifest(
        struct hth_choice *co, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    if (candidate_manifest(co, id, bytes, len))
        hth_choice_tick(co, hth_now_ms(&co->ctx->clock));
}

/* 1: a node's keep record names the save, so it was PROTECTED. */
static int choice_was_protected(const struct hth_choice *co, struct hth_save_id id)
{
    for (uint32_t n = 0; n < co->nodes; n++)
        if (hth_keep_has(&co->from[n].inventory.keep, id))
            return 1;
    return hth_keep_has(&co->ctx->keep, id);
}

static int choice_has_older(const struct hth_choice *co, const struct candidate *c)
{
    while (++c < co->candidate + co->candidates)
        if (!c->lost && !hth_save_foreign(c->id))
            return 1;
    return 0;
}

/* A node lacks room for what it must hold, though it has freed what the plan does not keep. A
 * save that was never PROTECTED is passed over for an older one. For a save that was PROTECTED,
 * or is the only one, recovery fails instead: the user can add room. 1: failed. */
static int choice_no_room(struct hth_choice *co, struct candidate *c, const char *why)
{
    int protected = choice_was_protected(co, c->id);
    char text[HEARTH_ERROR_TEXT];

    if (protected || hth_breaks(co->ctx, HTH_BREAK_ROOM) ||
            (!co->accept_loss && !choice_has_older(co, c))) {
        snprintf(text, sizeof(text), "step %" PRIu64 ", %s, has no room: %.440s", c->id.step,
                protected ? "which was PROTECTED" : "which is all there is", why);
        hth_choice_fail(co, HEARTH_ENOSPC, text);
        return 1;
    }
    c->refused = PLAN_TRIES - 1;
    return 0;
}

/* A node cannot reach the holder of its objects. If the save was PROTECTED, recovery does not give
 * it up, and the next plan does not free it, since it may be whole. 1: failed. */
static int choice_out_of_reach(struct hth_choice *co, const struct candidate *c, const char *why)
{
    char text[HEARTH_ERROR_TEXT];

    if (!choice_was_protected(co, c->id))
        return 0;
    snprintf(text, sizeof(text), "step %" PRIu64 ", which was PROTECTED, is out of reach: %.440s",
            c->id.step, why);
    hth_choice_fail(co, HEARTH_EPEER, text);
    return 1;
}

static void choice_on_no(struct hth_choice *co, int code, const unsigned char *text, size_t len)
{
    struct candidate *c = candidate_find(co, co->chosen);
    char why[HEARTH_ERROR_TEXT];

    snprintf(why, sizeof(why), "%.*s", (int)len, (const char *)text);
    snprintf(co->lost_text, sizeof(co->lost_text), "%.199s", why);
    hth_say(&co->ctx->log, HEARTH_LOG_WARN, "plan-failed", "step %" PRIu64 ": %s", co->chosen.step,
            why);
    if (c && code == HEARTH_ENOSPC && choice_no_room(co, c, why))
        return;
    if (c && ++c->refused == PLAN_TRIES) {
        if (code == HEARTH_EPEER && choice_out_of_reach(co, c, why))
            return;
        c->lost = 1;
        c->whole = 0;
        rule_out(co, "plan-given-up", "step %" PRIu64 ": %s", c->id.step, why);
    }
    co->serial++;
    choice_decide(co, hth_now_ms(&co->ctx->clock));
}

static void choice_on_vote(
        struct hth_choice *co, uint32_t origin, const unsigned char *bytes, size_t len)
{
    uint32_t serial = len >= 8 ? hth_get32(bytes) : 0;
    struct hearth_error err;

    if (!gather_ready(co) || serial == 0 || serial != co->serial || co->background ||
            fail_again(co, origin))
        return;
    if (co->gone) {
        ruled_out_tell(co, origin);
        send_go(co, origin);
        return;
    }
    if (hth_get32(bytes + 4)) {
        choice_on_no(co, (int)hth_get32(bytes + 4), bytes + 8,
                len - 8 < HEARTH_ERROR_TEXT ? len - 8 : HEARTH_ERROR_TEXT - 1);
        return;
    }
    if (co->from[origin].voted == serial)
        return;
    co->from[origin].voted = serial;
    co->votes++;
    if (co->on_report)
        co->on_report(co->on_report_self, 1, origin, co->votes, co->nodes);
    if (co->votes == co->nodes) {
        candidates_leave(co);
        tries_go(co);
        if (candidates_keep(co, &err)) { /* the next engine must read the keep list of this GO */
            hth_choice_fail(co, err.code, err.text);
            return;
        }
        co->gone = 1;
        ruled_out_tell(co, HTH_NODE_NONE);
        hth_restore_go(co->restore, serial); /* GO is on record here before it is sent */
        hth_point(&co->ctx->points, "go");
        send_go(co, HTH_NODE_NONE);
    }
}

/* A node cannot take part. After GO, the node's engine was restarted and cannot join: its ranks
 * have the reason, and the epoch continues without it. */
static void choice_on_refused(
        struct hth_choice *co, uint32_t origin, const unsigned char *bytes, size_t len)
{
    char text[HEARTH_ERROR_TEXT];

    if (len < 4 || len > 4 + sizeof(text) || (int)hth_get32(bytes) >= 0 || fail_again(co, origin))
        return;
    snprintf(text, sizeof(text), "%.*s", (int)(len - 4), (const char *)bytes + 4);
    hth_choice_fail(co, (int)hth_get32(bytes), text);
}

void hth_choice_deliver(struct hth_choice *co, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len)
{
    if (kind == HTH_KIND_INVENTORY)
        choice_on_inventory(co, origin, bytes, len);
    else if (kind == HTH_KIND_VOTE)
        choice_on_vote(co, origin, bytes, len);
    else if (kind == HTH_KIND_REFUSED)
        choice_on_refused(co, origin, bytes, len);
}

/* ---- Ends
 * ---------------------------------------------------------------------------------------- */

static void choice_who_is_missing(const struct hth_choice *co, char *out, size_t len)
{
    uint32_t named = 0;
    int n;

    if (foreign_waits(co, out, len))
        return;
    if (co->background) {
        snprintf(out, len, "the plan is still being made by node %s",
                co->ctx->epoch->member[co->ctx->epoch->self].node);
        return;
    }
    n = snprintf(out, len, co->serial ? "no vote from" : "no inventory from");

    for (uint32_t i = 0; i < co->nodes && n > 0 && (size_t)n < len; i++) {
        const struct gathered *g = co->from ? &co->from[i] : NULL;

        if (g && (co->serial ? g->voted == co->serial : g->complete))
            continue;
        if (named++ < 5)
            n += snprintf(out + n, len - (size_t)n, "%s node %s", named > 1 ? "," : "",
                    co->ctx->epoch->member[i].node);
    }
}

void hth_choice_late(struct hth_choice *co)
{
    char missing[300];

    choice_who_is_missing(co, missing, sizeof(missing));
    hth_choice_fail(co, HEARTH_ETIMEOUT, missing);
}

/* ---- Front
 * --------------------------------------------------------------------------------------- */

int hth_choice_open(struct hth_ctx *ctx, struct hth_restore *restore, struct hth_choice **out,
        struct hearth_error *err)
{
    struct hth_choice *co = calloc(1, sizeof(*co));

    if (!co)
        return hth_fail(err, HEARTH_ENOMEM, 0, "recover");
    co->ctx = ctx;
    co->restore = restore;
    *out = co;
    return HEARTH_OK;
}

void hth_choice_on_report(struct hth_choice *co, hth_choice_report_fn *on_report, void *self)
{
    co->on_report = on_report;
    co->on_report_self = self;
}

void hth_choice_join(struct hth_choice *co)
{
    for (uint32_t i = 0; i < co->candidates; i++)
        names_leave(co->candidate[i].names);
    background_abandon(co);
    candidates_free(co->candidate, co->candidates);
    gather_free(co->from, co->nodes);
    *co = (struct hth_choice){
        .ctx = co->ctx,
        .restore = co->restore,
        .reading = co->reading,
        .backgrounds = co->backgrounds,
        .on_report = co->on_report,
        .on_report_self = co->on_report_self,
        .epochs = co->epochs + 1,
    };
}

void hth_choice_want(struct hth_choice *co, struct hth_save_id save)
{
    co->wants = 1;
    co->wanted = save;
}

void hth_choice_same_job(struct hth_choice *co)
{
    co->same_job = 1;
}

void hth_choice_accept_loss(struct hth_choice *co)
{
    co->accept_loss = 1;
}

void hth_choice_close(struct hth_choice *co)
{
    if (!co)
        return;
    hth_choice_join(co);
    names_close(co);
    background_close(co);
    free(co);
}
