/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Saves of GPU memory, over a driver of the tests' own: its device memory cannot be read by the
 * processor, and its streams are threads that begin their work when they like.
 */
#include "check.h"
#include "fakegpu.h"
#include "rank.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N 300000u /* floats of a tensor: more than a chunk together with others */

static struct rank r;
static void *context;
static float was[N];
static const int64_t all[] = { N };

static void start(void)
{
    fakegpu_start(NULL, 2);
    context = fakegpu_context(0);
    fakegpu_current(context);
    rank_start(&r);
}

/* Criterion does not count an expectation that fails here. */
static void stop(void)
{
    rank_end(&r);
    if (fakegpu()->registered || fakegpu()->sins) {
        fprintf(stderr, "%" PRIu64 " registrations are left; %s\n", (uint64_t)fakegpu()->registered,
                fakegpu()->sin);
        abort();
    }
}

TestSuite(gpu, .init = start, .fini = stop);

static void pause_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static uint64_t now_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* A tensor on the device, filled. */
static uint64_t tensor(float seed)
{
    uint64_t at = fakegpu_alloc(context, sizeof(was), FAKEGPU_PLAIN);

    rank_fill(was, N, seed);
    fakegpu_poke(at, was, sizeof(was));
    return at;
}

static struct hearth_piece piece_at(const char *key, uint64_t at)
{
    struct hearth_piece p = rank_piece(key, (void *)(uintptr_t)at, 1, all);

    p.memory = HEARTH_CUDA;
    return p;
}

static struct hearth_save *begin(
        uint64_t step, const struct hearth_piece *pieces, size_t count, void *stream)
{
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_save *save = NULL;
    struct hearth_error err = { 0 };

    o.stream = stream;
    o.wait_ms = 5000;
    must(hearth_save_begin(r.h, step, hearth_save_bytes(pieces, count, NULL, 0), &o, &save, &err),
            err);
    return save;
}

static struct hearth_save *begin_and_add(
        uint64_t step, const struct hearth_piece *pieces, size_t count, void *stream)
{
    struct hearth_save *save = begin(step, pieces, count, stream);
    struct hearth_error err = { 0 };

    must(hearth_save_add(save, pieces, count, &err), err);
    return save;
}

static void save_all(uint64_t step, const struct hearth_piece *pieces, size_t count)
{
    rank_protect(rank_commit(begin_and_add(step, pieces, count, NULL)));
}

/* HIP's are not. */
static int pins(void)
{
    return strcmp(fakegpu_profile(), "hip") != 0;
}

/* Saves until the slots that come round are pinned. */
static uint64_t pin_slots(const struct hearth_piece *p, uint64_t step)
{
    if (!pins())
        return step;
    for (unsigned i = 0; i < 4; i++) {
        save_all(step++, p, 1);
        for (unsigned ms = 0; fakegpu()->registered < 2 + i / 2 && ms < 300; ms++)
            pause_ms(1);
    }
    return step;
}

static void loaded(uint64_t step, const char *key, const float *want)
{
    static float got[N];
    struct hearth_checkpoint *ckpt = rank_recover(r.h, step);
    struct hearth_piece p = rank_piece(key, got, 1, all);
    struct hearth_error err = { 0 };

    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    hearth_checkpoint_close(ckpt);
    cr_assert(zero(int, memcmp(got, want, sizeof(got))), "%s", key);
}

static struct hearth_status state(struct hearth_handle *handle)
{
    struct hearth_status st = HEARTH_STATUS_INIT;

    must(hearth_test(handle, &st, NULL));
    return st;
}

/* ---- bytes ---------------------------------------------------------------------------------- */

Test(gpu, memory_comes_back_through_the_buffers_and_from_pinned_slots)
{
    struct hearth_piece p[3];
    static float host[N];
    uint64_t step, staged;

    rank_open(&r);
    rank_fill(host, N, 77);
    p[0] = piece_at("device", tensor(1));
    p[1] = rank_piece("host", host, 1, all);
    p[2] = piece_at("unnamed", (uint64_t)(uintptr_t)p[0].from);
    p[2].memory = HEARTH_HOST; /* the driver says where it is */
    save_all(1, p, 3);
    loaded(1, "device", was);
    loaded(1, "host", host);
    loaded(1, "unnamed", was);
    if (!pins())
        return;
    step = pin_slots(p, 2);
    staged = fakegpu()->staged;
    save_all(step, p, 3);
    cr_expect(eq(u64, fakegpu()->staged, staged), "copies into memory that is not pinned");
    loaded(step, "device", was);
    loaded(step, "host", host);
    loaded(step, "unnamed", was);
}

