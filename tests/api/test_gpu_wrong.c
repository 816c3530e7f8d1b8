/* SPDX-License-Identifier: Apache-2.0 */
/* Saves of GPU memory that go wrong: refused by name, failed with key, GPU and number. */
#include "check.h"
#include "cuda.h"
#include "fakegpu.h"
#include "rank.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N 300000u

static struct rank r;
static void *context;
static float was[N];
static const int64_t all[] = { N };
static struct hearth_error err;

static void start(void)
{
    fakegpu_start("recent", 2);
    context = fakegpu_context(0);
    fakegpu_current(context);
    rank_start(&r);
    rank_open(&r);
}

/* Criterion does not count an expectation that fails here. */
static void stop(void)
{
    rank_end(&r);
    if (fakegpu()->sins) {
        fprintf(stderr, "%s\n", fakegpu()->sin);
        abort();
    }
}

TestSuite(gpu_wrong, .init = start, .fini = stop);

static void pause_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static struct hearth_piece tensor(const char *key, int device)
{
    uint64_t at = fakegpu_alloc(fakegpu_context(device), sizeof(was), FAKEGPU_PLAIN);
    struct hearth_piece p = rank_piece(key, (void *)(uintptr_t)at, 1, all);

    rank_fill(was, N, 4);
    fakegpu_poke(at, was, sizeof(was));
    p.memory = HEARTH_CUDA;
    return p;
}

static struct hearth_save *begin(uint64_t step, const struct hearth_piece *p)
{
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    struct hearth_save *save = NULL;

    o.wait_ms = 5000;
    must(hearth_save_begin(r.h, step, hearth_save_bytes(p, 1, NULL, 0), &o, &save, &err), err);
    return save;
}

static void save_one(uint64_t step, const struct hearth_piece *p)
{
    struct hearth_save *save = begin(step, p);

    must(hearth_save_add(save, p, 1, &err), err);
    rank_protect(rank_commit(save));
}

static uint64_t pin_slots(const struct hearth_piece *p)
{
    uint64_t step = 1;

    for (; step < 5; step++) {
        save_one(step, p);
        pause_ms(100);
    }
    return step;
}

static void says(const char *what)
{
    cr_expect(ne(ptr, strstr(err.text, what), NULL), "no '%s' in: %s", what, err.text);
}

Test(gpu_wrong, what_is_not_supported_is_refused_with_its_key)
{
    struct hearth_piece p = tensor("good", 0), bad;
    struct hearth_save *save = begin(1, &p);
    void *place;

    must_fail(hearth_save_stage(save, &p, 1, &place, &err), HEARTH_EUNSUPPORTED);
    says("'good'");
    bad = rank_piece("host", was, 1, all);
    bad.memory = HEARTH_CUDA;
    must_fail(hearth_save_add(save, &bad, 1, &err), HEARTH_EINVAL);
    says("'host'");
    must(hearth_save_add(save, &p, 1, &err), err);
    rank_protect(rank_commit(save));
}

Test(gpu_wrong, under_the_kill_switch_gpu_memory_is_not_touched)
{
    struct hearth_piece p = tensor("x", 0);
    struct hearth_opts o = r.opts;
    struct hearth_save *save;
    struct hearth *off;
    uint64_t calls;
    void *place;

    o.off = 1;
    must(hearth_open(&o, &off, &err), err);
    must(hearth_save_begin(off, 1, 1 << 22, NULL, &save, &err), err);
    must_fail(hearth_save_stage(save, &p, 1, &place, &err), HEARTH_EUNSUPPORTED);
    calls = fakegpu_calls(NULL);
    must(hearth_save_add(save, &p, 1, &err), err);
    must(hearth_save_fence(save, NULL, &err), err);
    must(hearth_save_commit(save, NULL, &err), err);
    cr_expect(eq(u64, fakegpu_calls(NULL), calls));
    hearth_close(off, HEARTH_KEEP);
}

Test(gpu_wrong, host_memory_costs_one_question_a_piece)
{
    struct hearth_piece p = rank_piece("x", was, 1, all);

    save_one(1, &p); /* finds the driver */
    fakegpu_calls_reset();
    save_one(2, &p);
    cr_expect(eq(u64, fakegpu_calls(NULL), fakegpu_calls("cuPointerGetAttributes")));
    cr_expect(eq(u64, fakegpu_calls(NULL), 1));
}

