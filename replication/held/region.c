/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registrations of this engine, oldest first. Large ones run two at a time, so that checksums
 * find a worker beside them; small ones do not wait for large ones.
 */
#include "region.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define REGS_AT_ONCE 2u                  /* large ones */
#define REG_SMALL    (UINT64_C(1) << 20) /* bytes: pinned in less time than a checksum takes */
#define REG_AGAIN_MS 20u                 /* until one that is in use is deregistered again */

enum reg_state { REG_QUEUED, REG_RUNNING, REG_HERE, REG_ENDING, REG_FAILED };

struct hth_reg {
    struct hth_work work;
    struct hth_ctx *ctx;
    enum reg_state state;
    struct hth_slot *slot; /* NULL: other memory */
    void *base;
    uint64_t len;
    struct hth_region *region; /* HERE, ENDING */
    int code;
    struct hearth_error err;
    struct hth_reg_wait *waits;
    int telling;              /* waiters are being called; it is freed afterwards */
    int ending;               /* it is to end */
    void (*gone)(void *self); /* NULL: a slot's, which is leased while it ends */
    void *gone_self;
    uint64_t due_ms; /* ENDING */
    struct hth_reg *next;
};

/* ---- Under way ---------------------------------------------------------------------------- */

static void reg_free(struct hth_reg *reg)
{
    struct hth_reg **at = &reg->ctx->regs;

    while (*at != reg)
        at = &(*at)->next;
    *at = reg->next;
    free(reg);
}

/* The registration has ended: its memory may go now. */
static void reg_gone(struct hth_reg *reg)
{
    struct hth_store *store = reg->ctx->store;
    struct hth_reg was = *reg;

    reg->ctx->regs_ending -= reg->state == REG_ENDING;
    reg_free(reg);
    if (was.slot)
        store->ops->unlease(store, was.slot);
    else if (was.gone)
        was.gone(was.gone_self);
}

/* Deregisters it, or tries again at the next tick. */
static void reg_try_end(struct hth_reg *reg)
{
    reg->ctx->regs_ending += reg->state != REG_ENDING;
    reg->state = REG_ENDING;
    reg->due_ms = hth_now_ms(&reg->ctx->clock) + REG_AGAIN_MS;
    if (hth_session_dereg(reg->ctx->session, reg->region) == HEARTH_OK)
        reg_gone(reg);
}

static void reg_run(struct hth_work *work)
{
    struct hth_reg *reg = hth_owner_of(struct hth_reg, work, work);

    reg->code = hth_session_reg(reg->ctx->session, reg->base, reg->len, &reg->region, &reg->err);
}

static void reg_run_nothing(struct hth_work *work)
{
    (void)work;
}

static void reg_done(struct hth_work *work);

static void reg_submit(struct hth_reg *reg)
{
    void (*run)(struct hth_work *) = reg_run;

    if (reg->ending) { /* before it has begun */
        reg->code = HEARTH_ECANCELED;
        run = reg_run_nothing;
    } else if (hth_breaks(reg->ctx, HTH_BREAK_REGISTER)) {
        reg_run(&reg->work);
        run = reg_run_nothing;
    }
    reg->state = REG_RUNNING;
    reg->work = (struct hth_work){ .run = run, .done = reg_done };
    reg->ctx->workers.submit(reg->ctx->workers.self, &reg->work);
}

static void regs_feed(struct hth_ctx *ctx)
{
    uint32_t running = 0;

    for (const struct hth_reg *reg = ctx->regs; reg; reg = reg->next)
        running += reg->state == REG_RUNNING && reg->len > REG_SMALL;
    for (struct hth_reg *reg = ctx->regs; reg; reg = reg->next) {
        if (reg->state != REG_QUEUED || (reg->len > REG_SMALL && running >= REGS_AT_ONCE))
            continue;
        running += reg->len > REG_SMALL;
        reg_submit(reg);
    }
}

/* What an operator can do, if the system names the cause. */
static const char *reg_remedy(const struct hearth_error *cause)
{
    if (cause->code == HEARTH_ENOMEM || cause->native == ENOMEM || cause->native == EPERM)
        return "raise the limit of locked memory (ulimit -l) above all slots of the node: ";
    return "";
}

/* HEARTH_EIO for all causes, so that no caller takes the failure for a passing lack of memory. */
static void reg_fail(struct hth_reg *reg)
{
    const struct hth_ctx *ctx = reg->ctx;
    struct hearth_error cause = reg->err;
    char number[24] = "";

    if (cause.native)
        snprintf(number, sizeof(number), " (errno %d)", cause.native);
    reg->code = hth_fail(&reg->err, HEARTH_EIO, cause.native,
            "node %" PRIu32 " cannot register %" PRIu64 " bytes%s: %s%.200s",
            ctx->epoch ? ctx->epoch->self : 0, reg->len, number, reg_remedy(&cause), cause.text);
    hth_say(&ctx->log, HEARTH_LOG_WARN, "not-registered", "%s", reg->err.text);
    reg->state = REG_FAILED;
    if (reg->slot)
        reg->slot->user = NULL; /* the next caller begins a new registration */
}

