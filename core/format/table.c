/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The object table, to and from bytes; layout: core/format/table.h. A table is decoded once, in
 * one pass that checks every record; afterwards items are walked where they lie.
 */
#include "table.h"
#include "core/base/bytes.h"
#include "versions.h"

#define MAGIC       "HTHTABLE"
#define WITH_STRONG 2u  /* the version that may say so */
#define ITEM        40u /* bytes of a record before shape and key */
#define DATA_MAX    ((uint64_t)UINT32_MAX * HTH_CHUNK)
#define ALIGN8(n)   (((n) + 7) / 8 * 8)

uint64_t hth_item_bytes(uint32_t ndim, uint32_t key_len)
{
    return ALIGN8(ITEM + UINT64_C(24) * ndim + key_len);
}

void hth_item_encode(const struct hth_item *item, unsigned char *out)
{
    uint64_t bytes = hth_item_bytes(item->ndim, item->key_len);
    struct hth_writer w = { .at = out, .cap = bytes };

    hth_write64(&w, item->offset);
    hth_write64(&w, item->length);
    hth_write64(&w, item->payload);
    hth_write32(&w, (uint32_t)bytes);
    hth_write32(&w, item->key_len);
    hth_write16(&w, (uint16_t)item->kind);
    hth_write16(&w, (uint16_t)item->dtype);
    hth_write32(&w, item->ndim);
    hth_write(&w, item->shape, sizeof(int64_t) * item->ndim);
    hth_write(&w, item->global_shape, sizeof(int64_t) * item->ndim);
    hth_write(&w, item->global_offset, sizeof(int64_t) * item->ndim);
    hth_write(&w, item->key, item->key_len);
    memset(out + w.len, 0, bytes - w.len);
}

/* The record at bytes[len]; 0 when it reaches past the end or contradicts itself. */
static uint32_t table_record(struct hth_item *out, const unsigned char *at, uint64_t len)
{
    const int64_t *dims;
    uint32_t bytes;

    if (len < ITEM)
        return 0;
    out->offset = hth_get64(at);
    out->length = hth_get64(at + 8);
    out->payload = hth_get64(at + 16);
    bytes = hth_get32(at + 24);
    out->key_len = hth_get32(at + 28);
    out->kind = (enum hth_item_kind)hth_get16(at + 32);
    out->dtype = (enum hearth_dtype)hth_get16(at + 34);
    out->ndim = hth_get32(at + 36);
    if (bytes > len || bytes != hth_item_bytes(out->ndim, out->key_len))
        return 0;
    dims = (const void *)(at + ITEM);
    out->shape = dims;
    out->global_shape = dims + out->ndim;
    out->global_offset = dims + 2 * (size_t)out->ndim;
    out->key = (const void *)(dims + 3 * (size_t)out->ndim);
    return bytes;
}

int hth_item_next(const struct hth_table *table, uint64_t *pos, struct hth_item *out)
{
    uint32_t bytes;

    if (*pos >= table->items_len)
        return HEARTH_ENOENT;
    bytes = table_record(out, table->items_at + *pos, table->items_len - *pos);
    if (!bytes) /* another process has written to it since it was decoded */
        return HEARTH_ECORRUPT;
    *pos += bytes;
    return HEARTH_OK;
}

uint64_t hth_proofs_bytes(uint64_t data_len, uint32_t strong)
{
    uint64_t chunks = HTH_CHUNKS(data_len);

    return ALIGN8(4 * chunks) + (strong ? HTH_SHA256 * chunks : 0);
}

uint64_t hth_table_bytes(uint64_t data_len, uint64_t items_len, uint32_t strong)
{
    return HTH_TABLE_HEAD + items_len + hth_proofs_bytes(data_len, strong);
}

void hth_table_finish(unsigned char *table, uint64_t data_len, uint32_t items, uint64_t items_len,
        const struct hth_proof *proof, uint32_t strong)
{
    struct hth_writer head = { .at = table, .cap = HTH_TABLE_HEAD };
    uint64_t chunks = HTH_CHUNKS(data_len);
    unsigned char *sums = table + HTH_TABLE_HEAD + items_len;

    hth_write(&head, MAGIC, 8);
    hth_write32(&head, hth_version_written(HTH_FORMAT_TABLE));
    hth_write32(&head, strong != 0);
    hth_write64(&head, data_len);
    hth_write32(&head, (uint32_t)chunks);
    hth_write32(&head, items);
    hth_write64(&head, items_len);
    memset(table + head.len, 0, HTH_TABLE_HEAD - head.len);
    for (uint64_t c = 0; proof && c < chunks; c++)
        hth_put32(sums + 4 * c, proof[c].crc);
    if (chunks % 2)
        hth_put32(sums + 4 * chunks, 0);
    sums += ALIGN8(4 * chunks);
    for (uint64_t c = 0; strong && c < chunks; c++)
        memcpy(sums + HTH_SHA256 * c, proof[c].sha256, HTH_SHA256);
}

static int table_zeros(const void *bytes, size_t n)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < n; i++)
        if (at[i])
            return 0;
    return 1;
}

