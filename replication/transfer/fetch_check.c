/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks of the parts of an object with a table: the table against the wanted digest; bytes that
 * are here already (a copy that is bad in places, chunks that came before an engine died) against
 * the table; at last the block. The table has the checksums of the chunks. Chunks that arrive are
 * compared in pieces.c.
 *
 *   TABLE ─► CHECK ─► (REUSE ─► REUSE ..) ─► DATA ─► BLOCK ─► complete
 *     └◄─wrong─┘
 */
#include "transfer_parts.h"

#include "core/base/auth.h"
#include "core/format/table.h"
#include "replication/held/seal.h"
#include <string.h>

#define REUSE_CHUNKS 16u /* compared by one work */

void hth_fetch_data_here(struct hth_fetch *f)
{
    if (f->lo == 0)
        f->phase = PHASE_BLOCK;
    else
        hth_fetch_complete(f);
}

static void check_data_begin(struct hth_fetch *f)
{
    f->phase = PHASE_DATA;
    if (f->left == 0)
        hth_fetch_data_here(f);
}

void hth_fetch_table_here(struct hth_fetch *f)
{
    hth_point(&f->ctx->points, "verify");
    if (hth_breaks(f->ctx, HTH_BREAK_VERIFY)) {
        check_data_begin(f);
        return;
    }
    f->phase = PHASE_CHECK;
}

void hth_check_table_run(struct hth_work *work)
{
    struct hth_fetch *f = hth_owner_of(struct hth_fetch, work, work);
    const unsigned char *at = f->base + f->table_at;
    unsigned char digest[HTH_DIGEST];
    struct hth_table table;

    hth_digest(digest, at, f->object.table_len);
    f->table_code = HEARTH_ECORRUPT;
    if (memcmp(digest, f->object.digest, HTH_DIGEST) != 0)
        return;
    f->table_code = hth_table_decode(&table, at, f->object.table_len, NULL);
    if (!f->table_code &&
            (table.data_len != f->object.data_len || table.strong != f->object.strong))
        f->table_code = HEARTH_ECORRUPT;
    if (!f->table_code)
        f->proofs = table.proofs;
}

/* A chunk that came while the rank wrote the object, if it is what the rank wrote at last. It has
 * lain here since, so its bytes are read once more. */
static int check_early(const struct hth_fetch *f, uint32_t chunk)
{
    const struct hth_early_chunks *e = f->early;

    if (!e || f->object.strong || chunk >= e->count || !e->here[chunk] ||
            hth_chunk_len(f->object.data_len, chunk) != HTH_CHUNK)
        return 0;
    return hth_breaks(f->ctx, HTH_BREAK_EARLY) ||
           (e->crc[chunk] == f->proofs.crc[chunk] &&
                   hth_chunk_is(
                           &f->proofs, chunk, f->base + HTH_BLOCK + (uint64_t)chunk * HTH_CHUNK));
}

static int check_half(const struct hth_fetch *f, uint32_t chunk)
{
    return f->half &&
           hth_chunk_is(&f->proofs, chunk, f->base + HTH_BLOCK + (uint64_t)chunk * HTH_CHUNK);
}

static int check_old(const struct hth_fetch *f, uint32_t chunk)
{
    uint64_t off = HTH_BLOCK + (uint64_t)chunk * HTH_CHUNK,
             len = hth_chunk_len(f->object.data_len, chunk);

    if (!f->old || off + len > f->old->capacity)
        return 0;
    memcpy(f->base + off, f->old->base + off, len);
    return hth_chunk_is(&f->proofs, chunk, f->base + off);
}

/* On a worker: copies the right chunks of the old copy, and keeps the right chunks that have come
 * early or that an earlier fetch has left. No other thread uses f->chunk meanwhile. */
void hth_check_reuse_run(struct hth_work *work)
{
    struct hth_fetch *f = hth_owner_of(struct hth_fetch, work, work);

    for (uint32_t c = f->reuse_next; c < f->reuse_next + f->reuse_count; c++)
        if (check_early(f, c) || check_half(f, c) || check_old(f, c))
            f->chunk[c] = CHUNK_RIGHT;
}

/* 1: all of the old copy is right: it stays, and the new slot is given back. */
static int check_old_is_good(struct hth_fetch *f)
{
    uint64_t table_off = f->table_at;

    return f->left == 0 && f->old->capacity >= table_off + f->object.table_len &&
           memcmp(f->old->base + table_off, f->base + table_off, f->object.table_len) == 0 &&
           hth_block_check(f->ctx, f->save, &f->object, f->old->base, NULL) == HEARTH_OK;
}

/* Compares the next chunks that are here, or goes on if there are none left. */
static void check_reuse_next(struct hth_fetch *f)
{
    uint32_t left = f->chunk1 - f->reuse_next;

    if (left) {
        f->reuse_count = left < REUSE_CHUNKS ? left : REUSE_CHUNKS;
    } else if (f->old && f->held->old && check_old_is_good(f)) {
        hth_fetch_keep_old(f, 1);
        f->held->object = f->object;
        f->phase = PHASE_ENDING;
    } else {
        check_data_begin(f);
    }
}

void hth_check_reuse_done(struct hth_fetch *f)
{
    for (uint32_t i = 0; i < f->reuse_count; i++)
        f->left -= f->chunk[f->reuse_next + i] == CHUNK_RIGHT;
    f->reuse_next += f->reuse_count;
    check_reuse_next(f);
}

void hth_check_table_done(struct hth_fetch *f)
{
    if (f->table_code) {
        f->phase = PHASE_TABLE;
        f->table_got = 0;
        hth_source_bad(f, &f->source[f->table_source], UNIT_TABLE, "is not the one wanted");
        return;
    }
    f->source[f->table_source].strikes = 0;
    f->phase = PHASE_REUSE;
    if (f->old || f->half || f->early)
        check_reuse_next(f);
    else
        check_data_begin(f);
}

void hth_fetch_block_here(struct hth_fetch *f, struct source *s)
{
    struct hearth_error err = { 0 };

    if (!hth_breaks(f->ctx, HTH_BREAK_VERIFY) &&
            hth_block_check(f->ctx, f->save, &f->object, f->base, &err))
        hth_source_bad(f, s, UNIT_BLOCK, err.text);
    else
        hth_fetch_complete(f);
}
