/* SPDX-License-Identifier: Apache-2.0 */
/* A member's part of recovery; drawn in restore_state.h. It repeats its messages to the
 * coordinator until the answer shows that they came. tell.c reports the inventory, carry.c
 * carries out the plan. */
#include "restore_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int hth_restore_open(struct hth_ctx *ctx, hth_restore_end_fn *on_end, void *self,
        struct hth_restore **out, struct hearth_error *err)
{
    struct hth_restore *r = calloc(1, sizeof(*r));

    if (!r)
        return hth_fail(err, HEARTH_ENOMEM, 0, "recover");
    r->ctx = ctx;
    r->on_end = on_end;
    r->on_end_self = self;
    *out = r;
    return HEARTH_OK;
}

void hth_restore_join(struct hth_restore *r)
{
    struct hearth_error err;

    if (r->state != IDLE && r->state != ENDED) {
        hth_fail(&err, HEARTH_ECANCELED, 0, "a new epoch began");
        restore_end(r, HEARTH_ECANCELED, &err);
    }
    hth_plan_fini(&r->plan);
    manifest_leave(r);
    free(r->inventory);
    r->inventory = NULL;
    r->inventory_len = 0; /* 0 parts are sent while foreign files are being digested */
    r->commons = 0;
    r->digesting = 0;
    r->has_plan = 0;
    r->early = (struct hth_blob_id){ 0 };
    r->least = 0;
    r->plan_waits = 0;
    r->lists = 0;
    r->manifest_ms = 0;
    r->manifest_bad = 0;
    r->ruled_out[0] = r->absent[0] = '\0';
    r->generation++;
    r->state = IDLE;
}

void hth_restore_common(struct hth_restore *r, const char *name)
{
    size_t len = strlen(name);

    for (uint32_t i = 0; i < r->commons; i++)
        if (!strcmp(r->common[i], name))
            return;
    if (len <= HTH_NAME_MAX && r->commons < HTH_RESTORE_COMMON)
        memcpy(r->common[r->commons++], name, len + 1);
}

int hth_restore_start(struct hth_restore *r, uint32_t deadline_ms, struct hearth_error *err)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);
    uint64_t total = 0;
    const unsigned char *early;
    size_t len;
    int rc;

    if (r->state != IDLE)
        return hth_fail(err, HEARTH_ESTATE, 0, "recovery of this epoch has begun already");
    rc = hth_holdings_look_anew(r->ctx, err);
    if (!rc && !tell_look(r))
        rc = tell_make(r, err);
    if (rc)
        return rc;
    hth_transfer_pulled(r->ctx, &total, NULL);
    r->pulled_before = total;
    r->state = TOLD;
    r->asked_ms = 0;
    r->t_start = now_ms;
    r->deadline_ms = now_ms + deadline_ms;
    r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
    tell_inventory(r);
    early = hth_blob_find(r->ctx, &r->early, &len);
    if (early)
        hth_restore_plan(r, &r->early, early, len);
    return HEARTH_OK;
}

int hth_restore_begun(const struct hth_restore *r)
{
    return r->state != IDLE;
}

int hth_restore_ended(const struct hth_restore *r)
{
    return r->state == ENDED;
}

int hth_restore_running(const struct hth_restore *r)
{
    return r->state == TOLD || r->state == PULLING || r->state == VOTED;
}

/* ---- Plan ------------------------------------------------------------------------------------ */

struct hth_blob_id hth_restore_plan_id(const struct hth_ctx *ctx, uint32_t serial)
{
    const struct hth_epoch *e = ctx->epoch;

    return (struct hth_blob_id){ HTH_BLOB_PLAN, { e->epoch, e->nonce, serial, 0 }, 0 };
}

/* There is a plan that has not come. The parent has it or will have it: this node asks only the
 * parent, so that the coordinator need not serve all nodes. A parent whose engine was killed after
 * GO has no plan and needs none: if the plan does not come for long, this node asks the
 * coordinator. */
static void restore_ask_for_plan(struct hth_restore *r, const unsigned char *bytes, size_t len)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);
    struct hth_blob_id id;
    uint32_t from;

    if (len != 4 || r->state != TOLD || r->has_plan || hth_is_coordinator(r->ctx) ||
            hth_get32(bytes) <= r->least)
        return;
    if (!r->asked_ms)
        r->asked_ms = now_ms;
    from = now_ms < r->asked_ms + 2 * (uint64_t)r->ctx->opts.dead_ms
                   ? hth_tree_parent(r->ctx, r->ctx->epoch->self)
                   : 0;
    id = hth_restore_plan_id(r->ctx, hth_get32(bytes));
    (void)hth_blob_fetch(r->ctx, &id, from, NULL);
}

