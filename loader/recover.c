/* SPDX-License-Identifier: Apache-2.0 */
/* A member's part of recovery; drawn in recover_state.h. What it says upwards it repeats until the
 * answer shows that it was heard. tell.c says what is here, carry.c carries out the plan. */
#include "recover_state.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>

int hth_recover_open(struct hth_ctx *ctx, const struct hth_recover_events *events,
        struct hth_recover **out, struct hearth_error *err)
{
    struct hth_recover *r = calloc(1, sizeof(*r));

    if (!r)
        return hth_fail(err, HEARTH_ENOMEM, 0, "recover");
    r->ctx = ctx;
    r->events = *events;
    *out = r;
    return HEARTH_OK;
}

void hth_recover_join(struct hth_recover *r)
{
    struct hearth_error err;

    if (r->state != IDLE && r->state != ENDED) {
        hth_fail(&err, HEARTH_ECANCELED, 0, "a new epoch began");
        recover_end(r, HEARTH_ECANCELED, &err);
    }
    choose_fini(r);
    hth_plan_fini(&r->plan);
    free(r->inventory);
    r->inventory = NULL;
    r->inventory_len = 0; /* while foreign files are digested there is none to say */
    r->commons = 0;
    r->digesting = 0;
    r->has_plan = 0;
    r->early = (struct hth_blob_id){ 0 };
    r->least = 0;
    r->plan_waits = 0;
    r->waiting = 0;
    r->accept_loss = 0;
    r->generation++;
    r->state = IDLE;
}

void hth_recover_accept_loss(struct hth_recover *r)
{
    r->accept_loss = 1;
}

int hth_recover_start(struct hth_recover *r, uint32_t deadline_ms, struct hearth_error *err)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);
    uint64_t total = 0;
    const unsigned char *early;
    size_t len;
    int rc;

    if (r->state != IDLE)
        return hth_fail(err, HEARTH_ESTATE, 0, "recovery of this epoch has begun already");
    rc = tell_look(r) ? HEARTH_OK : tell_make(r, err);
    if (rc)
        return rc;
    hth_transfer_pulled(r->ctx, &total, NULL);
    r->pulled_before = total;
    r->state = TOLD;
    r->t_start = now_ms;
    r->deadline_ms = now_ms + deadline_ms;
    r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
    tell_inventory(r);
    early = hth_blob_find(r->ctx, &r->early, &len);
    if (early)
        hth_recover_blob(r, &r->early, early, len);
    return HEARTH_OK;
}

void hth_recover_resume(struct hth_recover *r)
{
    if (hth_is_coordinator(r->ctx))
        give_resume(r);
}

void hth_recover_common(struct hth_recover *r, const char *name)
{
    size_t len = strlen(name);

    for (uint32_t i = 0; i < r->commons; i++)
        if (!strcmp(r->common[i], name))
            return;
    if (len <= HTH_NAME_MAX && r->commons < HTH_RECOVER_COMMON)
        memcpy(r->common[r->commons++], name, len + 1);
}

/* ---- Plan ------------------------------------------------------------------------------------ */

struct hth_blob_id recover_plan_id(const struct hth_recover *r, uint32_t serial)
{
    const struct hth_epoch *e = r->ctx->epoch;

    return (struct hth_blob_id){ HTH_BLOB_PLAN, { e->epoch, e->nonce, serial, 0 }, 0 };
}

/* There is a plan, and it has not come. Our parent has it or will have: it is asked, and nobody else,
 * so that the coordinator need not talk to everybody. */
static void ask_for_plan(struct hth_recover *r, const unsigned char *bytes, size_t len)
{
    struct hth_blob_id id;

    if (len != 4 || r->state != TOLD || r->has_plan || hth_is_coordinator(r->ctx) ||
            hth_get32(bytes) <= r->least)
        return;
    id = recover_plan_id(r, hth_get32(bytes));
    (void)hth_blob_fetch(r->ctx, &id, hth_tree_parent(r->ctx, r->ctx->epoch->self), NULL);
}

