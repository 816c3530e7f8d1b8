/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that holdings.c, adopt.c and draft.c share. */
/* For this folder alone. */
#ifndef REPLICATION_HOLDINGS_PARTS_H
#define REPLICATION_HOLDINGS_PARTS_H

#include "holdings.h"

#define HTH_MANIFEST_NAME (HTH_SAVE_TEXT + sizeof(".manifest"))

struct hth_holdings {
    struct hth_held_save *first; /* newest */
};

void hth_record_manifest(struct hth_save_id save, char out[HTH_MANIFEST_NAME]);

/* Decode and keep bytes that are in the store already: buf gets one user more on success. */
int hth_held_know_manifest(
        struct hth_held_save *save, struct hth_buf *buf, struct hearth_error *err);
/* The same of bytes that are decoded already, and on record: *m is taken over, also on failure. */
int hth_held_write_manifest(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_buf *buf,
        struct hth_manifest *m, struct hearth_error *err);

#endif
