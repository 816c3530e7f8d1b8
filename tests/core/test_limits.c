/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The encoders at the limits of what an engine may have: the longest names, the last step, full
 * lists and empty ones. The decoder accepts the bytes, and its result encodes to the same bytes.
 */
#include "check.h"

#include "core/base/auth.h"
#include "core/format/block.h"
#include "core/format/epoch.h"
#include "core/format/handed.h"
#include "core/format/head.h"
#include "core/format/manifest.h"
#include "core/format/places.h"
#include "core/format/table.h"

#include <stdlib.h>
#include <string.h>

#define NAME "n123456789012345678901234567890123456789012345678901234567890123" /* 64 bytes */
_Static_assert(sizeof(NAME) == HTH_NAME_MAX + 1, "as long as a name may be");

static const struct hth_save_id last = { HTH_EPOCH_MOST, UINT64_MAX, HTH_STEP_MAX, UINT32_MAX };

static void start(void)
{
    must(hth_auth_init(NULL));
}

TestSuite(limits, .init = start);

/* Bytes of exactly that size, so that ASan sees one too far. */
static unsigned char *bytes_new(size_t len)
{
    unsigned char *bytes = malloc(len);

    cr_assert(ne(ptr, bytes, NULL));
    return memset(bytes, 0xa5, len);
}

static void same_and_free(unsigned char *a, unsigned char *b, size_t len)
{
    cr_expect(zero(int, memcmp(a, b, len)));
    free(a);
    free(b);
}

Test(limits, a_block)
{
    struct hth_block b = { .data_len = (uint64_t)INT64_MAX / HTH_BLOCK * HTH_BLOCK - 4 * HTH_BLOCK,
        .signature = HTH_SIG_TENSORS,
        .own = 1,
        .save = last,
        .owner = UINT32_MAX,
        .object = UINT64_MAX,
        .generation = UINT64_MAX,
        .table_len = UINT64_MAX / 2,
        .job = NAME,
        .name = NAME };
    unsigned char *bytes = bytes_new(HTH_BLOCK), *again = bytes_new(HTH_BLOCK);
    struct hth_block out;

    b.table_off = HTH_BLOCK + HTH_ALIGN(b.data_len);
    hth_block_encode(&b, bytes);
    must(hth_block_decode(&out, bytes, HTH_BLOCK, UINT64_MAX, NULL));
    must_say(out.name, NAME);
    must_say(out.job, NAME);
    cr_expect(zero(int, hth_save_cmp(out.save, last)));
    hth_block_encode(&out, again);
    same_and_free(bytes, again, HTH_BLOCK);
}

static void manifest_comes_back(struct hth_manifest *m)
{
    size_t len = hth_manifest_bytes(m);
    unsigned char *bytes = bytes_new(len), *again = bytes_new(len);
    struct hth_manifest out;

    must(hth_manifest_encode(m, bytes, NULL));
    must(hth_manifest_decode(&out, bytes, len, NULL));
    cr_expect(eq(u32, out.objects, m->objects));
    must(hth_manifest_encode(&out, again, NULL));
    hth_manifest_fini(&out);
    same_and_free(bytes, again, len);
}

Test(limits, a_manifest_of_no_object_and_of_the_largest)
{
    const uint64_t most = (uint64_t)UINT32_MAX * HTH_CHUNK;
    struct hth_object object[] = { { .id = UINT64_MAX,
                                           .owner = UINT32_MAX - 1,
                                           .kind = HTH_OBJECT_SHARD,
                                           .strong = 1,
                                           .data_len = most,
                                           .table_len = most,
                                           .name = NAME },
        { .kind = HTH_OBJECT_SHARD, .strong = 1, .table_len = HTH_TABLE_HEAD, .name = "a" },
        { .id = 1, .kind = HTH_OBJECT_RAW, .name = ".metadata" } };
    struct hth_manifest m = { .save = last,
        .from = last,
        .world = UINT32_MAX,
        .nodes = UINT32_MAX,
        .strong = 1,
        .job = NAME,
        .object = object,
        .objects = 3 };

    manifest_comes_back(&m);
    m.objects = 0;
    manifest_comes_back(&m);
    m.object = NULL;
    manifest_comes_back(&m);
}

static void keep_comes_back(const struct hth_keep *k)
{
    unsigned char *bytes = bytes_new(HTH_KEEP_BYTES), *again = bytes_new(HTH_KEEP_BYTES);
    struct hth_keep out;

    hth_keep_encode(k, bytes);
    must(hth_keep_decode(&out, bytes, HTH_KEEP_BYTES, NULL));
    cr_expect(eq(u32, out.saves, k->saves));
    cr_expect(eq(u32, out.bads, k->bads));
    hth_keep_encode(&out, again);
    same_and_free(bytes, again, HTH_KEEP_BYTES);
}

