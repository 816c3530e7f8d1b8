/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Block, table, manifest, running, plans and fabric record: what goes in comes out, and one byte
 * fewer or one byte different is refused. A table has no checksum of its own: the block vouches for
 * it.
 */
#include "damaged.h"
#include "vectors.h"

#include "core/base/auth.h"
#include "core/format/epoch.h"
#include "core/format/fabric.h"
#include "core/format/handed.h"
#include "core/format/manifest.h"
#include "core/format/plans.h"
#include "core/format/running.h"
#include "core/format/table.h"

/* --- block --- */

static const struct hth_block own_block = {
    .data_len = 5000,
    .signature = HTH_SIG_TENSORS,
    .own = 1,
    .save = { .epoch = 3, .nonce = 0x1122334455667788, .step = 40, .attempt = 1 },
    .owner = 7,
    .object = (uint64_t)7 << 32 | 2,
    .generation = 9,
    .table_off = 3 * HTH_BLOCK,
    .table_len = 200,
    .table_digest = { 1, 2, 3 },
    .job = "job-1",
    .name = "__7__2_src7.distcp",
};

static int decode_block(const unsigned char *bytes, size_t len)
{
    struct hth_block b;

    if (len > HTH_BLOCK)
        return -1; /* what follows a block is data */
    return hth_block_decode(&b, bytes, len, 3 * HTH_BLOCK + 200, NULL);
}

Test(records, a_block_comes_back)
{
    unsigned char bytes[HTH_BLOCK], again[HTH_BLOCK];
    struct hth_block b;

    hth_block_encode(&own_block, bytes);
    must(hth_block_decode(&b, bytes, sizeof(bytes), UINT64_MAX, NULL));
    cr_assert(eq(int, b.own, 1));
    cr_assert(eq(u64, b.data_len, 5000));
    cr_assert(eq(int, hth_save_cmp(b.save, own_block.save), 0));
    cr_assert(eq(u64, b.object, own_block.object));
    cr_assert(eq(u64, b.generation, 9));
    must_say(b.job, "job-1");
    must_say(b.name, "__7__2_src7.distcp");
    hth_block_encode(&b, again);
    cr_assert(eq(int, memcmp(bytes, again, sizeof(bytes)), 0));
}

Test(records, a_damaged_block_is_refused, .timeout = 60)
{
    unsigned char bytes[HTH_BLOCK];

    must(hth_auth_init(NULL));
    hth_block_encode(&own_block, bytes);
    refuses_all_damage(decode_block, bytes, sizeof(bytes));
}

Test(records, a_block_whose_table_does_not_fit_in_the_file_is_refused)
{
    unsigned char bytes[HTH_BLOCK];
    struct hth_block b = own_block;

    hth_block_encode(&b, bytes);
    must(hth_block_decode(&b, bytes, sizeof(bytes), 3 * HTH_BLOCK + 200, NULL));
    must_fail(
            hth_block_decode(&b, bytes, sizeof(bytes), 3 * HTH_BLOCK + 199, NULL), HEARTH_ECORRUPT);
    must_fail(hth_block_decode(&b, bytes, sizeof(bytes), HTH_BLOCK + 4999, NULL), HEARTH_ECORRUPT);
    b.table_off = 2 * HTH_BLOCK; /* in the data */
    hth_block_encode(&b, bytes);
    must_fail(hth_block_decode(&b, bytes, sizeof(bytes), UINT64_MAX, NULL), HEARTH_ECORRUPT);
    b = own_block;
    strcpy(b.name, "../x");
    hth_block_encode(&b, bytes);
    must_fail(hth_block_decode(&b, bytes, sizeof(bytes), UINT64_MAX, NULL), HEARTH_ECORRUPT);
    b = own_block;
    b.data_len = UINT64_MAX - 3 * HTH_BLOCK + 1; /* the place of the table wraps */
    b.table_off = 0;
    hth_block_encode(&b, bytes);
    must_fail(hth_block_decode(&b, bytes, sizeof(bytes), UINT64_MAX, NULL), HEARTH_ECORRUPT);
}

enum { FIELDS_SET, LEN, SIGNATURE, FIRST_128, BLOCK_LEN, REST, NOTE, COLUMNS };