/* Shape and payload agree, and the box lies in the global tensor. */
static int tensor_fits(const struct hth_item *item)
{
    struct hth_header h = { .dtype = item->dtype, .ndim = item->ndim };
    uint64_t bytes;

    if (item->ndim > HTH_DIMS_MAX || item->payload <= 4)
        return 0;
    for (uint32_t i = 0; i < item->ndim; i++) {
        int64_t end;

        h.shape[i] = item->shape[i];
        if (item->global_offset[i] < 0 ||
                __builtin_add_overflow(item->shape[i], item->global_offset[i], &end) ||
                end > item->global_shape[i])
            return 0;
    }
    return !hth_header_bytes(&h, &bytes, NULL) && bytes == item->length - item->payload;
}

/* NULL, or what is wrong with an item that should begin at `offset`. */
static const char *item_fault(const struct hth_item *item, uint64_t offset, uint64_t data_len)
{
    const char *end = item->key + item->key_len;

    if (item->offset != offset)
        return "does not begin where the one before it ends";
    if (item->length > data_len - offset || item->payload > item->length)
        return "reaches out of the data section";
    if (!table_zeros(end, ALIGN8((size_t)item->key_len) - item->key_len))
        return "has more behind its key";
    if (item->kind == HTH_ITEM_TENSOR)
        return tensor_fits(item) ? NULL : "has a shape that its bytes or its tensor do not fit";
    if (item->kind != HTH_ITEM_BYTES)
        return "is of a kind that never was";
    return item->payload || item->dtype || item->ndim ? "has a shape but is no tensor" : NULL;
}

static int items_check(const struct hth_table *t, struct hearth_error *err)
{
    uint64_t pos = 0, offset = 0;

    for (uint32_t i = 0; i < t->items; i++) {
        struct hth_item item;
        uint32_t bytes = table_record(&item, t->items_at + pos, t->items_len - pos);
        const char *fault = bytes ? item_fault(&item, offset, t->data_len) : "is torn";

        if (fault)
            return hth_fail(err, HEARTH_ECORRUPT, 0, "table: item %" PRIu32 " %s", i, fault);
        pos += bytes;
        offset += item.length;
    }
    if (pos != t->items_len)
        return hth_fail(err, HEARTH_ECORRUPT, 0,
                "table: %" PRIu64 " bytes more than its %" PRIu32 " items", t->items_len - pos,
                t->items);
    return HEARTH_OK;
}

static int head_check(const struct hth_versions *versions, const struct hth_table *t,
        const unsigned char *at, size_t len, struct hearth_error *err)
{
    int rc;

    if (memcmp(at, MAGIC, 8) != 0)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "table: does not begin with " MAGIC);
    if ((rc = hth_version_check(versions, hth_get32(at + 8), err)))
        return rc;
    if (t->strong > (hth_get32(at + 8) >= WITH_STRONG ? 1u : 0u) ||
            !table_zeros(at + 40, HTH_TABLE_HEAD - 40))
        return hth_fail(err, HEARTH_ECORRUPT, 0, "table: its head holds what Hearth never writes");
    if (t->data_len > DATA_MAX || t->chunks != HTH_CHUNKS(t->data_len) || t->items_len % 8 ||
            t->items_len > len || hth_table_bytes(t->data_len, t->items_len, t->strong) != len)
        return hth_fail(
                err, HEARTH_ECORRUPT, 0, "table: its lengths do not add up to its %zu bytes", len);
    return HEARTH_OK;
}

int hth_table_decode_as(const struct hth_versions *versions, struct hth_table *out,
        const void *bytes, size_t len, struct hearth_error *err)
{
    const unsigned char *at = bytes;
    struct hth_table t;
    int rc;

    if (len < HTH_TABLE_HEAD)
        return hth_fail(err, HEARTH_ECORRUPT, 0, "table: torn, it has only %zu bytes", len);
    if ((uintptr_t)at % 8)
        return hth_fail(err, HEARTH_EINVAL, 0, "table: its address is not a multiple of 8");
    t = (struct hth_table){
        .strong = hth_get32(at + 12),
        .data_len = hth_get64(at + 16),
        .chunks = hth_get32(at + 24),
        .items = hth_get32(at + 28),
        .items_len = hth_get64(at + 32),
        .items_at = at + HTH_TABLE_HEAD,
    };
    if ((rc = head_check(versions, &t, at, len, err)) || (rc = items_check(&t, err)))
        return rc;
    t.proofs = (struct hth_proofs){
        .data_len = t.data_len,
        .crc = (const void *)(t.items_at + t.items_len),
        .sha256 = t.strong ? t.items_at + t.items_len + ALIGN8(UINT64_C(4) * t.chunks) : NULL,
    };
    if (!table_zeros(t.proofs.crc + t.chunks, t.chunks % 2 * sizeof(uint32_t)))
        return hth_fail(err, HEARTH_ECORRUPT, 0, "table: more behind its last checksum");
    *out = t;
    return HEARTH_OK;
}

int hth_table_decode(struct hth_table *out, const void *bytes, size_t len, struct hearth_error *err)
{
    return hth_table_decode_as(hth_versions_of(HTH_FORMAT_TABLE), out, bytes, len, err);
}