Test(gpu_wrong, a_stream_that_is_captured_is_refused_and_the_save_goes_on)
{
    struct hearth_piece p = tensor("x", 0);
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    void *stream = fakegpu_stream();
    struct hearth_save *save;

    o.stream = stream;
    must(hearth_save_begin(r.h, 1, hearth_save_bytes(&p, 1, NULL, 0), &o, &save, &err), err);
    fakegpu_capture(stream, 1);
    must_fail(hearth_save_add(save, &p, 1, &err), HEARTH_EUNSUPPORTED);
    says("'x'");
    fakegpu_capture(stream, 0);
    must(hearth_save_add(save, &p, 1, &err), err);
    fakegpu_capture(stream, 1);
    must_fail(hearth_save_fence(save, stream, &err), HEARTH_EUNSUPPORTED);
    fakegpu_capture(stream, 0);
    must(hearth_save_fence(save, stream, &err), err);
    rank_protect(rank_commit(save));
}

Test(gpu_wrong, a_stream_of_another_device_that_is_captured_is_named_as_that)
{
    struct hearth_piece p = tensor("x", 0), other = tensor("y", 1);
    struct hearth_begin_opts o = HEARTH_BEGIN_OPTS_INIT;
    void *stream = fakegpu_stream();
    struct hearth_save *save;

    save_one(1, &p);
    o.stream = stream;
    must(hearth_save_begin(r.h, 2, hearth_save_bytes(&other, 1, NULL, 0), &o, &save, &err), err);
    fakegpu_capture(stream, 1);
    must_fail(hearth_save_add(save, &other, 1, &err), HEARTH_EUNSUPPORTED);
    says("captur");
    fakegpu_capture(stream, 0);
    must(hearth_save_add(save, &other, 1, &err), err);
    fakegpu_capture(stream, 1);
    must_fail(hearth_save_fence(save, stream, &err), HEARTH_EUNSUPPORTED);
    says("captur");
    fakegpu_capture(stream, 0);
    rank_protect(rank_commit(save));
}

Test(gpu_wrong, a_copy_that_the_driver_refuses_fails_this_save_alone)
{
    struct hearth_piece p = tensor("x", 0);
    uint64_t step = pin_slots(&p);
    struct hearth_save *save = begin(step, &p);
    struct hearth_handle *handle;

    fakegpu_refuse("cuMemcpyDtoHAsync_v2", 0, 1);
    must_fail(hearth_save_add(save, &p, 1, &err), HEARTH_EINVAL);
    says("'x'");
    says("GPU 0");
    must_fail(hearth_save_add(save, &p, 1, &err), HEARTH_EINVAL);
    handle = rank_commit(save);
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 5000, &err), HEARTH_EFAILED);
    says("'x'");
    hearth_handle_close(handle);
    save_one(step + 1, &p);
}

/* Copies that are enqueued run, whatever the driver said of the event behind them. */
static void aborts_after_refused(const char *call, unsigned after)
{
    struct hearth_piece p = tensor("x", 0);
    uint64_t step = pin_slots(&p);
    struct hearth_save *save = begin(step, &p);
    uint32_t aborts = fake_counts(r.fake).aborts;

    fakegpu()->hold = 1;
    fakegpu_refuse(call, after, 999);
    if (!hearth_save_add(save, &p, 1, &err))
        pause_ms(30);
    hearth_save_abort(save);
    pause_ms(50);
    cr_expect(eq(u32, fake_counts(r.fake).aborts, aborts), "the slot is given back too early");
    fakegpu()->hold = 0;
    for (unsigned ms = 0; fake_counts(r.fake).aborts == aborts && ms < 2000; ms++)
        pause_ms(1);
    cr_expect(eq(u32, fake_counts(r.fake).aborts, aborts + 1));
    save_one(step + 1, &p);
}

Test(gpu_wrong, a_slot_is_not_given_back_before_copies_whose_event_was_not_recorded)
{
    aborts_after_refused("cuEventRecord", 1); /* the first one is of the caller's stream */
}

Test(gpu_wrong, a_slot_is_not_given_back_before_copies_whose_event_was_not_answered)
{
    aborts_after_refused("cuEventQuery", 0);
}

