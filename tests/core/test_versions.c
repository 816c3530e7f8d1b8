/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each format in a version that there is not, both ways: we refuse it by name, and a build that has
 * one more in its row reads that and ours.
 */
#include "check.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "core/format/epoch.h"
#include "core/format/fabric.h"
#include "core/format/handed.h"
#include "core/format/head.h"
#include "core/format/keep.h"
#include "core/format/life.h"
#include "core/format/manifest.h"
#include "core/format/plans.h"
#include "core/format/running.h"
#include "core/format/table.h"
#include <stdio.h>
#include <stdlib.h>

#define CRC_AT 4092u /* of a block */

static unsigned char bytes[65536] __attribute__((aligned(8)));

static size_t block_make(void)
{
    struct hth_block b = { .data_len = 4096,
        .signature = HTH_SIG_TENSORS,
        .own = 1,
        .generation = 1,
        .object = 1,
        .table_off = 2 * HTH_BLOCK,
        .table_len = HTH_TABLE_HEAD + 8,
        .save = { 3, 1, 20, 1 },
        .job = "job",
        .name = "__0__0_src0.distcp" };

    hth_block_encode(&b, bytes);
    return HTH_BLOCK;
}

static void block_seal(size_t len)
{
    (void)len;
    hth_put32(bytes + CRC_AT, hth_crc32c(bytes, CRC_AT));
}

static int block_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_block b;

    return hth_block_decode_as(v, &b, bytes, len, UINT64_MAX, err);
}

static size_t table_make(void)
{
    hth_table_finish(bytes, 0, 0, 0, NULL, 0);
    return hth_table_bytes(0, 0, 0);
}

static void nothing(size_t len)
{
    (void)len;
}

static int table_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_table t;

    return hth_table_decode_as(v, &t, bytes, len, err);
}

static size_t manifest_make(void)
{
    struct hth_manifest m = {
        .save = { 5, 6, 7, 8 }, .from = { 4, 3, 2, 1 }, .world = 4, .nodes = 2, .job = "job"
    };

    must(hth_manifest_encode(&m, bytes, NULL));
    return hth_manifest_bytes(&m);
}

static void record_seal(size_t len)
{
    hth_digest(bytes + len - HTH_DIGEST, bytes, len - HTH_DIGEST);
}

static int manifest_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_manifest m = { 0 };
    int rc = hth_manifest_decode_as(v, &m, bytes, len, err);

    hth_manifest_fini(&m);
    return rc;
}

static void greet(struct hth_gather *g)
{
    *g = (struct hth_gather){ .store = 7, .copies = 1, .keep = 1, .addr_len = 1, .world = 1 };
    strcpy(g->job, "job");
    strcpy(g->node, "a");
}

static size_t greeting_make(void)
{
    struct hth_gather g;

    greet(&g);
    hth_gather_encode(&g, bytes);
    return HTH_GATHER;
}

static int greeting_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_gather g;

    (void)len;
    return hth_gather_decode_as(v, &g, bytes, err);
}

static size_t epoch_make(void)
{
    unsigned char table[HTH_GATHER];
    struct hth_gather g;
    struct hth_epoch e;
    size_t len;

    greet(&g);
    hth_gather_encode(&g, table);
    must(hth_epoch_make(&e, table, 1, 7, NULL));
    hth_epoch_encode(&e, bytes);
    len = hth_epoch_bytes(&e);
    hth_epoch_fini(&e);
    return len;
}

static int epoch_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_epoch e = { 0 };
    int rc = hth_epoch_decode_as(v, &e, bytes, len, err);

    hth_epoch_fini(&e);
    return rc;
}

static size_t keep_make(void)
{
    struct hth_keep k = { .epoch = 3, .serial = 9 };

    hth_keep_encode(&k, bytes);
    return HTH_KEEP_BYTES;
}

static int keep_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_keep k;

    return hth_keep_decode_as(v, &k, bytes, len, err);
}

static size_t handed_make(void)
{
    struct hth_handed h = { .save = { 3, 1, 20, 1 }, .slot = 7, .generation = 2, .name = "object" };
    struct hth_handed_record record = { .row = &h, .rows = 1 };

    hth_handed_encode(&record, bytes);
    return hth_handed_bytes(&record);
}

static int handed_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_handed_record record = { 0 };
    int rc = hth_handed_decode_as(v, &record, bytes, len, err);

    hth_handed_fini(&record);
    return rc;
}

static size_t running_make(void)
{
    struct hth_running r = { .epoch = 3, .nonce = 1, .copies = 1 };

    hth_running_encode(&r, bytes);
    return HTH_RUNNING_BYTES;
}

static int running_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_running r;

    return hth_running_decode_as(v, &r, bytes, len, err);
}

static size_t fabric_make(void)
{
    struct hth_fabric_record r = { .first = 9, .last = 10 };

    hth_fabric_encode(&r, bytes);
    return HTH_FABRIC_BYTES;
}

static int fabric_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_fabric_record r;

    return hth_fabric_decode_as(v, &r, bytes, len, err);
}

static size_t plans_make(void)
{
    struct hth_plans p = { .epoch = 3, .nonce = 1, .serial = 7 };

    hth_plans_encode(&p, bytes);
    return hth_plans_bytes(&p);
}

