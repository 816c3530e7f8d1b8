/* SPDX-License-Identifier: Apache-2.0 */
/* An engine that was killed under living ranks and comes back: what it goes on with by its records,
 * and records that neither it nor a recovery goes on with. In virtual time. */
#include "check.h"
#include "saving.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"
#include "core/format/handed.h"
#include "core/format/running.h"

#include <stdlib.h>
#include <string.h>

#define BACK 1u   /* the machine whose engine is killed; 0 has the coordinator's */
#define SOON 500u /* ms in which a rank has attached again */

static struct world w;

static void start(void)
{
    saving_open(&w, 1, 2);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
}

static void end(void)
{
    world_close(&w);
}

TestSuite(resume, .init = start, .fini = end);

static struct hth_store *store_of(uint32_t machine)
{
    return w.machine[machine].store;
}

/* A record's bytes and their length; the caller frees them. */
static unsigned char *record_of(uint32_t machine, const char *name, size_t *len)
{
    struct hth_store *s = store_of(machine);
    void *bytes;

    must(s->ops->record_get(s, name, &bytes, len, NULL));
    return bytes;
}

static void record_set(uint32_t machine, const char *name, const unsigned char *bytes, size_t len)
{
    struct hth_store *s = store_of(machine);

    must(s->ops->record_put(s, name, bytes, len, NULL));
}

/* The engine starts again; its rank attaches to it as to the one before. */
static void back(uint32_t machine)
{
    struct rank_state *r = &w.rank[machine];
    uint64_t until = w.now_ms + SOON;

    machine_start(&w, machine);
    if (w.why[0])
        return;
    rank_connect(r);
    r->step = R_BACK;
    rank_due(r, w.now_ms);
    r->attached = (struct hth_local_attached){ 0 };
    while (!w.why[0] && !r->attached.head.type && w.now_ms < until)
        world_advance(&w, w.now_ms + 1);
}

static struct hth_running running_of(uint32_t machine)
{
    struct hth_running r;
    unsigned char *bytes;
    size_t len;

    bytes = record_of(machine, "running", &len);
    must(hth_running_decode(&r, bytes, len, NULL));
    free(bytes);
    return r;
}

Test(resume, the_options_in_effect_are_on_record)
{
    struct hth_running r = running_of(BACK);

    cr_assert(eq(u64, r.epoch, w.rank[BACK].epoch));
    cr_assert(eq(u64, r.nonce, w.rank[BACK].nonce));
    cr_assert(eq(u32, r.copies, 1));
    cr_assert(eq(u32, r.min_copies, 1));
    cr_assert(eq(u32, r.keep, 2));
    cr_assert(eq(u32, r.recover_ms, 12000));
    cr_assert(eq(u32, r.save_ms, 3000));
    cr_assert(eq(u32, r.heartbeat_ms, 200));
    cr_assert(eq(u32, r.dead_ms, 2000));
    cr_assert(eq(u32, r.stall_ms, 1000));
    cr_assert(ne(u32, r.linger_s, 0));
}

Test(resume, an_engine_goes_on_with_the_options_on_record)
{
    struct hth_running r = running_of(BACK);
    const struct hth_local_opts *o = &w.rank[BACK].attached.opts;
    unsigned char bytes[HTH_RUNNING_BYTES];

    r.allow_degraded = 1;
    r.recover_ms = 12001;
    r.save_ms = 3001;
    r.linger_s = 77;
    r.inflight_mib = 78;
    r.bad_after = 81;
    r.lease_bytes = 79;
    r.spare_bytes = 80;
    machine_stop(&w, BACK);
    hth_running_encode(&r, bytes);
    record_set(BACK, "running", bytes, sizeof(bytes));
    back(BACK);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(eq(u64, w.rank[BACK].attached.epoch, r.epoch));
    cr_assert(eq(u32, w.rank[BACK].attached.recovered, 1));
    cr_assert(eq(u32, o->copies, 1));
    cr_assert(eq(u32, o->min_copies, 1));
    cr_assert(eq(u32, o->keep, 2));
    cr_assert(eq(u32, o->allow_degraded, 1));
    cr_assert(eq(u32, o->recover_ms, 12001));
    cr_assert(eq(u32, o->save_ms, 3001));
    cr_assert(eq(u32, o->heartbeat_ms, 200));
    cr_assert(eq(u32, o->dead_ms, 2000));
    cr_assert(eq(u32, o->stall_ms, 1000));
    cr_assert(eq(u32, o->linger_s, 77));
    cr_assert(eq(u32, o->inflight_mib, 78));
    cr_assert(eq(u32, o->bad_after, 81));
    cr_assert(eq(u64, o->lease_bytes, 79));
    cr_assert(eq(u64, o->spare_bytes, 80));
}

