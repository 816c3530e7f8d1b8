/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which saves are kept: the newest that are PROTECTED, as many as opts.keep. A user may list them,
 * pin one so that no newer save takes its place, give one up, or mark one bad. A request holds for
 * the whole job, whichever rank makes it: the coordinator decides, and every node has the decision
 * on record.
 *
 * A save is named by its id. An id with epoch 0 means the newest save of its step that is kept.
 */
#ifndef HEARTH_KEEP_H
#define HEARTH_KEEP_H

#include <hearth/error.h>
#include <hearth/init.h>
#include <hearth/types.h>

HEARTH_BEGIN

struct hearth_kept {
    size_t struct_size;
    struct hearth_save_id id; /* for hearth_checkpoint_find() and the calls below */
    uint64_t since_ms; /* when it was PROTECTED first: ms since 1970, by the coordinator's clock */
    uint32_t level;    /* enum hearth_level: HEARTH_PROTECTED */
    uint32_t degraded; /* 1: some object has fewer copies than asked, and is being repaired */
    /* 0: as an earlier epoch left it, or as this node received it last, since the coordinator is
     * out of reach */
    uint32_t confirmed;
    uint32_t copies; /* replicas of each object beside the owner's own that the job asks for */
    uint32_t pinned, bad;
};
HEARTH_SIZED(hearth_kept);
#define HEARTH_KEPT_INIT HEARTH_INIT(hearth_kept)

/* The kept saves as this node has them on record, newest first: out[cap] with the struct_size of
 * the first as stride, *out_count may be larger than cap. Errors: HEARTH_ESTATE before
 * hearth_recover(). */
HEARTH_API int hearth_keep_list(struct hearth *h, struct hearth_kept *out, size_t cap,
        size_t *out_count, struct hearth_error *err);

/*
 * Pin: the save stays until it is unpinned or released, also across restarts, and uses up one of
 * opts.keep. At most keep - 1 can be pinned: new saves need a place. Release: the save is freed on
 * every node; a checkpoint, view or descriptor of it that is open stays so until it is closed. Mark
 * bad: a recovery passes over the save as long as an older save is whole, and reports it on every
 * rank. opts.bad_after marks saves by itself; unmark also sets its count to 0.
 *
 * Returns when the coordinator has it on record; other nodes receive it a moment later.
 *
 * Errors   HEARTH_ENOENT   it is not kept: which steps are
 *          HEARTH_ESTATE   pin: it would be the last place; release: it is the newest that is PROTECTED;
 *                          any: no save is PROTECTED in this epoch yet
 *          HEARTH_ETIMEOUT the coordinator, by name, did not answer: the change is made or not
 */
HEARTH_API int hearth_keep_pin(
        struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err);
HEARTH_API int hearth_keep_unpin(
        struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err);
HEARTH_API int hearth_keep_release(
        struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err);
HEARTH_API int hearth_keep_mark_bad(
        struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err);
HEARTH_API int hearth_keep_unmark_bad(
        struct hearth *h, const struct hearth_save_id *id, struct hearth_error *err);

HEARTH_END

#endif
