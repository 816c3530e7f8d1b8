/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large things that every node needs (manifest, raw objects, plan) go down the tree by pull: a node
 * that has one offers it to its children (BLOB with a grant); each pulls, checks the digest, sends
 * BLOB_DONE and offers it on. A child that lost its parent asks the next one (BLOB_WANT).
 *
 * Manifests, plans and maps are bytes in memory. A raw object is requested by a node that has its
 * manifest and not the object; it is pulled into its file, and given to other nodes from there.
 * Bytes without the length and digest that the manifest names are not accepted.
 */
#ifndef HEARTH_REPLICATION_BLOB_H
#define HEARTH_REPLICATION_BLOB_H

#include "core/base/buf.h"
#include "replication/held/ctx.h"

enum hth_blob_kind {
    HTH_BLOB_MANIFEST = 1,
    HTH_BLOB_RAW = 2,
    HTH_BLOB_PLAN = 3,
    HTH_BLOB_MAP = 4 /* a map of holders that is too large for a message */
};

struct hth_blob_id {
    enum hth_blob_kind kind;
    struct hth_save_id save; /* PLAN: step = serial of the plan; MAP: its first head's position */
    uint64_t object;         /* RAW: object id */
};

struct hth_blob_events {
    void *self;
    /* The blob is here, whole and with the right digest, and is offered to the children. bytes[len]
     * live until the blob is forgotten. Does not run at the node that gave the blob. A raw object
     * is then SEALED and verified in the holdings. */
    void (*arrived)(
            void *self, const struct hth_blob_id *id, const unsigned char *bytes, size_t len);
    /* A raw object cannot be written here, or the memory of a blob cannot be registered. The node
     * tries again until the blob is forgotten. */
    void (*failed)(void *self, const struct hth_blob_id *id, const struct hearth_error *err);
};

int hth_blobs_open(struct hth_ctx *ctx, const struct hth_blob_events *events,
        struct hth_blobs **out, struct hearth_error *err);
void hth_blobs_join(struct hth_ctx *ctx); /* forgets all */

/* The coordinator gives a blob to all nodes; bytes are copied. Not for raw objects. A second call
 * with the same id changes nothing. */
int hth_blob_give(struct hth_ctx *ctx, const struct hth_blob_id *id, const void *bytes, size_t len,
        struct hearth_error *err);

/* Fetches the blob from `node` (HTH_NODE_NONE: the parent), then gives it on to this node's
 * children as if the parent had sent it. If a raw object's blob is here but the object is not held
 * any more, it was wrong, and is fetched again. */
int hth_blob_fetch(
        struct hth_ctx *ctx, const struct hth_blob_id *id, uint32_t node, struct hearth_error *err);
/* Answers hth_blob_fetch() of other nodes with these bytes, without giving them to children.
 * Copied. */
int hth_blob_serve(struct hth_ctx *ctx, const struct hth_blob_id *id, const void *bytes, size_t len,
        struct hearth_error *err);

/* The same with a buffer: its bytes are not copied, and no digest is made again. */
int hth_blob_give_buf(struct hth_ctx *ctx, const struct hth_blob_id *id, struct hth_buf *buf,
        struct hearth_error *err);
int hth_blob_serve_buf(struct hth_ctx *ctx, const struct hth_blob_id *id, struct hth_buf *buf,
        struct hearth_error *err);

/* The buffer of a blob that is here; NULL: it is not here, or a raw object. Borrowed:
 * hth_buf_get(). */
struct hth_buf *hth_blob_buf(struct hth_ctx *ctx, const struct hth_blob_id *id);
/* The bytes of a blob that is here; NULL: it is not here. */
const unsigned char *hth_blob_find(
        struct hth_ctx *ctx, const struct hth_blob_id *id, size_t *out_len);

void hth_blobs_forget(
        struct hth_ctx *ctx, struct hth_save_id save); /* all of a save that was freed */
/* Forgets the manifests and raw objects of the saves for which over() returns 1, also if nothing of
 * the save is held here. */
void hth_blobs_forget_if(struct hth_ctx *ctx,
        int (*over)(const void *self, struct hth_save_id save), const void *self);
int hth_blobs_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const unsigned char *body, size_t len);
void hth_blobs_peer_down(struct hth_ctx *ctx, uint32_t node);
void hth_blobs_tick(struct hth_ctx *ctx);
uint64_t hth_blobs_due_ms(const struct hth_ctx *ctx);
void hth_blobs_close(struct hth_ctx *ctx); /* after the transport's close() and the last work */

#endif
