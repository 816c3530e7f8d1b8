/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save's manifest, made of its objects or read from its bytes. A large one is a worker's: to
 * decode, sort, encode and digest 32,768 objects takes 30 ms, in which the engine's thread must
 * answer its peers. A small one is there when the call returns.
 *
 *   make, read ─► a worker (or at once) ─► ended; done() ─► kept, by hth_held_keep_draft()
 *        └─ free: it is not needed now ─► gone when the worker is through; done() is not called
 */
#ifndef REPLICATION_DRAFT_H
#define REPLICATION_DRAFT_H

#include "holdings.h"

struct hth_draft;

/* The draft has ended. Runs once, on the engine's thread, if the draft had not ended when the call
 * that began it returned. */
typedef void hth_draft_fn(void *self);

/* `of` has everything but the objects. `objects` is of->objects of HTH_MANIFEST_OBJECT bytes, as
 * members have sent them, and is taken over. NULL: no memory, and nothing is taken over. */
struct hth_draft *hth_draft_make(struct hth_ctx *ctx, const struct hth_manifest *of,
        unsigned char *objects, hth_draft_fn *done, void *self);
/* buf gets one user more. NULL: no memory. */
struct hth_draft *hth_draft_read(
        struct hth_ctx *ctx, struct hth_buf *buf, hth_draft_fn *done, void *self);
int hth_draft_ended(const struct hth_draft *draft);

/* The objects of which an ended draft was made; the caller owns them from now on. */
unsigned char *hth_draft_objects(struct hth_draft *draft);
/* The bytes of an ended draft, borrowed. Errors: HEARTH_EPROTO an object that cannot be decoded; as
 * hth_manifest_encode() or hth_manifest_decode(). */
int hth_draft_result(
        const struct hth_draft *draft, struct hth_buf **out_buf, struct hearth_error *err);

/* As hth_held_keep_manifest(), of an ended draft; once. */
int hth_held_keep_draft(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_draft *draft,
        struct hearth_error *err);

void hth_draft_free(struct hth_draft *draft); /* NULL is fine */
void hth_drafts_close(struct hth_ctx *ctx);   /* after the last work; before the holdings' */

#endif