static enum hth_signature signature_of(const char *hex)
{
    if (!strcmp(hex, "4d4c465f54454e53"))
        return HTH_SIG_TENSORS;
    if (!strcmp(hex, "544f5243485f5f5f"))
        return HTH_SIG_TORCH;
    return strcmp(hex, "-") ? HTH_SIG_UNKNOWN : HTH_SIG_NONE;
}

static void block_row(char **field)
{
    unsigned char bytes[HTH_BLOCK] = { 0 }, again[HTH_BLOCK];
    uint64_t data_len = strtoull(field[LEN], NULL, 10);
    enum hth_signature signature = signature_of(field[SIGNATURE]);
    int rest_is_zero = !strcmp(field[REST], "zero");
    struct hth_block b;

    from_hex(bytes, 128, field[FIRST_128]);
    for (int i = 16; i < 128; i++)
        rest_is_zero &= bytes[i] == 0;
    if (data_len > UINT64_MAX - HTH_BLOCK) { /* no file is as long */
        must_fail(hth_block_decode(&b, bytes, sizeof(bytes), UINT64_MAX, NULL), HEARTH_ECORRUPT);
        return;
    }
    must(hth_block_decode(&b, bytes, sizeof(bytes), UINT64_MAX, NULL));
    cr_assert(eq(int, b.own, 0), "%s", field[FIELDS_SET]);
    cr_assert(eq(u64, b.data_len, data_len), "%s", field[FIELDS_SET]);
    cr_assert(eq(int, (int)b.signature, (int)signature), "%s", field[FIELDS_SET]);
    if (!rest_is_zero || (signature != HTH_SIG_TENSORS && signature != HTH_SIG_TORCH))
        return;
    hth_block_encode(&b, again);
    cr_assert(eq(int, memcmp(bytes, again, sizeof(bytes)), 0), "%s", field[FIELDS_SET]);
}

Test(records, foreign_blocks_are_read_and_reproduced)
{
    struct file f = file_read("blocks.tsv");
    size_t pos = 0, rows = 0;
    char *field[COLUMNS];

    row_next(&f, &pos, field, COLUMNS);
    while (row_next(&f, &pos, field, COLUMNS)) {
        block_row(field);
        rows++;
    }
    cr_assert(eq(sz, rows, 28));
    free(f.at);
}

/* --- table --- */

#define TABLE_DATA (HTH_CHUNK * 2 + 5)

static uint64_t table_words[128];
static size_t table_len;
static unsigned char table_digest[HTH_DIGEST];

static int decode_table(const unsigned char *bytes, size_t len)
{
    unsigned char digest[HTH_DIGEST];
    struct hth_table t;

    hth_digest(digest, bytes, len);
    if (memcmp(digest, table_digest, HTH_DIGEST) != 0) {
        hth_table_decode(&t, bytes, len, NULL); /* must still not read too far */
        return HEARTH_ECORRUPT;
    }
    return hth_table_decode(&t, bytes, len, NULL);
}

static const int64_t shape[2] = { 1024, 512 }, whole[2] = { 4096, 512 }, at[2] = { 1024, 0 };

static void make_table_of(uint32_t strong)
{
    static const struct hth_proof proof[3] = { { 1, { [31] = 34 } }, { 2, { [31] = 35 } },
        { 3, { [31] = 36 } } };
    unsigned char *table = (unsigned char *)table_words;
    struct hth_item tensor = {
        .length = 139 + 1024 * 512 * 4,
        .payload = 139,
        .kind = HTH_ITEM_TENSOR,
        .dtype = HEARTH_FLOAT32,
        .ndim = 2,
        .key_len = 7,
        .shape = shape,
        .global_shape = whole,
        .global_offset = at,
        .key = "model\0w",
    };
    struct hth_item bytes = { .offset = 139 + 1024 * 512 * 4,
        .length = 100,
        .kind = HTH_ITEM_BYTES,
        .key_len = 3,
        .key = "opt" };
    uint64_t items_len = hth_item_bytes(2, 7);

    must(hth_auth_init(NULL));
    hth_item_encode(&tensor, table + HTH_TABLE_HEAD);
    hth_item_encode(&bytes, table + HTH_TABLE_HEAD + items_len);
    items_len += hth_item_bytes(0, 3);
    table_len = hth_table_bytes(TABLE_DATA, items_len, strong);
    hth_table_finish(table, TABLE_DATA, 2, items_len, proof, strong);
    hth_digest(table_digest, table, table_len);
}

