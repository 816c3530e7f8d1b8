/* SPDX-License-Identifier: Apache-2.0 */
/* The answers that ranks get about a recovery, from engines in virtual time: why it failed, and how
 * long each phase took. */
#include "check.h"
#include "world_parts.h"

#include "core/base/bytes.h"
#include "replication/held/holdings.h"
#include "replication/tree/blob.h"
#include "replication/tree/tree.h"
#include "transport/session/frame.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define ODD    1u    /* the machine that is not like the others */
#define SOON   4000u /* ms; the deadline of these recoveries is three times that */
#define WORKS  40u
#define SAVING 1000u

static void limit(void)
{
    alarm(60);
}

TestSuite(recovery, .init = limit);

static struct world_opts quiet_world(void)
{
    return (struct world_opts){ .seed = 1,
        .nodes = 3,
        .ranks_per_node = 1,
        .copies = 1,
        .keep = 1,
        .run_ms = SAVING,
        .data_max = 100 };
}

static void another_version(uint32_t machine, struct hth_session_opts *session)
{
    if (machine != ODD)
        return;
    session->version_low = HTH_VERSION_HIGH + 1;
    session->version_high = HTH_VERSION_HIGH + 2;
}

static void another_key(uint32_t machine, struct hth_session_opts *session)
{
    static const unsigned char bytes[2][HTH_KEY] = { { 0 }, { 1 } };
    static const struct hth_key keys[2] = { { .bytes = bytes[0], .id = 1 },
        { .bytes = bytes[1], .id = 2 } };

    session->key = &keys[machine == ODD];
}

/* Every rank receives the error long before the deadline. */
static void all_hear(
        void (*adjust)(uint32_t, struct hth_session_opts *), int code, const char *const says[2])
{
    struct world_opts o = quiet_world();
    struct world w;

    o.run_ms = 60000;
    o.adjust = adjust;
    world_open(&w, &o);
    world_advance(&w, SOON);
    for (uint32_t r = 0; r < o.nodes; r++) {
        const struct hth_local_error *e = world_error(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)e, NULL), "rank %u has heard nothing", r);
        cr_assert(eq(int, e->code, code), "rank %u: %s", r, e->text);
        for (int i = 0; i < 2; i++)
            cr_assert(ne(ptr, strstr(e->text, says[i]), NULL), "rank %u: %s", r, e->text);
    }
    world_close(&w);
}

Test(recovery, a_member_of_another_version_is_an_error_that_names_both_ranges)
{
    static const char *const says[] = { "10 to 11", "6 to 9" };

    all_hear(another_version, HEARTH_EPROTO, says);
}

Test(recovery, a_member_with_another_key_is_an_error_that_says_so)
{
    static const char *const says[] = { "another job key", "the same key file" };

    all_hear(another_key, HEARTH_EAUTH, says);
}

/* EPOCH_FAILED gets lost on its way to every node. */
static struct hth_loop_verdict unheard(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };
    struct hth_frame f;

    (void)arg, (void)from, (void)to;
    if (kind == HTH_LOOP_MESSAGE && !hth_frame_decode(&f, bytes, len, NULL) &&
            f.type == HTH_MSG_DOWN && hth_get16(f.body) == HTH_KIND_EPOCH_FAILED)
        v.fault = HTH_LOOP_DROP;
    return v;
}

Test(recovery, a_failure_is_heard_by_whoever_missed_the_word)
{
    struct world_opts o = quiet_world();
    struct world w;

    o.run_ms = 60000;
    o.adjust = another_version;
    world_open(&w, &o);
    hth_loop_net_script(w.net, unheard, NULL);
    while (w.now_ms < SOON) {
        world_advance(&w, w.now_ms + 1);
        w.restart_ms = HTH_NEVER; /* who waits is left waiting */
    }
    for (uint32_t r = 0; r < o.nodes; r++) {
        const struct hth_local_error *e = world_error(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)e, NULL), "rank %u has heard nothing", r);
        cr_assert(eq(int, e->code, HEARTH_EPROTO), "rank %u: %s", r, e->text);
    }
    world_close(&w);
}

/* A member's first words get lost, and so does the first answer. */
static struct hth_loop_verdict half_heard(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };
    uint32_t *lost = arg;
    struct hth_frame f;

    (void)from, (void)to;
    if (kind != HTH_LOOP_MESSAGE || hth_frame_decode(&f, bytes, len, NULL))
        return v;
    if ((f.type == HTH_MSG_UP && hth_get16(f.body + 4) == HTH_KIND_REFUSED && lost[0]++ < 2) ||
            (f.type == HTH_MSG_DOWN && hth_get16(f.body) == HTH_KIND_EPOCH_FAILED && lost[1]++ < 1))
        v.fault = HTH_LOOP_DROP;
    return v;
}

