/* SPDX-License-Identifier: Apache-2.0 */
/* How things are called: jobs, saves, objects; and which names are allowed. */
#ifndef HEARTH_CORE_BASE_ID_H
#define HEARTH_CORE_BASE_ID_H

#include "fail.h"
#include <stdint.h>

#define HTH_NAME_MAX    64 /* bytes of a job, node, domain or own object name, no terminator counted */
#define HTH_DIGEST      32 /* bytes: BLAKE2b-256 */
#define HTH_SAVE_TEXT   60 /* `<save>` as text with its terminator: 16-16-16-8 hex digits */
#define HTH_RECORDS_DIR ".hearth"
#define HTH_STEP_MAX    (UINT64_MAX - 2) /* above it: HEARTH_STEP_NEWEST, HEARTH_STEP_LATER */

/* One attempt to write a step. Ordered by epoch, nonce, step, attempt; of one step a save of all
 * ranks is newer than one of some (hth_save_cmp). */
struct hth_save_id {
    uint64_t epoch;
    uint64_t nonce;
    uint64_t step;
    uint32_t attempt;
};

/* An attempt of some of the ranks has the code of their set in its upper bits
 * (core/format/ranks.h), so that sets count by themselves and no two of them have one id. */
#define HTH_ATTEMPT_SOME  UINT32_C(0x80000000)
#define HTH_ATTEMPT_SHIFT 16
#define HTH_ATTEMPT_COUNT UINT32_C(0xffff)

static inline uint32_t hth_attempt_set(uint32_t attempt)
{
    return attempt & HTH_ATTEMPT_SOME ? attempt & ~HTH_ATTEMPT_COUNT : 0;
}

static inline uint32_t hth_attempt_count(uint32_t attempt)
{
    return attempt & HTH_ATTEMPT_SOME ? attempt & HTH_ATTEMPT_COUNT : attempt;
}

/* Text for people behind the count: the attempt is of some of the ranks. */
static inline const char *hth_attempt_of(uint32_t attempt)
{
    return attempt & HTH_ATTEMPT_SOME ? " of some ranks" : "";
}

#define HTH_SAVE "step %" PRIu64 " (epoch %" PRIu64 ", attempt %" PRIu32 "%s)"
#define HTH_SAVE_ARGS(s) \
    (s).step, (s).epoch, hth_attempt_count((s).attempt), hth_attempt_of((s).attempt)

/* A node believes a peer that reports an epoch up to 2^62, so no session has an epoch above 2^62 +
 * 1; a larger number is damage. */
#define HTH_EPOCH_BELIEVED (UINT64_C(1) << 62)
#define HTH_EPOCH_MOST     (HTH_EPOCH_BELIEVED + 1)

/* <0, 0, >0. A save with an epoch above HTH_EPOCH_MOST is older than all others: it counts only
 * where there is no other save, and every later save is newer. */
int hth_save_cmp(struct hth_save_id a, struct hth_save_id b);

static inline int hth_save_none(struct hth_save_id s)
{
    return s.epoch == 0;
}

/* A foreign container counts as a save of this id: older than any of ours, whose attempts begin
 * at 1. */
static inline struct hth_save_id hth_save_of_foreign(uint64_t step)
{
    return (struct hth_save_id){ .epoch = 1, .step = step };
}

static inline int hth_save_foreign(struct hth_save_id s)
{
    return s.epoch == 1 && s.nonce == 0 && s.attempt == 0;
}

/* `eeeeeeeeeeeeeeee-nnnnnnnnnnnnnnnn-ssssssssssssssss-aaaaaaaa` */
void hth_save_text(struct hth_save_id save, char out[HTH_SAVE_TEXT]);
int hth_save_parse(const char *text, struct hth_save_id *out); /* 0 or HEARTH_EINVAL */

/* `step-<N>_ckpt`: 0 and the number, or HEARTH_EINVAL. Plain decimal, no leading zeros. */
int hth_step_dir_parse(const char *name, uint64_t *out_step);
/* The same for a container that another program wrote: leading zeros are accepted too, as
 * ml-flashpoint accepts them. */
int hth_step_dir_theirs(const char *name, uint64_t *out_step);

/* Object id: rank in the upper half, index in that rank's save in the lower. */
static inline uint64_t hth_object_id(uint32_t rank, uint32_t index)
{
    return (uint64_t)rank << 32 | index;
}

static inline uint32_t hth_object_rank(uint64_t id)
{
    return (uint32_t)(id >> 32);
}

/* [A-Za-z0-9._-]{1,64}, no leading dot. Errors: HEARTH_EINVAL, with `what` in the sentence. */
int hth_job_check(const char *job, struct hearth_error *err);
int hth_node_check(const char *node, struct hearth_error *err);
/* [A-Za-z0-9._-]{1,64}, not `.`, `..`, `*.tmp`. `raw` objects may be `.metadata`. */
int hth_object_name_check(const char *name, struct hearth_error *err);
/* 1: recovery ruled out `save` when it chose `chosen`, since `save` is newer. The choice of a
 * foreign container, which is in no epoch, rules out none of ours. */
static inline int hth_save_after(struct hth_save_id save, struct hth_save_id chosen)
{
    return !hth_save_foreign(chosen) && hth_save_cmp(save, chosen) > 0;
}

/* In a foreign container: 1..255 bytes, no `/` or NUL, not `.` or `..`. */
int hth_foreign_name_check(const char *name, struct hearth_error *err);

/* A foreign writer may have its files in this folder of a job, and links to them in its containers.
 * hth_foreign_buffer(): the name in a link `<base>/buffer_pool/<name>`; NULL for any other link. */
#define HTH_BUFFERS "buffer_pool"
const char *hth_foreign_buffer(const char *link, const char *base);

#endif
