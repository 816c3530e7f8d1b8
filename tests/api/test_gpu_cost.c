/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What add, fence and commit cost the trainer's thread, whatever the bytes are: its instructions,
 * its system calls and its calls of the driver, counted, since times are those of the machine's
 * other work, too. Copies take the time of a fixed rate, and move nothing: the slots alone have
 * pages.
 */
#include "check.h"
#include "fakegpu.h"
#include "rank.h"
#include "steps.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MIB   (INT64_C(1) << 20)
#define SIZES 3u
#define MOST  UINT64_C(200000) /* instructions that are counted */

#define LOCKS 32u /* system calls for locks that other threads have; 1 GiB are 256 chunks */

/* A sanitizer's own are many, and grow with what it follows. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLAIN 0
#else
#define PLAIN 1
#endif

static const int64_t sizes[SIZES] = { MIB, 64 * MIB, 1024 * MIB };

static struct rank r;
static struct hearth_error err;
static struct hearth_piece p;
static struct hearth_save *save;
static struct hearth_handle *handle;
static void *stream;

static void start(void)
{
    alarm(60);
    fakegpu_start(NULL, 1);
    fakegpu_current(fakegpu_context(0));
    fakegpu()->light = 2;
    rank_start(&r);
    rank_open(&r);
    stream = fakegpu_stream();
    p = rank_piece("x",
            (void *)(uintptr_t)fakegpu_alloc(fakegpu_context(0), 1024 * MIB, FAKEGPU_PLAIN), 1,
            NULL);
    p.dtype = HEARTH_UINT8;
    p.memory = HEARTH_CUDA;
}

static void stop(void)
{
    rank_end(&r);
    if (fakegpu()->registered || fakegpu()->sins) {
        fprintf(stderr, "a registration is left, or %s\n", fakegpu()->sin);
        abort();
    }
}

TestSuite(gpu_cost, .init = start, .fini = stop);

/* Slots have room for the largest state, so that all saves use the same ones. */
static void begin(uint64_t step, uint32_t size)
{
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;

    o.stream = stream;
    o.wait_ms = 20000;
    p.shape = &sizes[SIZES - 1];
    must(hearth_save_begin(r.h, step, hearth_save_bytes(&p, 1, NULL, 0), &o, &save, &err), err);
    p.shape = &sizes[size];
}

/* The part that is counted. */
static void block(void *rc)
{
    *(int *)rc = hearth_save_add(save, &p, 1, &err);
    if (!*(int *)rc)
        *(int *)rc = hearth_save_fence(save, stream, &err);
    if (!*(int *)rc)
        *(int *)rc = hearth_save_commit(save, &handle, &err);
}

/* Until the slots that come round are pinned. */
static uint64_t pin_slots(void)
{
    uint64_t step = 1;

    for (unsigned i = 0; i < 4; i++) {
        int rc;

        begin(step++, 0);
        block(&rc);
        must(rc, err);
        rank_protect(handle);
        for (unsigned ms = 0; fakegpu()->registered < 1 + 2 * (1 + i / 2) && ms < 3000; ms++)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    }
    return step;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

Test(gpu_cost, add_fence_and_commit_cost_the_same_for_1_mib_and_1_gib, .timeout = 60)
{
    uint64_t step, driver[SIZES] = { 0 };
    struct steps cost[SIZES];
    int traced = 1;

    step = pin_slots();
    memset(cost, 0, sizeof(cost));
    fakegpu()->rate_mib_s = 16384; /* 1 GiB: 63 ms */
    for (unsigned i = 0; i < 2 * SIZES; i++) {
        enum steps_mode mode = i < SIZES ? STEPS_CALLS : STEPS_INSTRUCTIONS;
        uint32_t size = i % SIZES;
        int rc = -1;

        if (mode == STEPS_INSTRUCTIONS && (!PLAIN || (size && size + 1 < SIZES)))
            continue; /* it takes a while */
        begin(step++, size);
        fakegpu_calls_reset();
        traced &= !steps_count(&cost[size], mode, MOST, block, &rc);
        must(rc, err);
        driver[size] = larger(driver[size],
                fakegpu_calls("cuMemcpyDtoHAsync_v2") + fakegpu_calls("cuMemcpyBatchAsync_v2"));
        rank_protect(handle);
    }
    fprintf(stderr, "1 MiB and 1 GiB: %lu and %lu instructions, %lu and %lu system calls\n",
            (unsigned long)cost[0].instructions, (unsigned long)cost[SIZES - 1].instructions,
            (unsigned long)cost[0].calls, (unsigned long)cost[SIZES - 1].calls);
    for (unsigned i = 1; i < SIZES; i++)
        cr_expect(eq(u64, driver[0], driver[i]));
    if (!traced) {
        fprintf(stderr, "this machine lets no process trace another one: not counted\n");
        return;
    }
    cr_expect(!PLAIN || cost[0].instructions > 1000);
    cr_expect(lt(u64, cost[0].instructions, MOST));
    cr_expect(gt(u64, cost[0].calls, 1));
    for (unsigned i = 1; i < SIZES; i++) {
        cr_expect(le(u64, cost[i].instructions * 10, cost[0].instructions * 13));
        cr_expect(le(u64, cost[i].calls, cost[0].calls + LOCKS));
    }
}