static void make_table(void)
{
    make_table_of(0);
}

Test(records, a_table_comes_back, .init = make_table)
{
    struct hth_table t;
    struct hth_item item;
    uint64_t pos = 0;

    must(hth_table_decode(&t, table_words, table_len, NULL));
    cr_assert(eq(u64, t.data_len, TABLE_DATA));
    cr_assert(eq(u32, t.chunks, 3));
    cr_assert(eq(u32, t.proofs.crc[2], 3));
    must(hth_item_next(&t, &pos, &item));
    cr_assert(eq(int, (int)item.dtype, HEARTH_FLOAT32));
    cr_assert(eq(i64, item.shape[1], 512));
    cr_assert(eq(i64, item.global_shape[0], 4096));
    cr_assert(eq(i64, item.global_offset[0], 1024));
    cr_assert(eq(u32, item.key_len, 7));
    cr_assert(eq(int, memcmp(item.key, "model\0w", 7), 0));
    must(hth_item_next(&t, &pos, &item));
    cr_assert(eq(int, (int)item.kind, HTH_ITEM_BYTES));
    cr_assert(eq(u64, item.length, 100));
    must_fail(hth_item_next(&t, &pos, &item), HEARTH_ENOENT);
}

/* Another program writes over the file between the check and the walk. */
Test(records, the_walk_of_a_table_that_changes_comes_to_an_end, .init = make_table)
{
    struct hth_table t;
    struct hth_item item;
    uint64_t pos = 0;

    must(hth_table_decode(&t, table_words, table_len, NULL));
    must(hth_item_next(&t, &pos, &item));
    hth_put32((unsigned char *)(uintptr_t)t.items_at + pos + 24, 0); /* the record's bytes */
    for (int i = 0; i < 3; i++)
        must_fail(hth_item_next(&t, &pos, &item), HEARTH_ECORRUPT);
}

static void make_strong_table(void)
{
    make_table_of(1);
}

Test(records, a_strong_table_has_a_digest_of_each_chunk, .init = make_strong_table)
{
    unsigned char *table = (unsigned char *)table_words;
    struct hth_table t;

    must(hth_table_decode(&t, table_words, table_len, NULL));
    cr_assert(eq(u32, t.strong, 1));
    cr_assert(eq(u32, t.proofs.crc[2], 3));
    cr_assert(eq(int, t.proofs.sha256[2 * HTH_SHA256 + 31], 36));
    must_fail(hth_table_decode(&t, table, table_len - 8, NULL), HEARTH_ECORRUPT);
    table[12] = 2; /* an integrity that never was */
    must_fail(hth_table_decode(&t, table, table_len, NULL), HEARTH_ECORRUPT);
    table[12] = 0; /* then it is too long */
    must_fail(hth_table_decode(&t, table, table_len, NULL), HEARTH_ECORRUPT);
    table[12] = 1;
    table[8] = 1; /* the first version had none */
    must_fail(hth_table_decode(&t, table, table_len, NULL), HEARTH_ECORRUPT);
    table[8] = 2;
    must(hth_table_decode(&t, table, table_len, NULL));
}

Test(records, a_table_of_the_first_version_is_read, .init = make_table)
{
    struct hth_table t;

    ((unsigned char *)table_words)[8] = 1;
    must(hth_table_decode(&t, table_words, table_len, NULL));
    cr_assert(zero(u32, t.strong));
    cr_assert(zero(ptr, (void *)(uintptr_t)t.proofs.sha256));
}

Test(records, a_damaged_strong_table_is_refused, .init = make_strong_table, .timeout = 60)
{
    refuses_all_damage(decode_table, (unsigned char *)table_words, table_len);
}

Test(records, a_damaged_table_is_refused, .init = make_table, .timeout = 60)
{
    refuses_all_damage(decode_table, (unsigned char *)table_words, table_len);
}

