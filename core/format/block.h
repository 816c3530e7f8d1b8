/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first 4096 bytes of an object. ml-flashpoint knows the first two fields and keeps
 * the rest zero; what Hearth puts there its readers ignore. Little-endian.
 *
 *      0  u64  length of the data section (from byte 4096)
 *      8  8    signature: MLF_TENS, TORCH___, or zeros
 *     16  8    "HEARTH\r\n"; zeros: not one of ours (foreign)
 *     24  u32  version (1)         28  u32  kind (enum hth_object_kind)
 *     32  u64  epoch   40 u64 nonce   48 u64 step   56 u32 attempt   60 u32 owner rank
 *     64  u64  object id           72  u64  generation of the slot
 *     80  u64  offset of the table in the file     88  u64  its length
 *     96  32   digest of the table (BLAKE2b-256)
 *    128  64   job, NUL-padded    192  64   object name, NUL-padded
 *    256  ...  zeros
 *   4092  u32  CRC32C of bytes 0..4091
 */
#ifndef HEARTH_CORE_FORMAT_BLOCK_H
#define HEARTH_CORE_FORMAT_BLOCK_H

#include "chunk.h"
#include "core/base/id.h"
#include "versions.h"
#include <stddef.h>

#define HTH_BLOCK    4096u /* bytes; data starts here */
#define HTH_ALIGN(n) (((n) + HTH_BLOCK - 1) / HTH_BLOCK * HTH_BLOCK)

enum hth_signature {
    HTH_SIG_NONE = 0,
    HTH_SIG_TENSORS = 10,
    HTH_SIG_TORCH = 20,
    HTH_SIG_UNKNOWN = 30
};

enum hth_object_kind {
    HTH_OBJECT_SHARD = 10,   /* a rank's items */
    HTH_OBJECT_RAW = 20,     /* plain file on every node: no block, listed by the manifest only */
    HTH_OBJECT_FOREIGN = 30, /* a file of a foreign container: its bytes as they are */
};

struct hth_block {
    uint64_t data_len;
    enum hth_signature signature;
    int own; /* the fields below are there, and checked */
    struct hth_save_id save;
    uint32_t owner; /* rank */
    uint64_t object;
    uint64_t generation;
    uint64_t table_off;
    uint64_t table_len;
    unsigned char table_digest[HTH_DIGEST];
    char job[HTH_NAME_MAX + 1];
    char name[HTH_NAME_MAX + 1];
};

void hth_block_encode(const struct hth_block *block, unsigned char out[HTH_BLOCK]);

/* Decode the first bytes of a file of `file_len` bytes; bytes[len], len may be < 4096 (then
 * HEARTH_ECORRUPT "torn"). A foreign block gives own = 0 and the first two fields. Ours must
 * hold in every byte: CRC, version, lengths that fit in file_len, zeros where zeros belong.
 * Errors: HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED (another version). */
int hth_block_decode_as(const struct hth_versions *versions, struct hth_block *out,
        const void *bytes, size_t len, uint64_t file_len, struct hearth_error *err);
int hth_block_decode(struct hth_block *out, const void *bytes, size_t len, uint64_t file_len,
        struct hearth_error *err);

#endif