/* 0: the plan is for later, or is not needed. */
static int restore_wants_plan(struct hth_restore *r, const struct hth_blob_id *id)
{
    /* given to the engine before this one; this node's ranks have not asked yet */
    if (r->state == IDLE && id->save.step > r->early.save.step)
        r->early = *id;
    return r->state == TOLD || r->state == VOTED || r->state == PULLING;
}

void hth_restore_plan(
        struct hth_restore *r, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct hth_plan plan;
    struct hearth_error err;

    if (!restore_wants_plan(r, id))
        return;
    if (hth_plan_decode(&plan, bytes, len, &err)) {
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "plan-bad", "%s", err.text);
        return;
    }
    hth_restore_take(r, id, &plan);
    hth_plan_fini(&plan);
}

void hth_restore_take(struct hth_restore *r, const struct hth_blob_id *id, struct hth_plan *plan)
{
    if (!restore_wants_plan(r, id) || plan->serial <= r->least ||
            (r->has_plan && plan->serial <= r->plan.serial))
        return;
    hth_plan_fini(&r->plan);
    manifest_leave(r);
    r->plan = *plan;
    *plan = (struct hth_plan){ 0 };
    r->has_plan = 1;
    r->manifest_ms = 0;
    r->t_told = hth_now_ms(&r->ctx->clock);
    carry_out(r);
}

void hth_restore_manifest(struct hth_restore *r, const struct hth_blob_id *id)
{
    if (r->plan_waits && hth_restore_running(r) && !hth_save_cmp(id->save, r->plan.chosen))
        carry_out(r);
}

int hth_restore_has_plan(const struct hth_restore *r, uint32_t serial)
{
    return r->has_plan && r->plan.serial == serial;
}

int hth_restore_resume(
        struct hth_restore *r, const unsigned char *bytes, size_t len, struct hearth_error *err)
{
    int rc = hth_plan_decode(&r->plan, bytes, len, err);

    r->has_plan = r->has_plan || !rc;
    return rc;
}

void hth_restore_raw(
        struct hth_restore *r, const struct hth_blob_id *id, const struct hearth_error *err)
{
    pull_raw_ended(r, id, err);
}

uint32_t hth_restore_sources(
        const struct hth_restore *r, uint64_t object, uint32_t out[HTH_PLAN_SOURCES])
{
    const struct hth_manifest *m = restore_manifest(r);
    const struct hth_object *o = m ? hth_manifest_find(m, object) : NULL;
    struct hth_sources from = { 0 };
    uint32_t count = 0;

    if (o)
        hth_runs_get(&r->plan.from, (uint32_t)(o - m->object), &from);
    for (uint32_t i = 0; i < from.count; i++)
        if (from.node[i] < r->ctx->epoch->nodes)
            out[count++] = from.node[i];
    return count;
}

/* ---- The end --------------------------------------------------------------------------------- */

void hth_restore_go(struct hth_restore *r, uint32_t serial)
{
    struct hearth_error err;

    if (r->state != VOTED || !hth_restore_has_plan(r, serial))
        return;
    if (r->failed_code) /* GO came of the vote of the engine before; this one cannot carry the plan out */
        hth_fail(&err, r->failed_code, 0, "%s", r->failed);
    restore_end(r, r->failed_code, r->failed_code ? &err : NULL);
}

/* May come before this node's ranks have asked to recover; they get the failure when they ask. */
static void restore_on_epoch_failed(struct hth_restore *r, const unsigned char *bytes, size_t len)
{
    struct hearth_error err;

    if (len < 4 || len > 4 + HEARTH_ERROR_TEXT || !hth_get32(bytes) || r->state == ENDED)
        return;
    hth_fail(&err, (int)hth_get32(bytes), 0, "%.*s", (int)(len - 4), (const char *)bytes + 4);
    restore_end(r, err.code, &err);
}

/* If a parent has refused this node, or this node the parent, that will not change soon: its text
 * goes to the user. A coordinator that has not joined yet is waited for until the deadline, as it
 * waits for members that have not joined: this node repeats its messages to it. */
