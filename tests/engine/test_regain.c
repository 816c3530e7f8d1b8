/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks handed to an engine that is killed, or were writing: the commit record, and REGAIN.
 * Said packet by packet to an engine in virtual time, by a helper of rank 0. */
#include "packets.h"

#include "core/base/crc.h"
#include "core/format/handed.h"
#include "core/format/table.h"
#include "replication/held/holdings.h"
#include <stdlib.h>
#include <string.h>

#define OURS  99990u
#define STEP  100000u /* every rank of the world has long saved less */
#define OWN   (HTH_LOCAL_OWN | 7)
#define BYTES (3 * HTH_BLOCK) /* that the rank asked for */

static struct hth_local_lent lent;
static struct hth_save_id save;
static uint32_t summed; /* what SEAL says */

static void attach(void)
{
    struct hth_local_attach m = { .version = hth_version_written(HTH_FORMAT_LOCAL),
        .world = 4,
        .pid = 4711,
        .helper = 1,
        .job = "sim" };

    node = world_node(&w, 0);
    must(ask(OURS, &m, sizeof(m), HTH_LOCAL_ATTACH, 0, HTH_LOCAL_ATTACHED));
}

/* Rank 0 has begun a save in a slot of this engine's. */
static void start(void)
{
    struct hth_local_begin begin = { .step = UINT64_MAX, .bytes = BYTES, .name = "object" };
    struct hth_local_set_step set = { .step = STEP };

    saving_open(&w, 2, 1);
    attach();
    must(ask(OURS, &begin, sizeof(begin), HTH_LOCAL_BEGIN, 0, HTH_LOCAL_LENT));
    lent = heard.lent;
    must(ask(OURS, &set, sizeof(set), HTH_LOCAL_SET_STEP, lent.head.token, HTH_LOCAL_SAVE_ID));
    save = hth_local_save_to(heard.save_id.save);
}

TestSuite(regain, .init = start, .fini = end);

static void next_engine(void)
{
    machine_stop(&w, 0);
    machine_start(&w, 0);
    cr_assert(zero(int, w.why[0]), "%s", w.why);
    attach();
}

static int seal(uint64_t token)
{
    struct hth_local_seal m = {
        .slot = lent.slot, .generation = lent.generation, .data_len = 8, .summed = summed
    };

    return ask(OURS, &m, sizeof(m), HTH_LOCAL_SEAL, token, HTH_LOCAL_OK);
}

static int commit(uint64_t token)
{
    return say(OURS, HTH_LOCAL_COMMIT, token, HTH_LOCAL_SAVE_ID);
}

static int regain_as(uint32_t index, uint64_t token, uint64_t slot)
{
    struct hth_local_regain m = { .save = hth_local_save_of(save),
        .index = index,
        .slot = slot,
        .generation = lent.generation,
        .bytes = BYTES,
        .name = "object" };

    return ask(OURS, &m, sizeof(m), HTH_LOCAL_REGAIN, token, HTH_LOCAL_OK);
}

static int regain(uint64_t token, uint64_t slot)
{
    return regain_as(0, token, slot);
}

static const struct hth_held *held(void)
{
    struct hth_held_save *s = hth_holdings_find(hth_node_ctx(node), save);

    return s ? hth_held_find(s, hth_object_id(0, 0)) : NULL;
}

static size_t rows_on_record(void)
{
    struct hth_store *s = w.machine[0].store;
    struct hth_handed_record record = { 0 };
    void *bytes = NULL;
    size_t len, rows;

    if (s->ops->record_get(s, "handed", &bytes, &len, NULL))
        return 0;
    must(hth_handed_decode(&record, bytes, len, NULL));
    free(bytes);
    rows = record.rows;
    for (size_t i = 0; i < rows; i++)
        if (!hth_save_cmp(record.row[i].save, save))
            cr_assert(eq(u64, record.row[i].summed, summed));
    hth_handed_fini(&record);
    return rows;
}

static void until_sealed(void)
{
    uint64_t until = w.now_ms + 500;

    while (!w.why[0] && w.now_ms < until && (!held() || held()->state != HTH_HELD_SEALED))
        world_advance(&w, w.now_ms + 1);
    cr_assert(ne(ptr, (void *)(uintptr_t)held(), NULL));
    cr_assert(eq(int, (int)held()->state, HTH_HELD_SEALED));
}

Test(regain, what_was_committed_and_not_sealed_is_on_record_and_sealed_by_the_next_engine)
{
    must(seal(lent.head.token));
    must(commit(lent.head.token));
    cr_assert(eq(sz, rows_on_record(), 1));
    next_engine(); /* and the rank is gone as well */
    until_sealed();
    cr_assert(eq(u64, held()->slot->id, lent.slot));
}

