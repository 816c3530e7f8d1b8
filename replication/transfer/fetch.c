/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One object, or a range of it, from the nodes that have it. Bytes in the slot count only when they
 * were checked, and other nodes can have the object only when all of it counts.
 *
 *   TABLE ─► CHECK ─► (REUSE) ─► DATA ─► BLOCK ─► sealed ─► ENDING ─► done
 *     ▲        │ wrong             any: deadline, cancel, no holder ────┘  once nothing writes
 *     └────────┘                                                          the slot any more
 *
 * A whole object is `<name>.tmp` in its save until it is sealed. A range lies in scratch memory,
 * for which it waits where others have it all:
 *
 *   base: | file bytes [lo, hi), whole chunks | table |      lo = 0 and hi = all: as the file is
 */
#include "transfer_parts.h"

#include "core/format/table.h"
#include "replication/held/slots.h"
#include "replication/held/spans.h"
#include <stdlib.h>
#include <string.h>

#define DEADLINE_MS 300000u

struct hth_fetch *hth_fetch_find(struct hth_ctx *ctx, struct hth_save_id save, uint64_t object)
{
    struct hth_fetch *f = ctx->transfer->fetches;

    while (f && (!f->whole || !hth_fetch_runs(f) || f->object.id != object ||
                        hth_save_cmp(f->save, save) != 0))
        f = f->next;
    return f;
}

static uint64_t fetch_at_most(uint64_t value, uint64_t most)
{
    return value < most ? value : most;
}

/* Which bytes of the file are pulled, and where its table goes. */
static void fetch_geometry(struct hth_fetch *f, uint64_t off, uint64_t len)
{
    uint64_t data_len = f->object.data_len, data_end = HTH_BLOCK + data_len;
    uint64_t table_off = HTH_BLOCK + HTH_ALIGN(data_len), end = off + len;

    f->off = off;
    f->hi = hth_object_file_bytes(&f->object);
    f->chunk1 = (uint32_t)HTH_CHUNKS(data_len);
    if (!f->whole && end <= data_end) {
        f->chunk1 = end <= HTH_BLOCK ? 0 : (uint32_t)HTH_CHUNKS(end - HTH_BLOCK);
        f->hi = fetch_at_most(HTH_BLOCK + (uint64_t)f->chunk1 * HTH_CHUNK, data_end);
    }
    if (off >= data_end && !f->whole) { /* padding or table: no chunk */
        f->chunk0 = f->chunk1;
        f->lo = off < table_off ? off / HTH_BLOCK * HTH_BLOCK : table_off;
    } else if (off >= HTH_BLOCK) {
        f->chunk0 = (uint32_t)((off - HTH_BLOCK) / HTH_CHUNK);
        f->lo = HTH_BLOCK + (uint64_t)f->chunk0 * HTH_CHUNK;
    }
    if (f->slice) {
        f->chunk1 = f->chunk0 + 1; /* one unit, whatever chunks it touches */
        f->lo = off;
        f->hi = end;
    }
    f->table_at = f->hi > data_end ? table_off - f->lo : HTH_ALIGN(f->hi - f->lo);
    f->left = f->chunk1 - f->chunk0;
}

static int fetch_table_fits(const struct hth_object *o)
{
    if (o->kind == HTH_OBJECT_FOREIGN)
        return o->data_len && !o->table_len;
    return o->kind == HTH_OBJECT_SHARD &&
           o->table_len >= hth_table_bytes(o->data_len, 0, o->strong);
}

static int fetch_want_check(
        struct hth_ctx *ctx, const struct hth_fetch_want *want, struct hearth_error *err)
{
    const struct hth_object *o = &want->object;
    uint64_t bytes = hth_object_file_bytes(o);

