/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A digest of the bytes that a fixed example of each format encodes to, beside the version that it
 * has: if a layout changes and its row in core/format/versions.h is not raised, the test fails. No
 * two fields of an example are alike, so that it also notices fields that changed places.
 */
#include "check.h"
#include "tmp_root.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/format/epoch.h"
#include "core/format/fabric.h"
#include "core/format/handed.h"
#include "core/format/head.h"
#include "core/format/keep.h"
#include "core/format/life.h"
#include "core/format/manifest.h"
#include "core/format/places.h"
#include "core/format/plans.h"
#include "core/format/running.h"
#include "core/format/table.h"
#include "core/local/local.h"
#include "core/store/store_tmpfs.h"
#include "loader/plan/plan.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HEX 16 /* characters of a digest that are compared */

typedef size_t make_fn(unsigned char *out); /* bytes[8192], zeros, 8-aligned; their number */

static const struct hth_save_id saves[3] = { { 101, 102, 103, 104 }, { 105, 106, 107, 108 },
    { 109, 110, 111, 112 } };

static void count_up(unsigned char *out, size_t n, unsigned char from)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (unsigned char)(from + i);
}

static size_t block_make(unsigned char *out)
{
    struct hth_block b = { .data_len = 11,
        .signature = HTH_SIG_TENSORS,
        .own = 1,
        .save = saves[0],
        .owner = 12,
        .object = 13,
        .generation = 14,
        .table_off = 15,
        .table_len = 16,
        .job = "job",
        .name = "name" };

    count_up(b.table_digest, sizeof(b.table_digest), 17);
    hth_block_encode(&b, out);
    return HTH_BLOCK;
}

static size_t table_make(unsigned char *out)
{
    static const int64_t shape[] = { 2, 3 }, whole[] = { 40, 50 }, at[] = { 6, 7 };
    static const struct hth_proof proof[] = { { 21, { 121, 122 } }, { 22, { [31] = 123 } } };
    struct hth_item tensor = { .length = 100,
        .payload = 76,
        .kind = HTH_ITEM_TENSOR,
        .dtype = HEARTH_FLOAT32,
        .ndim = 2,
        .key_len = 5,
        .shape = shape,
        .global_shape = whole,
        .global_offset = at,
        .key = "first" };
    struct hth_item bytes = {
        .offset = 100, .length = HTH_CHUNK, .kind = HTH_ITEM_BYTES, .key_len = 1, .key = "k"
    };
    uint64_t first = hth_item_bytes(2, 5), both = first + hth_item_bytes(0, 1);

    hth_item_encode(&tensor, out + HTH_TABLE_HEAD);
    hth_item_encode(&bytes, out + HTH_TABLE_HEAD + first);
    hth_table_finish(out, HTH_CHUNK + 100, 2, both, proof, 1);
    return hth_table_bytes(HTH_CHUNK + 100, both, 1);
}

static size_t manifest_make(unsigned char *out)
{
    struct hth_object objects[] = {
        { .id = 31,
                .owner = 1,
                .kind = HTH_OBJECT_SHARD,
                .strong = 1,
                .data_len = 32,
                .table_len = 33 },
        { .id = 34, .owner = 2, .kind = HTH_OBJECT_RAW, .data_len = 35 },
        { .id = 36, .owner = HTH_OWNER_NONE, .kind = HTH_OBJECT_FOREIGN, .listed = 1 },
    };
    struct hth_manifest m = { .save = saves[0],
        .from = saves[1],
        .world = 4,
        .nodes = 3,
        .strong = 1,
        .job = "job",
        .objects = 3,
        .object = objects };

    for (unsigned char i = 0; i < 3; i++) {
        snprintf(objects[i].name, sizeof(objects[i].name), "object %d", i);
        count_up(objects[i].digest, HTH_DIGEST, (unsigned char)(60 * i));
    }
    must(hth_manifest_encode(&m, out, NULL));
    return hth_manifest_bytes(&m);
}

