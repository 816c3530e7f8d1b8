/* SPDX-License-Identifier: Apache-2.0 */
/* Up to four works at a time take the next 16 chunks each, until there are none. */
#include "sums.h"

#define SUMS_CHUNKS 16u /* of one work */

static void sums_part_run(struct hth_work *work)
{
    struct hth_sums_part *p = (struct hth_sums_part *)work;
    const struct hth_sums *s = p->sums;

    p->wrong = HTH_SUMS_RIGHT;
    for (uint32_t c = p->first; c < p->first + p->count && p->wrong == HTH_SUMS_RIGHT; c++) {
        const unsigned char *at = s->data + c * HTH_CHUNK;

        if (s->proof)
            hth_chunk_prove(&s->proof[c], at, hth_chunk_len(s->data_len, c), s->strong);
        else if (!hth_chunk_is(&s->proofs, c, at))
            p->wrong = c;
    }
}

static void sums_part_done(struct hth_work *work);

static void sums_feed(struct hth_sums *s, struct hth_sums_part *p)
{
    uint32_t chunks = (uint32_t)HTH_CHUNKS(s->data_len), left = chunks - s->next;

    if (!left)
        return;
    p->work = (struct hth_work){ .run = sums_part_run, .done = sums_part_done };
    p->sums = s;
    p->first = s->next;
    p->count = left < SUMS_CHUNKS ? left : SUMS_CHUNKS;
    s->next += p->count;
    s->running++;
    s->ctx->workers.submit(s->ctx->workers.self, &p->work);
}

static void sums_part_done(struct hth_work *work)
{
    struct hth_sums_part *p = (struct hth_sums_part *)work;
    struct hth_sums *s = p->sums;

    hth_point(&s->ctx->points, "chunk");
    s->running--;
    if (p->wrong < s->wrong)
        s->wrong = p->wrong;
    sums_feed(s, p);
    if (!s->running)
        s->done(s);
}

void hth_sums_start(struct hth_sums *s)
{
    s->next = s->running = 0;
    s->wrong = HTH_SUMS_RIGHT;
    for (uint32_t i = 0; i < HTH_SUMS_PARTS; i++)
        sums_feed(s, &s->part[i]);
    if (!s->running)
        s->done(s);
}