    if (!ctx->epoch)
        return hth_fail(err, HEARTH_ESTATE, 0, "no epoch has been joined yet");
    if (!fetch_table_fits(o) || o->data_len > (uint64_t)UINT32_MAX / 2 * HTH_CHUNK ||
            o->table_len > (UINT64_C(1) << 40))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "'%s' cannot be an object: %" PRIu64 " bytes with a table of %" PRIu64, o->name,
                o->data_len, o->table_len);
    if (o->kind == HTH_OBJECT_FOREIGN && want->len)
        return hth_fail(
                err, HEARTH_EINVAL, 0, "'%s' is foreign: only all of it can be checked", o->name);
    if (want->off > bytes || want->len > bytes - want->off || (want->off && !want->len))
        return hth_fail(err, HEARTH_EINVAL, 0,
                "bytes %" PRIu64 " and %" PRIu64 " more are not in '%s', which has %" PRIu64,
                want->off, want->len, o->name, bytes);
    if (!want->len && hth_fetch_find(ctx, want->save, o->id))
        return hth_fail(err, HEARTH_EEXIST, 0, "'%s' of " HTH_SAVE " is being fetched already",
                o->name, HTH_SAVE_ARGS(want->save));
    return HEARTH_OK;
}

/* The memory is registered, and pulls may begin at the next pump; or it cannot be registered, and
 * the fetch ends. */
static void fetch_ready(
        void *self, struct hth_region *region, int code, const struct hearth_error *err)
{
    struct hth_fetch *f = self;

    if (!hth_fetch_runs(f))
        return;
    f->region = region;
    f->stirred = 1;
    if (!code)
        return;
    f->err = *err;
    hth_fetch_end(f, code, NULL);
}

static void fetch_slot_ready(struct hth_reg_wait *wait, struct hth_region *region, int code,
        const struct hearth_error *err)
{
    fetch_ready(hth_owner_of(struct hth_fetch, wait, wait), region, code, err);
}

/* A worker registers the slot's memory, unless an earlier fetch or rank has had that done. */
static int fetch_register(struct hth_fetch *f, struct hearth_error *err)
{
    int rc;

    f->wait.ready = fetch_slot_ready;
    rc = hth_slot_region(f->ctx, f->slot, &f->wait, &f->region, err);
    return rc == HEARTH_EBUSY ? HEARTH_OK : rc;
}

/* Takes a slot: the slot with the bytes that an earlier fetch has left, if there is one. If all
 * slots are in use or of other sizes, a new slot is made in the background, beside them or in their
 * place. */
static int fetch_take(struct hth_fetch *f, uint64_t bytes, struct hearth_error *err)
{
    struct hth_store *store = f->ctx->store;
    int rc, later;

    if (!store->ops->resume(store, bytes, f->save, f->object.name, &f->slot)) {
        f->half = 1;
        return HEARTH_OK;
    }
    rc = store->ops->take(store, bytes, &f->slot, err);
    if (rc != HEARTH_EBUSY && rc != HEARTH_ENOSPC)
        return rc;
    later = hth_transfer_make_way(f->ctx);
    rc = store->ops->take(store, bytes, &f->slot, err);
    if (later && (rc == HEARTH_EBUSY || rc == HEARTH_ENOSPC))
        return hth_fail(err, HEARTH_EBUSY, 0, "a slot is free in a moment");
    if (rc != HEARTH_EBUSY && rc != HEARTH_ENOSPC)
        return rc;
    rc = hth_slots_want(f->ctx, &bytes, 1, HTH_WANT_BESIDE, err);
    return rc ? rc : store->ops->take(store, bytes, &f->slot, err);
}

/* Takes room in the store. If there is no room beside a bad copy, the bad copy is dropped first. */
static int fetch_room(struct hth_fetch *f, struct hth_held **bad, struct hearth_error *err)
{
    struct hth_store *store = f->ctx->store;
    uint64_t bytes = f->table_at + f->object.table_len;
    int rc;

    if (!*bad) /* a bad copy has as many right chunks */
        f->early = hth_early_take(f->ctx, f->save, f->object.id, bytes, &f->slot);
    rc = f->early ? HEARTH_OK : fetch_take(f, bytes, err);
    if (rc && *bad) {
        hth_held_drop(f->ctx, f->in, *bad);
        *bad = NULL;
        rc = fetch_take(f, bytes, err);
    }
    if (rc)
        return rc;
    f->base = f->slot->base;
    rc = fetch_register(f, err);
    if (!rc)
        rc = store->ops->receive(store, f->slot, f->save, f->object.name, err);
    if (rc) {
        store->ops->give(store, f->slot);
        f->slot = NULL;
    }
    return rc;
}