static size_t epoch_make(unsigned char *out)
{
    uint32_t rank_node[] = { 0, 1, 1 };
    struct hth_member member[] = {
        { .node = "a",
                .store = 41,
                .domain = { 42, 43, 44, 45 },
                .machine = 1,
                .addr_len = 3,
                .addr = "abc" },
        { .node = "b",
                .store = 46,
                .domain = { 47, 48, 49, 50 },
                .machine = 1,
                .addr_len = 2,
                .addr = "de" },
    };
    struct hth_epoch e = { .epoch = 51,
        .nonce = 52,
        .world = 3,
        .nodes = 2,
        .self = 1,
        .rank_node = rank_node,
        .member = member };

    hth_epoch_encode(&e, out);
    return hth_epoch_bytes(&e);
}

static size_t keep_make(unsigned char *out)
{
    struct hth_keep k = { .epoch = 51,
        .serial = 52,
        .dropped = 53,
        .saves = 2,
        .bads = 1,
        .degraded = 2,
        .pinned = 1,
        .save = { saves[0], saves[1] },
        .bad = { saves[2] },
        .since_ms = { 54, 55 },
        .tried = saves[1],
        .tries = 56 };

    hth_keep_encode(&k, out);
    return HTH_KEEP_BYTES;
}

static size_t handed_make(unsigned char *out)
{
    struct hth_handed row[2] = { { .save = { 61, 62, 63, 64 },
                                         .slot = 65,
                                         .generation = 66,
                                         .summed = 1,
                                         .data_len = 68,
                                         .items_len = 69,
                                         .items = 70,
                                         .rank = 71,
                                         .index = 72,
                                         .commons = 73,
                                         .name = "__0__0_src0.distcp" },
        { .save = { 74, 75, 76, 77 }, .name = "second" } };
    struct hth_handed_set set = { .save = { 78, 79, 80, 81 },
        .ranks = { .runs = 2, .run = { { 82, 83, 84 }, { 85, 86, 87 } } } };
    struct hth_handed_record record = { row, 2, &set, 1 };

    hth_handed_encode(&record, out);
    return hth_handed_bytes(&record);
}

static size_t running_make(unsigned char *out)
{
    struct hth_running r = { .epoch = 51,
        .nonce = 52,
        .chosen = saves[0],
        .copies = 53,
        .min_copies = 54,
        .keep = 55,
        .allow_degraded = 56,
        .recover_ms = 57,
        .save_ms = 58,
        .heartbeat_ms = 59,
        .dead_ms = 60,
        .stall_ms = 61,
        .linger_s = 62,
        .inflight_mib = 63,
        .bad_after = 66,
        .lease_bytes = 64,
        .spare_bytes = 65 };

    hth_running_encode(&r, out);
    return HTH_RUNNING_BYTES;
}

/* With a holder map in it, which has no row of its own. */
static size_t head_make(unsigned char *out)
{
    struct hth_note notes[2] = { { 81, 1, 82, 83, 84, 85 }, { 86, 0, 87, 88, 89, 90 } };
    struct hth_move moves[2] = { { 91, 92, 93, 94 }, { 95, 96, 97, 98 } };
    struct hth_pair_note pairs[1] = { { 59, 60, 1, 61, 62 } };
    struct hth_places map = {
        .notes = 2, .note = notes, .moves = 2, .move = moves, .pairs = 1, .pair = pairs
    };
    struct hth_head h = { .epoch = 51,
        .nonce = 52,
        .position = 99,
        .mapped = 98,
        .settled = 1,
        .decided = saves[0],
        .cancels = 2,
        .cancelled = { { saves[1], -101, 1 }, { saves[2], -102, 0 } },
        .why = "why",
        .keep = { .epoch = 51, .serial = 53, .saves = 1, .save = { saves[0] } } };
    unsigned char bytes[240];

    cr_assert(le(sz, hth_places_bytes(&map), sizeof(bytes)));
    count_up(map.forerunner, sizeof(map.forerunner), 3);
    hth_places_encode(&map, bytes);
    hth_digest(h.map, bytes, hth_places_bytes(&map));
    hth_head_encode(&h, bytes, hth_places_bytes(&map), out);
    return hth_head_bytes(hth_places_bytes(&map));
}

static size_t life_make(unsigned char *out)
{
    hth_life_encode(51, out);
    return HTH_LIFE_BYTES;
}

static size_t fabric_make(unsigned char *out)
{
    struct hth_fabric_record r = { .first = 9, .last = 10 };

    hth_fabric_encode(&r, out);
    return HTH_FABRIC_BYTES;
}

