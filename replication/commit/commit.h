/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save from its first begin to PROTECTED or CANCELLED, on a node and at the coordinator.
 * The rules: docs/design/commit.md.
 */
#ifndef HEARTH_REPLICATION_COMMIT_H
#define HEARTH_REPLICATION_COMMIT_H

#include "core/format/ranks.h"
#include "core/local/wish.h"
#include "placement.h"
#include "replication/transfer/transfer.h"
#include "replication/tree/blob.h"
#include <hearth/types.h>

struct hth_commit;

/* A moment of a save that was undecided until then, for a record of it. NODE_...: at the
 * coordinator, which has received that fact of a node. The same may be reported again. */
enum hth_moment {
    HTH_MOMENT_BEGUN,     /* a rank of this node has begun it */
    HTH_MOMENT_COMMITTED, /* its ranks of this node have handed over all objects */
    HTH_MOMENT_SEALED,    /* ... which are sealed: DONE is sent */
    HTH_MOMENT_OFFERED,   /* an object of this node was offered to its holders */
    HTH_MOMENT_COPIED,    /* a node has reported that it has pulled an object of this node */
    HTH_MOMENT_HELD,
    HTH_MOMENT_COMPLETE,
    HTH_MOMENT_PROMISED,
    HTH_MOMENT_ENDED,
    HTH_MOMENTS,
    HTH_MOMENT_NODE_DONE = HTH_MOMENTS,
    HTH_MOMENT_NODE_HELD,
    HTH_MOMENT_NODE_PROMISED,
    HTH_MOMENT_RANK, /* a rank of this node has handed over all objects */
};

struct hth_happened {
    enum hth_moment what;
    uint32_t node;           /* COPIED, NODE_...; RANK: the rank */
    uint32_t count, due;     /* NODE_..., RANK: nodes, or ranks, that have, and that have to */
    uint64_t bytes;          /* SEALED: of this node's objects */
    enum hearth_level level; /* ENDED, as are the next three */
    int degraded, code;
    const char *text;
};

struct hth_commit_events {
    void *self;
    /* NULL: there is no record. */
    void (*on_moment)(void *self, struct hth_save_id save, const struct hth_happened *happened);
    /* The coordinator's answer to the wish of this number; code 0: granted, and on record. NULL:
     * this caller sends no wishes. */
    void (*on_wish_result)(void *self, uint64_t number, int code, const char *text);
    /* A save that this node's ranks take part in has moved: level only rises; code
     * HEARTH_EFAILED, HEARTH_ENOSPC or HEARTH_EUNKNOWN ends it. rank: HTH_NODE_NONE for all, else
     * that rank's own level (COPIED). */
    void (*on_level)(void *self, struct hth_save_id save, uint32_t rank, enum hearth_level level,
            int degraded, int code, const char *text);
    /* 1: this rank writes a save whose step it has not named. NULL: no rank of this node does. */
    int (*is_staging)(void *self, uint32_t rank);
};

int hth_commit_open(struct hth_ctx *ctx, const struct hth_commit_events *events,
        struct hth_commit **out, struct hearth_error *err);

/* Call it after the keep record was read. The head on record may contain one decision more than the
 * keep record, and then replaces its list. Errors: HEARTH_EUNSUPPORTED. */
int hth_commit_adopt(struct hth_commit *c, struct hearth_error *err);
/* 1: the head on record is of that epoch, so this node's promises and the decisions that it has
 * applied are on record: a new engine may continue in the epoch. */
int hth_commit_knows(const struct hth_commit *c, const struct hth_epoch *epoch);
/* 1: the head on record is damaged: its epoch and its content are not known. */
int hth_commit_head_bad(const struct hth_commit *c);

/* Enters a new epoch, or the epoch on record again, whose head continues. Placement is made.
 * Undecided saves of older epochs are not followed any more (their objects stay until PLAN).
 * Errors: as hth_placement_make(); the store's, if there is no room for the record of heads. */
int hth_commit_join(struct hth_commit *c, struct hearth_error *err);

/* After GO: saves may begin. chosen (epoch 0: none): the plan has fetched its missing copies or is
 * fetching them. It is protected again first, under its own id, and counts as undecided until then.
 * A foreign container is not protected again: it stays as it is. */
void hth_commit_go(struct hth_commit *c, struct hth_save_id chosen);

/* After a restart of this engine in the epoch, and after hth_commit_go(): follows the epoch's
 * undecided saves again whose manifest is here. */
void hth_commit_resume(struct hth_commit *c);

/* The job is over: nothing is followed, decided or repaired until the next join. */
void hth_commit_stop(struct hth_commit *c);

/* A rank of this node begins `step`, with all ranks or with these (NULL: all). Gives the save's id;
 * `rank`'s attempts are counted by this call, for each set. Errors: HEARTH_EBUSY, which names the
 * undecided save and the nodes that it waits for, HEARTH_ESTATE, HEARTH_EINVAL of the set. If an
 * attempt is refused, the coordinator is notified, and cancels it everywhere. */
