/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many plans the coordinator has given in this epoch, written down before each is heard: an
 * engine that is started again in its place counts on from there, so that no vote for a plan of its
 * forerunner is taken for one of its own, and no member that has the old plan takes the new one for it.
 *
 *     0 "HTHPLANS"   8 u32 version   12 u32 serial   16 u64 epoch   24 u64 nonce   32 digest
 */
#include "recover_state.h"

#include <hearth/internal/core/auth.h>
#include <hearth/internal/core/record.h>

#include <stdlib.h>

#define RECORD  "plans"
#define MAGIC   "HTHPLANS"
#define VERSION 1u
#define BYTES   (32u + HTH_DIGEST)

uint32_t serial_read(const struct hth_ctx *ctx)
{
    void *bytes = NULL;
    size_t len = 0;
    struct hth_reader r;
    struct hearth_error err;
    uint32_t serial;
    uint64_t epoch, nonce;
    int rc;

    if (ctx->store->ops->record_get(ctx->store, RECORD, &bytes, &len, NULL))
        return 0;
    r = (struct hth_reader){ .at = bytes, .len = len };
    rc = hth_read_head(&r, MAGIC, VERSION, "record of plans", &err);
    rc = rc ? rc : hth_record_check(bytes, len, "record of plans", &err);
    serial = hth_read32(&r);
    epoch = hth_read64(&r);
    nonce = hth_read64(&r);
    free(bytes);
    if (rc || r.bad) { /* more than have ever been given */
        hth_say(&ctx->log, HEARTH_LOG_WARN, "plans-bad", "%s", err.text);
        return (uint32_t)(ctx->clock.wall_ms(ctx->clock.self) / 1000);
    }
    return epoch == ctx->epoch->epoch && nonce == ctx->epoch->nonce ? serial : 0;
}

int serial_write(const struct hth_ctx *ctx, uint32_t serial, struct hearth_error *err)
{
    unsigned char bytes[BYTES];
    struct hth_writer w = { .at = bytes, .cap = sizeof(bytes) };

    hth_write(&w, MAGIC, 8);
    hth_write32(&w, VERSION);
    hth_write32(&w, serial);
    hth_write64(&w, ctx->epoch->epoch);
    hth_write64(&w, ctx->epoch->nonce);
    hth_write_digest(&w);
    return ctx->store->ops->record_put(ctx->store, RECORD, bytes, sizeof(bytes), err);
}
