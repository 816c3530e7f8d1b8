/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `.hearth/handed`: the commit record. Objects that ranks of this node have handed over by COMMIT,
 * of saves that are not decided: the next engine does not take their slots for free ones, and knows
 * that the ranks are done. If `summed` is 1, the rank's checksums lie behind the items in the slot,
 * and the next engine seals with them. If it is 0, as in versions 1 and 2, that engine makes its
 * own.
 *
 * A common object has a row too: its index has the highest bit, and of the lengths it has data_len
 * alone. If its `summed` is 1, the first 16 bytes of its digest stand in place of slot and
 * generation.
 *
 *     0 "HTHANDED"   8 u32 version   12 u32 rows
 *    16 rows of 160 bytes:
 *         0 the save   32 u64 slot   40 u64 generation   48 u64 summed (before version 3: bytes)
 *        56 u64 data_len   64 u64 items_len   72 u32 items   76 u32 rank   80 u32 index   84 u32 commons
 *        88 name[72]
 *       u32 sets   u32 zero      (version 2)
 *       for each save that is of some of the ranks: the save, u32 runs, u32 zero, its runs (ranks.h)
 *       digest
 */
#ifndef HEARTH_CORE_FORMAT_HANDED_H
#define HEARTH_CORE_FORMAT_HANDED_H

#include "core/base/auth.h"
#include "core/base/id.h"
#include "ranks.h"
#include "versions.h"
#include <stddef.h>

#define HTH_HANDED_ROW  160u
#define HTH_HANDED_MAX  262144u /* rows: ranks of a node, times their objects */
#define HTH_HANDED_NAME 72u

struct hth_handed {
    struct hth_save_id save;
    uint64_t slot, generation, summed, data_len, items_len;
    uint32_t items, rank, index;
    uint32_t commons; /* common objects that the rank handed over with it */
    char name[HTH_HANDED_NAME + 1];
};

#define HTH_HANDED_SETS 64u /* at most */

struct hth_handed_set { /* of a save that rows are of */
    struct hth_save_id save;
    struct hth_ranks ranks;
};

struct hth_handed_record {
    struct hth_handed *row; /* [rows] */
    size_t rows;
    struct hth_handed_set *set; /* [sets] */
    size_t sets;
};

size_t hth_handed_bytes(const struct hth_handed_record *record);
void hth_handed_encode(const struct hth_handed_record *record, unsigned char *out);
/* Errors: HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED, HEARTH_ENOMEM. _as: with other rows than ours
 * (versions.h). */
int hth_handed_decode_as(const struct hth_versions *versions, struct hth_handed_record *out,
        const void *bytes, size_t len, struct hearth_error *err);
int hth_handed_decode(
        struct hth_handed_record *out, const void *bytes, size_t len, struct hearth_error *err);
void hth_handed_fini(struct hth_handed_record *record);

#endif