Test(gpu, without_pinning_all_goes_through_the_buffers)
{
    struct hearth_piece p;

    r.opts.pin = HEARTH_PIN_NO;
    rank_open(&r);
    p = piece_at("x", tensor(3));
    for (uint64_t step = 1; step < 5; step++)
        save_all(step, &p, 1);
    cr_expect(eq(u64, fakegpu()->registered, 1), "the buffers alone");
    loaded(4, "x", was);
}

Test(gpu, strided_and_small_tensors_of_two_devices_are_copied)
{
    enum { SMALL = 3000 };
    static const int64_t box[] = { 10, 20, 30 }, strides[] = { 1000, 40, 1 }, tiny[] = { 7 };
    static char key[SMALL][8];
    static struct hearth_piece p[SMALL + 2];
    static float got[6000];
    uint64_t at, other, step = 1;
    struct hearth_checkpoint *ckpt;

    rank_open(&r);
    at = tensor(0);
    other = fakegpu_alloc(fakegpu_context(1), sizeof(was), FAKEGPU_PLAIN);
    fakegpu_poke(other, was, sizeof(was));
    for (size_t i = 0; i < SMALL; i++) {
        snprintf(key[i], sizeof(key[i]), "k%zu", i);
        p[i] = rank_piece(key[i], (void *)(uintptr_t)((i & 1 ? other : at) + 28 * i), 1, tiny);
    }
    p[SMALL] = rank_piece("strided", (void *)(uintptr_t)at, 3, box);
    p[SMALL].strides = strides;
    p[SMALL + 1] = piece_at("whole", other);
    for (; step < 5; step++)
        save_all(step, p, SMALL + 2);
    ckpt = rank_recover(r.h, step - 1);
    p[SMALL].data = got;
    p[SMALL].strides = NULL;
    must(hearth_load(ckpt, &p[SMALL], 1, 0, NULL, NULL));
    for (int i = 0; i < 6000; i++) {
        float want = was[i / 600 * 1000 + i / 30 % 20 * 40 + i % 30];

        cr_assert(zero(int, memcmp(&got[i], &want, 4)), "element %d", i);
    }
    for (size_t i = 0; i < SMALL; i++) {
        p[i].data = got;
        must(hearth_load(ckpt, &p[i], 1, 0, NULL, NULL));
        cr_assert(zero(int, memcmp(got, was + 7 * i, 28)), "%zu", i);
    }
    hearth_checkpoint_close(ckpt);
}

Test(gpu, a_stream_of_one_device_waits_for_the_copies_of_two)
{
    struct hearth_piece p[2];
    struct hearth_error err = { 0 };
    struct hearth_handle *handle;
    struct hearth_save *save;
    void *stream;
    uint64_t other;

    rank_open(&r);
    p[0] = piece_at("x", tensor(5));
    other = fakegpu_alloc(fakegpu_context(1), sizeof(was), FAKEGPU_PLAIN);
    fakegpu_poke(other, was, sizeof(was));
    p[1] = piece_at("y", other);
    stream = fakegpu_stream();
    fakegpu()->delay_us = 2000;
    for (uint64_t step = 1; step < 6; step++) {
        save = begin_and_add(step, p, 2, stream);
        must(hearth_save_fence(save, stream, &err), err);
        handle = rank_commit(save);
        must(hearth_handle_fence(handle, stream, &err), err);
        fakegpu_wait(stream);
        memset(was, (int)step, sizeof(was)); /* all is copied by now */
        fakegpu_poke(other, was, sizeof(was));
        rank_protect(handle);
        rank_fill(was, N, 5);
        loaded(step, "y", was);
        fakegpu_poke(other, was, sizeof(was));
    }
}

