/* SPDX-License-Identifier: Apache-2.0 */
/* Writing, beyond begin, add and commit. */
#ifndef HEARTH_SAVE_H
#define HEARTH_SAVE_H

#include <hearth/error.h>
#include <hearth/opts.h>
#include <hearth/types.h>

HEARTH_BEGIN

/* For hearth_save_begin(): staging; hearth_save_set_step() follows. No step: the greatest one is
 * two less, HEARTH_STEP_NEWEST lies between. */
#define HEARTH_STEP_LATER UINT64_MAX

/* Exactly the `bytes` that begin needs for these pieces and byte items (both may be NULL, 0). */
HEARTH_API uint64_t hearth_save_bytes(const struct hearth_piece *pieces, size_t count,
        const struct hearth_bytes *items, size_t item_count);

/* Places instead of copies: the call writes the headers, and out_data[count] receives where each
 * payload belongs (C order, contiguous, misaligned as the format has it). The caller fills them
 * before commit. */
HEARTH_API int hearth_save_reserve(struct hearth_save *save, const struct hearth_piece *pieces,
        size_t count, void **out_data, struct hearth_error *err);

/* As hearth_save_add(), and out_data[count] receives where each payload lies now: the caller may
 * read and write there until commit, seal, give or abort. */
HEARTH_API int hearth_save_stage(struct hearth_save *save, const struct hearth_piece *pieces,
        size_t count, void **out_data, struct hearth_error *err);

/* A save begun with HEARTH_STEP_LATER belongs to `step` from here on. Waits and fails as begin
 * does, with begin's wait_ms. If the engine did not answer (HEARTH_EBUSY; HEARTH_ETIMEOUT with a
 * wait_ms; HEARTH_EENGINE), it may have the step already: set the same one again, or abort; another
 * one is HEARTH_ESTATE then. HEARTH_EINVAL: neither of the two constants is a step. */
HEARTH_API int hearth_save_set_step(
        struct hearth_save *save, uint64_t step, struct hearth_error *err);

/* Which of these pointers lie in an object being written: out_offset[i] from byte 4096 of the
 * object of `save`, or UINT64_MAX. */
HEARTH_API int hearth_save_locate(struct hearth_save *save, const void *const *pointers,
        size_t count, uint64_t *out_offset, struct hearth_error *err);

/* Where the items of the object being written lie, in the order they were added, for a writer of
 * `.metadata`: out[cap], *out_count may be larger than cap. */
struct hearth_place {
    uint64_t offset, length; /* of the item, header included; offset from byte 4096 of the file */
};
HEARTH_API int hearth_save_places(struct hearth_save *save, struct hearth_place *out, size_t cap,
        size_t *out_count, struct hearth_error *err);

/* Where the data of the object being written lies in this process: *out_bytes of memory from byte
 * 4096 of the object, as many as begin asked for, with what was added so far at the front. A staged
 * payload is as far from there in a process that takes the save (hearth_save_take) as in the giver.
 * Writable until commit, seal, give or abort. Errors: HEARTH_ESTATE once it is sealed. */
HEARTH_API int hearth_save_data(
        struct hearth_save *save, void **out_base, uint64_t *out_bytes, struct hearth_error *err);

/* An object of at most 1 GiB that every node receives at commit: `.metadata`, common state. One
 * rank of the job gives it. The bytes are copied; this node's engine takes the copy over after the
 * call. Each node needs room for it beside its slots, once per save that is kept and once more; if
 * a node has no room, the save fails on all ranks, and the handle has the reason. */
HEARTH_API int hearth_save_put_common(struct hearth_save *save, const char *name, const void *data,
        size_t len, struct hearth_error *err);

/* Hand all objects of this rank over now: they are checksummed, sealed and copied to peers while
 * the caller makes up what every node receives. Of the calls that write only
 * hearth_save_put_common() and commit (or abort) may follow; hearth_save_places() and
 * hearth_save_locate() still answer. Does not wait.
 * Errors: HEARTH_ESTATE without a step; HEARTH_EFAILED if the library has received already that the
 * save failed. */
HEARTH_API int hearth_save_seal(struct hearth_save *save, struct hearth_error *err);

/*
 * A save passes from one process of a rank to another (opts.helper): the giver's save is gone
 * afterwards, also on error; the bytes stay where they are, and the giver must not write to them
 * any more. The ticket is plain memory, good once, on this node and for this rank, until the
 * giver's connection ends or its engine is restarted. Taken, the save is the taker's as if it had
 * begun it. Under the kill switch it is empty. Both wait for this node's engine, up to begin's
 * wait_ms + 2 seconds.
 *
 * Errors   HEARTH_ESTATE   (give) it is sealed, has several objects, or common ones and no step
 *          HEARTH_ENOENT   (take) no such save waits: it was taken already, or its giver ended
 */
struct hearth_ticket {
    unsigned char bytes[512];
};
HEARTH_API int hearth_save_give(
        struct hearth_save *save, struct hearth_ticket *out, struct hearth_error *err);
HEARTH_API int hearth_save_take(struct hearth *h, const struct hearth_ticket *ticket,
        struct hearth_save **out_save, struct hearth_error *err);

/*
 * GPU memory. hearth_save_add() of pieces in GPU memory returns when their copies are enqueued; the
 * tensors may be changed once these are done. The fence makes `stream` (CUstream, hipStream_t) wait
 * for all copies of the save so far: what is enqueued there after the call may change the tensors.
 * hearth_handle_fence() is the same after commit. A save without pieces in GPU memory has nothing
 * to wait for.
 *
 * stream   NULL: the call itself waits until the copies are done. The default stream as a stream is
 *          CU_STREAM_LEGACY (1), that of a thread CU_STREAM_PER_THREAD (2).
 * Waits    With a stream only while copies go through the two buffers of 16 MiB, until the last one
 *          has left the GPU: while the slot is not pinned yet, or is never (opts.pin). At most
 *          opts.save_ms.
 * Errors   HEARTH_ETIMEOUT      the copies did not end in opts.save_ms
 *          HEARTH_EUNSUPPORTED  `stream` is being captured into a graph
 *          others               a copy has failed, and with it the save: key, GPU and the driver's
 *                               number
 */
HEARTH_API int hearth_save_fence(struct hearth_save *save, void *stream, struct hearth_error *err);
HEARTH_API int hearth_handle_fence(
        struct hearth_handle *handle, void *stream, struct hearth_error *err);

/* One more object of this rank in the same save; what is added from here on goes there. An error is
 * this call's alone: the object before it stays open, and the save goes on as it was. Errors:
 * HEARTH_EEXIST the rank has an object of this name in the save; HEARTH_ENOSPC, HEARTH_EBUSY no
 * room. */
HEARTH_API int hearth_save_next_object(
        struct hearth_save *save, const char *name, uint64_t bytes, struct hearth_error *err);

HEARTH_END

#endif
