/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slices in few messages, between engines that speak protocol 8. A receiver asks one holder in one
 * message for all slices that its fetches lack in one turn; a holder answers in one for all slices
 * that its workers have finished by its next turn:
 *
 *   SLICES_WANT  save 32 | u32 count | u32 zero | count x { u64 object | u64 off | u64 len }
 *   SLICES       save 32 | u32 count | u32 zero | count x { u64 object | u64 off | u64 len |
 *                u64 chunk | u32 crc | u32 n | n bytes }
 *
 *   chunk   HTH_SLICE_RIGHT, the wrong chunk, or HTH_SLICE_DENIED: the reason is the answer to WANT
 *   n       len where that is at most HTH_SLICE_INLINE and the chunks are right; else 0, and the
 *           slice is pulled
 *
 * Each slice has its own outcome: nothing of one message ends what another slice waits for.
 */
#include "transfer_parts.h"

#include "core/format/record.h"
#include <stdlib.h>
#include <string.h>

#define BATCH_HEAD 40u
#define ASK_LEN    24u
#define ASKS_MAX   256u
#define SAID_LEN   40u

_Static_assert(BATCH_HEAD + ASKS_MAX * ASK_LEN <= HTH_BODY_MAX, "a request fits");
_Static_assert(BATCH_HEAD + SAID_LEN + HTH_SLICE_INLINE <= HTH_BODY_MAX, "an answer fits");

struct slices_out {
    uint32_t node, count;
    struct hth_save_id save;
    size_t len; /* of body; BATCH_HEAD: nothing is said yet */
    struct slices_out *next;
    unsigned char body[HTH_BODY_MAX];
};

/* ---- Both sides ------------------------------------------------------------------------------ */

static void batch_send(struct hth_ctx *ctx, uint16_t type, struct slices_out *b)
{
    struct hth_writer w = { .at = b->body, .cap = BATCH_HEAD };
    int rc;

    hth_write_save(&w, b->save);
    hth_write32(&w, b->count);
    hth_write32(&w, 0);
    rc = hth_session_send(ctx->session, b->node, type, b->body, b->len);
    if (rc) /* a receiver without an answer asks again */
        hth_say(&ctx->log, HEARTH_LOG_DEBUG, "transfer-lost", "node %" PRIu32 ": %s", b->node,
                hearth_strerror(rc));
    b->len = BATCH_HEAD;
    b->count = 0;
}

int hth_slices_decode(struct hth_slices *out, uint16_t type, const unsigned char *body, size_t len)
{
    struct hth_reader r = { .at = body, .len = len };
    int answers = type == HTH_MSG_SLICES;

    *out = (struct hth_slices){ .save = hth_read_save(&r), .answers = answers };
    out->count = hth_read32(&r);
    hth_read_zeros(&r, 4);
    if (r.bad || hth_save_none(out->save) || !out->count ||
            (!answers && len != BATCH_HEAD + (uint64_t)out->count * ASK_LEN))
        return HEARTH_EPROTO;
    out->at = body + r.pos;
    out->len = len - r.pos;
    return HEARTH_OK;
}

/* The bytes lie in the message. */
static const unsigned char *said_bytes(struct hth_reader *r, const struct hth_wire *w)
{
    uint32_t n = hth_read32(r);

    if (n && (n != w->len || n > HTH_SLICE_INLINE || w->chunk != HTH_SLICE_RIGHT))
        r->bad = 1;
    return n && !r->bad ? hth_read(r, n) : NULL;
}

int hth_slices_next(struct hth_slices *s, struct hth_slice_said *out)
{
    struct hth_reader r = { .at = s->at, .len = s->len };
    struct hth_wire *w = &out->w;

    *out = (struct hth_slice_said){ .w = { .save = s->save, .chunk = HTH_SLICE_RIGHT } };
    if (!s->count || s->bad)
        return 0;
    w->id = hth_read64(&r);
    w->off = hth_read64(&r);
    w->len = hth_read64(&r);
    if (w->off < HTH_BLOCK || !w->len || w->len > HTH_SLICE_MAX || w->off > UINT64_MAX - w->len)
        r.bad = 1;
    if (s->answers) {
        w->chunk = hth_read64(&r);
        w->sum = hth_read32(&r);
        out->bytes = said_bytes(&r, w);
    }
    s->bad = r.bad;
    s->at += r.pos;
    s->len -= r.pos;
    s->count--;
    return !s->bad;
}