static void table_bend(size_t at_byte, uint64_t v, size_t n)
{
    unsigned char *table = (unsigned char *)table_words;
    unsigned char kept[8];
    struct hth_table t;

    memcpy(kept, table + at_byte, n);
    memcpy(table + at_byte, &v, n);
    must_fail(hth_table_decode(&t, table, table_len, NULL), HEARTH_ECORRUPT);
    memcpy(table + at_byte, kept, n);
    must(hth_table_decode(&t, table, table_len, NULL));
}

Test(records, a_table_that_lies_is_refused_even_with_its_digest, .init = make_table)
{
    size_t first = HTH_TABLE_HEAD, second = first + hth_item_bytes(2, 7);

    table_bend(first + 0, 1, 8);                    /* does not begin at 0 */
    table_bend(first + 8, UINT64_MAX, 8);           /* longer than all there is */
    table_bend(first + 16, 140, 8);                 /* payload one byte short */
    table_bend(first + 24, 8, 4);                   /* record shorter than itself */
    table_bend(first + 28, UINT32_MAX, 4);          /* key out of the table */
    table_bend(first + 32, 30, 2);                  /* kind that never was */
    table_bend(first + 34, 9, 2);                   /* dtype that never was */
    table_bend(first + 36, 65, 4);                  /* dimensions */
    table_bend(first + 40, UINT64_MAX, 8);          /* -1 rows */
    table_bend(first + 56, 2047, 8);                /* box reaches out of the tensor */
    table_bend(first + 72, (uint64_t)INT64_MAX, 8); /* offset + shape wraps */
    table_bend(first + 72, UINT64_MAX, 8);          /* offset -1 */
    table_bend(first + 95, 1, 1);                   /* behind the key */
    table_bend(second + 0, 0, 8);                   /* overlaps */
    table_bend(second + 8, TABLE_DATA, 8);          /* reaches out of the data */
    table_bend(second + 36, 1, 4);                  /* bytes with a shape */
    table_bend(16, TABLE_DATA - HTH_CHUNK, 8);      /* fewer chunks */
    table_bend(16, UINT64_MAX, 8);                  /* the count of chunks wraps */
    table_bend(28, 3, 4);                           /* one item more */
    table_bend(28, 1, 4);                           /* one item fewer */
    table_bend(32, UINT64_MAX - 7, 8);              /* items longer than all there is */
    table_bend(table_len - 4, 1, 4);                /* behind the last checksum */
}

/* --- manifest --- */

static struct hth_object object_of(uint32_t rank, uint32_t index, const char *name)
{
    struct hth_object o = {
        .id = hth_object_id(rank, index),
        .owner = rank,
        .kind = HTH_OBJECT_SHARD,
        .data_len = 1000 + index,
        .table_len = 72,
        .digest = { (unsigned char)rank },
    };

    snprintf(o.name, sizeof(o.name), "%s", name);
    return o;
}

static struct hth_manifest manifest_of(struct hth_object *objects, uint32_t n)
{
    return (struct hth_manifest){
        .save = { .epoch = 5, .nonce = 6, .step = 7, .attempt = 8 },
        .from = { .epoch = 4, .nonce = 3, .step = 2, .attempt = 1 },
        .world = 4,
        .nodes = 2,
        .job = "job",
        .objects = n,
        .object = objects,
    };
}

static int decode_manifest(const unsigned char *bytes, size_t len)
{
    struct hth_manifest m;
    int rc = hth_manifest_decode(&m, bytes, len, NULL);

    if (!rc)
        hth_manifest_fini(&m);
    return rc;
}