static const unsigned char *table(const struct hth_slot *slot)
{
    return slot->base + HTH_BLOCK + HTH_ALIGN(8);
}

/* A bit changes after the rank has committed, and before any engine has sealed the object.
 * Checksums that the next engine makes would be right for the wrong bytes. Peers may have pulled
 * the chunk before, so the engine compares it itself. */
static void next_engine_has_other_bytes(unsigned char bit)
{
    struct hth_slot *slot = hth_node_lent(node, lent.slot);
    unsigned char *sums = slot->base + HTH_BLOCK + HTH_ALIGN(8) + HTH_TABLE_HEAD;

    memcpy(slot->base + HTH_BLOCK, "contents", 8);
    hth_put32(sums, hth_crc32c("contents", 8));
    summed = 1;
    must(seal(lent.head.token));
    must(commit(lent.head.token));
    cr_assert(eq(sz, rows_on_record(), 1));
    machine_kill(&w, 0);
    slot->base[HTH_BLOCK] ^= bit; /* the store outlives its engine */
    machine_start(&w, 0);
    attach();
}

Test(regain, the_next_engine_seals_with_the_checksums_of_the_rank)
{
    struct hth_table t;

    next_engine_has_other_bytes(0);
    until_sealed();
    must(hth_table_decode(&t, table(held()->slot), hth_table_bytes(8, 0, 0), NULL));
    cr_assert(eq(u32, t.proofs.crc[0], hth_crc32c("contents", 8)));
}

Test(regain, the_next_engine_finds_a_bit_that_changed_since)
{
    next_engine_has_other_bytes(1);
    world_advance(&w, w.now_ms + 500);
    must_fail(regain(OWN, lent.slot), HEARTH_EFAILED);
    cr_assert(ne(ptr, strstr(heard.error.text, "chunk 0 is not as rank 0 of this node"), NULL),
            "%s", heard.error.text);
}

Test(regain, the_next_engine_makes_the_checksums_that_the_rank_did_not_make)
{
    struct hth_slot *slot = hth_node_lent(node, lent.slot);
    struct hth_table t;

    memcpy(slot->base + HTH_BLOCK, "contents", 8);
    must(seal(lent.head.token));
    must(commit(lent.head.token));
    machine_kill(&w, 0);
    machine_start(&w, 0);
    attach();
    until_sealed();
    must(hth_table_decode(&t, table(held()->slot), hth_table_bytes(8, 0, 0), NULL));
    cr_assert(eq(u32, t.proofs.crc[0], hth_crc32c("contents", 8)));
}

static struct hth_raw *common_open(void)
{
    struct hth_store *s = w.machine[0].store;
    struct hth_raw *raw = NULL;

    must(s->ops->raw_open(s, save, ".metadata", &raw, NULL));
    return raw;
}

/* 1: the record has a digest of the common object. */
static int common_is_digested(void)
{
    struct hth_store *s = w.machine[0].store;
    struct hth_handed_record record = { 0 };
    void *bytes = NULL;
    int digested = 0;
    size_t len;

    if (s->ops->record_get(s, "handed", &bytes, &len, NULL))
        return 0;
    must(hth_handed_decode(&record, bytes, len, NULL));
    free(bytes);
    for (size_t i = 0; i < record.rows; i++)
        digested |= !hth_save_cmp(record.row[i].save, save) && record.row[i].index >> 31 &&
                    record.row[i].summed;
    hth_handed_fini(&record);
    return digested;
}

static void put_common(void)
{
    struct hth_local_common m = { .head = { sizeof(m), HTH_LOCAL_COMMON, ++request,
                                          lent.head.token },
        .len = 8,
        .name = ".metadata" };

    machine_ask(&w.machine[0], OURS, &m, sizeof(m), "contents", 8);
}

/* A bit of a common object changes while no engine runs, and its digest is on record. */
static void common_changes(int early)
{
    struct hth_store *s = w.machine[0].store;
    struct hth_raw *raw;
    uint64_t until;

    must(seal(lent.head.token));
    put_common();
    if (!early)
        world_advance(&w, w.now_ms + 50);
    must(commit(lent.head.token));
    cr_assert(eq(int, common_is_digested(), !early));
    for (until = w.now_ms + 500; w.now_ms < until && !common_is_digested();)
        world_advance(&w, w.now_ms + 1);
    cr_assert(common_is_digested());
    machine_kill(&w, 0);
    raw = common_open();
    raw->base[3] ^= 1;
    s->ops->raw_close(s, raw);
    machine_start(&w, 0);
    attach();
    world_advance(&w, w.now_ms + 500);
    must_fail(regain(OWN, lent.slot), HEARTH_EFAILED);
    cr_assert(ne(ptr, strstr(heard.error.text, "'.metadata' is not as rank 0 of this node"), NULL),
            "%s", heard.error.text);
}

