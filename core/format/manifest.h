/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects of a save. One fixed record per object, nothing per item or chunk:
 *
 *     0  8   "HTHMANIF"    8 u32 version       12 u32 world size
 *    16  save: u64 epoch, nonce, step, u32 attempt, u32 zero          (32 bytes)
 *    48  save resumed from, the same                                  (32 bytes)
 *    80  64  job, NUL-padded
 *   144  u32 objects   148 u32 nodes    152 u32 integrity: 0 crc32c, 1 strong (version 2: 0)
 *   156  ... zero to 192
 *   192  objects of 128 bytes, in order of id:
 *          0 u64 id   8 u32 owner rank   12 u16 kind   14 u16 1: listed, without an owner
 *            (foreign); 2: strong, as all shards of a strong save are, and of no other
 *         16 u64 data length   24 u64 table length (0: raw, foreign)
 *         32 32  digest: of the table; of the bytes for a raw or foreign object
 *         64 64  name, NUL-padded
 *     .  32  BLAKE2b-256 of all before it
 */
#ifndef HEARTH_CORE_FORMAT_MANIFEST_H
#define HEARTH_CORE_FORMAT_MANIFEST_H

#include "block.h"
#include "versions.h"

#define HTH_MANIFEST_HEAD   192u
#define HTH_MANIFEST_OBJECT 128u

#define HTH_OWNER_NONE      UINT32_MAX

#define HTH_RAW_MAX         (UINT64_C(1) << 30) /* bytes of a raw object */

struct hth_object {
    uint64_t id;
    uint32_t owner; /* rank; HTH_OWNER_NONE: of no rank, foreign objects only */
    enum hth_object_kind kind;
    uint32_t listed; /* 1: a foreign file without an owner that `.metadata` names: it has items */
    uint32_t strong; /* 1: its table has SHA-256 of each chunk */
    uint64_t data_len;
    uint64_t table_len; /* 0 for a raw object */
    unsigned char digest[HTH_DIGEST];
    char name[HTH_NAME_MAX + 1];
};

struct hth_manifest {
    struct hth_save_id save;
    struct hth_save_id from; /* resumed from; epoch 0: a start from nothing */
    uint32_t world;
    uint32_t nodes;
    uint32_t strong; /* 1: all shards are, by the ranks' integrity */
    char job[HTH_NAME_MAX + 1];
    uint32_t objects;
    struct hth_object *object;        /* [objects], in order of id; hth_manifest_fini() frees it */
    unsigned char digest[HTH_DIGEST]; /* own; set by encode and decode */
};

size_t hth_manifest_bytes(const struct hth_manifest *m);

/* Sorts objects by id, sets m->digest. out[hth_manifest_bytes(m)]. Errors: HEARTH_EEXIST when
 * two objects have one name or id (the sentence names both ranks), HEARTH_EINVAL when a shard is
 * not as strong as the save. */
int hth_manifest_encode(struct hth_manifest *m, unsigned char *out, struct hearth_error *err);

/* Decode untrusted bytes. Errors: HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED, HEARTH_ENOMEM. */
int hth_manifest_decode_as(const struct hth_versions *versions, struct hth_manifest *out,
        const void *bytes, size_t len, struct hearth_error *err);
int hth_manifest_decode(
        struct hth_manifest *out, const void *bytes, size_t len, struct hearth_error *err);
void hth_manifest_fini(struct hth_manifest *m);

/* By id; NULL when there is none. */
const struct hth_object *hth_manifest_find(const struct hth_manifest *m, uint64_t id);

/* One object as its 128 bytes, for messages. */
void hth_object_encode(const struct hth_object *o, unsigned char out[HTH_MANIFEST_OBJECT]);
int hth_object_decode(struct hth_object *out, const unsigned char in[HTH_MANIFEST_OBJECT],
        struct hearth_error *err);

/* Bytes of the object's file that hold content: 4096 + data, padded, + table. Raw, foreign:
 * data_len. */
uint64_t hth_object_file_bytes(const struct hth_object *o);

#endif
