/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hearth keeps the checkpoints of a training job in the memory of the machines that train it.
 *
 *   1  Everyday use   open, recover, load, save, wait, close      enough for most users
 *   2  <hearth/save.h>       staging before the step is known, reserved places, several objects
 *   3  <hearth/read.h>       items, views, boxes, descriptors
 *   4  <hearth/bootstrap.h>  how ranks find each other
 *   5  <hearth/opts.h>       every option of hearth_open()
 *   6  <hearth/keep.h>       which saves are kept: pin, release, mark bad
 *
 * A rank in the training loop:
 *
 *     hearth_open(&opts, &h, &err);
 *     hearth_recover(h, NULL, &ckpt, &err);        all ranks; ckpt == NULL: start from scratch
 *     if (ckpt) hearth_load(ckpt, pieces, n, 0, NULL, &err);
 *     loop:
 *         hearth_save_begin(h, step, bytes, NULL, &save, &err);
 *         hearth_save_add(save, pieces, n, &err);  copies: the tensors are yours again
 *         hearth_save_commit(save, &handle, &err); returns at once
 *     hearth_wait(handle, HEARTH_PROTECTED, 60000, &err);
 *     hearth_close(h, HEARTH_KEEP);
 *
 * Caveats. Everything here is memory: it survives processes and nodes, not the loss of more failure
 * domains than there are copies. Which calls may wait for this node's engine, and how long, is a
 * table in docs/api.md, What may wait; no other call does. Calls on one `struct hearth_save` or
 * checkpoint come from one thread at a time; different objects may be used by different threads at
 * once. After fork() every call in the child on what was opened before returns HEARTH_EFORK; views
 * stay readable there as long as this process keeps them open.
 */
#ifndef HEARTH_H
#define HEARTH_H

#include <hearth/bootstrap.h>
#include <hearth/dtype.h>
#include <hearth/error.h>
#include <hearth/init.h>
#include <hearth/keep.h>
#include <hearth/log.h>
#include <hearth/metadata.h>
#include <hearth/opts.h>
#include <hearth/read.h>
#include <hearth/save.h>
#include <hearth/types.h>
#include <hearth/value.h>
#include <hearth/version.h>

HEARTH_BEGIN

/* ---- 1  Everyday use ------------------------------------------------------------------- */

/*
 * Join the job. Every rank calls it; it starts this node's engine where none runs (opts.start)
 * and exchanges addresses through opts.bootstrap.
 *
 * opts   Copied. root, job, rank, world and bootstrap must be set (bootstrap: not for world 1).
 * out_h  The caller owns it: hearth_close().
 *
 * Errors   HEARTH_EINVAL    an option, with its name; or ranks that disagree, with both
 *          HEARTH_ENOSPC    the store cannot hold keep + 1 saves: the three limits and what to do
 *          HEARTH_ETIMEOUT  not all ranks came: names those that are missing
 *          HEARTH_EENGINE   the engine does not start: where its log is; another rank's: its error
 *          HEARTH_EUNSUPPORTED, HEARTH_EAUTH, HEARTH_EPROTO as they say
 * Threads  any
 * Cost     start of a process, one all-gather of 512 bytes a rank
 */
HEARTH_API int hearth_open(
        const struct hearth_opts *opts, struct hearth **out_h, struct hearth_error *err);

/* End the membership. Handles, saves, checkpoints and views must be closed before; NULL is fine.
 * With HEARTH_DROP all memory of the job is freed, the slots' too, and the engines end, once all
 * ranks have closed so. If one rank closes with HEARTH_KEEP, or ends without this call, everything
 * is kept. */
HEARTH_API void hearth_close(struct hearth *h, enum hearth_leave leave);

/*
 * Agree with all ranks on the newest save that can be had, and bring what this node needs of it
 * here, verified. Collective: every rank, once after open and again after losing peers. A second
 * call begins a new epoch (the bootstrap is used again).
 *
 * opts      NULL: defaults.
 * out_ckpt  NULL for "there is nothing, start from scratch". Else hearth_checkpoint_close().
 * Log       "ruled-out", a warning: a step that was not chosen, and why
 *
 * Errors    HEARTH_ENOENT    opts.save cannot be had: which saves can
 *           HEARTH_EINVAL    opts is wrong: no new epoch was begun, and this rank may call again; or
 *                            another opts.save than the first node's ranks gave
 *           HEARTH_ELOST     a save is named on a keep list and beyond redundancy, and there is
 *                            no older one: which objects, whose
 *           HEARTH_ETIMEOUT  names the member that did not answer; restart the job
 *           HEARTH_EPEER     a member was lost meanwhile; restart the job
 */
HEARTH_API int hearth_recover(struct hearth *h, const struct hearth_recover_opts *opts,
        struct hearth_checkpoint **out_ckpt, struct hearth_error *err);

/*
 * Fill the caller's tensors and bytes by key from the recovered checkpoint: of each piece that
 * part of its box which the stored pieces of that key cover, wherever they are.
 *
 * pieces[count]  data is written; dtype and global shape must match, or HEARTH_EINVAL naming the key.
 * flags          HEARTH_LOAD_PARTIAL: missing keys are reported, not an error; what is there of them
 *                is written.
 * out_report     May be NULL. hearth_report_close().
 *
 * Errors   HEARTH_ENOENT   keys that are not there (up to ten by name)
 *          HEARTH_ECORRUPT a chunk is wrong and no other copy exists: object, chunk, node
 *          HEARTH_EUNSUPPORTED  a graph is being captured in the stream of the copies to a GPU
 *          HEARTH_EIO, ...  a copy to a GPU has failed: key, GPU and the driver's number
 *          All keys and boxes are looked up first: where one is missing or does not match, nothing
 *          was written. A failure after that, on the way from another node or to a GPU, may leave
 *          targets partly written.
 * GPU memory  `data` may lie there (HEARTH_CUDA, or the driver says so), with any strides. Bytes
 *          are verified before they are copied to it. The copies start after what is in the default
 *          stream of each GPU at the call, which returns when all have arrived;
 *          hearth_checkpoint_stream() (<hearth/read.h>) names another stream.
 * Cost     A key that is not wholly in this rank's own objects makes the tables of all objects be
 *          read, once for the checkpoint
 */
