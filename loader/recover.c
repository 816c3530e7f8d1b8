/* SPDX-License-Identifier: Apache-2.0 */
/* Front of recovery: each event goes to this node's part as a member (loader/restore), and where it
 * is the coordinator to that part too (loader/choice). No state of its own. */
#include "recover.h"

#include "loader/choice/choice.h"
#include "replication/tree/tree.h"

#include <stdlib.h>

struct hth_recover {
    struct hth_ctx *ctx;
    struct hth_restore *restore;
    struct hth_choice *choice;
};

int hth_recover_open(struct hth_ctx *ctx, const struct hth_recover_events *events,
        struct hth_recover **out, struct hearth_error *err)
{
    struct hth_recover *r = calloc(1, sizeof(*r));
    int rc;

    if (!r)
        return hth_fail(err, HEARTH_ENOMEM, 0, "recover");
    r->ctx = ctx;
    rc = hth_restore_open(ctx, events->on_end, events->self, &r->restore, err);
    rc = rc ? rc : hth_choice_open(ctx, r->restore, &r->choice, err);
    if (rc) {
        hth_recover_close(r);
        return rc;
    }
    hth_choice_on_report(r->choice, events->on_report, events->self);
    *out = r;
    return HEARTH_OK;
}

void hth_recover_join(struct hth_recover *r)
{
    hth_restore_join(r->restore);
    hth_choice_join(r->choice);
}

void hth_recover_common(struct hth_recover *r, const char *name)
{
    hth_restore_common(r->restore, name);
}

void hth_recover_accept_loss(struct hth_recover *r)
{
    hth_choice_accept_loss(r->choice);
}

void hth_recover_same_job(struct hth_recover *r)
{
    hth_choice_same_job(r->choice);
}

void hth_recover_want(struct hth_recover *r, struct hth_save_id save)
{
    hth_choice_want(r->choice, save);
}

int hth_recover_start(struct hth_recover *r, uint32_t deadline_ms, struct hearth_error *err)
{
    return hth_restore_start(r->restore, deadline_ms, err);
}

void hth_recover_refuse(struct hth_recover *r, const struct hearth_error *why)
{
    if (!r->ctx->epoch)
        return;
    if (hth_is_coordinator(r->ctx))
        hth_choice_fail(r->choice, why->code, why->text);
    else
        hth_restore_refuse(r->restore, why);
}

int hth_recover_resume(struct hth_recover *r, struct hearth_error *err)
{
    return hth_is_coordinator(r->ctx) ? hth_choice_resume(r->choice, err) : HEARTH_OK;
}

uint32_t hth_recover_sources(
        const struct hth_recover *r, uint64_t object, uint32_t out[HTH_PLAN_SOURCES])
{
    return hth_restore_sources(r->restore, object, out);
}

const char *hth_recover_ruled_out(const struct hth_recover *r)
{
    return hth_restore_ruled_out(r->restore);
}

unsigned hth_recover_put_off(const struct hth_recover *r)
{
    return hth_restore_put_off(r->restore);
}

void hth_recover_deliver(struct hth_recover *r, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len)
{
    if (hth_is_coordinator(r->ctx))
        hth_choice_deliver(r->choice, origin, kind, bytes, len);
    hth_restore_deliver(r->restore, kind, bytes, len);
}

void hth_recover_blob(
        struct hth_recover *r, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    if (id->kind == HTH_BLOB_PLAN)
        hth_restore_plan(r->restore, id, bytes, len);
    else if (id->kind == HTH_BLOB_RAW)
        hth_restore_raw(r->restore, id, NULL);
    else if (hth_is_coordinator(r->ctx))
        hth_choice_manifest(r->choice, id, bytes, len);
    else
        hth_restore_manifest(r->restore, id);
}

void hth_recover_blob_failed(
        struct hth_recover *r, const struct hth_blob_id *id, const struct hearth_error *err)
{
    int waits = hth_is_coordinator(r->ctx) ? !hth_restore_ended(r->restore)
                                           : hth_restore_running(r->restore);

    if (id->kind == HTH_BLOB_RAW) {
        hth_say(&r->ctx->log, HEARTH_LOG_ERROR, "raw-failed", "%s", err->text);
        hth_restore_raw(r->restore, id, err);
        return;
    }
    hth_say(&r->ctx->log, HEARTH_LOG_ERROR, "blob-failed", "%s", err->text);
    if (waits &&
            err->code == HEARTH_EIO) /* plan or manifest; a lack of memory alone is tried again */
        hth_recover_refuse(r, err);
}

void hth_recover_peer_down(struct hth_recover *r, uint32_t node, int code, const char *text)
{
    int coordinator = hth_is_coordinator(r->ctx);

    if (code != HEARTH_EAUTH && code != HEARTH_EPROTO && (code != HEARTH_ESTATE || coordinator))
        code = HEARTH_EPEER;
    if (!hth_restore_running(r->restore))
        return;
    if (coordinator)
        hth_choice_fail(r->choice, code, text);
    else
        hth_restore_peer_down(r->restore, node, code, text);
}

void hth_recover_tick(struct hth_recover *r)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);

    if (!hth_restore_begun(r->restore))
        return;
    if (!hth_restore_late(r->restore, now_ms)) {
        hth_restore_tick(r->restore, now_ms);
        if (hth_is_coordinator(r->ctx))
            hth_choice_tick(r->choice, now_ms);
    } else if (hth_is_coordinator(r->ctx)) {
        hth_choice_late(r->choice);
    } else {
        hth_restore_give_up(r->restore);
    }
}

uint64_t hth_recover_due_ms(const struct hth_recover *r)
{
    return hth_restore_due_ms(r->restore);
}

void hth_recover_close(struct hth_recover *r)
{
    if (!r)
        return;
    hth_choice_close(r->choice);
    hth_restore_close(r->restore);
    free(r);
}
