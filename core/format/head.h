/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `.hearth/head`: the newest entry of an epoch's log, which is a whole state, and the map that it
 * names. The coordinator writes it before it sends it; a member writes it before it promises or
 * frees anything by it. On the wire a head is the same bytes, with or without its map.
 *
 *     0 "HTHHEADS"   8 u32 version   12 u32 settled   16 u64 epoch   24 u64 nonce   32 u64 position
 *    40 u64 mapped   48 name of the map 32   80 newest decided save 32   112 u32 cancels   116 u32 zero
 *   120 cancelled saves, oldest first: {save 32, i32 code, u32 whole}, zeros up to HTH_HEAD_CANCELLED
 *       why the last was, zeros up to HTH_HEAD_WHY   keep record   u64 length of the map   map   digest
 */
#ifndef HEARTH_CORE_FORMAT_HEAD_H
#define HEARTH_CORE_FORMAT_HEAD_H

#include "core/base/auth.h"
#include "keep.h"

#define HTH_HEAD_CANCELLED 16u
#define HTH_HEAD_WHY       200u
#define HTH_HEAD_BYTES \
    (120u + HTH_HEAD_CANCELLED * 40u + HTH_HEAD_WHY + HTH_KEEP_BYTES + 8u + HTH_DIGEST)

struct hth_cancelled {
    struct hth_save_id save;
    int code;
    uint32_t whole; /* 1: it had a manifest, so a holder may have promised it */
};

struct hth_head {
    uint64_t epoch, nonce;
    uint64_t position;             /* rises by one with each head of the epoch; 0: none yet */
    uint64_t mapped;               /* position of the first head with this map */
    unsigned char map[HTH_DIGEST]; /* its name, which covers its forerunner's: see places.h */
    int settled;                   /* every holder has promised what is kept under this very map */
    struct hth_save_id decided;    /* saves of the epoch up to it are kept, or cancelled */
    uint32_t cancels;              /* saves newer than `decided` that were cancelled */
    struct hth_cancelled cancelled[HTH_HEAD_CANCELLED];
    char why[HTH_HEAD_WHY + 1]; /* of the last of them */
    struct hth_keep keep;
};

static inline size_t hth_head_bytes(size_t map_len)
{
    return HTH_HEAD_BYTES + map_len;
}

/* out[hth_head_bytes(map_len)] */
void hth_head_encode(const struct hth_head *h, const void *map, size_t map_len, unsigned char *out);
/* *out_map: where the map lies in `bytes`. Errors: HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED. _as: with
 * other rows than ours (versions.h). */
int hth_head_decode_as(const struct hth_versions *versions, struct hth_head *out,
        const unsigned char **out_map, size_t *out_map_len, const void *bytes, size_t len,
        struct hearth_error *err);
int hth_head_decode(struct hth_head *out, const unsigned char **out_map, size_t *out_map_len,
        const void *bytes, size_t len, struct hearth_error *err);

#endif
