/* SPDX-License-Identifier: Apache-2.0 */
/* Whole engines in virtual time, where it takes long to register memory. */
#include "check.h"
#include "world_parts.h"

#include "core/format/block.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GIB_MS  100u /* to pin a GiB of small pages */
#define SLOT_MS (4 * GIB_MS)
#define BEAT_MS 200u /* heartbeats of these worlds */

static struct world w;

static void limit(void)
{
    alarm(60);
}

static void end(void)
{
    world_close(&w);
}

TestSuite(registration, .init = limit, .fini = end);

static uint32_t fails_at; /* a port; 0: none */

static void start(uint32_t reg_ms, uint32_t breaks)
{
    struct world_opts o = { .seed = 1,
        .nodes = 3,
        .ranks_per_node = 2,
        .copies = 1,
        .keep = 1,
        .run_ms = 600000,
        .data_max = 3000,
        .reg_ms = reg_ms,
        .reg_fails = fails_at,
        .breaks = breaks,
        .slot_bytes = 2 * HTH_BLOCK };

    world_open(&w, &o);
}

static void run_until(uint64_t step)
{
    while (!w.why[0] && w.newest.id.step < step && w.now_ms < 300000)
        world_advance(&w, w.now_ms + 1);
}

/* 4 GiB are registered for each slot, and that delays only the first save. */
Test(registration, engines_keep_their_heartbeats_and_a_save_is_protected)
{
    start(SLOT_MS, 0);
    run_until(3);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(ge(u64, w.newest.id.step, 3));
    cr_assert(ge(u32, w.slot_regs, 6));
    cr_assert(lt(u64, w.late_ms, BEAT_MS));
    cr_assert(eq(u64, w.count[WORLD_FAILED], 0));
}

Test(registration, on_the_engines_thread_it_is_noticed)
{
    start(SLOT_MS, HTH_BREAK_REGISTER);
    run_until(3);
    cr_assert(ne(int, w.why[0], 0));
}

/* Blobs are other memory each time; slots go round. */
Test(registration, saves_after_the_first_ones_register_no_slot)
{
    uint32_t regs;

    start(0, 0);
    run_until(6);
    regs = w.slot_regs;
    cr_assert(gt(u32, regs, 0));
    run_until(30);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(ge(u64, w.newest.id.step, 30));
    cr_assert(eq(u32, w.slot_regs, regs));
}

/* All ranks receive the error long before the save's deadline. */
Test(registration, what_cannot_be_registered_fails_the_save_and_says_what_to_do)
{
    fails_at = 2;
    start(0, 0);
    while (!w.why[0] && !w.count[WORLD_FAILED] && w.now_ms < 10000)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(lt(u64, w.now_ms, 5000));
    cr_assert(ne(ptr, strstr(w.heard, "node 1 cannot register"), NULL), "%s", w.heard);
    cr_assert(ne(ptr, strstr(w.heard, "bytes (errno 12)"), NULL), "%s", w.heard);
    cr_assert(ne(ptr, strstr(w.heard, "(ulimit -l)"), NULL), "%s", w.heard);
    w.opts.reg_fails = 0; /* it was raised */
    run_until(w.newest.id.step + 3);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(ge(u64, w.newest.id.step, 2));
}

/* The memory of a manifest: where it is pulled to, and where it is given from. */
static void manifest_fails(uint32_t port)
{
    char said[40];

    snprintf(said, sizeof(said), "node %u cannot register", port - 1);
    start(0, 0);
    run_until(1);
    w.opts.blob_fails = port;
    while (!w.why[0] && !w.count[WORLD_FAILED] && w.now_ms < 20000)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(lt(u64, w.now_ms, 5000));
    cr_assert(ne(ptr, strstr(w.heard, said), NULL), "%s", w.heard);
    cr_assert(ne(ptr, strstr(w.heard, "bytes (errno 12)"), NULL), "%s", w.heard);
    cr_assert(ne(ptr, strstr(w.heard, "(ulimit -l)"), NULL), "%s", w.heard);
    w.opts.blob_fails = 0;
    run_until(w.newest.id.step + 3);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
}

Test(registration, a_manifest_that_cannot_be_registered_where_it_goes_fails_the_save)
{
    manifest_fails(2);
}

Test(registration, a_manifest_that_cannot_be_registered_where_it_is_fails_the_save)
{
    manifest_fails(1);
}

/* The memory of a plan cannot be registered: all ranks receive the error, and the job goes on when
 * the limit has been raised. */
static void plan_fails(uint32_t port)
{
    char said[40];

    snprintf(said, sizeof(said), "node %u cannot register", port - 1);
    start(0, 0);
    w.opts.blob_fails = port;
    while (!w.why[0] && !w.rank[4].error.code && w.now_ms < 20000)
        world_advance(&w, w.now_ms + 1);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(lt(u64, w.now_ms, 5000));
    cr_assert(ne(ptr, strstr(w.rank[4].error.text, said), NULL), "%s", w.rank[4].error.text);
    cr_assert(ne(ptr, strstr(w.rank[4].error.text, "(ulimit -l)"), NULL));
    w.opts.blob_fails = 0;
    run_until(2);
    cr_assert(eq(int, w.why[0], 0), "%s", w.why);
    cr_assert(ge(u64, w.newest.id.step, 2));
}

Test(registration, a_plan_that_cannot_be_registered_where_it_goes_fails_the_recovery)
{
    plan_fails(2);
}

Test(registration, a_plan_that_cannot_be_registered_where_it_is_fails_the_recovery)
{
    plan_fails(1);
}
