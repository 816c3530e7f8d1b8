/* SPDX-License-Identifier: Apache-2.0 */
/* A job with a published save, as an engine leaves it in the test's root. */
#ifndef TEST_CLI_SAVED_H
#define TEST_CLI_SAVED_H

#include "command.h"
#include "raws.h"

#include "core/base/auth.h"
#include "core/foreign/items.h"
#include "core/format/manifest.h"
#include "core/store/store_tmpfs.h"

#define JOB          "train"

#define FIRST_BYTES  (5u << 20)
#define SECOND_BYTES 600u

static uint64_t step_saved = 40;
static const char *object_saved = "shard";
static const char *key_saved = "a"; /* of the first tensor */

static inline struct hth_save_id save_id(void)
{
    return (struct hth_save_id){
        .epoch = 5, .nonce = 0xfedcba9876543210, .step = step_saved, .attempt = 1
    };
}

/* A tensor of bytes at `at`; returns the item's length. */
static inline uint64_t put_tensor(
        unsigned char *data, uint64_t off, uint32_t bytes, const char *key, unsigned char *record)
{
    struct hth_header h = { .dtype = HEARTH_UINT8, .ndim = 1, .shape = { bytes } };
    int64_t zero = 0;
    size_t used = hth_header_encode(&h, data + off);
    struct hth_item item = { .offset = off,
        .length = used + bytes,
        .payload = used,
        .kind = HTH_ITEM_TENSOR,
        .dtype = h.dtype,
        .ndim = 1,
        .key = key,
        .key_len = (uint32_t)strlen(key),
        .shape = h.shape,
        .global_shape = h.shape,
        .global_offset = &zero };

    for (uint32_t i = 0; i < bytes; i++)
        data[off + used + i] = (unsigned char)(i * 31 + bytes);
    hth_item_encode(&item, record);
    return item.length;
}

static uint32_t strong; /* the integrity of what is built */

/* Fills a slot with an object of two tensors; returns its row of the manifest. */
static inline struct hth_object build(unsigned char *base, const char *name)
{
    uint64_t first = hth_item_bytes(1, (uint32_t)strlen(key_saved));
    uint64_t items_len = first + hth_item_bytes(1, 1), data;
    unsigned char *records = aligned_alloc(8, items_len);
    struct hth_block b = { .signature = HTH_SIG_TENSORS,
        .own = 1,
        .save = save_id(),
        .owner = 0,
        .object = hth_object_id(0, 0),
        .generation = 1 };
    struct hth_object o = { .id = b.object, .kind = HTH_OBJECT_SHARD, .strong = strong };
    struct hth_proof proof[8];

    data = put_tensor(base + HTH_BLOCK, 0, FIRST_BYTES, key_saved, records);
    data += put_tensor(base + HTH_BLOCK, data, SECOND_BYTES, "b", records + first);
    b.data_len = data;
    b.table_off = HTH_BLOCK + HTH_ALIGN(data);
    b.table_len = hth_table_bytes(data, items_len, strong);
    for (uint32_t c = 0; c < HTH_CHUNKS(data); c++)
        hth_chunk_prove(
                &proof[c], base + HTH_BLOCK + c * HTH_CHUNK, hth_chunk_len(data, c), strong);
    memcpy(base + b.table_off + HTH_TABLE_HEAD, records, items_len);
    hth_table_finish(base + b.table_off, data, 2, items_len, proof, strong);
    hth_digest(b.table_digest, base + b.table_off, b.table_len);
    snprintf(b.job, sizeof(b.job), JOB);
    snprintf(b.name, sizeof(b.name), "%s", name);
    hth_block_encode(&b, base);
    free(records);
    o.data_len = data;
    o.table_len = b.table_len;
    memcpy(o.digest, b.table_digest, HTH_DIGEST);
    snprintf(o.name, sizeof(o.name), "%s", name);
    return o;
}

/* A store with one published save of one object and one raw file. */
static inline struct hth_store *make_store(void)
{
    struct hth_store_tmpfs_opts opts = { .root = root, .job = JOB };
    struct hth_object objects[2];
    struct hth_manifest m = {
        .save = save_id(), .world = 1, .nodes = 1, .job = JOB, .objects = 2, .object = objects
    };
    char text[HTH_SAVE_TEXT], record[HTH_SAVE_TEXT + 16];
    unsigned char bytes[1024];
    struct hth_store *s;
    struct hth_slot *slot;

    must(hth_auth_init(NULL));
    must(hth_store_tmpfs_open(&opts, &s, NULL));
    must(s->ops->take(s, FIRST_BYTES + (1 << 20), &slot, NULL));
    objects[0] = build(slot->base, object_saved);
    must(s->ops->seal(s, slot, save_id(), object_saved, NULL));
    must(raw_put(s, save_id(), "common", "same everywhere", 15, NULL));
    objects[1] = (struct hth_object){
        .id = hth_object_id(0, 1), .kind = HTH_OBJECT_RAW, .data_len = 15, .name = "common"
    };
    hth_digest(objects[1].digest, "same everywhere", 15);
    cr_assert(le(sz, hth_manifest_bytes(&m), sizeof(bytes)));
    m.strong = strong;
    must(hth_manifest_encode(&m, bytes, NULL));
    hth_save_text(save_id(), text);
    snprintf(record, sizeof(record), "%s.manifest", text);
    must(s->ops->record_put(s, record, bytes, hth_manifest_bytes(&m), NULL));
    must(s->ops->publish(s, save_id(), NULL));
    return s;
}

static inline const char *in_job(const char *name)
{
    static char path[256];

    snprintf(path, sizeof(path), "%s/" JOB "/%s", root, name);
    return path;
}

#endif