Test(gpu_wrong, a_fence_that_is_late_names_the_gpu_that_is)
{
    struct hearth_piece p = tensor("x", 0), other = tensor("y", 1), both[2];
    struct hearth_save *save = begin(1, &p);
    uint64_t step;

    hearth_save_abort(save);
    hearth_close(r.h, HEARTH_KEEP);
    r.opts.save_ms = 300;
    rank_open(&r);
    step = pin_slots(&p);
    both[0] = p;
    both[1] = other;
    must(hearth_save_begin(r.h, step, hearth_save_bytes(both, 2, NULL, 0), NULL, &save, &err), err);
    must(hearth_save_add(save, &p, 1, &err), err);
    must(hearth_save_fence(save, NULL, &err), err);
    fakegpu()->hold = 1;
    must(hearth_save_add(save, &other, 1, &err), err);
    must_fail(hearth_save_fence(save, NULL, &err), HEARTH_ETIMEOUT);
    says("GPU 1");
    says("'y'");
    fakegpu()->hold = 0;
    hearth_save_abort(save);
}

static unsigned char page[4096] __attribute__((aligned(4096)));

/* Its call holds the driver's lock: the thread that follows copies waits. */
static void *registers(void *arg)
{
    fakegpu_current(context);
    cuMemHostRegister_v2(page, sizeof(page), 0);
    cuMemHostUnregister(page);
    return arg;
}

Test(gpu_wrong, a_save_that_was_given_away_is_not_asked_for_again)
{
    struct hearth_piece p = tensor("x", 0);
    uint64_t step = pin_slots(&p);
    struct hearth_save *given = begin(step, &p);
    struct hearth_handle *handle;
    struct hearth_ticket ticket;
    struct hearth_save *save;
    uint32_t regains;
    pthread_t thread;

    must(hearth_save_add(given, &p, 1, &err), err);
    must(hearth_save_fence(given, NULL, &err), err);
    save = begin(step + 1, &p);
    fakegpu()->hold = 1;
    must(hearth_save_add(save, &p, 1, &err), err);
    handle = rank_commit(save);
    fakegpu()->pin_ms = 1500;
    must(pthread_create(&thread, NULL, registers, NULL));
    pause_ms(50);
    must(hearth_save_give(given, &ticket, &err), err);
    regains = fake_counts(r.fake).regains;
    fake_crash(r.fake);
    fake_back(r.fake);
    must_fail(hearth_wait(handle, HEARTH_WRITTEN, 300, &err), HEARTH_ETIMEOUT);
    cr_expect(eq(u32, fake_counts(r.fake).regains, regains + 1), "of the other save alone");
    fakegpu()->hold = 0;
    fakegpu()->pin_ms = 0;
    pthread_join(thread, NULL);
    rank_protect(handle);
}

static void breaks(uint64_t step, struct hearth_piece *p, struct hearth_piece *other)
{
    struct hearth_save *save = begin(step, p);
    struct hearth_handle *handle;

    fakegpu()->hold = 1;
    must(hearth_save_add(save, p, 1, &err), err);
    handle = rank_commit(save);
    fakegpu_break(0, 700);
    fakegpu()->hold = 0;
    must_fail(hearth_wait(handle, HEARTH_PROTECTED, 5000, &err), HEARTH_EFAILED);
    says("'x'");
    says("GPU 0");
    says("700");
    must_fail(hearth_handle_fence(handle, NULL, &err), HEARTH_EIO);
    hearth_handle_close(handle);
    save_one(step + 1, other);
}

Test(gpu_wrong, a_lost_context_fails_the_save_and_another_gpu_still_works)
{
    struct hearth_piece p = tensor("x", 0), other = tensor("y", 1);

    breaks(pin_slots(&p), &p, &other);
}

Test(gpu_wrong, a_lost_context_fails_a_save_through_the_buffers_too)
{
    struct hearth_piece p = tensor("x", 0), other = tensor("y", 1);

    breaks(1, &p, &other);
}

Test(gpu_wrong, host_memory_is_saved_where_the_driver_answers_no_question)
{
    static const int64_t back[] = { -1 };
    struct hearth_piece host = rank_piece("h", was, 1, all), p = tensor("x", 0);
    struct hearth_save *save;

    save_one(1, &p);
    fakegpu_refuse("cuPointerGetAttributes", 0, 700);
    save_one(2, &host);
    host.data = was + N - 1;
    host.strides = back;
    fakegpu_refuse("cuPointerGetAttributes", 0, 700);
    save_one(3, &host);
    p.memory = HEARTH_HOST;
    save = begin(4, &p);
    fakegpu_refuse("cuPointerGetAttributes", 0, 700);
    must_fail(hearth_save_add(save, &p, 1, &err), HEARTH_EIO);
    says("'x'");
    says("700");
    host.memory = HEARTH_CUDA;
    fakegpu_refuse("cuPointerGetAttributes", 0, 700);
    must_fail(hearth_save_add(save, &host, 1, &err), HEARTH_EIO);
    hearth_save_abort(save);
}