Test(records, a_manifest_says_that_its_shards_are_strong)
{
    struct hth_object objects[2] = { object_of(0, 0, "a"), object_of(1, 0, "b") };
    struct hth_manifest m = manifest_of(objects, 2), back;
    unsigned char bytes[1024];
    struct hearth_error err;

    must(hth_auth_init(NULL));
    objects[1].kind = HTH_OBJECT_RAW; /* has a digest of all of it */
    objects[1].table_len = 0;
    m.strong = objects[0].strong = 1;
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_manifest_decode(&back, bytes, hth_manifest_bytes(&m), NULL));
    cr_assert(eq(u32, back.strong, 1));
    cr_assert(eq(u32, back.object[0].strong, 1));
    cr_assert(zero(u32, back.object[1].strong));
    hth_manifest_fini(&back);
    objects[0].strong = 0;
    must_fail(hth_manifest_encode(&m, bytes, &err), HEARTH_EINVAL);
    must_say(err.text,
            "rank 0's object 'a' has no SHA-256 of its chunks, and the save's integrity is "
            "strong");
    m.strong = 0;
    must(hth_manifest_encode(&m, bytes, NULL));
    bytes[HTH_MANIFEST_HEAD + 14] = 2; /* by a program that can make its digest */
    hth_digest(bytes + hth_manifest_bytes(&m) - HTH_DIGEST, bytes,
            hth_manifest_bytes(&m) - HTH_DIGEST);
    must_fail(decode_manifest(bytes, hth_manifest_bytes(&m)), HEARTH_ECORRUPT);
    bytes[152] = 1; /* now save and shard say so, in a version that did not know of it */
    bytes[8] = 2;
    hth_digest(bytes + hth_manifest_bytes(&m) - HTH_DIGEST, bytes,
            hth_manifest_bytes(&m) - HTH_DIGEST);
    must_fail(decode_manifest(bytes, hth_manifest_bytes(&m)), HEARTH_ECORRUPT);
    bytes[8] = 3;
    hth_digest(bytes + hth_manifest_bytes(&m) - HTH_DIGEST, bytes,
            hth_manifest_bytes(&m) - HTH_DIGEST);
    must(decode_manifest(bytes, hth_manifest_bytes(&m)));
}

Test(records, a_manifest_comes_back_in_order_and_finds_its_objects)
{
    struct hth_object objects[3] = { object_of(3, 0, "c"), object_of(0, 1, "b"),
        object_of(0, 0, "a") };
    struct hth_manifest m = manifest_of(objects, 3), back;
    unsigned char bytes[1024];

    must(hth_auth_init(NULL));
    objects[0].kind = HTH_OBJECT_RAW;
    objects[0].table_len = 0;
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_manifest_decode(&back, bytes, hth_manifest_bytes(&m), NULL));
    cr_assert(eq(int, memcmp(m.digest, back.digest, HTH_DIGEST), 0));
    cr_assert(eq(int, hth_save_cmp(back.save, m.save), 0));
    cr_assert(eq(int, hth_save_cmp(back.from, m.from), 0));
    cr_assert(eq(u32, back.world, 4));
    cr_assert(eq(u32, back.nodes, 2));
    must_say(back.job, "job");
    must_say(back.object[0].name, "a");
    must_say(hth_manifest_find(&back, hth_object_id(3, 0))->name, "c");
    cr_assert(eq(int, (int)back.object[2].kind, HTH_OBJECT_RAW));
    cr_assert(eq(u64, hth_object_file_bytes(&back.object[2]), 1000));
    cr_assert(eq(u64, hth_object_file_bytes(&back.object[0]), 2u * HTH_BLOCK + 72));
    cr_assert(eq(ptr, (void *)(uintptr_t)hth_manifest_find(&back, 77), NULL));
    hth_manifest_fini(&back);
}

Test(records, a_damaged_manifest_is_refused, .timeout = 60)
{
    struct hth_object objects[2] = { object_of(0, 0, "a"), object_of(1, 0, "b") };
    struct hth_manifest m = manifest_of(objects, 2);
    unsigned char bytes[1024];

    must(hth_auth_init(NULL));
    must(hth_manifest_encode(&m, bytes, NULL));
    refuses_all_damage(decode_manifest, bytes, hth_manifest_bytes(&m));
}

Test(records, two_objects_of_one_name_name_both_ranks)
{
    struct hth_object objects[2] = { object_of(2, 0, "same"), object_of(3, 0, "same") };
    struct hth_manifest m = manifest_of(objects, 2);
    struct hearth_error err;
    unsigned char bytes[1024];

    must(hth_auth_init(NULL));
    must_fail(hth_manifest_encode(&m, bytes, &err), HEARTH_EEXIST);
    cr_assert(ne(ptr, strstr(err.text, "rank 2 and rank 3"), NULL), "%s", err.text);
    objects[1] = object_of(2, 0, "other");
    must_fail(hth_manifest_encode(&m, bytes, &err), HEARTH_EEXIST);
}