Test(regain, a_common_object_that_changed_since_its_digest_fails_its_save)
{
    common_changes(0);
}

Test(regain, so_does_a_common_object_whose_digest_was_made_after_commit)
{
    common_changes(1);
}

/* Nothing else tells the next engine that the rank is done with the save. */
Test(regain, what_is_committed_is_on_record_sealed_or_not)
{
    must(seal(lent.head.token));
    until_sealed();
    must(commit(lent.head.token));
    cr_assert(eq(sz, rows_on_record(), 1));
}

/* Rank 0 saves alone, commits its part, and ends with its engine. */
Test(regain, what_is_sealed_and_committed_is_brought_to_its_end_by_the_next_engine)
{
    struct {
        struct hth_local_begin m;
        unsigned char run[HTH_RANK_RUN_BYTES];
    } begin = { .m = { .step = STEP + 1, .bytes = BYTES, .name = "object" } };
    const struct hth_ranks alone = { .runs = 1, .run = { { 0, 1, 1 } } };
    const struct hth_keep *keep;

    hth_ranks_encode(&alone, begin.run);
    must(ask(
            OURS, &begin, sizeof(begin.m) + sizeof(begin.run), HTH_LOCAL_BEGIN, 0, HTH_LOCAL_LENT));
    lent = heard.lent;
    save = hth_local_save_to(lent.save);
    must(seal(lent.head.token));
    until_sealed();
    must(commit(lent.head.token));
    next_engine();
    keep = &hth_node_ctx(node)->keep;
    for (uint64_t until = w.now_ms + 2000; w.now_ms < until && !hth_keep_has(keep, save);)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, hth_keep_has(keep, save), 1), "%s", w.why);
}

/* Two ranks save here, one of them with a common object, and up to two saves are undecided. */
Test(regain, what_is_decided_leaves_the_record)
{
    uint64_t step = w.newest.id.step;

    while (!w.why[0] && w.newest.id.step < step + 8)
        world_advance(&w, w.now_ms + 1);
    cr_assert(le(sz, rows_on_record(), 6));
}

Test(regain, a_rank_goes_on_in_the_slot_that_it_has)
{
    next_engine();
    must(regain(OWN, lent.slot));
    must_fail(regain(OWN + 1, lent.slot), HEARTH_EINVAL); /* it is in a rank's hands */
    must(seal(OWN));
    must(commit(OWN));
    cr_assert(eq(sz, rows_on_record(), 1));
    until_sealed();
    cr_assert(eq(u64, held()->slot->id, lent.slot));
}

/* The engine had received both messages before it died. The rank does not know that, and sends them
 * again. */
Test(regain, what_is_said_twice_is_done_once)
{
    must(seal(lent.head.token));
    must(commit(lent.head.token));
    next_engine();
    must(regain(OWN, lent.slot));
    must(seal(OWN));
    must(commit(OWN));
    until_sealed();
}

/* A row that names no save would never go. */
Test(regain, what_is_said_twice_before_it_is_sealed_is_on_record_once)
{
    must(seal(lent.head.token));
    must(commit(lent.head.token));
    machine_kill(&w, 0);
    machine_start(&w, 0);
    attach();
    must(regain(OWN, lent.slot));
    must(seal(OWN));
    must(commit(OWN));
    cr_assert(eq(sz, rows_on_record(), 1));
    until_sealed();
    cr_assert(eq(sz, rows_on_record(), 1));
}

Test(regain, a_slot_that_was_used_since_is_refused)
{
    next_engine();
    lent.generation--; /* as of a use before */
    must_fail(regain(OWN, lent.slot + 1000), HEARTH_ENOENT);
    must_fail(regain(lent.head.token, lent.slot), HEARTH_EINVAL); /* a token of the engine's */
}

Test(regain, objects_come_in_the_order_they_were_lent_in)
{
    next_engine();
    must_fail(regain_as(1, OWN, lent.slot), HEARTH_EINVAL);
    must(regain(OWN, lent.slot));
    must_fail(regain_as(0, OWN, lent.slot), HEARTH_EINVAL);
}

/* The other ranks need not wait for the save's deadline, and no rank goes on with the save. */
Test(regain, a_save_whose_slot_is_gone_fails_at_once)
{
    next_engine();
    must_fail(regain(OWN, lent.slot + 1000), HEARTH_ENOENT);
    world_advance(&w, w.now_ms + 500);
    must_fail(regain(OWN, lent.slot), HEARTH_EFAILED);
}