/* Calls the waiters. A waiter may end the registration, wait for another or leave. */
static void reg_tell(struct hth_reg *reg)
{
    struct hth_reg_wait *wait;

    reg->telling = 1;
    while ((wait = reg->waits)) {
        reg->waits = wait->next;
        wait->reg = NULL;
        wait->ready(wait, reg->code ? NULL : reg->region, reg->code, &reg->err);
    }
    reg->telling = 0;
}

static void reg_done(struct hth_work *work)
{
    struct hth_reg *reg = hth_owner_of(struct hth_reg, work, work);
    struct hth_ctx *ctx = reg->ctx;
    int registered = !reg->code;

    reg->state = REG_HERE;
    if (reg->ending)
        reg->code = hth_fail(&reg->err, HEARTH_ECANCELED, 0, "the memory goes away");
    else if (!registered)
        reg_fail(reg);
    reg_tell(reg);
    if (reg->ending && registered)
        reg_try_end(reg);
    else if (reg->ending)
        reg_gone(reg);
    else if (!registered)
        reg_free(reg);
    regs_feed(ctx);
}

/* ---- Begin and end -------------------------------------------------------------------------- */

static void reg_wait(struct hth_reg *reg, struct hth_reg_wait *wait)
{
    struct hth_reg_wait **at = &reg->waits;

    if (!wait || wait->reg == reg)
        return;
    hth_reg_leave(wait);
    while (*at)
        at = &(*at)->next;
    wait->reg = reg;
    wait->next = NULL;
    *at = wait;
}

void hth_reg_leave(struct hth_reg_wait *wait)
{
    struct hth_reg_wait **at;

    if (!wait->reg)
        return;
    at = &wait->reg->waits;
    while (*at != wait)
        at = &(*at)->next;
    *at = wait->next;
    wait->reg = NULL;
}

static struct hth_reg *reg_new(struct hth_ctx *ctx, void *base, uint64_t len)
{
    struct hth_reg *reg = calloc(1, sizeof(*reg)), **at = &ctx->regs;

    if (!reg)
        return NULL;
    reg->ctx = ctx;
    reg->base = base;
    reg->len = len;
    while (*at)
        at = &(*at)->next;
    *at = reg;
    return reg;
}

struct hth_reg *hth_reg_begin(
        struct hth_ctx *ctx, void *base, uint64_t len, struct hth_reg_wait *wait)
{
    struct hth_reg *reg = reg_new(ctx, base, len);

    if (!reg)
        return NULL;
    reg_wait(reg, wait);
    regs_feed(ctx);
    return reg;
}

int hth_slot_region(struct hth_ctx *ctx, struct hth_slot *slot, struct hth_reg_wait *wait,
        struct hth_region **out, struct hearth_error *err)
{
    struct hth_reg *reg = slot->user;

    if (!reg) {
        reg = reg_new(ctx, slot->base, slot->capacity);
        if (!reg)
            return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a registration");
        reg->slot = slot;
        slot->user = reg;
        regs_feed(ctx);
    }
    if (reg->state == REG_HERE) {
        *out = reg->region;
        return HEARTH_OK;
    }
    reg_wait(reg, wait);
    return hth_fail(err, HEARTH_EBUSY, 0, "%" PRIu64 " bytes are being registered", reg->len);
}

int hth_reg_drop(struct hth_reg *reg)
{
    if (reg->state != REG_HERE || reg->telling || hth_session_dereg(reg->ctx->session, reg->region))
        return HEARTH_EBUSY;
    reg_free(reg);
    return HEARTH_OK;
}

void hth_reg_end(struct hth_reg *reg, void (*gone)(void *self), void *self)
{
    reg->gone = gone;
    reg->gone_self = self;
    reg->ending = 1;
    if (reg->state == REG_HERE && !reg->telling)
        reg_try_end(reg);
}

void hth_slot_region_end(struct hth_ctx *ctx, struct hth_slot *slot)
{
    struct hth_reg *reg = slot->user;

    if (!reg)
        return;
    slot->user = NULL;
    ctx->store->ops->lease(ctx->store, slot);
    hth_reg_end(reg, NULL, NULL);
}

/* ---- Time ------------------------------------------------------------------------------------ */

void hth_regs_tick(struct hth_ctx *ctx)
{
    uint64_t now = hth_now_ms(&ctx->clock);
    struct hth_reg *next;

    for (struct hth_reg *reg = ctx->regs; reg && ctx->regs_ending; reg = next) {
        next = reg->next;
        if (reg->state == REG_ENDING && now >= reg->due_ms)
            reg_try_end(reg);
    }
}

uint64_t hth_regs_due_ms(const struct hth_ctx *ctx)
{
    uint64_t due = HTH_NEVER;

    for (const struct hth_reg *reg = ctx->regs; reg && ctx->regs_ending; reg = reg->next)
        if (reg->state == REG_ENDING && reg->due_ms < due)
            due = reg->due_ms;
    return due;
}

void hth_regs_close(struct hth_ctx *ctx)
{
    struct hth_reg *reg;

    while ((reg = ctx->regs)) {
        ctx->regs = reg->next;
        free(reg);
    }
    ctx->regs_ending = 0;
}
