/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's part of recovery. When every member has said what it holds:
 *
 *   candidates: every save of which somebody has a valid manifest, newest first
 *   look at each from the newest down: fetch its manifest, find every object's holders
 *   chosen:     the first that is whole and not marked bad
 *   go on down to the newest save that a keep list names: what is whole on the way is kept
 *
 * then the plan goes to all by blob, votes come back, and GO is said when all agree. A no makes the
 * next older whole save the chosen one, in the same epoch. A silent member fails the epoch by name.
 */
#include "recover_state.h"

#include "core/base/bytes.h"

#include <stdio.h>

#define PLAN_TRIES 3 /* a save that was protected is not given up for one bad cable */

/* ---- Choice ------------------------------------------------------------------------------------ */

/* What the choice waited for has ended. */
static void choose_again(struct hth_recover *r)
{
    choose_tick(r, hth_now_ms(&r->ctx->clock));
}

/* From the newest down until something is whole, and on to the watermark. 1: all looked at. */
static int look_at_all(struct hth_recover *r, uint64_t now_ms, struct candidate **out_chosen)
{
    *out_chosen = NULL;
    for (uint32_t i = 0; i < r->co.candidates; i++) {
        struct candidate *c = &r->co.candidate[i];

        if (*out_chosen &&
                (hth_save_foreign(c->id) || (hth_save_cmp(c->id, r->co.watermark) < 0 &&
                                                    !hth_keep_has(&r->ctx->keep, c->id))))
            break;
        if (!c->lost && !c->whole) {
            if (!candidate_has_manifest(r, c, now_ms) ||
                    (hth_save_foreign(c->id) && !foreign_look(r, c, choose_again)))
                return 0;
            if (!c->lost)
                candidate_look(r, c);
        }
        if (c->whole && !*out_chosen)
            *out_chosen = c;
    }
    return 1;
}

/* Nothing can be had, and there was something. */
static int is_loss(const struct hth_recover *r, char *out, size_t len)
{
    if (!hth_save_none(r->co.watermark)) {
        snprintf(out, len,
                "beyond redundancy: step %" PRIu64
                " was protected and cannot be had, and there is no older one (%s); "
                "load from storage after `hearth rm`, or recover with accept_loss",
                r->co.watermark.step, r->co.lost_text[0] ? r->co.lost_text : "no manifest is left");
        return 1;
    }
    if (!r->co.candidates || !hth_save_foreign(r->co.candidate[r->co.candidates - 1].id))
        return 0; /* foreign ones are older than all of our own */
    snprintf(out, len,
            "no container that was found is whole (%.190s); bring back what is missing, load from "
            "storage, or remove it with `hearth rm`",
            r->co.lost_text);
    return 1;
}

static void choose(struct hth_recover *r, uint64_t now_ms)
{
    struct candidate *chosen;
    uint32_t newer;
    char text[400];

    if (!look_at_all(r, now_ms, &chosen))
        return;
    newer = chosen ? (uint32_t)(chosen - r->co.candidate) : r->co.candidates;
    r->co.beyond = 0;
    for (uint32_t i = 0; i < newer; i++)
        r->co.beyond += hth_save_cmp(r->co.candidate[i].id, r->co.watermark) <= 0;
    if (!chosen && is_loss(r, text, sizeof(text))) {
        if (!r->accept_loss) {
            fail_epoch(r, HEARTH_ELOST, text);
            return;
        }
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "loss-accepted", "%s", text);
    }
    hth_say(&r->ctx->log, HEARTH_LOG_INFO, "chosen",
            chosen ? "step %" PRIu64 " of epoch %" PRIu64
                   : "nothing to recover (%" PRIu64 ", %" PRIu64 ")",
            chosen ? chosen->id.step : 0, chosen ? chosen->id.epoch : 0);
    give_plan(r, chosen);
}

static void make_candidates(struct hth_recover *r)
{
    if (candidates_find(r)) {
        fail_epoch(r, HEARTH_ENOMEM, "the coordinator has no memory for the inventory");
        return;
    }
    if (hth_save_none(r->co.watermark) && foreign_candidates(r)) {
        fail_epoch(r, HEARTH_ENOMEM, "the coordinator has no memory for the containers found");
        return;
    }
    candidates_sort(r);
    r->co.serial = r->co.before + 1;
}