static void on_plan(
        struct hth_recover *r, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct hth_plan plan;
    struct hearth_error err;

    if (r->state == IDLE && id->save.step > r->early.save.step)
        r->early = *id; /* for the engine before us; our ranks have not asked yet */
    if (r->state != TOLD && r->state != VOTED && r->state != PULLING)
        return;
    if (hth_plan_decode(&plan, bytes, len, &err)) {
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "plan-bad", "%s", err.text);
        return;
    }
    if (plan.serial <= r->least || (r->has_plan && plan.serial <= r->plan.serial)) {
        hth_plan_fini(&plan);
        return;
    }
    hth_plan_fini(&r->plan);
    r->plan = plan;
    r->has_plan = 1;
    r->t_told = hth_now_ms(&r->ctx->clock);
    carry_out(r);
}

void hth_recover_blob(
        struct hth_recover *r, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    if (id->kind == HTH_BLOB_PLAN)
        on_plan(r, id, bytes, len);
    else if (id->kind == HTH_BLOB_RAW)
        pull_raw_ended(r, id, NULL);
    else if (hth_is_coordinator(r->ctx))
        choose_manifest(r, id, bytes, len);
}

void hth_recover_blob_failed(
        struct hth_recover *r, const struct hth_blob_id *id, const struct hearth_error *err)
{
    hth_say(&r->ctx->log, HEARTH_LOG_ERROR, "raw-failed", "%s", err->text);
    pull_raw_ended(r, id, err);
}

/* ---- GO ------------------------------------------------------------------------------------------ */

void recover_go(struct hth_recover *r, const unsigned char *bytes, size_t len)
{
    struct hearth_error err;

    if (len != 4 || r->state != VOTED || !r->has_plan || hth_get32(bytes) != r->plan.serial)
        return;
    if (r->failed_code) /* by the vote of our engine before; this one cannot carry the plan out */
        hth_fail(&err, r->failed_code, 0, "%s", r->failed);
    recover_end(r, r->failed_code, r->failed_code ? &err : NULL);
}

/* Also before our ranks have asked to recover: they hear it then. */
static void on_epoch_failed(struct hth_recover *r, const unsigned char *bytes, size_t len)
{
    struct hearth_error err;

    if (len < 4 || len > 4 + HEARTH_ERROR_TEXT || !hth_get32(bytes) || r->state == ENDED)
        return;
    hth_fail(&err, (int)hth_get32(bytes), 0, "%.*s", (int)(len - 4), (const char *)bytes + 4);
    recover_end(r, err.code, &err);
}

/* ---- A node that cannot take part ---------------------------------------------------------------- */

static void say_refused(struct hth_recover *r)
{
    unsigned char body[4 + HEARTH_ERROR_TEXT];
    size_t len = strnlen(r->refused.text, sizeof(r->refused.text));

    hth_put32(body, (uint32_t)r->refused.code);
    memcpy(body + 4, r->refused.text, len);
    hth_tree_up(r->ctx, HTH_KIND_REFUSED, body, 4 + len);
}

void hth_recover_refuse(struct hth_recover *r, const struct hearth_error *why)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);

    r->refused = *why;
    if (!r->ctx->epoch)
        return;
    if (hth_is_coordinator(r->ctx)) {
        fail_epoch(r, why->code, why->text);
        return;
    }
    r->state = REFUSED;
    r->deadline_ms = now_ms + r->ctx->opts.recover_ms;
    r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
    say_refused(r);
}

/* At the coordinator. After GO it is an engine that came back and cannot join again: its ranks know
 * why, and the epoch goes on without it. */
static void on_refused(
        struct hth_recover *r, uint32_t origin, const unsigned char *bytes, size_t len)
{
    char text[HEARTH_ERROR_TEXT];

    if (len < 4 || len > 4 + sizeof(text) || (int)hth_get32(bytes) >= 0 || fail_again(r, origin))
        return;
    snprintf(text, sizeof(text), "%.*s", (int)(len - 4), (const char *)bytes + 4);
    fail_epoch(r, (int)hth_get32(bytes), text);
}