void hth_restore_peer_down(struct hth_restore *r, uint32_t node, int code, const char *text)
{
    struct hearth_error err;

    if (code == HEARTH_ESTATE) {
        if (node == 0)
            snprintf(r->absent, sizeof(r->absent), "%s", text);
        return;
    }
    if (code != HEARTH_EPEER && node == hth_tree_parent(r->ctx, r->ctx->epoch->self)) {
        hth_fail(&err, code, 0, "%s", text);
        restore_end(r, code, &err);
    } else if (node == 0) {
        hth_fail(&err, HEARTH_EPEER, 0, "%s: recovery has no coordinator, restart the job", text);
        restore_end(r, HEARTH_EPEER, &err);
    }
}

void hth_restore_give_up(struct hth_restore *r)
{
    struct hearth_error err;

    if (r->state == REFUSED) { /* this node has refused, and cannot reach the coordinator */
        restore_end(r, r->refused.code, &r->refused);
        return;
    }
    hth_fail(&err, HEARTH_ETIMEOUT, 0,
            "recovery: no word from the coordinator, node %s, in time%s%.300s",
            r->ctx->epoch->member[0].node, r->absent[0] ? ": " : "", r->absent);
    restore_end(r, HEARTH_ETIMEOUT, &err);
}

/* ---- A node that cannot take part ------------------------------------------------------------ */

static void restore_say_refused(struct hth_restore *r)
{
    unsigned char body[4 + HEARTH_ERROR_TEXT];
    size_t len = strnlen(r->refused.text, sizeof(r->refused.text));

    hth_put32(body, (uint32_t)r->refused.code);
    memcpy(body + 4, r->refused.text, len);
    hth_tree_up(r->ctx, HTH_KIND_REFUSED, body, 4 + len);
}

void hth_restore_refuse(struct hth_restore *r, const struct hearth_error *why)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);

    r->refused = *why;
    if (r->state != REFUSED)
        r->deadline_ms = now_ms + r->ctx->opts.recover_ms;
    r->state = REFUSED;
    r->plan_waits = 0; /* nothing is carried out any more */
    r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
    restore_say_refused(r);
}

/* ---- Events and time ------------------------------------------------------------------------- */

void hth_restore_deliver(
        struct hth_restore *r, uint16_t kind, const unsigned char *bytes, size_t len)
{
    r->absent[0] = '\0';
    if (kind == HTH_KIND_GO && len == 4)
        hth_restore_go(r, hth_get32(bytes));
    else if (kind == HTH_KIND_PLAN)
        restore_ask_for_plan(r, bytes, len);
    else if (kind == HTH_KIND_RULED_OUT && len > 4 && r->state != ENDED &&
             hth_restore_has_plan(r, hth_get32(bytes)))
        restore_rule_out(r, bytes + 4, len - 4);
    else if (kind == HTH_KIND_ASK_INVENTORY)
        tell_again(r, bytes, len);
    else if (kind == HTH_KIND_EPOCH_FAILED)
        restore_on_epoch_failed(r, bytes, len);
}

int hth_restore_late(const struct hth_restore *r, uint64_t now_ms)
{
    return r->state != IDLE && r->state != ENDED && now_ms >= r->deadline_ms;
}

void hth_restore_tick(struct hth_restore *r, uint64_t now_ms)
{
    if (r->state != IDLE && r->state != ENDED && now_ms >= r->repeat_ms) {
        r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
        if (r->plan_waits)
            carry_out(r);
        else if (r->state == TOLD)
            tell_inventory(r);
        else if (r->state == VOTED)
            vote_say(r);
        else if (r->state == REFUSED)
            restore_say_refused(r);
    }
    pull_tick(r, now_ms);
}

uint64_t hth_restore_due_ms(const struct hth_restore *r)
{
    uint64_t due_ms = r->repeat_ms < r->deadline_ms ? r->repeat_ms : r->deadline_ms;
    uint64_t pull_ms = pull_due_ms(r);

    if (r->state == IDLE || r->state == ENDED)
        return HTH_NEVER;
    return pull_ms < due_ms ? pull_ms : due_ms;
}

void hth_restore_close(struct hth_restore *r)
{
    if (!r)
        return;
    pull_close(r);
    hth_plan_fini(&r->plan);
    manifest_leave(r);
    free(r->inventory);
    free(r);
}