/* A manifest whose digest holds, written by a program that does not keep the rules. */
static void manifest_bend(size_t at_byte, uint64_t v, size_t n)
{
    struct hth_object objects[2] = { object_of(0, 0, "a"), object_of(1, 0, "b") };
    struct hth_manifest m = manifest_of(objects, 2);
    unsigned char bytes[1024];
    size_t len = hth_manifest_bytes(&m);

    must(hth_manifest_encode(&m, bytes, NULL));
    memcpy(bytes + at_byte, &v, n);
    hth_digest(bytes + len - HTH_DIGEST, bytes, len - HTH_DIGEST);
    cr_assert(eq(int, decode_manifest(bytes, len), HEARTH_ECORRUPT), "byte %zu", at_byte);
}

Test(records, a_manifest_that_lies_is_refused_even_with_its_digest)
{
    size_t first = HTH_MANIFEST_HEAD, second = first + HTH_MANIFEST_OBJECT;

    must(hth_auth_init(NULL));
    manifest_bend(12, 0, 4);           /* no ranks */
    manifest_bend(148, 5, 4);          /* more nodes than ranks */
    manifest_bend(80, '/', 1);         /* job */
    manifest_bend(144, UINT32_MAX, 4); /* objects */
    manifest_bend(144, 1, 4);
    manifest_bend(160, 1, 1);                     /* spare */
    manifest_bend(44, 1, 4);                      /* spare in a save */
    manifest_bend(first + 8, 4, 4);               /* owner */
    manifest_bend(first + 12, 30, 2);             /* kind */
    manifest_bend(first + 14, 1, 2);              /* spare in front of other fields */
    manifest_bend(first + 12, HTH_OBJECT_RAW, 2); /* raw with a table */
    manifest_bend(first + 16, UINT64_MAX, 8);     /* length */
    manifest_bend(first + 24, 0, 8);              /* no table */
    manifest_bend(first + 64, '/', 1);            /* name */
    manifest_bend(first + 66, 'x', 1);            /* behind the name */
    manifest_bend(second, 0, 8);                  /* id twice */
    manifest_bend(second + 64, 'a', 1);           /* name twice */
}

Test(records, the_manifest_of_16384_nodes_with_8_ranks_is_small, .timeout = 60)
{
    enum { RANKS = 131072 };
    struct hth_object *objects = calloc(RANKS, sizeof(*objects));
    struct hth_manifest m = manifest_of(objects, RANKS), back;
    unsigned char *bytes = malloc(hth_manifest_bytes(&m));

    must(hth_auth_init(NULL));
    m.world = RANKS;
    for (uint32_t i = 0; i < RANKS; i++) {
        char name[64];

        snprintf(name, sizeof(name), "__%u__0_src%u.distcp", i, i);
        objects[i] = object_of(RANKS - 1 - i, 0, name);
    }
    cr_assert(le(sz, hth_manifest_bytes(&m), (size_t)RANKS * 128 + 4096));
    must(hth_manifest_encode(&m, bytes, NULL));
    must(hth_manifest_decode(&back, bytes, hth_manifest_bytes(&m), NULL));
    cr_assert(eq(u32, back.object[5].owner, 5));
    hth_manifest_fini(&back);
    free(objects);
    free(bytes);
}

/* --- fabric --- */

static int decode_fabric(const unsigned char *bytes, size_t len)
{
    struct hth_fabric_record r;

    return hth_fabric_decode(&r, bytes, len, NULL);
}

Test(records, a_fabric_record_comes_back_and_no_damaged_one)
{
    struct hth_fabric_record r = { .first = 1, .last = 9 }, back = { 0 };
    unsigned char bytes[HTH_FABRIC_BYTES];

    must(hth_auth_init(NULL));
    hth_fabric_encode(&r, bytes);
    must(hth_fabric_decode(&back, bytes, sizeof(bytes), NULL));
    cr_assert(eq(u32, back.first, 1));
    cr_assert(eq(u32, back.last, 9));
    refuses_lengths(decode_fabric, bytes, sizeof(bytes));
    refuses_all_damage(decode_fabric, bytes, sizeof(bytes));
}

