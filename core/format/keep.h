/* SPDX-License-Identifier: Apache-2.0 */
/* `.hearth/keep`: what the coordinator decided last. Its saves are never freed by another rule. */
#ifndef HEARTH_CORE_FORMAT_KEEP_H
#define HEARTH_CORE_FORMAT_KEEP_H

#include "core/base/id.h"
#include "versions.h"
#include <stddef.h>

#define HTH_KEEP_MAX   16 /* saves on a list */
#define HTH_KEEP_BADS  15 /* marks; the last place is for the save that is tried */
#define HTH_KEEP_BYTES (64 + HTH_KEEP_MAX * (32 + 32 + 8) + HTH_DIGEST)

struct hth_keep {
    uint64_t epoch;
    uint64_t serial;  /* of the decision, counted in the epoch */
    uint64_t dropped; /* saves of epochs up to this one were given up by all ranks; 0: none */
    uint32_t saves, bads;
    /* Bit i: save[i] has fewer copies than were asked for, or may have since a node was lost. */
    uint32_t degraded;
    uint32_t pinned; /* bit i: save[i] stays until it is given up, however many newer ones come */
    struct hth_save_id save[HTH_KEEP_MAX]; /* PROTECTED and kept, newest first */
    struct hth_save_id
            bad[HTH_KEEP_MAX]; /* not chosen while an older one is whole; oldest mark first */
    uint64_t since_ms
            [HTH_KEEP_MAX]; /* when save[i] was PROTECTED first: the coordinator's wall clock,
                                        ms since 1970 */
    /* Where marking by count is on: the save that was recovered last, until a save of a job that
     * goes on from it is decided. */
    struct hth_save_id tried; /* epoch 0: none */
    uint32_t tries;           /* jobs in a row that have recovered it */
};

void hth_keep_encode(const struct hth_keep *k, unsigned char out[HTH_KEEP_BYTES]);
/* Errors: HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED. _as: with other rows than ours (versions.h). */
int hth_keep_decode_as(const struct hth_versions *versions, struct hth_keep *out, const void *bytes,
        size_t len, struct hearth_error *err);
int hth_keep_decode(struct hth_keep *out, const void *bytes, size_t len, struct hearth_error *err);
/* Saves of epochs up to this one are not kept. */
void hth_keep_drop(struct hth_keep *k, uint64_t epoch);
int hth_keep_has(const struct hth_keep *k, struct hth_save_id save);
/* Its place on the list; -1: it is not there. */
int hth_keep_at(const struct hth_keep *k, struct hth_save_id save);
/* Of one decision: what `other` alone has is on the list too, as long as there are places. */
void hth_keep_unite(struct hth_keep *k, const struct hth_keep *other);
/* Save `at` leaves the list. */
void hth_keep_leave(struct hth_keep *k, int at);
static inline int hth_keep_pinned(const struct hth_keep *k, int at)
{
    return (int)(k->pinned >> at & 1);
}
int hth_keep_is_bad(const struct hth_keep *k, struct hth_save_id save);
/* Marked bad, or (bad 0) not any more; the oldest mark makes room. */
void hth_keep_mark(struct hth_keep *k, struct hth_save_id save, int bad);
/* A job recovers `save`, for the first time or again: a job is counted once. The count of another
 * save ends. */
void hth_keep_try(struct hth_keep *k, struct hth_save_id save, int again);
void hth_keep_end_tries(struct hth_keep *k); /* a save of the job is decided: none is tried */
uint32_t hth_keep_tries(const struct hth_keep *k, struct hth_save_id save);
static inline int hth_keep_degraded(const struct hth_keep *k, int at)
{
    return (int)(k->degraded >> at & 1);
}

#endif