static uint64_t own_kib(void)
{
    char line[200];
    unsigned long kib = 0;
    FILE *f = fopen("/proc/self/status", "re");

    cr_assert(ne(ptr, f, NULL));
    while (fgets(line, sizeof(line), f))
        if (sscanf(line, "RssAnon: %lu", &kib) == 1)
            break;
    fclose(f);
    return kib;
}

Test(gpu, there_is_no_second_copy_of_the_state_in_host_memory)
{
    static const int64_t shape[] = { 1 << 26 }; /* 256 MiB */
    uint64_t at = fakegpu_alloc(context, (size_t)4 << 26, FAKEGPU_PLAIN), before, most = 0;
    struct hearth_piece p = piece_at("x", at);
    struct hearth_handle *handle;

    r.opts.pin = HEARTH_PIN_NO;
    rank_open(&r);
    p.shape = shape;
    before = own_kib();
    handle = rank_commit(begin_and_add(1, &p, 1, NULL));
    while (state(handle).level < HEARTH_SEALED) {
        uint64_t now = own_kib();

        most = now > most ? now : most;
        pause_ms(1);
    }
    rank_protect(handle);
    cr_expect(lt(u64, most - before, 64 * 1024 + (256 * 1024) / 50), "%lu KiB more",
            (unsigned long)(most - before));
}

/* ---- order ---------------------------------------------------------------------------------- */

static void order(int fenced, unsigned *out_wrong)
{
    static float got[N];
    struct hearth_piece p = piece_at("x", tensor(5));
    void *stream = fakegpu_stream();
    uint64_t step = pin_slots(&p, 1);

    *out_wrong = 0;
    fakegpu()->delay_us = 300;
    for (int i = 0; i < (fenced ? 1000 : 50); i++, step++) {
        struct hearth_save *save = begin_and_add(step, &p, 1, stream);
        struct hearth_handle *handle = i & 1 ? NULL : rank_commit(save);
        struct hearth_error err = { 0 };

        if (fenced)
            must(handle ? hearth_handle_fence(handle, stream, &err)
                        : hearth_save_fence(save, stream, &err),
                    err);
        fakegpu_fill(stream, (uint64_t)(uintptr_t)p.from, 0xee, sizeof(was));
        rank_protect(handle ? handle : rank_commit(save));
        fakegpu_wait(stream);
        {
            struct hearth_checkpoint *ckpt = rank_recover(r.h, step);
            struct hearth_piece to = rank_piece("x", got, 1, all);

            must(hearth_load(ckpt, &to, 1, 0, NULL, NULL));
            *out_wrong += memcmp(got, was, sizeof(got)) != 0;
            hearth_checkpoint_close(ckpt);
        }
        fakegpu_poke((uint64_t)(uintptr_t)p.from, was, sizeof(was));
    }
    fakegpu()->delay_us = 0;
}

Test(gpu, what_is_enqueued_behind_the_fence_changes_no_save, .timeout = 100)
{
    unsigned wrong;

    alarm(100);
    rank_open(&r);
    order(1, &wrong);
    cr_expect(eq(u32, wrong, 0));
}

Test(gpu, without_the_fence_a_save_has_new_values)
{
    unsigned wrong;

    rank_open(&r);
    order(0, &wrong);
    cr_expect(gt(u32, wrong, 0));
}

Test(gpu, copies_start_after_the_work_in_the_stream)
{
    struct hearth_piece p;
    void *stream;
    static float want[N];

    rank_open(&r);
    memset(want, 0x11, sizeof(want));
    p = piece_at("x", tensor(5));
    stream = fakegpu_stream();
    fakegpu()->delay_us = 2000;
    for (uint64_t step = 1; step < 20; step++) {
        fakegpu_poke((uint64_t)(uintptr_t)p.from, was, sizeof(was));
        fakegpu_fill(stream, (uint64_t)(uintptr_t)p.from, 0x11, sizeof(was));
        rank_protect(rank_commit(begin_and_add(step, &p, 1, stream)));
        loaded(step, "x", want);
    }
}

/* ---- a save whose bytes are still coming ---------------------------------------------------- */

