/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a save's handle that the other files of this folder write. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_HANDLE_H
#define HEARTH_CLIENT_HANDLE_H

#include "client/link/kept.h"
#include "client/link/mapped.h"

/* An object that this process fills. */
struct hth_written {
    struct hth_slot_map *slot; /* NULL: kill switch, or sealed */
    unsigned char *base;       /* of the file; data at base + HTH_BLOCK */
    uint64_t slot_id, generation;
    uint64_t room; /* payload bytes that begin asked for: data and table records */
    uint64_t data_len, items_len;
    uint32_t items;
    uint32_t told;    /* chunks from the first on that were reported as complete */
    uint64_t told_ms; /* more of them are not before then; 0: nothing was copied yet */
    int summed;       /* all its bytes were copied here, and `crc` has the sums of their chunks */
    uint32_t *crc;    /* [HTH_CHUNKS(room)]; NULL: no sums are made */
};

struct hearth_handle *hth_handle_open(struct hearth *h); /* hearth_handle_close() */
/* The save is of these ranks alone (runs 0: of all ranks). Called before the save is under way.
 * HEARTH_ENOMEM. */
int hth_handle_ranks(struct hearth_handle *handle, const struct hth_ranks *ranks);
/* It is under way at the engine under this token of that connection, in the slot of `object`;
 * ahead: BEGIN was not sent yet, and is sent now. save.epoch 0: the save's id is not known yet, and
 * `step` is the step that the caller gave to begin. HEARTH_ENOMEM. */
int hth_handle_lent(struct hearth_handle *handle, uint64_t token, uint64_t incarnation,
        struct hth_local_save save, uint64_t step, const struct hth_kept_object *object, int ahead);
int hth_handle_more(struct hearth_handle *handle, const struct hth_kept_object *object);
/* Its step is known. */
void hth_handle_named(struct hearth_handle *handle, struct hth_local_save save);
void hth_handle_set_step(struct hearth_handle *handle, uint64_t step); /* with the kill switch on */

/* The object's first `chunks` chunks are complete, and peers may pull them. This is sent to the
 * engine that has lent the slot, if its socket accepts it now. */
void hth_handle_written_chunks(struct hearth_handle *handle, uint32_t index, uint32_t chunks);
/* The object is written. The next of these calls tells the engine so. */
void hth_handle_sealed(
        struct hearth_handle *handle, uint32_t index, const struct hth_written *object);
/* These send a message and keep it for a later engine; none waits. Errors: of the save, if it is
 * known already that it has failed. */
int hth_handle_seal(struct hearth_handle *handle, struct hearth_error *err); /* what is sealed */
/* common: taken over. */
int hth_handle_common(
        struct hearth_handle *handle, struct hth_kept_common *common, struct hearth_error *err);
int hth_handle_commit(struct hearth_handle *handle, struct hearth_error *err);
void hth_handle_abort(struct hearth_handle *handle);
/* It is another process's: nothing more is sent about it. */
void hth_handle_given(struct hearth_handle *handle);

/* Bytes come from GPUs: these copies, of which the handle has a reference from here on. Until
 * hth_handle_copied() no SEAL, COMMIT, CANCEL and ABORT of the save is sent. */
void hth_handle_copies(struct hearth_handle *handle, struct hth_work *work);
/* They have arrived, `pinned` as SEAL has it; err: they never will, and the save has failed. The
 * handle may be gone then. */
void hth_handle_copied(
        struct hearth_handle *handle, uint32_t pinned, const struct hearth_error *err);

/* The rank has done its part; with the kill switch on it never does more. */
void hth_handle_written(struct hearth_handle *handle, uint64_t bytes);

#endif