/* ---- Receiver -------------------------------------------------------------------------------- */

static void ask_add(struct hth_ctx *ctx, struct slices_out *b, const struct hth_fetch *f)
{
    struct hth_writer w = { .at = b->body, .cap = HTH_BODY_MAX };

    if (b->count && (b->count == ASKS_MAX || hth_save_cmp(b->save, f->save) != 0))
        batch_send(ctx, HTH_MSG_SLICES_WANT, b);
    b->save = f->save;
    w.len = b->len;
    hth_write64(&w, f->object.id);
    hth_write64(&w, f->lo);
    hth_write64(&w, f->hi - f->lo);
    b->len = w.len;
    b->count++;
}

static void ask_node(struct hth_ctx *ctx, uint32_t node)
{
    struct slices_out b = { .node = node, .len = BATCH_HEAD };

    for (struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next) {
        struct source *s = f->slice && hth_fetch_runs(f) ? hth_source_find(f, node) : NULL;

        if (!s || !s->queued)
            continue;
        s->queued = 0;
        ask_add(ctx, &b, f);
    }
    if (b.count)
        batch_send(ctx, HTH_MSG_SLICES_WANT, &b);
}

void hth_slices_ask(struct hth_ctx *ctx)
{
    if (!ctx->transfer->slices_queued)
        return;
    ctx->transfer->slices_queued = 0;
    for (struct hth_fetch *f = ctx->transfer->fetches; f; f = f->next)
        for (uint32_t i = 0; i < f->sources && f->slice && hth_fetch_runs(f); i++)
            if (f->source[i].queued)
                ask_node(ctx, f->source[i].node);
}

/* ---- Holder ---------------------------------------------------------------------------------- */

static struct slices_out *said_to(struct hth_ctx *ctx, uint32_t node, struct hth_save_id save)
{
    struct slices_out *b = ctx->transfer->slices_said;

    while (b && (b->node != node || hth_save_cmp(b->save, save) != 0))
        b = b->next;
    if (b || !(b = malloc(sizeof(*b))))
        return b;
    b->node = node;
    b->save = save;
    b->count = 0;
    b->len = BATCH_HEAD;
    b->next = ctx->transfer->slices_said;
    ctx->transfer->slices_said = b;
    return b;
}

void hth_slices_say(
        struct hth_ctx *ctx, uint32_t node, const struct hth_wire *said, const unsigned char *bytes)
{
    uint32_t n = bytes ? (uint32_t)said->len : 0;
    struct slices_out *b = said_to(ctx, node, said->save);
    struct hth_writer w = { .cap = HTH_BODY_MAX };

    if (!b)
        return; /* the receiver asks again */
    if (b->len + SAID_LEN + n > HTH_BODY_MAX)
        batch_send(ctx, HTH_MSG_SLICES, b);
    w.at = b->body;
    w.len = b->len;
    hth_write64(&w, said->id);
    hth_write64(&w, said->off);
    hth_write64(&w, said->len);
    hth_write64(&w, said->chunk);
    hth_write32(&w, said->sum);
    hth_write32(&w, n);
    if (n)
        hth_write(&w, bytes, n);
    b->len = w.len;
    b->count++;
}

void hth_slices_send(struct hth_ctx *ctx)
{
    struct slices_out *b;

    while ((b = ctx->transfer->slices_said)) {
        ctx->transfer->slices_said = b->next;
        if (b->count)
            batch_send(ctx, HTH_MSG_SLICES, b);
        free(b);
    }
}

void hth_slices_forget(struct hth_ctx *ctx)
{
    struct slices_out *b;

    while ((b = ctx->transfer->slices_said)) {
        ctx->transfer->slices_said = b->next;
        free(b);
    }
}
