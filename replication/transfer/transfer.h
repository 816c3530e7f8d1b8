/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Objects from node to node. The receiver decides when and where; the holder only offers.
 *
 *   holder                                   receiver
 *     WRITING {save, object, chunks, grant} ─►            while its rank writes: pulled, counts for
 *                                     ◄─ NAK {of WRITING}                       nothing; not used
 *     OFFER {save, object record, file bytes} ─►          a slot is taken
 *     READY {save, object, first, crc[n], grant}* ─►      (comes once, at the end, for now)
 *     END   {save, object record (final), grant} ─►       table pulled, digest, chunks, each verified
 *                                     ◄─ PULLED {save, object, digest}      sealed here
 *                                     ◄─ NAK {save, object, code, text}     not now, or never
 *                                     ◄─ BAD {save, object, chunk}          it came wrong: look at it
 *
 * A receiver may also begin: WANT {save, object, range} to any holder, which answers with OFFER,
 * READY, END or NAK. Chunks of one object are spread over all sources that have answered, a window
 * each, so that two holders serve about half each; what is bad or late goes to the next source.
 * Of a slice (a few bytes of an object) no chunk and no table is pulled. SUM_WANT {save, object,
 * range} goes with WANT, and SUM {CRC32C, or the chunk that is wrong} comes beside END. Many slices
 * go in few messages: SLICES_WANT and SLICES, which has the bytes of small ones (batch.c).
 * A foreign object has no table: it is pulled from one source at a time and its digest computed at
 * the end; where that is wrong the next source gives all of it again.
 *
 * All pulls of a node share one budget of bytes in flight; recovery goes before reading, that
 * before repair, and that before replication.
 */
#ifndef HEARTH_REPLICATION_TRANSFER_H
#define HEARTH_REPLICATION_TRANSFER_H

#include "replication/held/holdings.h"

/* ---- Holder's side ---- */

/* Offers a sealed object to a node until the node has PULLED it (answers and repeats by itself;
 * ends when the save is freed or the epoch ends). Nothing is sent before the memory is registered.
 * done(code, text) may be NULL. The offer is over when `done` gets 0: pulled; HEARTH_EDENIED,
 * EEXIST, EINVAL or ECORRUPT: the node will never take the object; or HEARTH_EIO: the memory here
 * cannot be registered. The offer continues when `done` gets HEARTH_ENOSPC or EIO from the node: it
 * has no room, or its system refuses. */
typedef void hth_offered_fn(void *self, struct hth_save_id save, uint64_t object, uint32_t node,
        int code, const char *text);
int hth_transfer_offer(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held,
        uint32_t node, hth_offered_fn *done, void *self, struct hearth_error *err);

/* ---- Receiver's side ---- */

enum hth_fetch_class {
    HTH_FETCH_REPLICA = 10,
    HTH_FETCH_REPAIR = 11, /* of kept saves: before undecided saves */
    HTH_FETCH_RECOVERY = 20,
    HTH_FETCH_READ = 30
};

struct hth_fetch;
typedef void hth_fetched_fn(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err);

struct hth_fetch_want {
    struct hth_save_id save;
    struct hth_object object; /* digest, lengths as the manifest has them */
    /* [count] nodes, best first; copied. A node that offers the object is added */
    const uint32_t *sources;
    uint32_t count;
    enum hth_fetch_class class;
    /* Bytes of the file; len 0: the whole object, sealed at the end. Else a range of it into
     * memory of its own, with the chunks that it touches verified; it takes no slot. */
    uint64_t off, len;
    /* A range of data, of HTH_SLICE_MAX bytes at most, comes without its whole chunks: the holder
     * compares them, and sends a checksum of the range. No effect if the range is all of its
     * chunks, or if integrity is strong. HEARTH_EUNSUPPORTED: a source has an older version. */
    int slice;
    uint32_t deadline_ms; /* 0: five minutes */
    hth_fetched_fn *done; /* exactly once; a whole object is SEALED and verified then */
    void *self;
};

/* The fetch of a whole object goes on from the bytes that are here. Chunks of a copy that is not
 * verified, and of a copy that was being received when a fetch or an engine ended, count if they
 * are right by the object's table. The slot of a whole object is taken within the call:
 * HEARTH_EBUSY, HEARTH_ENOSPC if there is none; HEARTH_EEXIST if the same object is being fetched.
 * A range waits for room, up to its deadline. Pulls begin when the memory is registered. `done`
 * runs later, never within this call or hth_fetch_cancel(); it gets HEARTH_ELOST, ETIMEOUT,
 * ECANCELED (cancel, join, forget) or the code of registering or sealing, and does not run after
 * hth_transfer_close(). The fetch of a whole object, and a fetch that failed, is gone when `done`
 * returns. */
int hth_fetch_start(struct hth_ctx *ctx, const struct hth_fetch_want *want, struct hth_fetch **out,
        struct hearth_error *err);
/* Adds sources to the fetch of the whole object, if one runs and no source has granted it anything.
 * Each is asked, also again if it had nothing before. Without this call a fetch would have only the
 * sources of the map under which it began, and two holders that fetch from each other would wait
 * for each other. */
void hth_fetch_add_sources(struct hth_ctx *ctx, struct hth_save_id save, uint64_t object,
        const uint32_t *sources, uint32_t count);
