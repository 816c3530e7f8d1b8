/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder's side of a slice: a few bytes of an object, of which the receiver has no checksum of
 * its own. The bytes are pulled under a grant as all others are; the holder sends their checksum.
 *
 *   SUM_WANT ─► worker: 1. CRC32C of the slice
 *                       2. is each chunk of it right? by its checksum, or by its spans (spans.h)
 *            ─► SUM {CRC32C}, or SUM {the wrong chunk}; of a slice that came in SLICES_WANT the
 *               same in SLICES, with the bytes where they are few (batch.c)
 *
 * In that order: bytes that go wrong before 2 are found there, and bytes that go wrong later do not
 * match the CRC32C at the receiver.
 */
#include "transfer_parts.h"

#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "core/format/table.h"
#include "replication/held/spans.h"

#include <stdlib.h>
#include <string.h>

#define SUMS_MAX   1024u /* under way; the receiver of one more asks again */
#define SUM_CHUNKS 2u    /* that a slice touches */

struct hth_sum {
    struct hth_work work;
    struct hth_ctx *ctx;
    struct hth_held_save *save; /* pinned with held */
    struct hth_held *held;
    struct hth_slot *slot; /* leased */
    uint32_t node;
    int vain;                   /* its epoch is over */
    int many;                   /* its answer goes with others, in SLICES */
    struct hth_wire said;       /* SUM */
    uint64_t data_len, crc_at;  /* of the object; where its chunks' CRC32Cs are in the file */
    uint32_t known[SUM_CHUNKS]; /* 1: the spans were there; then they are compared */
    uint32_t span[SUM_CHUNKS][HTH_SPANS];
    struct hth_sum *next;
};

static uint32_t sum_chunk_first(const struct hth_sum *s)
{
    return (uint32_t)((s->said.off - HTH_BLOCK) / HTH_CHUNK);
}

static uint32_t sum_chunk_count(const struct hth_sum *s)
{
    uint64_t end = s->said.off - HTH_BLOCK + s->said.len;

    return (uint32_t)HTH_CHUNKS(end) - sum_chunk_first(s);
}

/* ---- On a worker ----------------------------------------------------------------------------- */

static int sum_chunk_is_right(struct hth_sum *s, uint32_t at)
{
    uint64_t chunk = sum_chunk_first(s) + at, begin = HTH_BLOCK + chunk * HTH_CHUNK;
    uint64_t len = hth_chunk_len(s->data_len, (uint32_t)chunk), end = s->said.off + s->said.len;
    uint64_t from = s->said.off > begin ? s->said.off - begin : 0;
    const unsigned char *crc = s->slot->base + s->crc_at + 4 * chunk;

    if (!s->known[at])
        return hth_spans_make(s->span[at], s->slot->base + begin, len, hth_get32(crc));
    return hth_spans_are(
            s->span[at], s->slot->base + begin, len, from, end - begin < len ? end - begin : len);
}

static void sum_run(struct hth_work *work)
{
    struct hth_sum *s = hth_owner_of(struct hth_sum, work, work);

    s->said.sum = hth_crc32c(s->slot->base + s->said.off, s->said.len);
    for (uint32_t i = 0; i < sum_chunk_count(s) && s->said.chunk == UINT64_MAX; i++)
        if (!sum_chunk_is_right(s, i))
            s->said.chunk = sum_chunk_first(s) + i;
}

/* ---- On the engine's thread ------------------------------------------------------------------ */

static void sum_free(struct hth_sum *s)
{
    struct hth_sum **at = &s->ctx->transfer->sums;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    s->ctx->store->ops->unlease(s->ctx->store, s->slot);
    hth_held_unpin(s->save, s->held);
    free(s);
}

static void sum_say(const struct hth_sum *s)
{
    int with_bytes = s->said.chunk == UINT64_MAX && s->said.len <= HTH_SLICE_INLINE;

    if (s->many)
        hth_slices_say(s->ctx, s->node, &s->said, with_bytes ? s->slot->base + s->said.off : NULL);
    else
        hth_wire_say(s->ctx, s->node, HTH_MSG_SUM, &s->said);
}