/* One node's memory has no room for its record of the epoch. */
Test(recovery, a_member_that_cannot_join_fails_the_epoch_for_all)
{
    struct world_opts o = quiet_world();
    uint32_t lost[2] = { 0, 0 };
    struct world w;

    o.run_ms = 60000;
    world_open(&w, &o);
    hth_loop_net_script(w.net, half_heard, lost);
    while (w.now_ms < SOON) {
        world_advance(&w, w.now_ms + 1);
        if (w.now_ms == 2)
            hth_store_mem_fail_at(w.machine[ODD].store, 1);
        w.restart_ms = HTH_NEVER; /* who waits is left waiting */
    }
    for (uint32_t r = 0; r < o.nodes; r++) {
        const struct hth_local_error *e = world_error(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)e, NULL), "rank %u has heard nothing", r);
        cr_assert(eq(int, e->code, HEARTH_ENOSPC), "rank %u: %s", r, e->text);
        cr_assert(ne(ptr, strstr(e->text, "node m1"), NULL), "rank %u: %s", r, e->text);
        cr_assert(eq(str, (char *)(uintptr_t)e->text, (char *)(uintptr_t)world_error(&w, 0)->text));
    }
    cr_assert(gt(u32, lost[0], 2));
    world_restart(&w, 1, "there is room again");
    for (uint64_t until = w.now_ms + SOON; hth_save_none(w.newest.id) && w.now_ms < until;)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(eq(int, hth_save_none(w.newest.id), 0));
    world_close(&w);
}

static int all_recovered(const struct world *w)
{
    for (uint32_t r = 0; r < w->ranks; r++)
        if (!w->rank[r].recovered)
            return 0;
    return 1;
}

#define CONNECT 2000u

/* The engine of rank 0's node, the coordinator, answers the others, and is not in the epoch before
 * that time, since its rank has not handed it the table. */
static void coordinator_joins_at(struct world *w, uint64_t ms, uint64_t until_ms)
{
    struct world_opts o = quiet_world();

    o.run_ms = 60000;
    o.connect_ms = CONNECT;
    o.recover_ms = 6 * CONNECT;
    world_open(w, &o);
    while (w->rank[0].step != R_JOIN)
        world_advance(w, w->now_ms + 1);
    rank_due(&w->rank[0], ms);
    while (w->now_ms < until_ms) {
        world_advance(w, w->now_ms + 1);
        w->restart_ms = HTH_NEVER; /* ranks that wait are left waiting */
    }
}

Test(recovery, a_coordinator_that_joins_late_is_waited_for_as_any_other_node)
{
    struct world w;

    coordinator_joins_at(&w, 4 * CONNECT, 4 * CONNECT + SOON);
    for (uint32_t r = 0; r < w.ranks; r++) {
        const struct hth_local_error *e = world_error(&w, r);

        cr_expect(eq(ptr, (void *)(uintptr_t)e, NULL), "rank %u: %s", r, e ? e->text : "");
    }
    cr_assert(all_recovered(&w));
    world_close(&w);
}

Test(recovery, a_coordinator_that_never_joins_is_named_at_the_deadline)
{
    struct world w;

    coordinator_joins_at(&w, HTH_NEVER, 6 * CONNECT + SOON);
    for (uint32_t r = 1; r < w.ranks; r++) {
        const struct hth_local_error *e = world_error(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)e, NULL), "rank %u has heard nothing", r);
        cr_expect(eq(int, e->code, HEARTH_ETIMEOUT), "rank %u: %s", r, e->text);
        cr_expect(ne(ptr, strstr(e->text, "coordinator, node m0"), NULL), "%s", e->text);
        cr_expect(ne(ptr, strstr(e->text, "not in epoch"), NULL), "%s", e->text);
    }
    world_close(&w);
}

/* Nothing is pulled, since each node has what its rank needs: the time goes into verifying. */
Test(recovery, the_time_that_verifying_took_is_told)
{
    struct world_opts o = quiet_world();
    struct world w;

    o.work_ms = WORKS;
    o.run_ms = 60000;
    world_open(&w, &o);
    while (!w.why[0] && hth_save_none(w.newest.id)) /* and no newer one is half on its way */
        world_advance(&w, w.now_ms + 1);
    world_restart(&w, 1, "the job is restarted");
    world_advance(&w, w.now_ms + 2);
    for (uint64_t until = w.now_ms + SOON; !all_recovered(&w) && w.now_ms < until;)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    for (uint32_t r = 0; r < o.nodes; r++) {
        const struct hearth_recovery *info = world_recovery(&w, r);

        cr_assert(ne(ptr, (void *)(uintptr_t)info, NULL));
        cr_assert(ne(u64, info->step, 0));
        cr_assert(ge(u32, info->verify_ms, WORKS));
        cr_assert(eq(u32, info->pull_ms, 0));
        cr_assert(eq(u64, info->pulled_bytes, 0));
    }
    world_close(&w);
}