Test(gpu, a_fence_without_a_stream_returns_when_a_pinned_slot_has_the_bytes)
{
    struct hearth_piece p;
    struct hearth_save *save;
    struct hearth_error err = { 0 };
    uint64_t step;

    r.opts.save_ms = 3000;
    rank_open(&r);
    p = piece_at("x", tensor(5));
    step = pin_slots(&p, 1);
    for (int i = 0; i < 20; i++, step++) {
        save = begin(step, &p, 1, NULL);
        pause_ms(3); /* the thread that follows copies sleeps */
        must(hearth_save_add(save, &p, 1, &err), err);
        must(hearth_save_fence(save, NULL, &err), err);
        rank_protect(rank_commit(save));
    }
}

Test(gpu, commit_returns_before_the_bytes_have_come_and_the_handle_says_so)
{
    struct hearth_piece p;
    struct hearth_handle *handle;
    struct hearth_error err = { 0 };
    void *stream;
    uint64_t step;

    rank_open(&r);
    p = piece_at("x", tensor(5));
    step = pin_slots(&p, 1);
    stream = fakegpu_stream();
    p = piece_at("x", tensor(9)); /* other bytes than the slot has from before */
    fakegpu()->hold = 1;
    handle = rank_commit(begin_and_add(step, &p, 1, stream));
    must(hearth_handle_fence(handle, stream, &err), err);
    pause_ms(50);
    cr_expect(lt(u32, state(handle).level, HEARTH_WRITTEN));
    must_fail(hearth_wait(handle, HEARTH_WRITTEN, 30, &err), HEARTH_ETIMEOUT);
    cr_expect(ne(ptr, strstr(err.text, "GPU memory"), NULL), "%s", err.text);
    must_fail(hearth_wait(handle, HEARTH_SEALED, 30, NULL), HEARTH_ETIMEOUT);
    fakegpu()->hold = 0;
    must(hearth_wait(handle, HEARTH_WRITTEN, 5000, &err), err);
    rank_protect(handle);
    loaded(step, "x", was);
}

Test(gpu, a_handle_closed_and_a_membership_ended_while_bytes_come_lose_nothing)
{
    struct hearth_piece p;
    struct hearth_checkpoint *ckpt = NULL;
    struct hearth_error err = { 0 };
    uint64_t step;

    rank_open(&r);
    p = piece_at("x", tensor(5));
    step = pin_slots(&p, 1);
    fakegpu()->delay_us = 30000;
    hearth_handle_close(rank_commit(begin_and_add(step, &p, 1, NULL)));
    hearth_close(r.h, HEARTH_KEEP);
    cr_expect(zero(u64, fakegpu()->registered));
    cr_expect(gt(u32, fake_counts(r.fake).closes, 0)); /* all that was sent before is read */
    fakegpu()->delay_us = 0;
    must(hearth_open(&r.opts, &r.h, &err), err);
    must(hearth_recover(r.h, NULL, &ckpt, &err), err);
    hearth_checkpoint_close(ckpt);
    loaded(step, "x", was);
}

static struct hearth_save *never_ended;

/* Callers are to abort it first; one that does not waits for the copies alone. */
Test(gpu, a_membership_ends_although_a_save_of_it_is_open)
{
    struct hearth_piece p;
    struct hearth_error err = { 0 };
    uint64_t step, from;

    rank_open(&r);
    p = piece_at("x", tensor(5));
    step = pin_slots(&p, 1);
    fakegpu()->delay_us = 30000;
    never_ended = begin_and_add(step, &p, 1, NULL);
    cr_assert(ne(ptr, never_ended, NULL));
    from = now_us();
    hearth_close(r.h, HEARTH_KEEP);
    cr_expect(lt(u64, now_us() - from, 5000000));
    cr_expect(zero(u64, fakegpu()->registered));
    must(hearth_open(&r.opts, &r.h, &err), err);
}

Test(gpu, an_abort_gives_the_slot_back_once_no_copy_writes_into_it)
{
    struct hearth_piece p;
    uint32_t aborts;
    uint64_t step;

    if (!pins())
        return;
    rank_open(&r);
    p = piece_at("x", tensor(5));
    step = pin_slots(&p, 1);
    fakegpu()->hold = 1;
    hearth_save_abort(begin_and_add(step, &p, 1, NULL));
    aborts = fake_counts(r.fake).aborts;
    pause_ms(30);
    cr_expect(eq(u32, fake_counts(r.fake).aborts, aborts));
    fakegpu()->hold = 0;
    for (unsigned ms = 0; fake_counts(r.fake).aborts == aborts && ms < 2000; ms++)
        pause_ms(1);
    cr_expect(eq(u32, fake_counts(r.fake).aborts, aborts + 1));
    save_all(step + 1, &p, 1);
}

