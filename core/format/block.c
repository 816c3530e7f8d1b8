/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first 4096 bytes of an object, to and from bytes. Layout: core/format/block.h.
 *
 * Ours or foreign? ml-flashpoint keeps the last four bytes zero, and ours hold a CRC there. So a
 * block is foreign only when both the magic and the CRC are missing: damage to one of them does
 * not make an object of ours pass as a foreign one, unverified.
 */
#include "block.h"
#include "core/base/crc.h"
#include "record.h"
#include "table.h"

#define MAGIC_AT 16u
#define SPARE_AT 256u
#define CRC_AT   (HTH_BLOCK - 4)
#define MAGIC    "HEARTH\r\n"
#define TENSORS  "MLF_TENS"
#define TORCH    "TORCH___"

static const char *signature_text(enum hth_signature signature)
{
    switch (signature) {
    case HTH_SIG_TENSORS:
        return TENSORS;
    case HTH_SIG_TORCH:
        return TORCH;
    case HTH_SIG_NONE:
    case HTH_SIG_UNKNOWN:
        break;
    }
    return "";
}

/* A signature counts up to its first NUL; a shorter one leaves the old bytes behind it. */
static enum hth_signature signature_of(const unsigned char at[8])
{
    if (at[0] == 0)
        return HTH_SIG_NONE;
    if (memcmp(at, TENSORS, 8) == 0)
        return HTH_SIG_TENSORS;
    if (memcmp(at, TORCH, 8) == 0)
        return HTH_SIG_TORCH;
    return HTH_SIG_UNKNOWN;
}

void hth_block_encode(const struct hth_block *block, unsigned char out[HTH_BLOCK])
{
    struct hth_writer w = { .at = out, .cap = HTH_BLOCK };

    hth_write64(&w, block->data_len);
    hth_write_text(&w, signature_text(block->signature), 8);
    if (block->own) {
        hth_write(&w, MAGIC, 8);
        hth_write32(&w, hth_version_written(HTH_FORMAT_BLOCK));
        hth_write32(&w, HTH_OBJECT_SHARD);
        hth_write64(&w, block->save.epoch);
        hth_write64(&w, block->save.nonce);
        hth_write64(&w, block->save.step);
        hth_write32(&w, block->save.attempt);
        hth_write32(&w, block->owner);
        hth_write64(&w, block->object);
        hth_write64(&w, block->generation);
        hth_write64(&w, block->table_off);
        hth_write64(&w, block->table_len);
        hth_write(&w, block->table_digest, HTH_DIGEST);
        hth_write_text(&w, block->job, HTH_NAME_MAX);
        hth_write_text(&w, block->name, HTH_NAME_MAX);
    }
    hth_write_zeros(&w, CRC_AT - w.len);
    hth_write32(&w, block->own ? hth_crc32c(out, CRC_AT) : 0);
}

static void read_own(struct hth_block *b, struct hth_reader *r)
{
    b->save.epoch = hth_read64(r);
    b->save.nonce = hth_read64(r);
    b->save.step = hth_read64(r);
    b->save.attempt = hth_read32(r);
    b->owner = hth_read32(r);
    b->object = hth_read64(r);
    b->generation = hth_read64(r);
    b->table_off = hth_read64(r);
    b->table_len = hth_read64(r);
    hth_read_into(r, b->table_digest, HTH_DIGEST);
    hth_read_text(r, b->job, HTH_NAME_MAX);
    hth_read_text(r, b->name, HTH_NAME_MAX);
    hth_read_zeros(r, CRC_AT - SPARE_AT);
}

static int own_check(const struct hth_block *b, uint64_t file_len, struct hearth_error *err)
{
    if (b->signature == HTH_SIG_UNKNOWN)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "block: a signature that Hearth does not write");
    if (hth_job_check(b->job, NULL) || hth_object_name_check(b->name, NULL))
        return hth_fail(err, HEARTH_ECORRUPT, 0, "block: the name of job or object is not allowed");
    if (b->data_len > INT64_MAX || b->table_off != HTH_BLOCK + HTH_ALIGN(b->data_len) ||
            b->table_len < HTH_TABLE_HEAD || b->table_off > file_len ||
            b->table_len > file_len - b->table_off)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "block: the table, %" PRIu64 " bytes at byte %" PRIu64
                ", does not lie behind the data in the %" PRIu64 " bytes of the file",
                b->table_len, b->table_off, file_len);
    return HEARTH_OK;
}

static int own_decode(const struct hth_versions *versions, struct hth_block *b,
        const unsigned char *at, uint64_t file_len, struct hearth_error *err)
{
    struct hth_reader r = { .at = at, .len = HTH_BLOCK, .pos = MAGIC_AT };
    uint32_t version, kind;
    int rc;

    /* The version first: what another one means with its last bytes we cannot know. */
    if ((rc = hth_read_head(&r, MAGIC, versions, &version, err)))
        return rc;
    if (hth_crc32c(at, CRC_AT) != hth_get32(at + CRC_AT))
        return hth_fail(err, HEARTH_ECORRUPT, 0, "block: damaged, its checksum does not hold");
    kind = hth_read32(&r);
    read_own(b, &r);
    if (r.bad || kind != HTH_OBJECT_SHARD)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "block: a field holds what Hearth never writes");
    b->own = 1;
    return own_check(b, file_len, err);
}

int hth_block_decode_as(const struct hth_versions *versions, struct hth_block *out,
        const void *bytes, size_t len, uint64_t file_len, struct hearth_error *err)
{
    const unsigned char *at = bytes;
    struct hth_block b = { 0 };
    int rc;

    if (len < HTH_BLOCK || file_len < HTH_BLOCK)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "block: torn, there are only %zu bytes of it in a file of %" PRIu64, len, file_len);
    b.data_len = hth_get64(at);
    b.signature = signature_of(at + 8);
    if (b.data_len > file_len - HTH_BLOCK)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "block: it has the length %" PRIu64 " for the data, the file has only %" PRIu64,
                b.data_len, file_len - HTH_BLOCK);
    if (memcmp(at + MAGIC_AT, MAGIC, 8) == 0 || hth_get32(at + CRC_AT) != 0)
        if ((rc = own_decode(versions, &b, at, file_len, err)))
            return rc;
    *out = b;
    return HEARTH_OK;
}

int hth_block_decode(struct hth_block *out, const void *bytes, size_t len, uint64_t file_len,
        struct hearth_error *err)
{
    return hth_block_decode_as(hth_versions_of(HTH_FORMAT_BLOCK), out, bytes, len, file_len, err);
}