void choose_tick(struct hth_recover *r, uint64_t now_ms)
{
    if (r->state == ENDED || r->co.gone || !r->co.from)
        return;
    if (r->co.complete < r->co.nodes) {
        give_ask(r, now_ms);
        return;
    }
    if (r->co.serial == 0)
        make_candidates(r);
    if (r->state == ENDED || (r->has_plan && r->plan.serial == r->co.serial))
        return;
    choose(r, now_ms);
}

/* ---- What members say --------------------------------------------------------------------------- */

void choose_inventory(
        struct hth_recover *r, uint32_t origin, const unsigned char *bytes, size_t len)
{
    uint32_t part = len >= 8 ? hth_get32(bytes) : 0;
    uint32_t parts = len >= 8 ? hth_get32(bytes + 4) : 0;
    struct gathered *g;

    if (!gather_ready(r) || parts == 0 || parts > 65536 || part >= parts)
        return;
    if (part == 0 && fail_again(r, origin))
        return;
    g = &r->co.from[origin];
    if (g->complete && part == 0)
        give_again(r, g, origin);
    if (g->complete || r->state == ENDED)
        return;
    if (gather_part(r, origin, part, parts, bytes + 8, len - 8))
        choose_tick(r, hth_now_ms(&r->ctx->clock));
}

void choose_manifest(
        struct hth_recover *r, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    if (candidate_manifest(r, id, bytes, len))
        choose_tick(r, hth_now_ms(&r->ctx->clock));
}

static void refuse_chosen(struct hth_recover *r, const unsigned char *text, size_t len)
{
    struct candidate *c = candidate_find(r, r->co.chosen);

    if (c && ++c->refused == PLAN_TRIES) {
        c->lost = 1;
        c->whole = 0;
    }
    snprintf(r->co.lost_text, sizeof(r->co.lost_text), "%.*s", (int)len, (const char *)text);
    hth_say(&r->ctx->log, HEARTH_LOG_WARN, "plan-failed", "step %" PRIu64 ": %s", r->co.chosen.step,
            r->co.lost_text);
    r->co.serial++;
    choose(r, hth_now_ms(&r->ctx->clock));
}

void choose_vote(struct hth_recover *r, uint32_t origin, const unsigned char *bytes, size_t len)
{
    uint32_t serial = len >= 8 ? hth_get32(bytes) : 0;
    unsigned char body[4];

    if (!gather_ready(r) || serial == 0 || serial != r->co.serial || fail_again(r, origin))
        return;
    if (r->co.gone) {
        give_go(r, origin);
        return;
    }
    if (hth_get32(bytes + 4)) {
        refuse_chosen(r, bytes + 8, len - 8 < 199 ? len - 8 : 199);
        return;
    }
    if (r->co.from[origin].voted == serial)
        return;
    r->co.from[origin].voted = serial;
    if (++r->co.votes == r->co.nodes) {
        r->co.gone = 1;
        hth_put32(body, serial);
        recover_go(r, body, sizeof(body)); /* on record here before anybody hears of it */
        hth_point(&r->ctx->points, "go");
        give_go(r, HTH_NODE_NONE);
    }
}

/* ---- Ends ---------------------------------------------------------------------------------------- */

static void who_is_missing(const struct hth_recover *r, char *out, size_t len)
{
    uint32_t named = 0;
    int n;

    if (foreign_waits(r, out, len))
        return;
    n = snprintf(out, len, r->co.serial ? "no vote from" : "no inventory from");

    for (uint32_t i = 0; i < r->co.nodes && n > 0 && (size_t)n < len; i++) {
        const struct gathered *g = r->co.from ? &r->co.from[i] : NULL;

        if (g && (r->co.serial ? g->voted == r->co.serial : g->complete))
            continue;
        if (named++ < 5)
            n += snprintf(out + n, len - (size_t)n, "%s node %s", named > 1 ? "," : "",
                    r->ctx->epoch->member[i].node);
    }
}

void choose_deadline(struct hth_recover *r)
{
    char missing[300];

    who_is_missing(r, missing, sizeof(missing));
    fail_epoch(r, HEARTH_ETIMEOUT, missing);
}

void choose_fini(struct hth_recover *r)
{
    for (uint32_t i = 0; i < r->co.candidates; i++)
        names_leave(r->co.candidate[i].names);
    candidates_fini(r);
    gather_fini(r);
    r->co = (struct coordinator){ 0 };
}
