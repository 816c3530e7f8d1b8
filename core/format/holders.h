/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The holder map of an epoch: who is lost, who cannot reach whom, and what has moved from where placement puts it. Its name is
 * the digest of its bytes, and these begin with the name of its forerunner, so no two maps of an epoch
 * have one name, not even where the second says what the first did.
 *
 *     0 forerunner 32 (of the first map: u64 epoch, u64 nonce, zeros)   32 u32 notes   36 u32 moves
 *    40 u32 pairs   44 u32 zero
 *    48 notes {u32 node, u32 lost, u64 life, u64 count, u64 last ms, u64 before ms}, in order of node
 *       moves {u32 rank, u32 place, u32 node, u32 was}, in order of rank and place
 *       pairs {u32 a, u32 b, u32 cut, u32 zero, u64 last ms, u64 before ms}, a < b, in order of both
 */
#ifndef HEARTH_CORE_FORMAT_HOLDERS_H
#define HEARTH_CORE_FORMAT_HOLDERS_H

#include "core/base/auth.h"
#include "core/base/fail.h"
#include "epoch.h"

/* Of a node that is lost, or was not long ago. */
struct hth_note {
    uint32_t node, lost;
    /* The newest sign of life that had come from it when it was lost: only a newer one clears the note. */
    uint64_t life, count;
    uint64_t last_ms, before_ms; /* its last two losses, the coordinator's wall clock; 0: none */
};

/* One place of a rank's objects. Places 0 .. copies - 1 are the copies', place `copies` the owner's. */
struct hth_move {
    uint32_t rank, place, node;
    uint32_t was; /* who had it when a map was settled last: it still has the bytes */
};

/* Two nodes that cannot reach each other though both live, or could not a while ago. */
struct hth_apart {
    uint32_t a, b;
    uint32_t cut;                /* 1: they cannot now */
    uint64_t last_ms, before_ms; /* when that was noticed last, as in a note */
};
#define HTH_APART_MAX 256u /* in a map */

struct hth_holders {
    unsigned char forerunner[HTH_DIGEST];
    uint32_t notes, moves, pairs;
    struct hth_note *note;
    struct hth_move *move;
    struct hth_apart *pair;
};

void hth_holders_first(struct hth_holders *out, uint64_t epoch, uint64_t nonce); /* nobody lost */
size_t hth_holders_bytes(const struct hth_holders *m);
void hth_holders_encode(const struct hth_holders *m, unsigned char *out);
/* Errors: HEARTH_ECORRUPT, HEARTH_ENOMEM. The caller owns *out: hth_holders_fini(). */
int hth_holders_decode(
        struct hth_holders *out, const void *bytes, size_t len, struct hearth_error *err);
void hth_holders_fini(struct hth_holders *m);
const struct hth_note *hth_holders_note(
        const struct hth_holders *m, uint32_t node); /* NULL: none */
const struct hth_move *hth_holders_move(const struct hth_holders *m, uint32_t rank, uint32_t place);
/* In a map's order. */
const struct hth_apart *hth_apart_find(
        const struct hth_apart *pair, uint32_t pairs, uint32_t a, uint32_t b);
const struct hth_apart *hth_holders_pair(const struct hth_holders *m, uint32_t a, uint32_t b);

#endif
