/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fetches proceed: pieces are pulled, and checked when they have come. While a source is
 * GRANTED, up to four pieces are under way from it. The next piece goes to the source with the
 * fewest under way, then with the least given so far: equal sources serve equal parts, a slow one
 * less.
 *
 * A piece is right once its checksum was computed from the bytes that lie in the slot. Pieces of
 * all fetches share one budget of bytes in flight: recovery, then readers, then copies of what is
 * kept, then others, and among equals the fetch that has waited longest.
 */
#include "transfer_parts.h"

#include "core/base/crc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW  4u /* pulls in flight per fetch and source */
#define BUDGET  (UINT64_C(64) << 20)
#define BUSY_MS 10u /* until a transport that had too many pulls is tried again */

/* ---- What next ------------------------------------------------------------------------------- */

/* The first chunk from `at` on that is to be pulled, counted from chunk0; the number of chunks if
 * there is none. */
static uint32_t chunk_todo_from(const struct hth_fetch *f, uint32_t at)
{
    uint32_t n = f->chunk1 - f->chunk0;
    const unsigned char *p = at < n ? memchr(f->chunk + at, CHUNK_TODO, n - at) : NULL;

    return p ? (uint32_t)(p - f->chunk) : n;
}

/* The unit to pull from this source now. A unit that this source has given wrongly is pulled from
 * other sources while there are any. */
static uint32_t source_unit(struct hth_fetch *f, const struct source *s)
{
    uint32_t n = f->chunk1 - f->chunk0, at;
    int avoid = s->bad_unit != UNIT_NONE && hth_sources_left(f, s->bad_unit);

    if (f->phase == PHASE_TABLE || f->phase == PHASE_BLOCK) {
        uint32_t unit = f->phase == PHASE_TABLE ? UNIT_TABLE : UNIT_BLOCK;

        return f->busy || (avoid && s->bad_unit == unit) ? UNIT_NONE : unit;
    }
    if (f->phase != PHASE_DATA || (hth_fetch_foreign(f) && !hth_foreign_from(f, s)))
        return UNIT_NONE;
    at = f->cursor = chunk_todo_from(f, f->cursor);
    if (at < n && avoid && s->bad_unit == f->chunk0 + at)
        at = chunk_todo_from(f, at + 1);
    return at < n ? f->chunk0 + at : UNIT_NONE;
}

static struct source *source_choose(struct hth_fetch *f, uint32_t *out_unit)
{
    struct source *best = NULL;

    for (uint32_t i = 0; i < f->sources; i++) {
        struct source *s = &f->source[i];
        uint32_t unit;

        if (s->state != SOURCE_GRANTED || s->in_flight >= WINDOW || s->due_ms != HTH_NEVER)
            continue;
        if (best && (s->in_flight > best->in_flight ||
                            (s->in_flight == best->in_flight && s->given >= best->given)))
            continue;
        unit = source_unit(f, s);
        if (unit == UNIT_NONE)
            continue;
        best = s;
        *out_unit = unit;
    }
    return best;
}

/* Where the first chunk begins in the file. */
static uint64_t fetch_data_at(const struct hth_fetch *f)
{
    return hth_fetch_foreign(f) ? 0 : HTH_BLOCK;
}

/* Where a unit lies in the file and in the slot. A table is pulled in parts, all from one
 * source. */
