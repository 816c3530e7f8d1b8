/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's piece in an object. */
#ifndef HEARTH_CLIENT_LAYOUT_H
#define HEARTH_CLIENT_LAYOUT_H

#include "core/format/table.h"
#include "core/torch/header.h"
#include <hearth/hearth.h>

struct hth_laid { /* one piece, checked and measured; header_len 0: none yet */
    const struct hearth_piece *piece;
    struct hearth_piece mine; /* when the caller's struct is of another age */
    struct hth_header of;     /* what `header` and `payload` are made of */
    uint64_t payload;         /* bytes */
    int again;                /* the header is that of the piece before it in here */
    size_t header_len;
    unsigned char header[HTH_HEADER_MAX];
};

/* The i-th piece, checked. need_data: 0 where places are asked for. A header is encoded again only
 * where it differs from that of the piece before it in *out. */
int hth_piece_at(struct hth_laid *out, const struct hearth_piece *pieces, size_t i, int need_data,
        struct hearth_error *err);
/* The i-th byte string, checked; *tmp where the struct is of another age. */
int hth_bytes_at(const struct hearth_bytes **out, struct hearth_bytes *tmp,
        const struct hearth_bytes *items, size_t i, struct hearth_error *err);
uint64_t hth_laid_bytes(const struct hth_laid *laid); /* of data and table record together */
/* The record of the item, at `offset` of the data. */
void hth_laid_item(struct hth_item *out, const struct hth_laid *laid, uint64_t offset);

#endif
