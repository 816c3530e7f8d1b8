/* SPDX-License-Identifier: Apache-2.0 */
/* Saves of GPU memory at a limited rate. The driver of the tests counts bytes as they arrive. */
#include "check.h"
#include "fakegpu.h"
#include "rank.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MIB    (UINT64_C(1) << 20)
#define BYTES  (64 * MIB)
#define FLOATS (BYTES / 4)

static struct rank r;
static void *context;
static float *was, *got;
static struct hearth_error err;

static void start(void)
{
    alarm(100);
    fakegpu_start(NULL, 1);
    context = fakegpu_context(0);
    fakegpu_current(context);
    was = malloc(BYTES);
    got = malloc(BYTES);
    cr_assert(was && got);
    rank_fill(was, FLOATS, 3);
    rank_start(&r);
}

/* Criterion does not count an expectation that fails here. */
static void stop(void)
{
    rank_end(&r);
    free(was);
    free(got);
    if (fakegpu()->registered || fakegpu()->sins) {
        fprintf(stderr, "a registration is left, or %s\n", fakegpu()->sin);
        abort();
    }
}

TestSuite(gpu_pace, .init = start, .fini = stop);

static uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void pause_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

/* Two tensors: the second one begins in the middle of a part. */
static void tensors(struct hearth_piece p[2])
{
    static const int64_t small[] = { 5 * MIB / 4 }, large[] = { FLOATS - 5 * MIB / 4 };
    uint64_t at = fakegpu_alloc(context, BYTES, FAKEGPU_PLAIN);

    fakegpu_poke(at, was, BYTES);
    p[0] = rank_piece("small", (void *)(uintptr_t)at, 1, small);
    p[1] = rank_piece("large", (void *)(uintptr_t)(at + 5 * MIB), 1, large);
    p[0].memory = p[1].memory = HEARTH_CUDA;
}

static void check(uint64_t step)
{
    static const int64_t small[] = { 5 * MIB / 4 }, large[] = { FLOATS - 5 * MIB / 4 };
    struct hearth_checkpoint *ckpt = rank_recover(r.h, step);
    struct hearth_piece p[2] = { rank_piece("small", got, 1, small),
        rank_piece("large", got + 5 * MIB / 4, 1, large) };

    must(hearth_load(ckpt, p, 2, 0, NULL, &err), err);
    hearth_checkpoint_close(ckpt);
    cr_assert(zero(int, memcmp(got, was, BYTES)));
}

static struct hearth_handle *save(uint64_t step, const struct hearth_piece *p)
{
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_save *s = NULL;

    o.wait_ms = 5000;
    must(hearth_save_begin(r.h, step, hearth_save_bytes(p, 2, NULL, 0), &o, &s, &err), err);
    must(hearth_save_add(s, p, 2, &err), err);
    return rank_commit(s);
}

static void open_with(uint32_t mib_s, uint32_t pin)
{
    r.opts.copy_mib_s = mib_s;
    r.opts.pin = pin;
    rank_open(&r);
}

static uint32_t level(struct hearth_handle *handle)
{
    struct hearth_status st = HEARTH_STATUS_INIT;

    must(hearth_test(handle, &st, NULL));
    return st.level;
}

/* Bytes are read before the clock: a thread that is late makes them fewer for their time. */
static void follow(struct hearth_handle *handle, uint64_t from, uint64_t before, uint64_t mib_s)
{
    unsigned looks = 0;

    while (level(handle) < HEARTH_WRITTEN) {
        uint64_t bytes = fakegpu()->copied_bytes - before, us = now_us() - from;

        cr_assert(le(u64, bytes, 16 * MIB + us * (mib_s * MIB) / 1000000), "after %lu us",
                (unsigned long)us);
        looks++;
        pause_ms(2);
    }
    cr_expect(ge(u64, now_us() - from, (BYTES - 16 * MIB) * 1000000 / (mib_s * MIB)));
    cr_expect(gt(u32, looks, 3));
}

static uint64_t copy_calls(void)
{
    return fakegpu_calls("cuMemcpyDtoHAsync_v2") + fakegpu_calls("cuMemcpyBatchAsync") +
           fakegpu_calls("cuMemcpyBatchAsync_v2");
}

static void paced(uint32_t pin)
{
    enum { MIB_S = 200 };
    struct hearth_handle *handle;
    struct hearth_piece p[2];
    uint64_t step = 1, from, before;

    open_with(MIB_S, pin);
    tensors(p);
    for (; step < 5; step++) {
        from = now_us();
        before = fakegpu()->copied_bytes;
        fakegpu_calls_reset();
        handle = save(step, p);
        follow(handle, from, before, MIB_S);
        rank_protect(handle);
        cr_expect(eq(u64, fakegpu()->copied_bytes - before, BYTES));
        cr_expect(ge(u64, copy_calls(), 4), "parts of at most 16 MiB");
        for (unsigned ms = 0; pin != HEARTH_PIN_NO && fakegpu()->registered < 2 && ms < 9999; ms++)
            pause_ms(1);
    }
    if (pin == HEARTH_PIN_NO)
        cr_expect(eq(u64, fakegpu()->registered, 1), "the buffers alone");
    else
        cr_expect(gt(u64, fakegpu()->registered, 1), "slots, too");
    check(step - 1);
}