/* Enters the fetch in the catalogue: beside the bad copy that is here, or as a new entry. */
static int fetch_hold(struct hth_fetch *f, struct hth_held *bad, struct hearth_error *err)
{
    struct hth_store *store = f->ctx->store;

    if (bad) {
        f->held = bad;
        f->old = bad->old = bad->slot;
        store->ops->lease(store, f->old);
        hth_spans_forget(bad); /* the copy that comes may be of another table */
        bad->slot = f->slot;
        bad->state = HTH_HELD_RECEIVING;
        bad->verified = 0;
    } else {
        f->held = hth_held_add(f->in, &f->object, HTH_HELD_RECEIVING, f->slot);
    }
    if (!f->held)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for an object");
    hth_held_pin(f->in, f->held);
    return HEARTH_OK;
}

/* 1: the object is here already, so there is nothing to fetch. */
static int fetch_find_here(struct hth_fetch *f, struct hth_held **out_bad, struct hearth_error *err)
{
    struct hth_held *held;

    f->made = !hth_holdings_find(f->ctx, f->save);
    f->in = hth_holdings_get(f->ctx, f->save);
    if (!f->in)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a save");
    held = hth_held_find(f->in, f->object.id);
    if (!held)
        return HEARTH_OK;
    if (held->state != HTH_HELD_SEALED || !held->slot)
        return hth_fail(err, HEARTH_EBUSY, 0, "'%s' of " HTH_SAVE " is being written here",
                f->object.name, HTH_SAVE_ARGS(f->save));
    if (held->verified && memcmp(held->object.digest, f->object.digest, HTH_DIGEST) == 0)
        return 1;
    *out_bad = held;
    return HEARTH_OK;
}

/* Clears the parts of the memory into which nothing is pulled, so that no old bytes stay. */
static void fetch_clear(struct hth_fetch *f)
{
    uint64_t pad = HTH_BLOCK + f->object.data_len, table_off = HTH_ALIGN(pad);

    if (f->lo == 0)
        memset(f->base, 0, HTH_BLOCK);
    if (pad < f->lo)
        pad = f->lo;
    if (f->hi > pad && pad < table_off)
        memset(f->base + pad - f->lo, 0, table_off - pad);
}

static int fetch_set_up_whole(struct hth_fetch *f, struct hearth_error *err)
{
    struct hth_held *bad = NULL;
    int rc = fetch_find_here(f, &bad, err);

    if (rc == 1)
        f->phase = PHASE_ENDING;
    if (rc)
        return rc == 1 ? HEARTH_OK : rc;
    rc = fetch_room(f, &bad, err);
    if (!rc && (rc = fetch_hold(f, bad, err))) {
        f->ctx->store->ops->give(f->ctx->store, f->slot);
        f->slot = NULL;
    }
    if (rc)
        return rc;
    f->ctx->store->ops->lease(f->ctx->store, f->slot);
    fetch_clear(f);
    return HEARTH_OK;
}

/* HEARTH_EBUSY: the range waits for memory. */
static int fetch_set_up_range(struct hth_fetch *f, struct hearth_error *err)
{
    uint64_t table = f->slice ? 0 : f->object.table_len;
    int rc = hth_scratch_take(f->ctx, f->table_at + table, fetch_ready, f, &f->scratch, err);

    if (rc)
        return rc;
    f->base = f->scratch->base;
    f->region = f->scratch->region;
    f->stirred = f->region != NULL;
    fetch_clear(f);
    return HEARTH_OK;
}

static int fetch_set_up(struct hth_fetch *f, struct hearth_error *err)
{
    int rc;

    f->chunk = calloc(f->left ? f->left : 1, 1);
    if (!f->chunk)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a fetch");
    if (f->whole)
        return fetch_set_up_whole(f, err);
    /* the sentence that the fetch ends with at its deadline */
    rc = fetch_set_up_range(f, &f->cause);
    if (rc && rc != HEARTH_EBUSY && err)
        *err = f->cause;
    return rc == HEARTH_EBUSY ? HEARTH_OK : rc;
}