int hth_commit_begin(struct hth_commit *c, uint32_t rank, uint64_t step,
        const struct hth_ranks *ranks, struct hth_save_id *out_save, struct hearth_error *err);

/* `rank` has begun `step` so many times, as it counts itself, with that attempt's set: an engine
 * that was started again, or that missed some, counts on from there. */
void hth_commit_count(struct hth_commit *c, uint32_t rank, uint64_t step, uint32_t begun);
/* The attempt that `rank` has begun last, as far as this engine has received; 0: it has begun
 * nothing. */
uint32_t hth_commit_counted(const struct hth_commit *c, uint32_t rank, uint64_t *out_step);

/* `rank` waits for room to begin `step`, and has no earlier save to name: from now on it begins no
 * earlier step. */
void hth_commit_passes(struct hth_commit *c, uint32_t rank, uint64_t step);

/* `rank` goes on with a save that it began under an engine before this one. Errors:
 * HEARTH_EUNKNOWN of another epoch; HEARTH_EFAILED decided already, or a newer one is; of the
 * set. */
int hth_commit_rejoin(struct hth_commit *c, uint32_t rank, struct hth_save_id save,
        const struct hth_ranks *ranks, struct hearth_error *err);

/* The ranks of the save. NULL: all ranks, or no rank or message here has named them. */
const struct hth_ranks *hth_commit_ranks(struct hth_commit *c, struct hth_save_id save);

/* Whether hth_commit_begin() would find room now. Counts no attempt. HEARTH_OK also for a save that
 * is decided, although begin refuses that save. Errors: HEARTH_EBUSY as begin. */
int hth_commit_room(struct hth_commit *c, uint32_t rank, uint64_t step,
        const struct hth_ranks *ranks, struct hearth_error *err);

/* How many saves this node holds, whole or in part, that are not undecided. */
uint32_t hth_commit_decided(struct hth_commit *c);
/* What part `rank` has in the undecided save number `at`, newest first. *out_ranks: its ranks,
 * borrowed until a call that changes something; NULL: all, or they are not known here. */
enum hth_part {
    HTH_PART_NO_SAVE, /* there are no more; out_ranks is not set */
    HTH_PART_NONE,
    HTH_PART_TO_COME, /* the rank has not begun it */
    HTH_PART_BEGUN
};
enum hth_part hth_commit_part(
        struct hth_commit *c, uint32_t at, uint32_t rank, const struct hth_ranks **out_ranks);

/* Asks the coordinator to cancel the oldest undecided save, so that its room becomes free. */
void hth_commit_make_room(struct hth_commit *c);

/* Something after begin failed (no slot, abort): cancel the save everywhere. Not a save that
 * recovery chose, nor one that a head has decided. */
void hth_commit_fail(struct hth_commit *c, struct hth_save_id save, int code, const char *text);

/* A rank writes an object of the save into the slot, and the object's first `chunks` chunks are
 * complete: its holders may pull them. object: as for hth_transfer_writing(). 1: one may. */
int hth_commit_writing(struct hth_commit *c, struct hth_save_id save,
        const struct hth_object *object, struct hth_slot *slot, uint32_t chunks);
/* An own object is sealed (in the holdings): offer it to its holders. */
void hth_commit_sealed(struct hth_commit *c, struct hth_held_save *save, struct hth_held *held);

/* A rank of this node has put a raw object: it is in the holdings as RAW, its bytes are in the
 * store. */
void hth_commit_common(struct hth_commit *c, struct hth_held_save *save, struct hth_held *held);

/* `rank` hands over no more objects; `objects` is how many it has handed over, common ones
 * included. When all local ranks are done and all objects are sealed, DONE goes up. If one of the
 * objects is no longer here, the save fails: a manifest without it would look whole. */
void hth_commit_rank_done(
        struct hth_commit *c, struct hth_save_id save, uint32_t rank, uint32_t objects);

/* 1: the save is undecided and its manifest is not here, so its ranks must report again that they
 * are done. */
int hth_commit_needs_ranks(struct hth_commit *c, struct hth_save_id save);

/* The level of a save, for handles after a reconnect. HEARTH_ENOENT: the save is not known any
 * more. */
int hth_commit_status(struct hth_commit *c, struct hth_save_id save, enum hearth_level *out_level,
        int *out_degraded, int *out_code, char text[256]);

/* The state of save `at` of the keep record, as this node has it now. UNSURE: the save was
 * PROTECTED when the record was written, but in an earlier epoch, or the coordinator is out of
 * reach. */
enum hth_kept { HTH_KEPT_UNSURE, HTH_KEPT_DEGRADED, HTH_KEPT_PROTECTED };
enum hth_kept hth_commit_kept(const struct hth_commit *c, uint32_t at);
/* 1: this node's state of the job is the coordinator's. *out_ms: how long ago the coordinator sent
 * a head or POSITION; 0 at the coordinator. 0: nothing has come from the coordinator for longer
 * than a change takes to reach a node. */
