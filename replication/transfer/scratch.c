/* SPDX-License-Identifier: Apache-2.0 */
#include "scratch.h"

#include "core/base/map.h"
#include "transfer_parts.h"

#include <stdlib.h>

#define LEAST   (UINT64_C(64) << 10)
#define IDLE_MS 10000u
#define ROOMY   4u /* a free piece that is so many times too large is left for others */

static struct hth_scratches *scratches_of(const struct hth_ctx *ctx)
{
    return &ctx->transfer->scratches;
}

static void scratch_free(struct hth_scratch *s)
{
    struct hth_scratch **at = &scratches_of(s->ctx)->list;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    hth_unmap_memory(s->base, s->capacity);
    free(s);
}

static void scratch_gone(void *self)
{
    scratch_free(self);
}

static void scratch_end(struct hth_scratch *s)
{
    scratches_of(s->ctx)->bytes -= s->capacity;
    s->ends = 1;
    hth_reg_leave(&s->wait);
    if (s->reg)
        hth_reg_end(s->reg, scratch_gone, s);
    else
        scratch_free(s);
}

static void scratch_registered(struct hth_reg_wait *wait, struct hth_region *region, int code,
        const struct hearth_error *err)
{
    struct hth_scratch *s = hth_owner_of(struct hth_scratch, wait, wait);

    s->region = region;
    if (code)
        s->reg = NULL;
    if (s->user)
        s->ready(s->user, region, code, err);
    else if (code)
        scratch_end(s);
}

static struct hth_scratch *scratch_find(const struct hth_scratches *all, uint64_t bytes)
{
    struct hth_scratch *best = NULL;

    for (struct hth_scratch *s = all->list; s; s = s->next)
        if (!s->user && !s->ends && s->reg && s->capacity >= bytes &&
                s->capacity / ROOMY <= bytes && (!best || s->capacity < best->capacity))
            best = s;
    return best;
}

/* Ends memory that no transfer uses, until `bytes` fit. 0: they fit now. */
static int scratches_fit(struct hth_scratches *all, uint64_t bytes)
{
    struct hth_scratch *next;

    for (struct hth_scratch *s = all->list; s && all->bytes + bytes > HTH_SCRATCH_BYTES; s = next) {
        next = s->next;
        if (!s->user && !s->ends)
            scratch_end(s);
    }
    return all->bytes && all->bytes + bytes > HTH_SCRATCH_BYTES;
}

static struct hth_scratch *scratch_make(struct hth_ctx *ctx, uint64_t bytes)
{
    struct hth_scratches *all = scratches_of(ctx);
    struct hth_scratch *s = calloc(1, sizeof(*s));
    void *base = s ? hth_map_memory(bytes) : NULL;

    if (!base) {
        free(s);
        return NULL;
    }
    *s = (struct hth_scratch){ .base = base, .capacity = bytes, .ctx = ctx };
    s->wait.ready = scratch_registered;
    s->reg = hth_reg_begin(ctx, base, bytes, &s->wait);
    if (!s->reg) {
        hth_unmap_memory(base, bytes);
        free(s);
        return NULL;
    }
    s->next = all->list;
    all->list = s;
    all->bytes += bytes;
    return s;
}

int hth_scratch_take(struct hth_ctx *ctx, uint64_t bytes,
        void (*ready)(void *, struct hth_region *, int, const struct hearth_error *), void *user,
        struct hth_scratch **out, struct hearth_error *err)
{
    struct hth_scratches *all = scratches_of(ctx);
    struct hth_scratch *s;
    uint64_t capacity = LEAST;

    while (capacity < bytes)
        capacity = capacity < HTH_SCRATCH_BYTES ? capacity * 2 : HTH_ALIGN(bytes);
    s = scratch_find(all, bytes);
    if (!s && scratches_fit(all, capacity))
        return hth_fail(err, HEARTH_EBUSY, 0, "other readers have the memory for ranges");
    if (!s && !(s = scratch_make(ctx, capacity)))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a range of %" PRIu64 " bytes", bytes);
    s->ready = ready;
    s->user = user;
    *out = s;
    return HEARTH_OK;
}

void hth_scratch_give(struct hth_scratch *s)
{
    scratches_of(s->ctx)->given = 1;
    s->user = NULL;
    s->since_ms = hth_now_ms(&s->ctx->clock);
    if (!s->reg || s->capacity > HTH_SCRATCH_BYTES)
        scratch_end(s);
}

void hth_scratches_tick(struct hth_ctx *ctx, uint64_t now)
{
    struct hth_scratch *next;

    for (struct hth_scratch *s = scratches_of(ctx)->list; s; s = next) {
        next = s->next;
        if (!s->user && !s->ends && now >= s->since_ms + IDLE_MS)
            scratch_end(s);
    }
}

uint64_t hth_scratches_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = HTH_NEVER;

    for (const struct hth_scratch *s = scratches_of(ctx)->list; s; s = s->next)
        if (!s->user && !s->ends && s->since_ms + IDLE_MS < due)
            due = s->since_ms + IDLE_MS;
    return due;
}

void hth_scratches_close(struct hth_ctx *ctx)
{
    while (scratches_of(ctx)->list)
        scratch_free(scratches_of(ctx)->list);
}
