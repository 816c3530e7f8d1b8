/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serial of the coordinator's last plan in this epoch, and that plan, on record before the plan
 * is given out (core/format/plans.h). The coordinator's next engine counts on from there, so that a
 * vote for an older plan is never taken for one of its own, and a member can tell a new plan from
 * the one it has. After GO the recorded plan is given to a member whose engine is new too.
 */
#include "choice_state.h"

#include "core/format/plans.h"

#include <stdlib.h>
#include <string.h>

#define RECORD "plans"

int serial_read(const struct hth_ctx *ctx, struct given *out, struct hearth_error *err)
{
    void *bytes = NULL;
    size_t len = 0;
    struct hearth_error cause;
    struct hth_plans p;
    int rc;

    *out = (struct given){ 0 };
    if (ctx->store->ops->record_get(ctx->store, RECORD, &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_plans_decode(&p, bytes, len, &cause);
    if (rc == HEARTH_EUNSUPPORTED) {
        hth_fail(err, rc, 0, "node %s: %s", ctx->epoch->member[ctx->epoch->self].node, cause.text);
    } else if (rc) {
        hth_say(&ctx->log, HEARTH_LOG_WARN, "plans-bad", "%s", cause.text);
        /* seconds since 1970: a number above the serial of any earlier plan */
        out->serial = (uint32_t)(ctx->clock.wall_ms(ctx->clock.self) / 1000);
        rc = HEARTH_OK;
    } else if (p.epoch == ctx->epoch->epoch && p.nonce == ctx->epoch->nonce) {
        memmove(bytes, p.plan, p.plan_len);
        *out = (struct given){ p.serial, bytes, p.plan_len };
        return HEARTH_OK;
    }
    free(bytes);
    return rc;
}

int serial_write(const struct hth_ctx *ctx, uint32_t serial, const void *record, size_t len,
        struct hearth_error *err)
{
    struct hth_plans p = {
        .epoch = ctx->epoch->epoch, .nonce = ctx->epoch->nonce, .serial = serial
    };
    unsigned char *alone;
    int rc = ctx->store->ops->record_put(ctx->store, RECORD, record, len, err);

    if (!rc)
        return HEARTH_OK;
    alone = malloc(hth_plans_bytes(&p));
    if (!alone)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the record of plans");
    hth_plans_encode(&p, alone);
    rc = ctx->store->ops->record_put(ctx->store, RECORD, alone, hth_plans_bytes(&p), err);
    free(alone);
    return rc;
}
