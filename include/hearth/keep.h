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
    uint32_t
            confirmed; /* 0: as an earlier epoch left it, or as it was last heard: the coordinator is
                           out of reach */
    uint32_t copies;   /* replicas of each object beside the owner's own that the job asks for */
    uint32_t pinned, bad;
};
HEARTH_SIZED(hearth_kept);
#define HEARTH_KEPT_INIT HEARTH_INIT(hearth_kept)

/* As this node knows it, newest first: out[cap] with the struct_size of the first as stride,
 * *out_count may be larger than cap. Errors: HEARTH_ESTATE before hearth_recover(). */
HEARTH_API int hearth_keep_list(struct hearth *h, struct hearth_kept *out, size_t cap,
        size_t *out_count, struct hearth_error *err);

/*
 * Pin: it stays until it is unpinned or released, also across restarts, and uses up one of
 * opts.keep. At most keep - 1 can be pinned: new saves need a place. Release: it is given up and
 * freed on every node. What was opened of it goes on until it is closed. Mark bad: a recovery
 * passes over it as long as an older save is whole, and says so on every rank. It is marked by
 * itself where opts.bad_after says so; unmark also forgets what was counted for that.
 *
 * Returns when the coordinator has it on record; other nodes hear of it a moment later.
 *
 * Errors   HEARTH_ENOENT   it is not kept: which steps are
 *          HEARTH_ESTATE   pin: it would be the last place; release: it is the newest that is PROTECTED;
 *                          any: no save is PROTECTED in this epoch yet
 *          HEARTH_ETIMEOUT the coordinator, by name, did not answer: what came of it is not known
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