static void piece_place(struct hth_fetch *f, struct piece *p, uint64_t *out_off, uint64_t *out_at)
{
    if (f->slice) {
        p->len = f->hi - f->lo;
        *out_off = f->lo;
        *out_at = 0;
    } else if (p->unit == UNIT_TABLE) {
        uint64_t left;

        if (p->source != f->table_source)
            f->table_got = 0;
        f->table_source = p->source;
        left = f->object.table_len - f->table_got;
        p->len = left < HTH_CHUNK ? left : HTH_CHUNK;
        *out_off = HTH_BLOCK + HTH_ALIGN(f->object.data_len) + f->table_got;
        *out_at = f->table_at + f->table_got;
    } else if (p->unit == UNIT_BLOCK) {
        p->len = HTH_BLOCK;
        *out_off = *out_at = 0;
    } else {
        p->len = hth_chunk_len(f->object.data_len, p->unit);
        *out_off = fetch_data_at(f) + (uint64_t)p->unit * HTH_CHUNK;
        *out_at = *out_off - f->lo;
    }
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static struct piece *piece_get(struct hth_fetch *f)
{
    struct piece *p = f->spare, *all;

    if (p) {
        f->spare = p->next;
        all = p->all;
    } else {
        if (!(p = malloc(sizeof(*p))))
            return NULL;
        all = f->pieces;
        f->pieces = p;
    }
    *p = (struct piece){ .fetch = f, .all = all };
    return p;
}

static void piece_put(struct piece *p)
{
    p->next = p->fetch->spare;
    p->fetch->spare = p;
}

/* Marks the chunk to be pulled again. */
static void chunk_undo(struct hth_fetch *f, uint32_t unit)
{
    if (unit >= UNIT_TABLE)
        return;
    f->chunk[unit - f->chunk0] = CHUNK_TODO;
    if (unit - f->chunk0 < f->cursor)
        f->cursor = unit - f->chunk0;
}

static void chunk_right(struct hth_fetch *f, struct source *s, uint32_t unit)
{
    f->chunk[unit - f->chunk0] = CHUNK_RIGHT;
    s->strikes = 0;
    if (--f->left == 0)
        hth_fetch_data_here(f);
}

static void piece_check_run(struct hth_work *work)
{
    struct piece *p = hth_owner_of(struct piece, work, work);
    const struct hth_fetch *f = p->fetch;
    uint64_t at = HTH_BLOCK + (uint64_t)p->unit * HTH_CHUNK - f->lo;

    p->right = f->slice ? hth_crc32c(f->base, p->len) == p->sum
                        : hth_chunk_is(&f->proofs, p->unit, f->base + at);
}

static void piece_checked(struct hth_fetch *f, const struct piece *p, int right)
{
    struct source *s = &f->source[p->source];

    if (right) {
        f->sum = p->sum;
        chunk_right(f, s, p->unit);
    } else {
        chunk_undo(f, p->unit);
        hth_source_bad(f, s, p->unit, "has a wrong checksum");
    }
}

static void piece_check_done(struct hth_work *work)
{
    struct piece *p = hth_owner_of(struct piece, work, work);
    struct hth_fetch *f = p->fetch;
    struct hth_ctx *ctx = f->ctx;

    f->busy--;
    piece_put(p);
    if (hth_fetch_runs(f))
        piece_checked(f, p, p->right);
    hth_pump(ctx);
    hth_fetches_settle(ctx);
}

/* As piece_arrived(): few bytes, which this thread copies and compares. */
void hth_piece_came(struct hth_fetch *f, struct source *s, const unsigned char *bytes, uint32_t sum)
{
    struct piece p = {
        .source = (uint32_t)(s - f->source), .unit = f->chunk0, .len = f->hi - f->lo, .sum = sum
    };

    if (!f->base || f->chunk[0] != CHUNK_TODO)
        return;
    memcpy(f->base, bytes, p.len);
    hth_tally_add(&f->ctx->transfer->tally, s->node, p.len);
    hth_point(&f->ctx->points, "arrived");
    piece_checked(f, &p, hth_crc32c(f->base, p.len) == sum);
}

static void phase_start(struct hth_fetch *f);

static void phase_done(struct hth_work *work)
{
    struct hth_fetch *f = hth_owner_of(struct hth_fetch, work, work);
    struct hth_ctx *ctx = f->ctx;

    f->busy--;
    if (hth_fetch_runs(f)) {
        if (f->phase == PHASE_REUSE)
            hth_check_reuse_done(f);
        else if (hth_fetch_foreign(f))
            hth_foreign_digest_done(f);
        else
            hth_check_table_done(f);
        phase_start(f);
    }
    hth_pump(ctx);
    hth_fetches_settle(ctx);
}

/* Gives the phases CHECK and REUSE to a worker. */
static void phase_start(struct hth_fetch *f)
{
    void (*run)(struct hth_work *) = f->phase == PHASE_REUSE ? hth_check_reuse_run
                                     : hth_fetch_foreign(f)  ? hth_foreign_digest_run
                                                             : hth_check_table_run;

    if (f->phase != PHASE_CHECK && f->phase != PHASE_REUSE)
        return;
    f->busy++;
    f->work = (struct hth_work){ .run = run, .done = phase_done };
    f->ctx->workers.submit(f->ctx->workers.self, &f->work);
}

/* The bytes of a piece have come. 1: a worker checks them now. */
static int piece_arrived(struct hth_fetch *f, struct piece *p)
{
    struct source *s = &f->source[p->source];

    hth_tally_add(&f->ctx->transfer->tally, s->node, p->len);
    if (p->unit == UNIT_TABLE) {
        f->table_got += p->len;
        if (f->table_got < f->object.table_len)
            return 0;
        hth_fetch_table_here(f);
        phase_start(f);
    } else if (p->unit == UNIT_BLOCK) {
        hth_fetch_block_here(f, s);
    } else if (hth_fetch_foreign(f)) {
        if (hth_foreign_arrived(f, p))
            phase_start(f);
    } else if (hth_breaks(f->ctx, HTH_BREAK_VERIFY)) {
        f->sum = p->sum;
        chunk_right(f, s, p->unit);
    } else if (p->pull.has_crc && !f->proofs.sha256) {
        hth_point(&f->ctx->points, "arrived");
        piece_checked(f, p, p->pull.crc == (f->slice ? p->sum : f->proofs.crc[p->unit]));
    } else {
        hth_point(&f->ctx->points, "arrived");
        f->busy++;
        p->work = (struct hth_work){ .run = piece_check_run, .done = piece_check_done };
        f->ctx->workers.submit(f->ctx->workers.self, &p->work);
        return 1;
    }
    return 0;
}

static void piece_pull_done(struct hth_session_pull *pull, int code)
{
    struct piece *p = hth_owner_of(struct piece, pull, pull);
    struct hth_fetch *f = p->fetch;
    struct source *s = &f->source[p->source];
    struct hth_ctx *ctx = f->ctx;
    int kept = 0;

    hth_tally_end(&ctx->transfer->tally, s->node, hth_now_ms(&ctx->clock));
    ctx->transfer->in_flight -= p->len;
    s->in_flight--;
    f->busy--;
    if (hth_fetch_runs(f) && code) {
        chunk_undo(f, p->unit);
        if (p->grants == s->grants && s->state == SOURCE_GRANTED)
            hth_source_away(f, s, code);
    } else if (hth_fetch_runs(f)) {
        kept = piece_arrived(f, p);
    }
    if (!kept)
        piece_put(p);
    hth_pump(ctx);
    hth_fetches_settle(ctx);
}

/* 0: the pull has begun, or the source cannot be pulled from now. */
static int piece_pull(struct hth_fetch *f, struct source *s, uint32_t unit, uint64_t budget)
{
    struct hth_transfer *t = f->ctx->transfer;
    struct piece *p = piece_get(f);
    uint64_t off, at;
    int rc;

    if (!p)
        return HEARTH_ENOMEM;
    p->source = (uint32_t)(s - f->source);
    p->unit = unit;
    p->grants = s->grants;
    p->sum = s->sum;
    if (hth_fetch_foreign(f))
        hth_foreign_begin(f, s);
    piece_place(f, p, &off, &at);
    if (t->in_flight && t->in_flight + p->len > budget) {
        piece_put(p);
        return HEARTH_EBUSY;
    }
    if (unit < UNIT_TABLE && !f->pull_said) {
        f->pull_said = 1;
        hth_point(&f->ctx->points, "pull");
    }
    p->pull.done = piece_pull_done;
    rc = hth_session_pull(
            f->ctx->session, s->node, &s->grant, off, f->region, at, p->len, &p->pull);
    if (rc) {
        piece_put(p);
        if (rc == HEARTH_EBUSY)
            s->due_ms = hth_now_ms(&f->ctx->clock) + BUSY_MS;
        else if (rc == HEARTH_EINVAL)
            hth_source_out(f, s, rc, "its grant cannot be used");
        else
            hth_source_away(f, s, rc);
        return HEARTH_OK;
    }
    if (unit < UNIT_TABLE)
        f->chunk[unit - f->chunk0] = CHUNK_BUSY;
    hth_tally_begin(&t->tally, s->node, hth_now_ms(&f->ctx->clock));
    t->in_flight += p->len;
    s->in_flight++;
    s->given += p->len;
    f->busy++;
    f->issued = ++t->turn;
    return HEARTH_OK;
}

/* ---- All fetches ----------------------------------------------------------------------------- */

static int class_rank(enum hth_fetch_class class)
{
    switch (class) {
    case HTH_FETCH_RECOVERY:
        return 0;
    case HTH_FETCH_READ:
        return 1;
    case HTH_FETCH_REPAIR:
        return 2;
    case HTH_FETCH_REPLICA:
        break;
    }
    return 3;
}

static struct hth_fetch *fetch_next(struct hth_transfer *t)
{
    struct hth_fetch *best = NULL;

    for (struct hth_fetch *f = t->fetches; f; f = f->next) {
        if (f->dry || !hth_fetch_runs(f) || !f->region)
            continue;
        if (!best || class_rank(f->class) < class_rank(best->class) ||
                (class_rank(f->class) == class_rank(best->class) && f->issued < best->issued))
            best = f;
    }
    return best;
}

/* Ends the fetch if no source is left that could give the missing parts. */
static void fetch_check_lost(struct hth_fetch *f)
{
    char text[HEARTH_ERROR_TEXT];

    if (!hth_fetch_runs(f) || f->busy || f->phase == PHASE_CHECK || f->phase == PHASE_REUSE ||
            hth_sources_left(f, UNIT_NONE))
        return;
    snprintf(text, sizeof(text), "all %" PRIu32 " sources failed: %.400s", f->sources,
            f->cause.code ? f->cause.text : "there is none");
    hth_fetch_end(f, HEARTH_ELOST, text);
}

const struct hth_object *hth_fetch_object(const struct hth_fetch *f, struct hth_save_id *out_save)
{
    *out_save = f->save;
    return &f->object;
}

int hth_fetch_unreached(const struct hth_fetch *f)
{
    for (uint32_t i = 0; i < f->sources; i++)
        if (f->source[i].state == SOURCE_OUT && f->source[i].gone)
            return 1;
    return 0;
}

void hth_pump(struct hth_ctx *ctx)
{
    struct hth_transfer *t = ctx->transfer;
    uint64_t budget = ctx->opts.inflight_bytes ? ctx->opts.inflight_bytes : BUDGET;
    struct hth_fetch *f;

    if (t->pumping)
        return;
    t->pumping = 1;
    for (f = t->fetches; f; f = f->next)
        f->dry = f->stirred = 0;
    while ((f = fetch_next(t))) {
        uint32_t unit = UNIT_NONE;
        struct source *s = source_choose(f, &unit);

        if (!s)
            f->dry = 1;
        else if (piece_pull(f, s, unit, budget))
            break; /* no budget or no memory: the next pull that ends pumps again */
    }
    hth_earlies_pump(ctx, budget); /* what counts comes first */
    for (f = t->fetches; f; f = f->next)
        fetch_check_lost(f);
    t->pumping = 0;
}