Test(gpu, a_cancel_while_bytes_come_fails_the_save_once_they_have)
{
    struct hearth_piece p;
    struct hearth_handle *handle;
    uint64_t step;

    rank_open(&r);
    p = piece_at("x", tensor(5));
    step = pin_slots(&p, 1);
    fake_hold(r.fake, HEARTH_SEALED);
    fakegpu()->hold = 1;
    handle = rank_commit(begin_and_add(step, &p, 1, NULL));
    must(hearth_cancel(handle, NULL));
    cr_expect(zero(int, state(handle).code));
    fakegpu()->hold = 0;
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL), HEARTH_EFAILED);
    hearth_handle_close(handle);
    fake_hold(r.fake, 0);
    save_all(step + 1, &p, 1);
}

Test(gpu, a_slot_whose_save_failed_stays_mapped_while_bytes_come)
{
    struct hearth_piece p, host = rank_piece("h", was, 1, all);
    struct hearth_handle *handle;
    uint64_t step;

    rank_open(&r);
    p = piece_at("x", tensor(5));
    step = pin_slots(&p, 1);
    fakegpu()->hold = 1;
    handle = rank_commit(begin_and_add(step, &p, 1, NULL));
    fake_refuse(r.fake, HTH_LOCAL_REGAIN, HEARTH_ESTATE, "not known here");
    fake_crash(r.fake);
    fake_back(r.fake);
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL), HEARTH_EFAILED);
    fake_refuse(r.fake, HTH_LOCAL_REGAIN, HEARTH_OK, NULL);
    save_all(step + 1, &host, 1); /* unmaps the slots of the connection before */
    fakegpu()->hold = 0;
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 5000, NULL), HEARTH_EFAILED);
    hearth_handle_close(handle);
    save_all(step + 2, &p, 1);
    loaded(step + 2, "x", was);
}

/* The driver of the tests writes a pattern into what is to be copied during the call, so its calls
 * are counted, and the time of the other two is taken. */
static uint64_t driver_calls(void)
{
    return fakegpu_calls("cuMemcpyDtoHAsync_v2") + fakegpu_calls("cuMemcpyBatchAsync_v2") +
           fakegpu_calls("cuEventRecord") + fakegpu_calls("cuStreamWaitEvent");
}

Test(gpu, fence_and_commit_do_not_wait_for_the_bytes_of_a_pinned_slot)
{
    static const int64_t shapes[] = { 1 << 18, 1 << 26 }; /* 1 MiB, 256 MiB: 62 ms of copies */
    uint64_t at = fakegpu_alloc(context, (size_t)4 << 26, FAKEGPU_PLAIN);
    uint64_t calls[2] = { 0 }, least_us[2] = { UINT64_MAX, UINT64_MAX };
    void *stream = fakegpu_stream();
    struct hearth_piece p = piece_at("x", at);
    uint64_t step;

    if (!pins())
        return;
    rank_open(&r);
    p.shape = &shapes[1];
    step = pin_slots(&p, 1);
    fakegpu()->rate_mib_s = 4096;
    for (unsigned i = 0; i < 10; i++, step++) {
        struct hearth_handle *handle;
        struct hearth_save *save;
        uint64_t us;

        p.shape = &shapes[i % 2];
        save = begin(step, &p, 1, stream);
        fakegpu_calls_reset();
        must(hearth_save_add(save, &p, 1, NULL));
        us = now_us();
        must(hearth_save_fence(save, stream, NULL));
        handle = rank_commit(save);
        us = now_us() - us;
        calls[i % 2] = driver_calls();
        least_us[i % 2] = us < least_us[i % 2] ? us : least_us[i % 2];
        rank_protect(handle);
    }
    fakegpu()->rate_mib_s = 0;
    cr_expect(eq(u64, calls[0], calls[1]));
    cr_expect(lt(u64, least_us[1], 10000), "%lu us and %lu us", (unsigned long)least_us[0],
            (unsigned long)least_us[1]);
}

