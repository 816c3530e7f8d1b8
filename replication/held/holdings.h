/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects that this node holds, save by save, newest first. The one catalogue that every part
 * reads; the store below knows files and slots, this knows what they mean.
 *
 *   own:      LENT (a rank writes) → SEALING → SEALED
 *   replica:  RECEIVING → SEALED
 */
#ifndef HEARTH_REPLICATION_HOLDINGS_H
#define HEARTH_REPLICATION_HOLDINGS_H

#include "core/base/buf.h"
#include "core/foreign/foreign.h"
#include "ctx.h"

enum hth_held_state { HTH_HELD_LENT, HTH_HELD_SEALING, HTH_HELD_RECEIVING, HTH_HELD_SEALED };

#define HTH_HELD_COPIES 8u

struct hth_held {
    struct hth_object object; /* digest, table_len: known from SEALING's end on */
    enum hth_held_state state;
    uint32_t copies; /* others that have PULLED it, in this epoch, and have a place for it now: */
    uint32_t copied[HTH_HELD_COPIES];
    int verified; /* payload checked against the table in this process' life */
    int theirs;   /* a file of a foreign container: its slot is never given or put aside */
    /* foreign: the items that were found in it; set with `verified` */
    struct hth_foreign_look look;
    struct hth_slot *slot; /* NULL: raw object (in the store's raw files), or dropped */
    struct hth_slot
            *old;   /* the bad copy that a fetch replaces, until that ends; NULL: there is none, or
                           * another program has removed its file */
    uint32_t users; /* works and fetches on it: its memory stays until the last ends */
    int dropped;    /* not in its save any more */
    uint32_t **spans; /* [chunks]: spans.h; NULL: none yet */
    struct hth_held *next;
};

struct hth_held_save {
    struct hth_save_id id;
    struct hth_manifest manifest; /* objects == 0 and has_manifest == 0 until it is known */
    int has_manifest;
    struct hth_buf *manifest_buf;  /* its bytes, which a blob registers if it needs them ... */
    unsigned char *manifest_bytes; /* ... [manifest_len] */
    size_t manifest_len;
    int published;  /* its directory is step-<N>_ckpt */
    int unfinished; /* foreign: its writer has left a marker here */
    int removed;    /* freed: not in the list any more; its memory goes with its last user */
    uint32_t users;
    struct hth_held *held; /* in order of id */
    struct hth_held_save *next;
};

int hth_holdings_open(struct hth_ctx *ctx, struct hth_holdings **out, struct hearth_error *err);

/* After a start, enters what the store has (adoption). Objects whose block, table or name is wrong
 * are given back or condemned, with a line in the log; half-received objects (`.tmp`) are given
 * back. Payloads and raw objects are not read here: `verified` is 0. */
int hth_holdings_adopt(struct hth_ctx *ctx, struct hearth_error *err);

/* Forgets the files of foreign containers and finds those that are here now: each without a digest,
 * and bound to the file's present state. Copies from other nodes stay. Errors: HEARTH_ENOMEM, the
 * store's. */
int hth_holdings_look_anew(struct hth_ctx *ctx, struct hearth_error *err);

/* Call it after bytes of its slot were read. 0: the file is still as it was found. Errors:
 * HEARTH_ELOST, with the file and what has changed. */
int hth_held_same(const struct hth_ctx *ctx, const struct hth_held *held, struct hearth_error *err);

/* Compares the manifest with its record. If one of them is damaged, the other replaces it; if both
 * are, the save has no manifest here. */
void hth_held_look(struct hth_ctx *ctx, struct hth_held_save *save);

struct hth_held_save *hth_holdings_first(struct hth_ctx *ctx); /* newest */
struct hth_held_save *hth_holdings_find(struct hth_ctx *ctx, struct hth_save_id save);
struct hth_held_save *hth_holdings_get(
        struct hth_ctx *ctx, struct hth_save_id save); /* or make; NULL: no memory */
struct hth_held *hth_held_find(struct hth_held_save *save, uint64_t object);
/* New entry; NULL: no memory. */
struct hth_held *hth_held_add(struct hth_held_save *save, const struct hth_object *object,
        enum hth_held_state state, struct hth_slot *slot);

/* Writes the manifest record and keeps the manifest; buf gets one user more. bytes: copied, and
 * freed (malloc'ed), on failure too. A second call changes nothing. Errors: HEARTH_ECORRUPT,
 * HEARTH_EINVAL of another save, the store's. */
int hth_held_keep_manifest(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_buf *buf,
        struct hearth_error *err);
int hth_held_set_manifest(struct hth_ctx *ctx, struct hth_held_save *save, unsigned char *bytes,
        size_t len, struct hearth_error *err);

/* Forgets the manifest; its record stays until it is written over. */
void hth_held_forget_manifest(struct hth_held_save *save);

/* Give one object's slot back and forget it. */
void hth_held_drop(struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held);
/* The same for a copy with wrong bytes: its slot is put aside as evidence. */
void hth_held_condemn(
        struct hth_ctx *ctx, struct hth_held_save *save, struct hth_held *held, const char *why);
/* Notes it in ctx.wrong; node: NULL: this one. */
void hth_found_wrong(struct hth_ctx *ctx, struct hth_save_id save, const struct hth_object *object,
        const char *what, const char *node);
void hth_slot_condemn(struct hth_ctx *ctx, struct hth_slot *slot, const char *why);

/* Slots whose files another program has removed or cut short are condemned, with a line in the log,
 * and the store makes others. lost: called for each object that was sealed in such a slot; the
 * object is dropped by then. NULL: the caller needs no call. */
typedef void hth_lost_fn(
        void *self, struct hth_save_id save, uint64_t object, const struct hearth_error *why);
void hth_held_mend(struct hth_ctx *ctx, hth_lost_fn *lost, void *self);

/* A work on an object pins the entries of the save and of the object, so that both stay readable;
 * `dropped` means that the work is in vain. A lease keeps the slot from being used again. */
void hth_held_pin(struct hth_held_save *save, struct hth_held *held);
void hth_held_unpin(struct hth_held_save *save, struct hth_held *held);

/* Frees all of a save: slots, directory, manifest record. Nothing of it may be transferred any
 * more; callers whose save may be in transfer use hth_save_release(). Of a foreign container, the
 * copies from other nodes are freed; its own files stay, and stay in the list. */
void hth_holdings_free_save(struct hth_ctx *ctx, struct hth_held_save *save);

/* The highest epoch of all that is here, for a rank's greeting; *random as hth_epoch_seen() has
 * it. */
uint64_t hth_holdings_highest_epoch(struct hth_ctx *ctx, uint64_t *random);
/* After hth_transfer_close() and hth_jobs_close(); slots stay as they are. */
void hth_holdings_close(struct hth_ctx *ctx);

#endif