/* A record of the next version, as the Hearth that has it writes it. */
static void to_next_version(unsigned char *bytes, size_t len)
{
    hth_put32(bytes + 8, hth_get32(bytes + 8) + 1);
    hth_digest(bytes + len - HTH_DIGEST, bytes, len - HTH_DIGEST);
}

/* The record of `machine` is of the next version: no engine starts on it, and it stays as it is. */
static void refused(uint32_t machine, const char *record, const char *says)
{
    unsigned char *bytes, *after;
    size_t len, len_after;

    machine_stop(&w, machine);
    bytes = record_of(machine, record, &len);
    to_next_version(bytes, len);
    record_set(machine, record, bytes, len);
    back(machine);
    cr_assert(ne(ptr, strstr(w.why, says), NULL), "%s", w.why);
    cr_assert(ne(ptr, strstr(w.why, "use the newer Hearth"), NULL), "%s", w.why);
    cr_assert(eq(ptr, (void *)w.machine[machine].node, NULL));
    after = record_of(machine, record, &len_after);
    cr_assert(eq(sz, len_after, len));
    cr_assert(eq(int, memcmp(after, bytes, len), 0));
    free(after);
    free(bytes);
}

Test(resume, no_engine_starts_on_a_running_record_of_another_version)
{
    refused(BACK, "running", "the running record is of version");
}

/* Nothing of its epoch would be gone on with, and still it would be written over. */
Test(resume, nor_where_the_epoch_record_is_gone)
{
    struct hth_store *s = store_of(BACK);

    machine_stop(&w, BACK);
    s->ops->record_remove(s, "epoch");
    refused(BACK, "running", "the running record is of version");
}

/* The coordinator before may have sent GO for the plan in it. */
Test(resume, no_coordinator_starts_on_a_record_of_plans_of_another_version)
{
    refused(0, "plans", "the record of plans is of version");
}

/* The engines live, so no plan of this epoch can be in it; and still it would be written over. */
Test(resume, a_recovery_fails_by_name_on_a_record_of_plans_of_another_version)
{
    uint64_t until = w.now_ms + 4000;
    unsigned char *bytes, *after;
    size_t len, len_after;

    bytes = record_of(0, "plans", &len);
    to_next_version(bytes, len);
    record_set(0, "plans", bytes, len);
    world_restart(&w, 1, "the test");
    while (!w.why[0] && w.now_ms < until) {
        world_advance(&w, w.now_ms + 1);
        if (w.lineage > 1)
            w.restart_ms = HTH_NEVER; /* who has failed is left so */
    }
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    for (uint32_t r = 0; r < w.ranks; r++) {
        const struct hth_local_error *e = world_error(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)e, NULL), "rank %u has heard nothing", r);
        cr_assert(eq(int, e->code, HEARTH_EUNSUPPORTED), "rank %u: %s", r, e->text);
        cr_assert(ne(ptr, strstr(e->text, "node m0: the record of plans is of version"), NULL),
                "%s", e->text);
        cr_assert(ne(ptr, strstr(e->text, "nothing of it was touched"), NULL), "%s", e->text);
    }
    after = record_of(0, "plans", &len_after);
    cr_assert(eq(sz, len_after, len));
    cr_assert(eq(int, memcmp(after, bytes, len), 0));
    free(after);
    free(bytes);
}

Test(resume, without_a_whole_running_record_its_ranks_recover_again)
{
    unsigned char *bytes;
    size_t len;

    machine_stop(&w, BACK);
    bytes = record_of(BACK, "running", &len);
    bytes[64] ^= 2;
    record_set(BACK, "running", bytes, len);
    free(bytes);
    back(BACK);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(eq(u32, w.rank[BACK].attached.recovered, 0));
    cr_assert(eq(u64, w.rank[BACK].attached.epoch, 0));
}

/* The engine no longer knows which promises it has made and which heads it has obeyed. */
Test(resume, without_the_head_of_its_log_its_ranks_recover_again)
{
    struct hth_store *s = store_of(BACK);

    machine_stop(&w, BACK);
    s->ops->record_remove(s, "head");
    back(BACK);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(eq(u32, w.rank[BACK].attached.recovered, 0));
    cr_assert(eq(u64, w.rank[BACK].attached.epoch, 0));
}

/* A log that began anew would have two heads at one position. */
static void coordinator_without_its_head(void)
{
    back(0);
    world_advance(&w, w.now_ms + SOON);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(world_error(&w, 0) != NULL);
    cr_assert(eq(int, world_error(&w, 0)->code, HEARTH_ESTATE));
    cr_assert(ne(ptr, strstr(world_error(&w, 0)->text, "is damaged or gone"), NULL), "%s",
            world_error(&w, 0)->text);
}

