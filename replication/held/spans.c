/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of the spans of chunks that slices were read of. */
#include "spans.h"

#include "core/base/crc.h"

#include <stdlib.h>
#include <string.h>

const uint32_t *hth_spans_of(const struct hth_held *held, uint32_t chunk)
{
    return held->spans ? held->spans[chunk] : NULL;
}

void hth_spans_keep(struct hth_held *held, uint32_t chunk, const uint32_t span[static HTH_SPANS])
{
    size_t bytes = HTH_SPANS * sizeof(*span);

    if (!held->spans)
        held->spans = calloc(HTH_CHUNKS(held->object.data_len), sizeof(*held->spans));
    if (!held->spans || held->spans[chunk] || !(held->spans[chunk] = malloc(bytes)))
        return;
    memcpy(held->spans[chunk], span, bytes);
}

void hth_spans_forget(struct hth_held *held)
{
    uint64_t chunks = held->spans ? HTH_CHUNKS(held->object.data_len) : 0;

    for (uint64_t i = 0; i < chunks; i++)
        free(held->spans[i]);
    free(held->spans);
    held->spans = NULL;
}

static uint64_t span_len(uint64_t len, uint64_t at)
{
    return len - at < HTH_SPAN ? len - at : HTH_SPAN;
}

int hth_spans_make(
        uint32_t out[static HTH_SPANS], const unsigned char *bytes, uint64_t len, uint32_t crc)
{
    uint32_t all = 0;

    memset(out, 0, HTH_SPANS * sizeof(*out));
    for (uint64_t at = 0; at < len; at += HTH_SPAN) {
        uint32_t *span = &out[at / HTH_SPAN];

        *span = hth_crc32c(bytes + at, span_len(len, at));
        all = hth_crc32c_join(all, *span, span_len(len, at));
    }
    return all == crc;
}

int hth_spans_are(const uint32_t span[static HTH_SPANS], const unsigned char *bytes, uint64_t len,
        uint64_t from, uint64_t to)
{
    uint64_t at = from / HTH_SPAN * HTH_SPAN;

    while (at < to && hth_crc32c(bytes + at, span_len(len, at)) == span[at / HTH_SPAN])
        at += HTH_SPAN;
    return at >= to;
}