/* --- running --- */

static struct hth_running running_of(void)
{
    return (struct hth_running){
        .epoch = 3,
        .nonce = 1,
        .chosen = { .epoch = 2, .nonce = 9, .step = 20, .attempt = 1 },
        .copies = 2,
        .min_copies = 1,
        .keep = 4,
        .allow_degraded = 1,
        .recover_ms = 5,
        .save_ms = 6,
        .heartbeat_ms = 7,
        .dead_ms = 8,
        .stall_ms = 9,
        .linger_s = 10,
        .inflight_mib = 11,
        .bad_after = 14,
        .lease_bytes = UINT64_C(12) << 32,
        .spare_bytes = UINT64_C(13) << 32,
    };
}

static int decode_running(const unsigned char *bytes, size_t len)
{
    struct hth_running r;

    return hth_running_decode(&r, bytes, len, NULL);
}

Test(records, a_running_record_comes_back)
{
    struct hth_running r = running_of(), back = { 0 };
    unsigned char bytes[HTH_RUNNING_BYTES];

    must(hth_auth_init(NULL));
    hth_running_encode(&r, bytes);
    must(hth_running_decode(&back, bytes, sizeof(bytes), NULL));
    cr_assert(eq(int, hth_save_cmp(back.chosen, r.chosen), 0));
    cr_assert(eq(u64, back.epoch, r.epoch));
    cr_assert(eq(u64, back.nonce, r.nonce));
    cr_assert(eq(u32, back.copies, r.copies));
    cr_assert(eq(u32, back.inflight_mib, r.inflight_mib));
    cr_assert(eq(u32, back.bad_after, r.bad_after));
    cr_assert(eq(u64, back.spare_bytes, r.spare_bytes));
}

Test(records, a_damaged_running_record_is_refused, .timeout = 60)
{
    struct hth_running r = running_of();
    unsigned char bytes[HTH_RUNNING_BYTES];

    must(hth_auth_init(NULL));
    hth_running_encode(&r, bytes);
    refuses_all_damage(decode_running, bytes, sizeof(bytes));
}

/* --- handed --- */

static struct hth_handed handed_of(void)
{
    return (struct hth_handed){ .save = { .epoch = 2, .nonce = 9, .step = 20, .attempt = 1 },
        .slot = UINT64_C(3) << 40,
        .generation = UINT64_C(4) << 32,
        .summed = 1,
        .data_len = 6,
        .items_len = 7,
        .items = 8,
        .rank = 9,
        .index = 10,
        .commons = 11,
        .name = "__9__10_src9.distcp" };
}

static const struct hth_ranks some = { 2, { { 0, 3, 8 }, { 17, 1, 1 } } };

static struct hth_handed_set handed_set_of(void)
{
    struct hth_handed_set set = { .save = handed_of().save, .ranks = some };

    set.save.attempt |= hth_ranks_bits(&some);
    return set;
}

static int decode_handed(const unsigned char *bytes, size_t len)
{
    struct hth_handed_record record = { 0 };
    int rc = hth_handed_decode(&record, bytes, len, NULL);

    hth_handed_fini(&record);
    return rc;
}

Test(records, a_commit_record_comes_back)
{
    struct hth_handed row[2] = { handed_of(), handed_of() };
    struct hth_handed_set set = handed_set_of();
    struct hth_handed_record record = { row, 2, &set, 1 }, back = { 0 };
    unsigned char *bytes = malloc(hth_handed_bytes(&record));

    must(hth_auth_init(NULL));
    row[1].index = 11;
    hth_handed_encode(&record, bytes);
    must(hth_handed_decode(&back, bytes, hth_handed_bytes(&record), NULL));
    cr_assert(eq(sz, back.rows, 2));
    cr_assert(zero(int, hth_save_cmp(back.row[1].save, row[1].save)));
    cr_assert(eq(u64, back.row[1].slot, row[1].slot));
    cr_assert(eq(u64, back.row[1].summed, 1));
    cr_assert(eq(u64, back.row[1].items_len, row[1].items_len));
    cr_assert(eq(u32, back.row[1].index, 11));
    cr_assert(eq(u32, back.row[1].commons, 11));
    must_say(back.row[1].name, row[1].name);
    cr_assert(eq(sz, back.sets, 1));
    cr_assert(zero(int, hth_save_cmp(back.set[0].save, set.save)));
    cr_assert(ne(int, hth_ranks_same(&back.set[0].ranks, &some), 0));
    hth_handed_fini(&back);
    free(bytes);
}