void hth_recover_deliver(struct hth_recover *r, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len)
{
    int coordinator = hth_is_coordinator(r->ctx);

    if (coordinator && kind == HTH_KIND_INVENTORY)
        choose_inventory(r, origin, bytes, len);
    else if (coordinator && kind == HTH_KIND_VOTE)
        choose_vote(r, origin, bytes, len);
    else if (coordinator && kind == HTH_KIND_REFUSED)
        on_refused(r, origin, bytes, len);
    else if (kind == HTH_KIND_GO)
        recover_go(r, bytes, len);
    else if (kind == HTH_KIND_PLAN)
        ask_for_plan(r, bytes, len);
    else if (kind == HTH_KIND_ASK_INVENTORY)
        tell_again(r, bytes, len);
    else if (kind == HTH_KIND_EPOCH_FAILED)
        on_epoch_failed(r, bytes, len);
}

/* Who refuses us, or is refused, will not be another in a while: his words are the user's. */
static int refused(int code)
{
    return code == HEARTH_EAUTH || code == HEARTH_EPROTO;
}

void hth_recover_peer_down(struct hth_recover *r, uint32_t node, int code, const char *text)
{
    struct hearth_error err;

    if (r->state == IDLE || r->state == REFUSED || r->state == ENDED)
        return;
    if (hth_is_coordinator(r->ctx)) {
        fail_epoch(r, refused(code) ? code : HEARTH_EPEER, text);
    } else if (refused(code) && node == hth_tree_parent(r->ctx, r->ctx->epoch->self)) {
        hth_fail(&err, code, 0, "%s", text);
        recover_end(r, code, &err);
    } else if (node == 0) {
        hth_fail(&err, HEARTH_EPEER, 0, "%s: recovery has no coordinator, restart the job", text);
        recover_end(r, HEARTH_EPEER, &err);
    }
}

static void deadline(struct hth_recover *r)
{
    struct hearth_error err;

    if (r->state == REFUSED) { /* our ranks know; who else cares does not hear us */
        r->state = ENDED;
        return;
    }
    if (hth_is_coordinator(r->ctx)) {
        choose_deadline(r);
        return;
    }
    hth_fail(&err, HEARTH_ETIMEOUT, 0, "recovery: no word from the coordinator, node %s, in time",
            r->ctx->epoch->member[0].node);
    recover_end(r, HEARTH_ETIMEOUT, &err);
}

void hth_recover_tick(struct hth_recover *r)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);

    if (r->state == IDLE)
        return;
    if (r->state != ENDED && now_ms >= r->deadline_ms) {
        deadline(r);
        return;
    }
    if (r->state != ENDED && now_ms >= r->repeat_ms) {
        r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
        if (r->plan_waits)
            carry_out(r);
        else if (r->state == TOLD)
            tell_inventory(r);
        else if (r->state == VOTED)
            vote_say(r);
        else if (r->state == REFUSED)
            say_refused(r);
    }
    if (r->later && now_ms >= r->later_ms)
        pull_later(r);
    if (hth_is_coordinator(r->ctx))
        choose_tick(r, now_ms);
}

uint64_t hth_recover_due_ms(const struct hth_recover *r)
{
    uint64_t due_ms = r->repeat_ms < r->deadline_ms ? r->repeat_ms : r->deadline_ms;

    if (r->state == IDLE || r->state == ENDED)
        return HTH_NEVER;
    return r->later && r->later_ms < due_ms ? r->later_ms : due_ms;
}

uint32_t hth_recover_sources(
        const struct hth_recover *r, uint64_t object, uint32_t out[HTH_PLAN_SOURCES])
{
    uint32_t index = r->has_plan ? hth_plan_index(&r->plan, object) : UINT32_MAX;

    if (index == UINT32_MAX)
        return 0;
    memcpy(out, r->plan.sources[index].node, sizeof(r->plan.sources[index].node));
    return r->plan.sources[index].count;
}

void hth_recover_close(struct hth_recover *r)
{
    if (!r)
        return;
    pull_close(r);
    choose_fini(r);
    names_close(r);
    hth_plan_fini(&r->plan);
    free(r->inventory);
    free(r);
}