int hth_commit_as_of(const struct hth_commit *c, uint64_t *out_ms);
/* 1: all copies of kept saves are where the newest map places them. *out_mapped: the position of
 * that map. */
int hth_commit_settled(const struct hth_commit *c, uint64_t *out_mapped);
/* 1: this node knows the coordinator's state, and has missed no decision since. */
int hth_commit_current(const struct hth_commit *c);
uint64_t hth_commit_position(const struct hth_commit *c); /* of the newest head known here */
/* Whether `node` has all that it should have of save `at` of the keep record: it is not lost, and
 * has promised the save under the newest map. Engines other than the coordinator's know that of all
 * nodes or of none. */
enum hth_has { HTH_HAS_NOT, HTH_HAS, HTH_HAS_UNKNOWN };
enum hth_has hth_commit_has(struct hth_commit *c, uint32_t at, uint32_t node);
uint64_t hth_commit_kept_s(const struct hth_commit *c, uint32_t at); /* seconds since PROTECTED */

/* 1: *out_save is the newest save of this epoch (step NULL: of any step) that all ranks of this
 * node have handed over and whose decision this node has not received. 0: there is no such save.
 * *out_unknown 1: the decision will not come any more. */
int hth_commit_undecided(const struct hth_commit *c, const uint64_t *step,
        struct hth_save_id *out_save, int *out_unknown);

/* Sends the wish to the coordinator once; the caller repeats the call until on_wish_result() has
 * run. save.epoch 0: the newest kept save of save.step. Codes of the result: HEARTH_ENOENT not
 * kept, HEARTH_ESTATE not now, HEARTH_EIO. */
void hth_commit_wish(
        struct hth_commit *c, uint64_t number, enum hth_wish wish, struct hth_save_id save);

/* For a status report: the newest PROTECTED save and its age, the undecided saves and the nodes
 * that they wait for. */
void hth_commit_text(struct hth_commit *c, char *out, size_t len);

/* Nodes that should hold rank's objects besides its own: out[HTH_COPIES_MAX], by the newest map. */
uint32_t hth_commit_holders(struct hth_commit *c, uint32_t rank, uint32_t *out);

/* A copy was found bad or lost on this node: the promise is void, and the save is DEGRADED until
 * the copy is repaired. */
void hth_commit_copy_lost(
        struct hth_commit *c, struct hth_save_id save, uint64_t object, const char *why);

/* A place of a rank's objects, by the newest map. HTH_NODE_NONE: there is no such node. */
struct hth_place {
    uint32_t home; /* its node as the epoch began */
    uint32_t now;  /* its node by the newest map */
    uint32_t was;  /* its node when a map was settled last, if that is another one */
};
/* out[HTH_COPIES_MAX + 1]: the copies' places, then the owner's; returns how many. */
uint32_t hth_commit_rank_places(
        const struct hth_commit *c, uint32_t rank, struct hth_place out[HTH_COPIES_MAX + 1]);

void hth_commit_deliver(struct hth_commit *c, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len);
/* At the coordinator: a fact of `origin` has come, with its engine's life and the number of facts
 * that this engine has sent. */
void hth_commit_sign_of_life(struct hth_commit *c, uint32_t origin, uint64_t life, uint64_t count);
void hth_commit_blob(
        struct hth_commit *c, const struct hth_blob_id *id, const unsigned char *bytes, size_t len);
/* A map has come as a blob, because it was too large for a message. */
void hth_commit_map(struct hth_commit *c, const unsigned char *bytes, size_t len);
/* A common object cannot be written here: its save fails, unless the save is COMPLETE already. */
void hth_commit_blob_failed(
        struct hth_commit *c, const struct hth_blob_id *id, const struct hearth_error *err);
int hth_commit_offer_wanted(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object);
/* The same before the object is offered: nothing is known here of the save yet, and nothing is
 * noted, since a save that its rank gives up may never be decided. */
int hth_commit_early_wanted(
        void *self, uint32_t from, struct hth_save_id save, const struct hth_object *object);
void hth_commit_replica(void *self, struct hth_save_id save, uint64_t object);
/* A copy of the save has no room here; from now on the save's state names the lack of room. If it
 * is HEARTH_ENOSPC for half of dead_ms, in which nothing can make room any more, the save fails
 * with `text`. HEARTH_EBUSY: the copy waits. */
void hth_commit_no_room(struct hth_commit *c, struct hth_save_id save, int code, const char *text);
void hth_commit_peer_down(struct hth_commit *c, uint32_t node);
void hth_commit_peer_up(struct hth_commit *c, uint32_t node);
/* A pull of `len` bytes from the node has completed (code 0) or stalled. */
void hth_commit_pulled(struct hth_commit *c, uint32_t node, uint64_t len, int code);
void hth_commit_tick(struct hth_commit *c);
uint64_t hth_commit_due_ms(const struct hth_commit *c);
void hth_commit_close(struct hth_commit *c);

#endif