/* With a plan in it, which has no row of its own. */
static size_t plans_make(unsigned char *out)
{
    static unsigned char plan[2048];
    struct hth_run runs[] = { { 0, 1, { 70 } }, { 2, 2, { 71, 72 } }, { 4, 2, { 72, 73 } },
        { 6, 2, { 73, 79 } }, { 8, 2, { 74, 77 } }, { 10, 0, { 0 } } };
    uint8_t best[11] = { 0, 0, 0, 1 };
    struct hth_plan p = { .serial = 73,
        .chosen = saves[0],
        .beyond = 74,
        .keeps = 2,
        .keep = { saves[1], saves[2] },
        .from = { 11, sizeof(runs) / sizeof(runs[0]), runs, best } };
    struct hth_plans r = {
        .epoch = 51, .nonce = 52, .serial = 73, .plan = plan, .plan_len = hth_plan_bytes(&p)
    };

    count_up(p.manifest, sizeof(p.manifest), 7);
    cr_assert(le(sz, r.plan_len, sizeof(plan)));
    hth_plan_encode(&p, plan);
    hth_plans_encode(&r, out);
    return hth_plans_bytes(&r);
}

static size_t greeting_make(unsigned char *out)
{
    struct hth_gather g = { .job = "job",
        .node = "node",
        .store = 41,
        .highest_epoch = 42,
        .wall_ms = 43,
        .random = 44,
        .domain = { 45, 46, 47, 48 },
        .machine = 57,
        .copies = 2,
        .min_copies = 1,
        .keep = 4,
        .flags = HTH_GATHER_ALLOW_DEGRADED | HTH_GATHER_TRUSTED,
        .heartbeat_ms = 49,
        .dead_ms = 50,
        .transport = "ofi",
        .provider = "tcp",
        .version_low = 51,
        .version_high = 52,
        .addr_len = 3,
        .addr = "abc",
        .objects = { .bytes = { 53, 52, 51, 50 }, .count = { 4, 5, 6, 7 } },
        .fabrics = 54,
        .first_fabric = 55,
        .bad_after = 56,
        .rank = 5,
        .world = 7 };
    unsigned char key[HTH_KEY];

    count_up(key, sizeof(key), 1);
    hth_gather_encode(&g, out);
    hth_gather_prove(out, key);
    return HTH_GATHER;
}