static void sum_done(struct hth_work *work)
{
    struct hth_sum *s = hth_owner_of(struct hth_sum, work, work);
    struct hth_held *h = s->held;
    int same = !h->dropped && h->slot == s->slot && h->state == HTH_HELD_SEALED &&
               h->object.data_len == s->data_len;

    for (uint32_t i = 0; same && s->said.chunk == UINT64_MAX && i < sum_chunk_count(s); i++)
        if (!s->known[i])
            hth_spans_keep(h, sum_chunk_first(s) + i, s->span[i]);
    if (!s->vain && same)
        sum_say(s);
    sum_free(s);
}

/* 1: the same is being made for that node already. */
static int sum_is_under_way(
        struct hth_ctx *ctx, uint32_t node, const struct hth_wire *w, uint32_t *out_count)
{
    *out_count = 0;
    for (const struct hth_sum *s = ctx->transfer->sums; s; s = s->next, ++*out_count)
        if (s->node == node && !s->vain && s->said.id == w->id && s->said.off == w->off &&
                s->said.len == w->len && hth_save_cmp(s->said.save, w->save) == 0)
            return 1;
    return 0;
}

static void sum_spans_take(struct hth_sum *s)
{
    for (uint32_t i = 0; i < sum_chunk_count(s); i++) {
        const uint32_t *span = hth_spans_of(s->held, sum_chunk_first(s) + i);

        s->known[i] = span != NULL;
        if (span)
            memcpy(s->span[i], span, sizeof(s->span[i]));
    }
}

/* A request that cannot be met gets no SUM: the answer to the WANT beside it has the reason. */
int hth_sum_begin(struct hth_ctx *ctx, uint32_t from, const struct hth_wire *w, int many)
{
    struct hth_held_save *save = hth_holdings_find(ctx, w->save);
    struct hth_held *h = save ? hth_held_find(save, w->id) : NULL;
    struct hth_sum *s;
    uint32_t count;

    if (!h || !h->slot || h->state != HTH_HELD_SEALED || h->object.kind != HTH_OBJECT_SHARD ||
            w->off - HTH_BLOCK > h->object.data_len ||
            w->len > h->object.data_len - (w->off - HTH_BLOCK) ||
            hth_object_file_bytes(&h->object) > h->slot->capacity)
        return HEARTH_ENOENT;
    if (sum_is_under_way(ctx, from, w, &count))
        return HEARTH_OK;
    if (count >= SUMS_MAX || !(s = calloc(1, sizeof(*s))))
        return HEARTH_EBUSY;
    *s = (struct hth_sum){ .work = { .run = sum_run, .done = sum_done },
        .ctx = ctx,
        .save = save,
        .held = h,
        .slot = h->slot,
        .node = from,
        .many = many,
        .said = *w,
        .data_len = h->object.data_len,
        .crc_at = hth_object_file_bytes(&h->object) -
                  hth_proofs_bytes(h->object.data_len, h->object.strong),
        .next = ctx->transfer->sums };
    s->said.chunk = UINT64_MAX;
    sum_spans_take(s);
    ctx->transfer->sums = s;
    hth_held_pin(save, h);
    ctx->store->ops->lease(ctx->store, h->slot);
    hth_point(&ctx->points, "sum");
    ctx->workers.submit(ctx->workers.self, &s->work);
    return HEARTH_OK;
}

void hth_sums_join(struct hth_ctx *ctx)
{
    for (struct hth_sum *s = ctx->transfer->sums; s; s = s->next)
        s->vain = 1; /* in the new epoch the node numbers mean other nodes */
}

void hth_sums_close(struct hth_ctx *ctx)
{
    while (ctx->transfer->sums)
        sum_free(ctx->transfer->sums);
}