static struct hth_keep keep_full(void)
{
    struct hth_keep k = { .epoch = HTH_EPOCH_MOST,
        .serial = UINT64_MAX,
        .dropped = HTH_EPOCH_MOST,
        .saves = HTH_KEEP_MAX,
        .degraded = UINT32_MAX,
        .pinned = UINT32_MAX };

    for (uint32_t i = 0; i < HTH_KEEP_MAX; i++) {
        k.save[i] = last;
        k.save[i].step -= i;
        k.since_ms[i] = UINT64_MAX;
    }
    return k;
}

/* More marks than there are places, then one that is tried; and an empty list. */
Test(limits, a_keep_list)
{
    struct hth_keep k = keep_full();

    keep_comes_back(&(struct hth_keep){ 0 });
    keep_comes_back(&k);
    for (uint32_t i = 0; i < 2 * HTH_KEEP_MAX; i++) {
        struct hth_save_id save = last;

        save.step -= i;
        hth_keep_mark(&k, save, 1);
        keep_comes_back(&k);
    }
    hth_keep_try(&k, k.save[0], 0);
    k.tries = UINT32_MAX - 1;
    keep_comes_back(&k);
    hth_keep_try(&k, k.save[0], 0);
    keep_comes_back(&k);
    while (k.saves) {
        hth_keep_leave(&k, (int)k.saves - 1);
        keep_comes_back(&k);
    }
}

Test(limits, a_head_with_all_cancelled_saves_and_the_longest_reason)
{
    static struct hth_head h, out;
    const unsigned char *map;
    unsigned char *bytes, *again;
    size_t map_len;

    h = (struct hth_head){ .epoch = HTH_EPOCH_MOST,
        .nonce = UINT64_MAX,
        .position = UINT64_MAX,
        .mapped = UINT64_MAX,
        .settled = 1,
        .decided = last,
        .cancels = HTH_HEAD_CANCELLED,
        .keep = keep_full() };
    for (uint32_t i = 0; i < HTH_HEAD_CANCELLED; i++)
        h.cancelled[i] = (struct hth_cancelled){ last, INT32_MIN, 1 };
    memset(h.why, 0xff, HTH_HEAD_WHY);
    bytes = bytes_new(hth_head_bytes(0));
    again = bytes_new(hth_head_bytes(0));
    hth_head_encode(&h, "", 0, bytes);
    must(hth_head_decode(&out, &map, &map_len, bytes, hth_head_bytes(0), NULL));
    cr_expect(zero(sz, map_len));
    must_say(out.why, h.why);
    hth_head_encode(&out, map, map_len, again);
    same_and_free(bytes, again, hth_head_bytes(0));
}

static void holders_come_back(const struct hth_places *m)
{
    size_t len = hth_places_bytes(m);
    unsigned char *bytes = bytes_new(len), *again = bytes_new(len);
    struct hth_places out;

    hth_places_encode(m, bytes);
    must(hth_places_decode(&out, bytes, len, NULL));
    hth_places_encode(&out, again);
    hth_places_fini(&out);
    same_and_free(bytes, again, len);
}

Test(limits, a_map_of_nothing_and_of_all_pairs)
{
    struct hth_pair_note pair[HTH_PAIRS_MAX];
    struct hth_note note = { UINT32_MAX, 1, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX };
    struct hth_move move = { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX };
    struct hth_places m = {
        .notes = 1, .moves = 1, .pairs = HTH_PAIRS_MAX, .note = &note, .move = &move, .pair = pair
    };

    for (uint32_t i = 0; i < HTH_PAIRS_MAX; i++)
        pair[i] = (struct hth_pair_note){ i, UINT32_MAX, 1, UINT64_MAX, UINT64_MAX };
    holders_come_back(&m);
    holders_come_back(&(struct hth_places){ 0 });
}

Test(limits, an_epoch_of_the_longest_names_and_addresses)
{
    uint32_t rank_node[] = { 0, 0 };
    struct hth_member member = { .node = NAME,
        .store = UINT64_MAX,
        .domain = { UINT64_MAX, 0, UINT64_MAX, UINT64_MAX },
        .machine = 1,
        .addr_len = HTH_ADDR_MAX };
    struct hth_epoch e = { HTH_EPOCH_MOST, UINT64_MAX, 2, 1, 0, rank_node, &member }, out;
    size_t len = hth_epoch_bytes(&e);
    unsigned char *bytes = bytes_new(len), *again = bytes_new(len);

    memset(member.addr, 0xff, sizeof(member.addr));
    hth_epoch_encode(&e, bytes);
    must(hth_epoch_decode(&out, bytes, len, NULL));
    hth_epoch_encode(&out, again);
    hth_epoch_fini(&out);
    same_and_free(bytes, again, len);
}

