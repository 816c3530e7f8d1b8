/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The map of an epoch: the nodes that are lost, the pairs that are unreachable, and the places that
 * have moved since the placement. Its name is the digest of its bytes, and these begin with the
 * name of its forerunner, so no two maps of an epoch have one name, also if the second equals the
 * first.
 *
 *     0 forerunner 32 (of the first map: u64 epoch, u64 nonce, zeros)   32 u32 notes   36 u32 moves
 *    40 u32 pairs   44 u32 zero
 *    48 notes {u32 node, u32 lost, u64 life, u64 count, u64 last ms, u64 before ms}, by node
 *       moves {u32 rank, u32 place, u32 node, u32 was}, by rank and place
 *       pairs {u32 a, u32 b, u32 unreachable, u32 zero, u64 last ms, u64 before ms}, by a and b,
 *       a < b
 */
#ifndef HEARTH_CORE_FORMAT_PLACES_H
#define HEARTH_CORE_FORMAT_PLACES_H

#include "core/base/auth.h"
#include "core/base/fail.h"
#include "epoch.h"

/* Of a node that is lost, or was not long ago. */
struct hth_note {
    uint32_t node, lost;
    /* The newest sign of life that had come from it when it was lost: only a newer one clears
     * the note. */
    uint64_t life, count;
    uint64_t last_ms, before_ms; /* its last two losses, the coordinator's wall clock; 0: none */
};

/* One place of a rank's objects. Places 0 .. copies - 1 are the copies', place `copies` the
 * owner's. */
struct hth_move {
    uint32_t rank, place, node;
    uint32_t was; /* its node when a map was settled last, which still has the bytes */
};

/* Two nodes that both live and cannot reach each other, or could not a while ago. */
struct hth_pair_note {
    uint32_t a, b;
    uint32_t unreachable;        /* 1: they cannot now */
    uint64_t last_ms, before_ms; /* when that was noticed last, as in a note */
};
#define HTH_PAIRS_MAX 256u /* in a map */

struct hth_places {
    unsigned char forerunner[HTH_DIGEST];
    uint32_t notes, moves, pairs;
    struct hth_note *note;
    struct hth_move *move;
    struct hth_pair_note *pair;
};

void hth_places_first(struct hth_places *out, uint64_t epoch, uint64_t nonce); /* no node is lost */
size_t hth_places_bytes(const struct hth_places *m);
void hth_places_encode(const struct hth_places *m, unsigned char *out);
/* Errors: HEARTH_ECORRUPT, HEARTH_ENOMEM. The caller owns *out: hth_places_fini(). */
int hth_places_decode(
        struct hth_places *out, const void *bytes, size_t len, struct hearth_error *err);
void hth_places_fini(struct hth_places *m);
const struct hth_note *hth_places_note(const struct hth_places *m, uint32_t node); /* NULL: none */
const struct hth_move *hth_places_move(const struct hth_places *m, uint32_t rank, uint32_t place);
/* In a map's order. */
const struct hth_pair_note *hth_pair_note_find(
        const struct hth_pair_note *pair, uint32_t pairs, uint32_t a, uint32_t b);
const struct hth_pair_note *hth_places_pair(const struct hth_places *m, uint32_t a, uint32_t b);

#endif
