/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object table: what is in an object, and what proves each 4 MiB of it. It lies at the
 * first 4096 boundary after the data section and travels with the object. Little-endian:
 *
 *     0  8    "HTHTABLE"
 *     8  u32  version (2)      12  u32  integrity: 0 crc32c, 1 strong (version 1: 0)
 *    16  u64  length of the data section
 *    24  u32  chunks           28  u32  items
 *    32  u64  length of the items part (multiple of 8)      40  ... zero to 64
 *    64  items, one after the other, each a multiple of 8 bytes:
 *         0  u64  offset of the item, from byte 4096 of the file
 *         8  u64  its length (header and payload)
 *        16  u64  offset of the payload in the item (0 for bytes)
 *        24  u32  length of this record       28  u32  key length
 *        32  u16  kind    34  u16  dtype    36  u32  ndim
 *        40  i64  local shape[ndim], global shape[ndim], global offset[ndim]
 *         .  key, zero-padded to 8
 *     .  u32  crc32c[chunks], zero-padded to 8
 *     .  32   SHA-256[chunks], where integrity is strong
 *
 * Items are in order of offset and abut; offsets and lengths lie in the data section.
 * The rank writes the items part, and the CRCs where it copied all bytes itself; the engine writes
 * the head and all other checksums.
 */
#ifndef HEARTH_CORE_FORMAT_TABLE_H
#define HEARTH_CORE_FORMAT_TABLE_H

#include "block.h"
#include "core/base/shape.h"

#define HTH_TABLE_HEAD 64u

enum hth_item_kind { HTH_ITEM_TENSOR = 10, HTH_ITEM_BYTES = 20 };

struct hth_item {
    uint64_t offset;  /* of the item, from byte 4096 */
    uint64_t length;  /* header and payload */
    uint64_t payload; /* offset of the payload in the item */
    enum hth_item_kind kind;
    enum hearth_dtype dtype;
    uint32_t ndim;
    uint32_t key_len;
    /* [ndim] each, possibly misaligned for nothing: records are 8-aligned in the file */
    const int64_t *shape;
    const int64_t *global_shape;
    const int64_t *global_offset;
    const char *key; /* [key_len], any bytes, no terminator */
};

struct hth_table {
    uint64_t data_len;
    uint32_t chunks;
    uint32_t items;
    uint32_t strong;               /* 1: with SHA-256 of each chunk */
    const unsigned char *items_at; /* [items_len] */
    uint64_t items_len;
    struct hth_proofs proofs; /* of its chunks */
};

/* Bytes of one item's record. */
uint64_t hth_item_bytes(uint32_t ndim, uint32_t key_len);

/* Write one record to out[hth_item_bytes()], 8-aligned. */
void hth_item_encode(const struct hth_item *item, unsigned char *out);

/* The record at *pos of the table's items part; advances *pos. 0, HEARTH_ENOENT at the end, or
 * HEARTH_ECORRUPT. Only for a table that hth_table_decode() has passed. Borrowed from the
 * table's bytes. */
int hth_item_next(const struct hth_table *table, uint64_t *pos, struct hth_item *out);

/* Bytes of a whole table, and of what proves the chunks at its end. */
uint64_t hth_table_bytes(uint64_t data_len, uint64_t items_len, uint32_t strong);
uint64_t hth_proofs_bytes(uint64_t data_len, uint32_t strong);

/* Head and checksums around an items part that already lies at table + HTH_TABLE_HEAD;
 * proof[HTH_CHUNKS(data_len)]; NULL: their CRCs are there. */
void hth_table_finish(unsigned char *table, uint64_t data_len, uint32_t items, uint64_t items_len,
        const struct hth_proof *proof, uint32_t strong);

/* Decode untrusted bytes; 8-aligned, borrowed while `out` is used. Every item is checked, and is
 * read again when it is used: where another process can write to the bytes, give a copy. Errors:
 * HEARTH_ECORRUPT, HEARTH_EUNSUPPORTED. */
int hth_table_decode_as(const struct hth_versions *versions, struct hth_table *out,
        const void *bytes, size_t len, struct hearth_error *err);
int hth_table_decode(
        struct hth_table *out, const void *bytes, size_t len, struct hearth_error *err);

#endif