Test(gpu, an_engine_that_restarts_while_bytes_come_gets_the_save)
{
    struct hearth_piece p;
    struct hearth_handle *handle;
    uint64_t step;

    rank_open(&r);
    p = piece_at("x", tensor(5));
    step = pin_slots(&p, 1);
    fakegpu()->hold = 1;
    handle = rank_commit(begin_and_add(step, &p, 1, NULL));
    fake_crash(r.fake);
    fake_back(r.fake);
    must_fail(hearth_wait(handle, HEARTH_WRITTEN, 100, NULL), HEARTH_ETIMEOUT);
    fakegpu()->hold = 0;
    rank_protect(handle);
    loaded(step, "x", was);
}

Test(gpu, objects_that_are_sealed_early_go_when_their_bytes_have_come)
{
    struct hearth_piece p;
    struct hearth_save *save;
    struct hearth_error err = { 0 };
    uint64_t step;

    rank_open(&r);
    p = piece_at("x", tensor(5));
    step = pin_slots(&p, 1);
    fakegpu()->delay_us = 20000;
    save = begin_and_add(step, &p, 1, NULL);
    must(hearth_save_seal(save, &err), err);
    must(hearth_save_put_common(save, ".metadata", "m", 1, &err), err);
    rank_protect(rank_commit(save));
    save = begin_and_add(step + 1, &p, 1, NULL);
    must(hearth_save_seal(save, &err), err);
    must(hearth_save_fence(save, NULL, &err), err);
    rank_protect(rank_commit(save));
    loaded(step + 1, "x", was);
}

Test(gpu, a_save_is_given_away_with_all_its_bytes)
{
    struct hearth_opts o;
    struct hearth_ticket ticket;
    struct hearth_save *save;
    struct hearth *helper;
    struct hearth_piece p;
    struct hearth_error err = { 0 };

    rank_open(&r);
    o = r.opts;
    o.helper = 1;
    must(hearth_open(&o, &helper, &err), err);
    p = piece_at("x", tensor(5));
    fakegpu()->delay_us = 20000;
    must(hearth_save_give(begin_and_add(1, &p, 1, NULL), &ticket, &err), err);
    must(hearth_save_take(helper, &ticket, &save, &err), err);
    rank_protect(rank_commit(save));
    hearth_close(helper, HEARTH_KEEP);
    loaded(1, "x", was);
}

/* The driver that its parent has found is of no use there, and says so of each pointer. */
Test(gpu, a_child_of_a_fork_saves_host_memory_into_a_job_of_its_own)
{
    static struct rank own;
    struct hearth_error err = { 0 };
    struct hearth_piece p;
    pid_t child;
    int status;

    rank_open(&r);
    p = piece_at("x", tensor(5));
    pin_slots(&p, 1);
    child = fork();
    if (!child) {
        rank_start(&own);
        rank_open(&own);
        p = rank_piece("x", was, 0, NULL);
        status = hearth_save_add(rank_begin(own.h, 1, 8192), &p, 1, &err);
        fprintf(stderr, "%s", err.text);
        rank_end(&own);
        _exit(status ? 1 : 0);
    }
    cr_assert(eq(int, waitpid(child, &status, 0), child));
    cr_expect(zero(int, status));
}

Test(gpu, a_child_of_a_fork_is_refused_and_the_parent_notices_nothing)
{
    struct hearth_piece p;
    struct hearth_handle *handle;
    uint64_t registered;
    int status;

    rank_open(&r);
    p = piece_at("x", tensor(5));
    pin_slots(&p, 1);
    registered = fakegpu()->registered;
    fakegpu()->delay_us = 20000;
    handle = rank_commit(begin_and_add(20, &p, 1, NULL));
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();

        if (!child)
            _exit(hearth_handle_fence(handle, NULL, NULL) == HEARTH_EFORK ? 0 : 1);
        cr_assert(eq(int, waitpid(child, &status, 0), child));
        cr_expect(zero(int, status));
    }
    rank_protect(handle);
    cr_expect(eq(u64, fakegpu()->registered, pins() ? registered : 1), "a ring's buffers at most");
    loaded(20, "x", was);
}