HEARTH_API int hearth_load(struct hearth_checkpoint *ckpt, const struct hearth_piece *pieces,
        size_t count, uint32_t flags, struct hearth_report **out_report, struct hearth_error *err);

/*
 * Begin to write this rank's part of `step`. All ranks save the same steps in the same order, or
 * those that opts->ranks names; steps never go down within an epoch. HEARTH_STEP_LATER: the step is
 * set later (<hearth/save.h>).
 *
 * bytes     Of the payloads to come: the sum of all data, plus 4096 per piece is always enough
 *           (hearth_save_bytes() returns it exactly).
 * opts      NULL: defaults.
 *
 * Errors    HEARTH_EINVAL  HEARTH_STEP_NEWEST, which is for reading; opts->ranks, and which rank of it is wrong
 *           HEARTH_EBUSY   no room, an older save is undecided: names it and what it waits for;
 *                          or, without a step, how many are undecided or staged and what one more
 *                          lacks; or the engine did not answer; or, mostly at a job's first saves,
 *                          the slot's memory is still being made, which wait_ms waits for
 *           HEARTH_ENOSPC  larger than what the store can ever hold
 *           HEARTH_ESTATE  no hearth_recover() in this epoch yet, or the step went down
 * Cost      None: the slot was lent when the save before was decided. Where none was (the first save of a
 *           rank that set no object_bytes, a larger one, a helper's), or opts->wait_ms is set, the engine
 *           is asked, for that and as long as it takes to make one.
 */
HEARTH_API int hearth_save_begin(struct hearth *h, uint64_t step, uint64_t bytes,
        const struct hearth_begin_opts *opts, struct hearth_save **out_save,
        struct hearth_error *err);

/* Copy tensors in: pieces[count], borrowed until return. One call for thousands of small ones. Keys
 * have at most 1024 bytes. A rank saves each box of a key once, in whichever of its objects;
 * several ranks may save the same box, of the same bytes then: each reads the copy that is nearest
 * to it.
 * Pieces in GPU memory (HEARTH_CUDA, or the driver says so) are copied after the call, beside
 * training: hearth_save_fence() says when they may be changed. Their `from` stays allocated until
 * then.
 * Errors: HEARTH_EINVAL naming the key, also where this box of it is in the rank's save already
 * (pieces without elements aside), and nothing was added; HEARTH_ENOSPC past the bytes of begin
 * (nothing was copied); HEARTH_ESTATE after byte strings in the same object; HEARTH_EIO naming key,
 * GPU and the driver's number: if that happens after copies began, the save has failed. */
HEARTH_API int hearth_save_add(struct hearth_save *save, const struct hearth_piece *pieces,
        size_t count, struct hearth_error *err);

/* Copy byte strings in: items[count], borrowed until return. A rank's keys of byte strings
 * differ. */
HEARTH_API int hearth_save_add_bytes(struct hearth_save *save, const struct hearth_bytes *items,
        size_t count, struct hearth_error *err);

/* Hand the save over to the engine, which checksums, seals and replicates its objects. Does not
 * wait. If the engine refuses the save, the handle has the reason; if the engine dies, the library
 * hands the save to the next engine. The save is gone afterwards, also on error. out_handle:
 * hearth_handle_close() (which does not cancel).
 * Errors: HEARTH_ESTATE without a step; HEARTH_EFAILED if the library has received already that the
 * save failed. */
HEARTH_API int hearth_save_commit(
        struct hearth_save *save, struct hearth_handle **out_handle, struct hearth_error *err);

/* Give the save up: the attempt is cancelled on all ranks. NULL is fine. */
HEARTH_API void hearth_save_abort(struct hearth_save *save);

/* Wait until the save has reached `level`, as this node's engine has it, or has failed. Other
 * nodes may receive a moment later that the save is PROTECTED. Once every rank has waited for it,
 * every node has received it.
 * Errors: HEARTH_ETIMEOUT after deadline_ms (1 .. 86400000), naming what it waits for;
 * HEARTH_EFAILED why it failed; HEARTH_ENOSPC a node has no room for its part or its copy: which,
 * bytes, limit and options; HEARTH_EUNKNOWN the coordinator is silent. */
HEARTH_API int hearth_wait(struct hearth_handle *handle, enum hearth_level level,
        uint32_t deadline_ms, struct hearth_error *err);

/* The state of the save now. Never blocks. out->code is HEARTH_EUNKNOWN while this node's engine is
 * gone, until hearth_wait() or another call that waits has looked for it. */
HEARTH_API int hearth_test(
        struct hearth_handle *handle, struct hearth_status *out, struct hearth_error *err);

/* Which save it is, for hearth_checkpoint_find() on any rank. */
HEARTH_API int hearth_handle_id(
        struct hearth_handle *handle, struct hearth_save_id *out, struct hearth_error *err);

/* Request that the save be cancelled on all ranks; the handle then fails unless PROTECTED came
 * first. Does not wait. */
HEARTH_API int hearth_cancel(struct hearth_handle *handle, struct hearth_error *err);
HEARTH_API void hearth_handle_close(struct hearth_handle *handle);

HEARTH_END

#endif
