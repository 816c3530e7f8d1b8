/* SPDX-License-Identifier: Apache-2.0 */
/* The example for programs that train on GPUs does what it says. */
#include "check.h"
#include "fakegpu.h"
#include "rank.h"

#include <unistd.h>

#include "examples/save_gpu.c"

#define STEPS 20u
#define COUNT 100000u

static struct rank r;
static float was[COUNT], got[COUNT];

static void start(void)
{
    alarm(60);
    fakegpu_start(NULL, 1);
    fakegpu_current(fakegpu_context(0));
    rank_start(&r);
    must(hearth_open(&r.opts, &r.h, NULL));
}

static void stop(void)
{
    rank_end(&r);
}

TestSuite(gpu_example, .init = start, .fini = stop);

/* An optimizer that sets all bytes to the step's number. */
static void optimizer(void *stream, uint64_t at, uint64_t step)
{
    fakegpu_fill(stream, at, (int)step, sizeof(was));
}

Test(gpu_example, each_save_has_the_values_of_its_step_and_is_resumed_from)
{
    static const int64_t shape[] = { COUNT };
    uint64_t at = fakegpu_alloc(fakegpu_context(0), sizeof(was), FAKEGPU_PLAIN), from;
    struct hearth_piece p = rank_piece("weights", (void *)(uintptr_t)at, 1, shape);
    struct hearth_handle *handle = NULL;
    void *stream = fakegpu_stream();
    struct hearth_error err = { 0 };

    p.memory = HEARTH_CUDA;
    fakegpu()->delay_us = 2000;
    must(resume(r.h, &p, 1, stream, &from, &err), err);
    cr_assert(zero(u64, from));
    for (uint64_t step = 1; step <= STEPS; step++) {
        must(before_step(&handle, stream, &err), err);
        optimizer(stream, at, step);
        must(save_step(r.h, step, &p, 1, stream, &handle, &err), err);
    }
    must(before_step(&handle, stream, &err), err);
    optimizer(stream, at, 0xee);
    hearth_close(r.h, HEARTH_KEEP); /* waits for the copies */
    must(hearth_open(&r.opts, &r.h, &err), err);
    must(resume(r.h, &p, 1, stream, &from, &err), err);
    cr_assert(eq(u64, from, STEPS));
    fakegpu_wait(stream);
    fakegpu_peek(at, got, sizeof(got));
    memset(was, (int)STEPS, sizeof(was));
    cr_assert(zero(int, memcmp(got, was, sizeof(was))));
}