Test(resume, a_coordinator_whose_head_is_damaged_is_not_in_its_epoch_again)
{
    unsigned char *bytes;
    size_t len;

    machine_stop(&w, 0);
    bytes = record_of(0, "head", &len);
    record_set(0, "head", bytes, len / 2);
    free(bytes);
    coordinator_without_its_head();
}

Test(resume, a_coordinator_whose_head_is_gone_is_not_in_its_epoch_again)
{
    struct hth_store *s = store_of(0);

    machine_stop(&w, 0);
    s->ops->record_remove(s, "head");
    coordinator_without_its_head();
}

Test(resume, each_start_of_an_engine_is_a_life_of_its_own)
{
    uint64_t first = hth_node_ctx(w.machine[BACK].node)->life;

    for (uint64_t more = 1; more <= 3; more++) {
        machine_stop(&w, BACK);
        machine_start(&w, BACK);
        cr_assert(eq(u64, hth_node_ctx(w.machine[BACK].node)->life, first + more));
    }
}

static void damage(uint32_t machine, const char *name)
{
    record_set(machine, name, (const unsigned char *)"damaged", 7);
}

/* Other engines drop messages of an engine whose `life` is lower than one that they have
 * received. */
Test(resume, a_life_that_cannot_be_read_is_later_than_all_before_it)
{
    uint64_t first = hth_node_ctx(w.machine[BACK].node)->life, second;

    machine_stop(&w, BACK);
    damage(BACK, "life");
    machine_start(&w, BACK);
    second = hth_node_ctx(w.machine[BACK].node)->life;
    cr_assert(gt(u64, second, first + 1000000));
    machine_stop(&w, BACK);
    machine_start(&w, BACK);
    cr_assert(eq(u64, hth_node_ctx(w.machine[BACK].node)->life, second + 1));
}

/* Only the objects that were being sealed are lost, and their save with them. */
Test(resume, a_record_of_what_was_handed_over_that_cannot_be_read_costs_no_other_save)
{
    const struct hth_keep *keep = &hth_node_ctx(w.machine[0].node)->keep;
    struct hth_save_id before = keep->save[0];

    machine_kill(&w, BACK);
    damage(BACK, "handed");
    back(BACK);
    for (uint64_t until = w.now_ms + 10000;
            w.now_ms < until && !w.why[0] && hth_save_cmp(keep->save[0], before) <= 0;)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(gt(int, hth_save_cmp(keep->save[0], before), 0));
}

/* Its rank has been told that it may go on training. */
Test(resume, what_was_handed_over_and_not_sealed_is_sealed_by_the_next_engine)
{
    const struct hth_keep *keep = &hth_node_ctx(w.machine[0].node)->keep;
    struct hth_store *s = store_of(BACK);
    struct hth_handed_record record;
    unsigned char *bytes;
    size_t len;

    w.machine[BACK].slow_ms = 100;
    while (!w.why[0] && s->ops->record_get(s, "handed", (void **)&bytes, &len, NULL))
        world_advance(&w, w.now_ms + 1);
    must(hth_handed_decode(&record, bytes, len, NULL));
    machine_kill(&w, BACK);
    w.machine[BACK].slow_ms = 0;
    back(BACK);
    for (uint64_t until = w.now_ms + 2000;
            w.now_ms < until && !hth_keep_has(keep, record.row[0].save);)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, hth_keep_has(keep, record.row[0].save), 1), "%s", w.why);
    hth_handed_fini(&record);
    free(bytes);
}

/* Its ranks join again, and no rank waits for that save. */
Test(resume, what_was_handed_over_in_an_older_epoch_is_not_gone_on_with_in_the_next)
{
    struct hth_handed row = { .save = w.newest.id, .slot = 4711, .name = "object" };
    struct hth_store *s = store_of(BACK);
    uint64_t epoch = w.rank[BACK].epoch, until;
    unsigned char bytes[1024], *left;
    struct hth_handed_record record = { .row = &row, .rows = 1 };
    size_t len = hth_handed_bytes(&record);

    cr_assert(le(sz, len, sizeof(bytes)));
    machine_stop(&w, BACK);
    hth_handed_encode(&record, bytes);
    record_set(BACK, "handed", bytes, len);
    s->ops->record_remove(s, "head");
    machine_start(&w, BACK);
    world_restart(&w, 1, "the test");
    for (until = w.now_ms + 10000; w.now_ms < until && !w.why[0];) {
        world_advance(&w, w.now_ms + 1);
        if (w.rank[BACK].epoch != epoch && w.rank[BACK].recovered)
            break;
    }
    cr_assert(eq(int, w.rank[BACK].recovered, 1), "%s", w.why);
    must_fail(s->ops->record_get(s, "handed", (void **)&left, &len, NULL), HEARTH_ENOENT);
}