/* Native structs have no encoder: their sizes. Fields that change places in one are not seen. */
static size_t local_make(unsigned char *out)
{
    static const size_t bytes[] = { sizeof(struct hth_local_head), sizeof(struct hth_local_error),
        sizeof(struct hth_local_attach), sizeof(struct hth_local_attached),
        sizeof(struct hth_local_join), sizeof(struct hth_local_joined),
        sizeof(struct hth_local_recover), sizeof(struct hth_local_recovered),
        sizeof(struct hth_local_begin), sizeof(struct hth_local_lent),
        sizeof(struct hth_local_set_step), sizeof(struct hth_local_save_id),
        sizeof(struct hth_local_seal), sizeof(struct hth_local_common),
        sizeof(struct hth_local_event), sizeof(struct hth_local_follow),
        sizeof(struct hth_local_map), sizeof(struct hth_local_mapped),
        sizeof(struct hth_local_unmap), sizeof(struct hth_local_bytes),
        sizeof(struct hth_local_find), sizeof(struct hth_local_found),
        sizeof(struct hth_local_written), sizeof(struct hth_local_give),
        sizeof(struct hth_local_given), sizeof(struct hth_local_take),
        sizeof(struct hth_local_taken), sizeof(struct hth_local_close),
        sizeof(struct hth_local_regain), sizeof(struct hth_local_refit),
        sizeof(struct hth_local_refitted), sizeof(struct hth_local_bad),
        sizeof(struct hth_local_wish), sizeof(struct hth_local_kept_list),
        sizeof(struct hth_local_let_go), sizeof(struct hth_local_meet),
        sizeof(struct hth_local_written_chunks), sizeof(struct hth_local_history),
        sizeof(struct hth_local_elsewhere), sizeof(struct hth_local_nodes) };
    struct hth_writer w = { .at = out, .cap = 8192 };

    hth_write32(&w, hth_version_written(HTH_FORMAT_LOCAL));
    for (size_t i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
        hth_write64(&w, bytes[i]);
    return w.len;
}

/* `.hearth/store` of a new store, but for what is random in it. */
static size_t store_file(unsigned char *out)
{
    struct hth_store_tmpfs_opts opts = { .root = tmp_root(UINT64_C(1) << 24), .job = "job" };
    struct hth_store *s;
    char path[300];
    ssize_t len;
    int fd;

    must(hth_store_tmpfs_open(&opts, &s, NULL));
    s->ops->close(s);
    snprintf(path, sizeof(path), "%s/job/.hearth/store", opts.root);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    len = read(fd, out, 4096);
    close(fd);
    tmp_root_remove(opts.root);
    cr_assert(ge(i64, len, 24));
    memset(out + 12, 0, 12); /* checksum, id */
    return (size_t)len;
}

/* A store is of the version of all its records. */
static size_t store_make(unsigned char *out)
{
    static make_fn *const records[] = { manifest_make, epoch_make, keep_make, running_make,
        plans_make, head_make, life_make, handed_make };
    static _Alignas(8) unsigned char record[8192];
    size_t at = store_file(out);

    for (size_t i = 0; i < sizeof(records) / sizeof(records[0]); i++, at += HTH_DIGEST) {
        memset(record, 0, sizeof(record));
        hth_digest(out + at, record, records[i](record));
    }
    return at;
}

static const struct golden {
    make_fn *make;
    uint32_t version;
    const char *digest;
} golden[HTH_FORMATS] = {
    [HTH_FORMAT_BLOCK] = { block_make, 1, "8c3cb1f2cd0fc247" },
    [HTH_FORMAT_TABLE] = { table_make, 2, "9ef2804dd42ef052" },
    [HTH_FORMAT_MANIFEST] = { manifest_make, 3, "b9770b66ab8690f9" },
    [HTH_FORMAT_EPOCH] = { epoch_make, 3, "c877fe92949a7401" },
    [HTH_FORMAT_KEEP] = { keep_make, 4, "af21ee02d086cc64" },
    [HTH_FORMAT_PLANS] = { plans_make, 4, "649f9b85cf807d75" },
    [HTH_FORMAT_RUNNING] = { running_make, 2, "ff0cd2d29c64311f" },
    [HTH_FORMAT_HEAD] = { head_make, 2, "85d249d94e257dd8" },
    [HTH_FORMAT_LIFE] = { life_make, 1, "90b793fe61986f80" },
    [HTH_FORMAT_STORE] = { store_make, 7, "b096cf0d4087535e" },
    [HTH_FORMAT_GREETING] = { greeting_make, 10, "fb91f590d0d54e04" },
    [HTH_FORMAT_HANDED] = { handed_make, 3, "f14ad633155e69d7" },
    [HTH_FORMAT_LOCAL] = { local_make, 17, "98d8ce7cadc02f83" },
    [HTH_FORMAT_FABRIC] = { fabric_make, 1, "fceda6fa145ad7c3" },
};

static void is_as_it_was(enum hth_format format)
{
    static _Alignas(8) unsigned char bytes[8192];
    const struct golden *g = &golden[format];
    const char *what = hth_versions_of(format)->what;
    uint32_t version = hth_version_written(format);
    unsigned char digest[HTH_DIGEST];
    char hex[HEX + 1];

    cr_assert(ne(ptr, (void *)(uintptr_t)g->digest, NULL),
            "the %s has no example here: give it one that fills every field", what);
    memset(bytes, 0, sizeof(bytes));
    hth_digest(digest, bytes, g->make(bytes));
    for (size_t i = 0; i < HEX / 2; i++)
        snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    cr_expect(eq(u32, version, g->version),
            "the %s has a new version: its line here becomes version %u, \"%s\"", what, version,
            hex);
    cr_expect(version != g->version || !strcmp(hex, g->digest),
            "the %s has another layout than version %u had (%s): raise its row in "
            "core/format/versions.h, and the store's if it is a record in one; this test then says "
            "what to write here",
            what, version, hex);
}

Test(golden, a_layout_does_not_change_without_its_version)
{
    alarm(60);
    must(hth_auth_init(NULL));
    for (int f = 0; f < HTH_FORMATS; f++)
        is_as_it_was((enum hth_format)f);
}
