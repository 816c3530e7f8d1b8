/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A slice: a few bytes of an object, pulled without their whole chunks and without the table. The
 * receiver compares them with the checksum that the holder sends (sum.c).
 *
 *   WANT ─────► END {grant} ───┐
 *   SUM_WANT ─► SUM {CRC32C} ──┴─► GRANTED: the slice is pulled and compared
 *               SUM {chunk} ─────► the holder's copy is wrong: BAD, and another source
 *
 * A holder that speaks protocol 8 receives SLICES_WANT in place of SUM_WANT (batch.c), and in place
 * of WANT too where the slice is so small that its bytes come in SLICES. One holder is asked at
 * first, the same for all slices of a chunk, since it has compared that chunk then; the others are
 * asked once that one does not answer in time, or fails.
 */
#include "transfer_parts.h"

int hth_slice_is(const struct hth_object *o, uint64_t off, uint64_t len)
{
    uint64_t end = HTH_BLOCK + o->data_len;

    if (o->kind != HTH_OBJECT_SHARD || o->strong || !len || len > HTH_SLICE_MAX ||
            off < HTH_BLOCK || off + len > end)
        return 0;
    /* A short last chunk, or a short object: its reader can compare it with the table. */
    return (off - HTH_BLOCK) % HTH_CHUNK != 0 || off + len != end;
}

/* The pull begins when both grant and checksum are here. */
static void slice_ready(struct source *s)
{
    if (!s->has_grant || !s->has_sum || s->state == SOURCE_GRANTED)
        return;
    s->state = SOURCE_GRANTED;
    s->grants++;
    s->due_ms = HTH_NEVER;
}

void hth_slice_granted(struct hth_fetch *f, struct source *s)
{
    s->has_grant = 1;
    if (!s->sum_asked && hth_session_version(f->ctx->session, s->node) < HTH_VERSION_SUMS) {
        hth_fetch_end(f, HEARTH_EUNSUPPORTED, "a holder's version has no checksums of slices");
        return;
    }
    if (!s->sum_asked)
        hth_source_ask_slice(f, s);
    slice_ready(s);
}

void hth_slice_sum(struct hth_fetch *f, struct source *s, const struct hth_wire *w)
{
    uint64_t last = f->slice ? (f->hi - 1 - HTH_BLOCK) / HTH_CHUNK : 0;

    if (!f->slice || w->off != f->lo || w->len != f->hi - f->lo || s->state == SOURCE_OUT)
        return;
    if (w->chunk >= f->chunk0 && w->chunk <= last) {
        hth_source_bad(f, s, (uint32_t)w->chunk, "is wrong where it lies");
        hth_source_out(f, s, HEARTH_ECORRUPT, "its copy is wrong");
        return;
    }
    s->sum = w->sum;
    s->has_sum = w->chunk == UINT64_MAX;
    slice_ready(s);
}

void hth_slice_said(struct hth_fetch *f, struct source *s, const struct hth_slice_said *said)
{
    int asked = s->state == SOURCE_ASKED && said->w.off == f->lo && said->w.len == f->hi - f->lo;

    if (asked && said->w.chunk == HTH_SLICE_DENIED) {
        s->denied = 1;
        hth_source_ask(f, s);
    } else if (asked && said->bytes) {
        hth_piece_came(f, s, said->bytes, said->w.sum);
    } else {
        hth_slice_sum(f, s, &said->w);
    }
}