Test(gpu_wrong, gpu_memory_is_not_read_where_no_context_is_current)
{
    struct hearth_piece p = tensor("x", 0);
    struct hearth_save *save = begin(1, &p);

    p.memory = HEARTH_HOST;
    fakegpu_refuse("cuPointerGetAttributes", 0, 201);
    must_fail(hearth_save_add(save, &p, 1, &err), HEARTH_ESTATE);
    says("'x'");
    says("201");
    must(hearth_save_add(save, &p, 1, &err), err);
    rank_protect(rank_commit(save));
}

Test(gpu_wrong, memory_of_a_driver_that_cannot_be_used_is_refused_by_name)
{
    struct hearth_piece host = rank_piece("h", was, 1, all), p = tensor("x", 0);
    struct hearth_save *save = begin(1, &p);

    p.memory = HEARTH_HOST;
    fakegpu_refuse("cuDeviceGetCount", 0, 999);
    must_fail(hearth_save_add(save, &p, 1, &err), HEARTH_EIO);
    says("'x'");
    says("cuDeviceGetCount");
    must(hearth_save_add(save, &host, 1, &err), err);
    rank_protect(rank_commit(save));
    save_one(2, &p); /* that error has passed */
}

/* Trainers fork helpers that save what lies in host memory. */
Test(gpu_wrong, a_child_that_opens_anew_saves_host_memory)
{
    struct hearth_piece host = rank_piece("h", was, 1, all), p = tensor("x", 0);
    struct hearth_opts o = r.opts;
    pid_t child;
    int status;

    save_one(1, &p);
    o.helper = 1;
    child = fork();
    if (!child) {
        struct hearth_save *save;
        struct hearth_handle *handle;
        struct hearth *h;

        _exit(hearth_open(&o, &h, &err) ||
                hearth_save_begin(h, 2, hearth_save_bytes(&host, 1, NULL, 0), NULL, &save, &err) ||
                hearth_save_add(save, &host, 1, &err) ||
                hearth_save_add(save, &p, 1, &err) == HEARTH_OK ||
                hearth_save_commit(save, &handle, &err) ||
                hearth_wait(handle, HEARTH_PROTECTED, 5000, &err));
    }
    cr_assert(eq(int, waitpid(child, &status, 0), child));
    cr_expect(zero(int, status));
}

Test(gpu_wrong, a_fence_that_fails_leaves_the_default_stream_of_another_gpu_alone)
{
    struct hearth_piece p[] = { tensor("x", 0), tensor("y", 1) };
    struct hearth_handle *handle;
    struct hearth_save *save;
    uint64_t waits;

    save_one(pin_slots(&p[0]), &p[1]); /* both GPUs are in use */
    save = begin(100, &p[1]);
    fakegpu()->hold = 1;
    must(hearth_save_add(save, &p[1], 1, &err), err);
    handle = rank_commit(save);
    waits = fakegpu_calls("cuStreamWaitEvent");
    fakegpu_refuse("cuStreamWaitEvent", 0, 700);
    must_fail(hearth_handle_fence(handle, (void *)1, &err), HEARTH_EIO);
    cr_expect(eq(u64, fakegpu_calls("cuStreamWaitEvent"), waits + 1));
    fakegpu()->hold = 0;
    rank_protect(handle);
}

Test(gpu_wrong, pinning_that_is_refused_is_one_warning_with_the_number)
{
    struct hearth_piece p = tensor("x", 0);
    char text[1000];
    uint32_t level;
    int found = 0;

    fakegpu_refuse("cuMemHostRegister_v2", 0, 2);
    fakegpu_refuse("cuMemHostRegister_v2", 0, 2);
    fakegpu_refuse("cuMemHostRegister_v2", 0, 2);
    save_one(1, &p);
    pause_ms(200);
    save_one(2, &p);
    while (hearth_log_poll(r.h, &level, text, sizeof(text)))
        if (!strncmp(text, "pin: ", 5)) {
            cr_expect(eq(u32, level, HEARTH_LOG_WARN), "%s", text);
            cr_expect(ne(ptr, strstr(text, "cuMemHostRegister"), NULL), "%s", text);
            found++;
        }
    cr_expect(eq(int, found, 1));
}
