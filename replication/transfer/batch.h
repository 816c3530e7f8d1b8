/* SPDX-License-Identifier: Apache-2.0 */
/* Slices in few messages: to and from bytes, and collected for a node until the next tick. */
/* For this folder alone. */
#ifndef REPLICATION_BATCH_H
#define REPLICATION_BATCH_H

#include "wire.h"

#define HTH_SLICE_INLINE 6144u /* bytes of a slice that come in the message itself, at most */
#define HTH_SLICE_RIGHT  UINT64_MAX
#define HTH_SLICE_DENIED (UINT64_MAX - 1)

struct hth_slice_said {
    struct hth_wire w;          /* save, id, off, len; of SLICES: chunk, sum */
    const unsigned char *bytes; /* [w.len] in the message; NULL: they are pulled */
};

struct hth_slices {          /* a message that is being read */
    const unsigned char *at; /* [len] what is left, of `count` slices */
    size_t len;
    uint32_t count;
    struct hth_save_id save;
    int answers; /* SLICES */
    int bad;
};

int hth_slices_decode(struct hth_slices *out, uint16_t type, const unsigned char *body, size_t len);
/* 0: no more; s->bad: what follows makes no sense. */
int hth_slices_next(struct hth_slices *s, struct hth_slice_said *out);

void hth_slices_ask(struct hth_ctx *ctx); /* sends what is queued */
/* Answers in SLICES, with the next tick; bytes NULL: none. */
void hth_slices_say(struct hth_ctx *ctx, uint32_t node, const struct hth_wire *said,
        const unsigned char *bytes);
void hth_slices_send(struct hth_ctx *ctx);   /* what was said */
void hth_slices_forget(struct hth_ctx *ctx); /* likewise, unsent */

#endif