/* Saves of which this node has the manifest. */
static uint32_t saves_of(struct world *w, uint32_t node)
{
    uint32_t n = 0;

    for (struct hth_held_save *s = hth_holdings_first(hth_node_ctx(world_node(w, node))); s;
            s = s->next)
        n += !s->removed && s->has_manifest;
    return n;
}

/* Of a step that was protected and of the one after it halves are left: they may stay, but not take
 * the room of all that comes. */
Test(recovery, saves_go_on_after_an_accepted_loss)
{
    struct world_opts o = quiet_world();
    struct world w;

    o.nodes = 4;
    o.work_ms = WORKS;
    o.accept_loss = 1;
    world_open(&w, &o);
    while (!w.machine[0].node || hth_save_none(w.newest.id) || saves_of(&w, 0) < 2 ||
            saves_of(&w, 1) < 2)
        world_advance(&w, w.now_ms + 1);
    for (uint32_t m = 2; m < 4; m++) /* with one copy they are pairs */
        machine_lose(&w, m);
    w.newest = (struct known_save){ { 0 }, 0 };
    world_restart(&w, 1, "two machines are lost");
    world_run(&w);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(ge(u64, w.count[WORLD_SCRATCH], o.nodes));
    world_close(&w);
}

/* The plan comes late to one of two new machines. */
struct late_plan {
    struct world *world;
    uint32_t port;
    uint64_t since_ms;
};

static struct hth_loop_verdict plan_is_late(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };
    struct late_plan *l = arg;
    struct hth_frame f;

    (void)from;
    if (kind != HTH_LOOP_MESSAGE || to != l->port || hth_frame_decode(&f, bytes, len, NULL) ||
            f.type != HTH_MSG_BLOB || hth_get32(f.body) != HTH_BLOB_PLAN)
        return v;
    if (!l->since_ms)
        l->since_ms = l->world->now_ms;
    if (l->world->now_ms < l->since_ms + 1000)
        v.fault = HTH_LOOP_DROP;
    return v;
}

/* The new coordinator gives on at once what every node gets. */
Test(recovery, a_common_object_that_was_faster_than_the_plan_counts)
{
    struct world_opts o = quiet_world();
    struct world w;
    struct late_plan late = { .world = &w };

    o.nodes = 4;
    o.copies = 2;
    o.run_ms = 60000;
    world_open(&w, &o);
    while (hth_save_none(w.newest.id))
        world_advance(&w, w.now_ms + 1);
    for (uint32_t i = 0; i < 2; i++) {
        machine_lose(&w, w.member[i]);
        w.member[i] = o.nodes + i;
    }
    late.port = w.machine[w.member[1]].port;
    hth_loop_net_script(w.net, plan_is_late, &late);
    world_restart(&w, 1, "two machines are replaced");
    world_advance(&w, w.now_ms + 2);
    while (!all_recovered(&w) && w.now_ms < late.since_ms + SOON)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(gt(u64, late.since_ms, 0));
    cr_assert(eq(int, all_recovered(&w), 1));
    cr_assert(ge(u64, w.now_ms, late.since_ms + 1000));
    world_close(&w);
}

/* Of the manifest that a new coordinator asks for first, a bit has tipped since it was written
 * down; another node's is right. */
Test(recovery, a_manifest_that_is_wrong_is_taken_from_somebody_else)
{
    struct world_opts o = quiet_world();
    struct hth_held_save *s;
    struct world w;

    o.run_ms = 60000;
    world_open(&w, &o);
    while (hth_save_none(w.newest.id))
        world_advance(&w, w.now_ms + 1);
    machine_lose(&w, w.member[0]);
    w.member[0] = o.nodes;
    world_restart(&w, 1, "the coordinator is replaced");
    s = hth_holdings_find(hth_node_ctx(world_node(&w, 1)), w.newest.id);
    cr_assert(ne(ptr, s, NULL));
    s->manifest_bytes[s->manifest_len / 2] ^= 1;
    world_advance(&w, w.now_ms + 2);
    for (uint64_t until = w.now_ms + SOON; !all_recovered(&w) && w.now_ms < until;)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(eq(int, all_recovered(&w), 1));
    world_close(&w);
}
