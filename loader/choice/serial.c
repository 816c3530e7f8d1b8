/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serial of the coordinator's last plan in this epoch, and that plan, on record before the plan is
 * given out. The coordinator's next engine counts on from there, so that a vote for an older plan is never
 * taken for one of its own, and a member can tell a new plan from the one it has. After GO the recorded plan
 * is given to a member whose engine is new too.
 *
 *     0 "HTHPLANS"   8 u32 version   12 u32 serial   16 u64 epoch   24 u64 nonce   32 the plan, or
 *     nothing where there was no room for it   . 32 digest
 */
#include "choice_state.h"

#include "core/base/auth.h"
#include "core/format/record.h"

#include <stdlib.h>

#define RECORD "plans"
#define MAGIC  "HTHPLANS"
#define HEAD   32u

uint32_t serial_read(const struct hth_ctx *ctx, unsigned char **out_plan, size_t *out_len)
{
    void *bytes = NULL;
    size_t len = 0;
    struct hth_reader r;
    struct hearth_error err;
    uint32_t version, serial;
    uint64_t epoch, nonce;
    int rc;

    *out_len = 0;
    *out_plan = NULL;
    if (ctx->store->ops->record_get(ctx->store, RECORD, &bytes, &len, NULL))
        return 0;
    r = (struct hth_reader){ .at = bytes, .len = len };
    rc = hth_read_head(&r, MAGIC, hth_versions_of(HTH_FORMAT_PLANS), &version, &err);
    rc = rc ? rc : hth_record_check(bytes, len, "record of plans", &err);
    serial = hth_read32(&r);
    epoch = hth_read64(&r);
    nonce = hth_read64(&r);
    if (!rc && (r.bad || len < HEAD + HTH_DIGEST))
        rc = hth_fail(&err, HEARTH_ECORRUPT, 0, "record of plans: %zu bytes are too few", len);
    if (rc) { /* seconds since 1970: more than plans were ever given */
        hth_say(&ctx->log, HEARTH_LOG_WARN, "plans-bad", "%s", err.text);
        free(bytes);
        return (uint32_t)(ctx->clock.wall_ms(ctx->clock.self) / 1000);
    }
    if (epoch != ctx->epoch->epoch || nonce != ctx->epoch->nonce) {
        free(bytes);
        return 0;
    }
    *out_len = len - HEAD - HTH_DIGEST;
    memmove(bytes, (unsigned char *)bytes + HEAD, *out_len);
    *out_plan = bytes;
    return serial;
}

int serial_write(const struct hth_ctx *ctx, uint32_t serial, const void *plan, size_t len,
        struct hearth_error *err)
{
    struct hth_writer w = { .cap = HEAD + len + HTH_DIGEST };
    int rc;

    w.at = malloc(w.cap);
    if (!w.at)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for the record of plans");
    hth_write(&w, MAGIC, 8);
    hth_write32(&w, hth_version_written(HTH_FORMAT_PLANS));
    hth_write32(&w, serial);
    hth_write64(&w, ctx->epoch->epoch);
    hth_write64(&w, ctx->epoch->nonce);
    hth_write(&w, plan, len);
    hth_write_digest(&w);
    rc = ctx->store->ops->record_put(ctx->store, RECORD, w.at, w.len, err);
    free(w.at);
    return rc && len ? serial_write(ctx, serial, NULL, 0, err) : rc;
}