/* A row of versions 1 and 2 has the bytes that BEGIN asked for in the place of `summed`. Version 1
 * ends with its rows. */
static void comes_back_without_sums(uint32_t version)
{
    struct hth_handed row = handed_of();
    struct hth_handed_record record = { .row = &row, .rows = 1 }, back = { 0 };
    size_t len = hth_handed_bytes(&record) - (version == 1 ? 8 : 0);
    unsigned char *bytes = malloc(len + 8);

    row.summed = UINT64_C(5) << 32;
    hth_handed_encode(&record, bytes);
    hth_put32(bytes + 8, version);
    hth_digest(bytes + len - HTH_DIGEST, bytes, len - HTH_DIGEST);
    must(hth_handed_decode(&back, bytes, len, NULL));
    cr_assert(eq(sz, back.rows, 1));
    cr_assert(eq(u32, back.row[0].index, 10));
    cr_assert(zero(u64, back.row[0].summed), "version %u has no checksums of the rank", version);
    cr_assert(eq(sz, back.sets, 0));
    hth_handed_fini(&back);
    free(bytes);
}

Test(records, a_commit_record_of_an_older_version_comes_back)
{
    must(hth_auth_init(NULL));
    comes_back_without_sums(1);
    comes_back_without_sums(2);
}

Test(records, a_commit_record_has_no_third_kind_of_checksums)
{
    struct hth_handed row = handed_of();
    struct hth_handed_record record = { .row = &row, .rows = 1 };
    unsigned char bytes[512];

    must(hth_auth_init(NULL));
    row.summed = 2;
    hth_handed_encode(&record, bytes);
    must_fail(decode_handed(bytes, hth_handed_bytes(&record)), HEARTH_ECORRUPT);
}

Test(records, a_damaged_commit_record_is_refused, .timeout = 60)
{
    struct hth_handed row = handed_of();
    struct hth_handed_set set = handed_set_of();
    struct hth_handed_record record = { &row, 1, &set, 1 };
    unsigned char *bytes = malloc(hth_handed_bytes(&record));

    must(hth_auth_init(NULL));
    hth_handed_encode(&record, bytes);
    refuses_all_damage(decode_handed, bytes, hth_handed_bytes(&record));
    free(bytes);
}

/* --- plans --- */

static const unsigned char some_plan[] = "a plan";
static const struct hth_plans plans = {
    .epoch = 3, .nonce = 1, .serial = 7, .plan = some_plan, .plan_len = sizeof(some_plan)
};

static int decode_plans(const unsigned char *bytes, size_t len)
{
    struct hth_plans p;

    return hth_plans_decode(&p, bytes, len, NULL);
}

Test(records, a_record_of_plans_comes_back_with_its_plan_or_without)
{
    struct hth_plans none = plans, back;
    unsigned char bytes[128];

    must(hth_auth_init(NULL));
    hth_plans_encode(&plans, bytes);
    must(hth_plans_decode(&back, bytes, hth_plans_bytes(&plans), NULL));
    cr_assert(eq(u64, back.epoch, 3));
    cr_assert(eq(u64, back.nonce, 1));
    cr_assert(eq(u32, back.serial, 7));
    cr_assert(eq(sz, back.plan_len, sizeof(some_plan)));
    cr_assert(eq(int, memcmp(back.plan, some_plan, sizeof(some_plan)), 0));
    none.plan = NULL;
    none.plan_len = 0;
    hth_plans_encode(&none, bytes);
    must(hth_plans_decode(&back, bytes, hth_plans_bytes(&none), NULL));
    cr_assert(eq(sz, back.plan_len, 0));
}

Test(records, a_damaged_record_of_plans_is_refused, .timeout = 60)
{
    unsigned char bytes[128];

    must(hth_auth_init(NULL));
    hth_plans_encode(&plans, bytes);
    refuses_all_damage(decode_plans, bytes, hth_plans_bytes(&plans));
}