static void fetch_ask(struct hth_fetch *f)
{
    struct source *first = f->slice ? hth_source_first(f) : NULL;

    for (uint32_t i = 0; i < f->sources && hth_fetch_runs(f); i++)
        if (!first || first == &f->source[i])
            hth_source_ask(f, &f->source[i]);
        else
            f->source[i].due_ms = HTH_NEVER;
}

/* In the order of their begin, so that small ranges cannot pass a large one for ever. */
void hth_fetches_room(struct hth_ctx *ctx)
{
    struct hearth_error err;
    int rc = HEARTH_OK;

    ctx->transfer->scratches.given = 0;
    for (struct hth_fetch *f = ctx->transfer->fetches; f && rc != HEARTH_EBUSY; f = f->next) {
        if (f->whole || f->base || !hth_fetch_runs(f))
            continue;
        rc = fetch_set_up_range(f, &err);
        if (!rc)
            fetch_ask(f);
        else if (rc != HEARTH_EBUSY)
            hth_fetch_end(f, rc, err.text);
    }
}

int hth_fetch_new(struct hth_ctx *ctx, const struct hth_fetch_want *want, struct hth_fetch **out,
        struct hearth_error *err)
{
    struct hth_fetch **at = &ctx->transfer->fetches, *f;
    uint32_t after = want->deadline_ms ? want->deadline_ms : DEADLINE_MS;
    int rc = fetch_want_check(ctx, want, err);

    if (rc)
        return rc;
    f = calloc(1, sizeof(*f));
    if (!f)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a fetch");
    f->ctx = ctx;
    f->save = want->save;
    f->object = want->object;
    f->class = want->class;
    f->whole = want->len == 0;
    f->deadline_after_ms = after;
    f->deadline_ms = hth_now_ms(&ctx->clock) + after;
    f->table_source = UINT32_MAX;
    f->slice = want->slice && hth_slice_is(&want->object, want->off, want->len);
    f->phase = hth_fetch_foreign(f) || f->slice ? PHASE_DATA : PHASE_TABLE;
    f->done = want->done;
    f->self = want->self;
    fetch_geometry(f, want->off, want->len);
    for (uint32_t i = 0; i < want->count; i++)
        if (want->sources[i] < ctx->epoch->nodes && want->sources[i] != ctx->epoch->self &&
                !hth_source_add(f, want->sources[i]))
            break;
    rc = fetch_set_up(f, err);
    if (rc) {
        hth_fetch_tidy(f);
        hth_fetch_free(f);
        return rc;
    }
    while (*at)
        at = &(*at)->next;
    *at = f;
    *out = f;
    return HEARTH_OK;
}

int hth_fetch_start(struct hth_ctx *ctx, const struct hth_fetch_want *want, struct hth_fetch **out,
        struct hearth_error *err)
{
    struct hth_fetch *f = NULL;
    int rc = hth_fetch_new(ctx, want, &f, err);

    if (!f)
        return rc;
    if (f->base)
        fetch_ask(f);
    *out = f;
    return HEARTH_OK;
}

static int fetch_is_granted(const struct hth_fetch *f)
{
    for (uint32_t i = 0; i < f->sources; i++)
        if (f->source[i].state == SOURCE_GRANTED)
            return 1;
    return 0;
}

void hth_fetch_add_sources(struct hth_ctx *ctx, struct hth_save_id save, uint64_t object,
        const uint32_t *sources, uint32_t count)
{
    struct hth_fetch *f = hth_fetch_find(ctx, save, object);

    if (!f || fetch_is_granted(f))
        return;
    for (uint32_t i = 0; i < count; i++) {
        struct source *s = sources[i] < ctx->epoch->nodes && sources[i] != ctx->epoch->self
                                   ? hth_source_join(f, sources[i])
                                   : NULL;

        if (s && s->state == SOURCE_NEW)
            hth_source_ask(f, s);
    }
}