void hth_fetch_cancel(struct hth_fetch *fetch);
/* For a call within done, after HEARTH_ELOST. 1: a source was out of reach, and may have the
 * object. */
int hth_fetch_unreached(const struct hth_fetch *fetch);
const struct hth_object *hth_fetch_object(
        const struct hth_fetch *fetch, struct hth_save_id *out_save);
/* After done with 0 of a range: the bytes at `off`, until hth_fetch_release() (also in done). */
const unsigned char *hth_fetch_bytes(struct hth_fetch *fetch);
/* Likewise. 1: it was a slice, and *out is the CRC32C that the holder sent. */
int hth_fetch_sum(const struct hth_fetch *fetch, uint32_t *out);
struct hth_slot *hth_fetch_slot(struct hth_fetch *fetch);
void hth_fetch_release(struct hth_fetch *fetch);
/* Bytes and pulls between this node and another in this epoch. */
struct hth_tally_node {
    uint32_t node;
    uint64_t bytes, pulls;       /* from the node, in pieces that count or were wrong */
    uint64_t retries, bad;       /* times that it was left alone for a while; wrong pieces */
    uint64_t given, given_bytes; /* objects that it has reported whole, offered by this node */
    uint64_t pull_ms;            /* in which any pull from it was under way, but for ... */
    uint64_t under_way_since_ms; /* ... those that are now, */
    uint32_t under_way;          /* so many */
};
uint64_t hth_tally_pull_ms(const struct hth_tally_node *node, uint64_t now_ms);
/* Rows of the nodes that have any; borrowed until the next event. */
const struct hth_tally_node *hth_transfer_peers(const struct hth_ctx *ctx, uint32_t *out_count);
/* They count from then, by the engine's clock; 0: no epoch has begun. */
uint64_t hth_transfer_since_ms(const struct hth_ctx *ctx);
/* Bytes pulled so far, and in this epoch from each node: out[epoch->nodes]. For tests, reports. */
void hth_transfer_pulled(struct hth_ctx *ctx, uint64_t *out_total, uint64_t *out_per_node);

/* Bytes of whole objects that are being pulled, and have not come yet, in whole chunks. */
uint64_t hth_transfer_behind(const struct hth_ctx *ctx);

/* A rank of this node writes the object into the slot, and its first `chunks` chunks are complete:
 * the node, which will hold a copy, may pull them. object: data_len is the bytes of the file that
 * the rank asked for. Nothing is promised by it, and the object is offered as any other once it is
 * sealed. A node with an older engine is sent nothing. */
void hth_transfer_writing(struct hth_ctx *ctx, struct hth_save_id save,
        const struct hth_object *object, struct hth_slot *slot, uint32_t chunks, uint32_t node);
/* The rank has given the object up: before its slot is given back. */
void hth_transfer_not_written(struct hth_ctx *ctx, struct hth_save_id save, uint64_t object);
/* Gives back the slots of chunks that do not count yet, for a save or a copy that finds no slot
 * ready. 1: pulls still write into some of these slots, which are free a moment later. */
int hth_transfer_make_way(struct hth_ctx *ctx);

/* Whether this node takes an offer. The commit machine decides: the object is assigned to this
 * node, and the save is not dead. Returns 0 to take, HEARTH_EBUSY later, HEARTH_EDENIED never. */
typedef int hth_offer_wanted_fn(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object);
/* A replica that was offered is sealed here. */
typedef void hth_replica_fn(void *self, struct hth_save_id save, uint64_t object);

/* An offer that was wanted is refused: there is no slot for the object, and none is being made.
 * HEARTH_ENOSPC: nor would there be one if all readers ended; HEARTH_EBUSY: slots are in use. */
typedef void hth_no_room_fn(void *self, struct hth_save_id save, int code, const char *text);

/* `from` reports that a chunk which it pulled from this node's copy is wrong; UINT64_MAX: its table
 * or block. */
typedef void hth_bad_copy_fn(
        void *self, uint32_t from, struct hth_save_id save, uint64_t object, uint64_t chunk);

struct hth_transfer_events {
    void *self;
    hth_offer_wanted_fn *wanted;
    hth_offer_wanted_fn *early; /* of chunks before the offer: notes nothing. NULL: all */
    hth_replica_fn *sealed;
    hth_bad_copy_fn *bad_copy; /* NULL: no call */
    hth_no_room_fn *no_room;   /* likewise */
};

int hth_transfer_open(struct hth_ctx *ctx, const struct hth_transfer_events *events,
        struct hth_transfer **out, struct hearth_error *err);
void hth_transfer_join(struct hth_ctx *ctx); /* stops everything of the old epoch */
int hth_transfer_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const unsigned char *body, size_t len);
void hth_transfer_peer_down(struct hth_ctx *ctx, uint32_t node);
/* The map has this node and `node` as unreachable: neither pulls from the other any more. Copies
 * come from other holders, or move. */
void hth_transfer_peer_unreachable(struct hth_ctx *ctx, uint32_t node);
void hth_transfer_forget(struct hth_ctx *ctx, struct hth_save_id save); /* before it is freed */
void hth_transfer_tick(struct hth_ctx *ctx);
uint64_t hth_transfer_due_ms(const struct hth_ctx *ctx);
/* After the transport's close() and the last work; before hth_holdings_close(). */
void hth_transfer_close(struct hth_ctx *ctx);

#endif