static int plans_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    struct hth_plans p;

    return hth_plans_decode_as(v, &p, bytes, len, err);
}

static size_t head_make(void)
{
    struct hth_head h = { .epoch = 7 };

    hth_head_encode(&h, NULL, 0, bytes);
    return hth_head_bytes(0);
}

static int head_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    const unsigned char *map;
    struct hth_head h;
    size_t map_len;

    return hth_head_decode_as(v, &h, &map, &map_len, bytes, len, err);
}

static size_t life_make(void)
{
    hth_life_encode(7, bytes);
    return HTH_LIFE_BYTES;
}

static int life_read(const struct hth_versions *v, size_t len, struct hearth_error *err)
{
    uint64_t starts;

    return hth_life_decode_as(v, &starts, bytes, len, err);
}

static const struct {
    enum hth_format format;
    size_t version_at;
    size_t (*make)(void);
    void (*seal)(size_t len);
    int (*read)(const struct hth_versions *v, size_t len, struct hearth_error *err);
} formats[] = {
    { HTH_FORMAT_BLOCK, 24, block_make, block_seal, block_read },
    { HTH_FORMAT_TABLE, 8, table_make, nothing, table_read },
    { HTH_FORMAT_MANIFEST, 8, manifest_make, record_seal, manifest_read },
    { HTH_FORMAT_GREETING, 8, greeting_make, nothing, greeting_read },
    { HTH_FORMAT_EPOCH, 8, epoch_make, record_seal, epoch_read },
    { HTH_FORMAT_KEEP, 8, keep_make, record_seal, keep_read },
    { HTH_FORMAT_RUNNING, 8, running_make, record_seal, running_read },
    { HTH_FORMAT_HANDED, 8, handed_make, record_seal, handed_read },
    { HTH_FORMAT_PLANS, 8, plans_make, record_seal, plans_read },
    { HTH_FORMAT_HEAD, 8, head_make, record_seal, head_read },
    { HTH_FORMAT_LIFE, 8, life_make, record_seal, life_read },
    { HTH_FORMAT_FABRIC, 8, fabric_make, record_seal, fabric_read },
};

#define EACH(i) for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)

static size_t make_as(size_t i, uint32_t version)
{
    size_t len = formats[i].make();

    hth_put32(bytes + formats[i].version_at, version);
    formats[i].seal(len);
    return len;
}

static void refused(size_t i, uint32_t version, const char *advice)
{
    const struct hth_versions *v = hth_versions_of(formats[i].format);
    struct hearth_error err = { 0 };
    char both[80];

    must_fail(formats[i].read(v, make_as(i, version), &err), HEARTH_EUNSUPPORTED);
    snprintf(both, sizeof(both), "%s is of version %u, and this Hearth reads version %u", v->what,
            version, v->oldest);
    cr_assert(ne(ptr, strstr(err.text, both), NULL), "%s", err.text);
    cr_assert(ne(ptr, strstr(err.text, advice), NULL), "%s", err.text);
    cr_assert(ne(ptr, strstr(err.text, "nothing of it was touched"), NULL), "%s", err.text);
}

static void setup(void)
{
    must(hth_auth_init(NULL));
}

TestSuite(versions, .init = setup);

Test(versions, ours_are_read)
{
    EACH(i) must(formats[i].read(hth_versions_of(formats[i].format), formats[i].make(), NULL));
}

Test(versions, the_next_one_is_refused_by_name)
{
    EACH(i) refused(i, hth_version_written(formats[i].format) + 1, "the newer Hearth");
}

Test(versions, the_one_before_the_oldest_is_refused_by_name)
{
    EACH(i) refused(i, hth_versions_of(formats[i].format)->oldest - 1, "the older Hearth");
}

/* Each record that ends with a digest: one bit of its version changes, and nothing else does. */
Test(versions, a_record_is_damaged_and_of_no_other_version_where_its_digest_does_not_hold)
{
    EACH(i)
    {
        const struct hth_versions *v = hth_versions_of(formats[i].format);
        struct hearth_error err = { 0 };
        size_t len = formats[i].make();

        for (size_t bit = 0; formats[i].seal == record_seal && bit < 32; bit++) {
            unsigned char *at = &bytes[formats[i].version_at + bit / 8];

            *at ^= (unsigned char)(1u << bit % 8);
            must_fail(formats[i].read(v, len, &err), HEARTH_ECORRUPT);
            cr_expect(ne(ptr, strstr(err.text, "is damaged"), NULL), "%s", err.text);
            *at ^= (unsigned char)(1u << bit % 8);
        }
    }
}

/* The promise of a release after the first one is a row of the table. */
Test(versions, a_build_with_the_next_one_in_its_row_reads_both)
{
    EACH(i)
    {
        struct hth_versions next = *hth_versions_of(formats[i].format);

        next.newest++;
        must(formats[i].read(&next, make_as(i, next.newest), NULL));
        must(formats[i].read(&next, make_as(i, next.newest - 1), NULL));
        must_fail(formats[i].read(&next, make_as(i, next.newest + 1), NULL), HEARTH_EUNSUPPORTED);
    }
}