Test(gpu_pace, copies_into_pinned_slots_are_never_faster_than_the_limit)
{
    paced(HEARTH_PIN_AUTO);
}

Test(gpu_pace, copies_through_the_buffers_are_never_faster_than_the_limit)
{
    paced(HEARTH_PIN_NO);
}

/* At 1 MiB a second the second part is due after 16 s. */
Test(gpu_pace, no_call_waits_for_the_limit_nor_does_a_thread_look_all_the_time)
{
    struct hearth_handle *handle;
    struct hearth_piece p[2];
    uint64_t from, calls, bytes;

    open_with(1, HEARTH_PIN_AUTO);
    tensors(p);
    bytes = fakegpu()->copied_bytes;
    from = now_us();
    handle = save(1, p);
    for (unsigned ms = 0; fakegpu()->copied_bytes == bytes && ms < 8000; ms++)
        pause_ms(1);
    cr_expect(eq(u64, fakegpu()->copied_bytes - bytes, 16 * MIB));
    pause_ms(300); /* that part has landed, and slots are pinned */
    calls = fakegpu_calls(NULL);
    pause_ms(300);
    cr_expect(le(u64, fakegpu_calls(NULL) - calls, 4), "while it waits");
    cr_expect(lt(u32, level(handle), HEARTH_WRITTEN));
    hearth_handle_close(handle);
    hearth_close(r.h, HEARTH_KEEP); /* without the limit */
    cr_expect(lt(u64, now_us() - from, 15000000));
    cr_expect(eq(u64, fakegpu()->copied_bytes - bytes, BYTES));
    must(hearth_open(&r.opts, &r.h, &err), err);
    check(1);
}

Test(gpu_pace, a_stream_waits_for_copies_at_a_limited_rate, .timeout = 60)
{
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_save *s;
    struct hearth_piece p[2];
    void *stream = fakegpu_stream();

    open_with(400, HEARTH_PIN_AUTO);
    tensors(p);
    o.stream = stream;
    o.wait_ms = 5000;
    for (uint64_t step = 1; step < 4; step++) {
        must(hearth_save_begin(r.h, step, hearth_save_bytes(p, 2, NULL, 0), &o, &s, &err), err);
        must(hearth_save_add(s, p, 2, &err), err);
        must(hearth_save_fence(s, stream, &err), err);
        fakegpu_fill(stream, (uint64_t)(uintptr_t)p[0].from, 0xee, BYTES);
        rank_protect(rank_commit(s));
        fakegpu_wait(stream);
        check(step);
        fakegpu_poke((uint64_t)(uintptr_t)p[0].from, was, BYTES);
    }
}

/* A load has no limit: a rank that recovers waits for no save. */
Test(gpu_pace, a_load_does_not_wait_for_a_save_at_a_limited_rate)
{
    struct hearth_checkpoint *ckpt;
    struct hearth_handle *handle;
    struct hearth_save *s;
    struct hearth_piece p[2], target;
    uint64_t at = fakegpu_alloc(context, 5 * MIB, FAKEGPU_PLAIN), bytes;

    open_with(16, HEARTH_PIN_NO);
    tensors(p);
    must(hearth_save_begin(r.h, 1, hearth_save_bytes(p, 1, NULL, 0), NULL, &s, &err), err);
    must(hearth_save_add(s, p, 1, &err), err);
    rank_protect(rank_commit(s));
    ckpt = rank_recover(r.h, 1);
    bytes = fakegpu()->copied_bytes;
    handle = save(2, p);
    for (unsigned ms = 0; fakegpu()->copied_bytes < bytes + 16 * MIB && ms < 8000; ms++)
        pause_ms(1);
    target = p[0];
    target.data = (void *)(uintptr_t)at;
    must(hearth_load(ckpt, &target, 1, 0, NULL, &err), err);
    cr_expect(lt(u64, fakegpu()->copied_bytes - bytes, BYTES), "before the save has ended");
    fakegpu_peek(at, got, 5 * MIB);
    cr_expect(zero(int, memcmp(got, was, 5 * MIB)));
    hearth_checkpoint_close(ckpt);
    rank_protect(handle);
    check(2);
}

Test(gpu_pace, an_abort_leaves_out_what_is_not_due)
{
    struct hearth_save *s;
    struct hearth_piece p[2];
    uint32_t aborts;
    uint64_t bytes;

    open_with(1, HEARTH_PIN_AUTO);
    tensors(p);
    bytes = fakegpu()->copied_bytes;
    must(hearth_save_begin(r.h, 1, hearth_save_bytes(p, 2, NULL, 0), NULL, &s, &err), err);
    must(hearth_save_add(s, p, 2, &err), err);
    aborts = fake_counts(r.fake).aborts;
    hearth_save_abort(s);
    for (unsigned ms = 0; fake_counts(r.fake).aborts == aborts && ms < 10000; ms++)
        pause_ms(1);
    cr_expect(eq(u32, fake_counts(r.fake).aborts, aborts + 1), "before the second part is due");
    cr_expect(le(u64, fakegpu()->copied_bytes - bytes, 16 * MIB));
}