static void handed_comes_back(const struct hth_handed_record *record)
{
    size_t len = hth_handed_bytes(record);
    unsigned char *bytes = bytes_new(len), *again = bytes_new(len);
    struct hth_handed_record out;

    hth_handed_encode(record, bytes);
    must(hth_handed_decode(&out, bytes, len, NULL));
    hth_handed_encode(&out, again);
    hth_handed_fini(&out);
    same_and_free(bytes, again, len);
}

Test(limits, a_commit_record_of_all_sets)
{
    static struct hth_handed_set set[HTH_HANDED_SETS];
    struct hth_handed row = { .save = last,
        .slot = UINT64_MAX,
        .generation = UINT64_MAX,
        .summed = 1,
        .data_len = UINT64_MAX,
        .items_len = UINT64_MAX,
        .items = UINT32_MAX,
        .rank = UINT32_MAX,
        .index = UINT32_MAX,
        .commons = UINT32_MAX,
        .name = NAME };
    struct hth_handed_record record = {
        .row = &row, .rows = 1, .set = set, .sets = HTH_HANDED_SETS
    };

    for (uint32_t i = 0; i < HTH_HANDED_SETS; i++) {
        struct hth_ranks *ranks = &set[i].ranks;

        ranks->runs = HTH_RANK_RUNS;
        for (uint32_t k = 0; k < HTH_RANK_RUNS; k++) /* no two of them are one run */
            ranks->run[k] = (struct hth_rank_run){ 100 * (k * k + k) + i, 2, 7 + k };
        set[i].save = last;
        set[i].save.attempt = hth_ranks_bits(ranks) | 1;
    }
    handed_comes_back(&record);
    handed_comes_back(&(struct hth_handed_record){ 0 });
}

/* Its items, and what they are of, in memory for the largest of both. */
static void table_comes_back(
        const struct hth_item *item, uint32_t items, uint64_t data_len, int strong)
{
    uint64_t items_len = items ? hth_item_bytes(item->ndim, item->key_len) : 0, pos = 0;
    uint64_t len = hth_table_bytes(data_len, items_len, (uint32_t)strong);
    uint64_t chunks = HTH_CHUNKS(data_len);
    struct hth_proof *proof = calloc(chunks + 1, sizeof(*proof));
    unsigned char *bytes = bytes_new(len);
    struct hth_table out;
    struct hth_item got;

    if (items)
        hth_item_encode(item, bytes + HTH_TABLE_HEAD);
    hth_table_finish(bytes, data_len, items, items_len, proof, (uint32_t)strong);
    must(hth_table_decode(&out, bytes, len, NULL));
    cr_expect(eq(u32, out.items, items));
    cr_expect(eq(u64, out.data_len, data_len));
    for (uint32_t i = 0; i < items; i++) {
        must(hth_item_next(&out, &pos, &got));
        cr_expect(eq(u32, got.ndim, item->ndim));
        cr_expect(eq(u32, got.key_len, item->key_len));
        if (item->key_len) /* an empty one has no memory to compare */
            cr_expect(zero(int, memcmp(got.key, item->key, item->key_len)));
    }
    cr_expect(eq(int, hth_item_next(&out, &pos, &got), HEARTH_ENOENT));
    free(proof);
    free(bytes);
}

Test(limits, a_table_of_no_item_of_no_byte_and_of_the_widest_item)
{
    static int64_t one[HTH_DIMS_MAX], most[HTH_DIMS_MAX], zero[HTH_DIMS_MAX];
    static char key[65537];
    struct hth_item nothing = { .kind = HTH_ITEM_BYTES };
    struct hth_item wide = { .length = 100,
        .payload = 99,
        .kind = HTH_ITEM_TENSOR,
        .dtype = HEARTH_UINT8,
        .ndim = HTH_DIMS_MAX,
        .key_len = sizeof(key),
        .shape = one,
        .global_shape = most,
        .global_offset = zero,
        .key = key };

    for (uint32_t i = 0; i < HTH_DIMS_MAX; i++) {
        one[i] = 1;
        most[i] = INT64_MAX;
        zero[i] = INT64_MAX - 1;
    }
    memset(key, 0xff, sizeof(key));
    for (int strong = 0; strong < 2; strong++) {
        table_comes_back(NULL, 0, 0, strong);
        table_comes_back(&nothing, 1, 0, strong);
        table_comes_back(&wide, 1, 100, strong);
        table_comes_back(&wide, 1, HTH_CHUNK, strong);
        table_comes_back(&wide, 1, HTH_CHUNK + 1, strong);
        table_comes_back(&wide, 1, 3 * HTH_CHUNK, strong);
    }
}
