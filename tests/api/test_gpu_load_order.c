/* SPDX-License-Identifier: Apache-2.0 */
/* Loads into GPU memory in the order of a stream, and copies that go on after the call. */
#include "gpu_load_rig.h"

#define N 30000u /* floats of a tensor */

static float was[N], got[N], seen[N];
static const int64_t all[] = { N };
static struct hearth_checkpoint *ckpt;
static struct hearth_piece p;
static uint64_t at, copy; /* the target, and what a kernel has read of it */
static void *stream;

static void start(void)
{
    load_start();
    rank_fill(was, N, 5);
    p = rank_piece("x", was, 1, all);
    rank_save(r.h, 1, &p, 1, NULL, 0);
    ckpt = rank_recover(r.h, 1);
    at = device_new(0, sizeof(was));
    copy = device_new(0, sizeof(was));
    stream = fakegpu_stream();
    p.data = (void *)(uintptr_t)at;
}

TestSuite(gpu_load_order, .init = start, .fini = load_stop);

/* How often the target, or what a reader behind the load has seen, are not what was saved. */
static void order(int loads, void *of_load, void *reader, unsigned *out_target, unsigned *out_seen)
{
    *out_target = *out_seen = 0;
    must(hearth_checkpoint_stream(ckpt, of_load, &err), err);
    fakegpu()->delay_us = 300;
    for (int i = 0; i < loads; i++) {
        for (int fills = of_load ? 4 : 30; fills; fills--) /* they may take longer */
            fakegpu_fill(stream, at, 0xee, sizeof(was));
        must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
        fakegpu_move(reader, copy, at, sizeof(was));
        fakegpu_wait(reader);
        fakegpu_wait(stream);
        fakegpu_peek(copy, seen, sizeof(seen));
        *out_seen += memcmp(seen, was, sizeof(was)) != 0;
        if (of_load)
            pause_ms(reader == stream ? 0 : 3); /* the load's own end is not waited for there */
        fakegpu_peek(at, got, sizeof(got));
        *out_target += memcmp(got, was, sizeof(was)) != 0;
    }
    fakegpu()->delay_us = 0;
    hearth_checkpoint_close(ckpt);
}

Test(gpu_load_order, a_load_lies_between_the_work_before_it_and_the_work_behind_it, .timeout = 100)
{
    unsigned target, behind;

    alarm(100);
    order(1000, stream, stream, &target, &behind);
    cr_expect(zero(u32, target), "the work before the load came after it");
    cr_expect(zero(u32, behind), "the work behind the load came before it");
}

Test(gpu_load_order, a_reader_on_another_stream_sees_old_bytes)
{
    void *other = fakegpu_stream();
    unsigned target, behind;

    order(100, stream, other, &target, &behind);
    cr_expect(gt(u32, behind, 0));
}

Test(gpu_load_order, a_load_that_was_told_of_no_stream_does_not_wait_for_one)
{
    unsigned target, behind;

    order(100, NULL, stream, &target, &behind);
    cr_expect(gt(u32, target, 0));
}

Test(gpu_load_order, without_a_stream_the_work_of_the_default_stream_is_before_the_load)
{
    for (int i = 0; i < 200; i++) {
        fakegpu()->delay_us = 1000;
        fakegpu_fill(NULL, at, 0xee, sizeof(was));
        must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
        fakegpu_peek(at, got, sizeof(got)); /* all has arrived */
        cr_assert(zero(int, memcmp(got, was, sizeof(was))), "load %d", i);
    }
    hearth_checkpoint_close(ckpt);
}

Test(gpu_load_order, a_stream_of_one_device_waits_for_copies_to_two)
{
    static float other_got[N];
    struct hearth_piece both[2] = { p, p };
    uint64_t other = device_new(1, sizeof(was));

    both[1].data = (void *)(uintptr_t)other;
    must(hearth_checkpoint_stream(ckpt, stream, &err), err);
    for (int i = 0; i < 50; i++) {
        fakegpu()->delay_us = 500;
        memset(other_got, 0, sizeof(other_got));
        fakegpu_poke(other, other_got, sizeof(other_got));
        fakegpu_fill(stream, at, 0xee, sizeof(was));
        must(hearth_load(ckpt, both, 2, 0, NULL, &err), err);
        fakegpu_wait(stream);
        fakegpu_peek(at, got, sizeof(got));
        fakegpu_peek(other, other_got, sizeof(other_got));
        cr_assert(zero(int, memcmp(got, was, sizeof(was))));
        cr_assert(zero(int, memcmp(other_got, was, sizeof(was))));
    }
    hearth_checkpoint_close(ckpt);
}

/* ---- copies that go on ---------------------------------------------------------------------- */

static void await_leases(uint32_t leases)
{
    for (int ms = 0; ms < 3000 && fake_counts(r.fake).leases != leases; ms++)
        pause_ms(1);
    cr_assert(eq(u32, fake_counts(r.fake).leases, leases));
}

Test(gpu_load_order, a_checkpoint_that_is_closed_keeps_its_lease_until_the_copies_are_done)
{
    must(hearth_checkpoint_stream(ckpt, stream, &err), err);
    fakegpu()->hold = 1;
    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    hearth_checkpoint_close(ckpt);
    pause_ms(30);
    cr_expect(eq(u32, fake_counts(r.fake).leases, 1));
    fakegpu()->hold = 0;
    fakegpu_wait(stream);
    await_leases(0);
    fakegpu_peek(at, got, sizeof(got));
    cr_expect(zero(int, memcmp(got, was, sizeof(was))));
}

Test(gpu_load_order, a_membership_that_ends_waits_for_the_copies)
{
    must(hearth_checkpoint_stream(ckpt, stream, &err), err);
    fakegpu()->delay_us = 100000;
    for (int i = 0; i < 10; i++)
        must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    hearth_checkpoint_close(ckpt);
    hearth_close(r.h, HEARTH_KEEP);
    fakegpu_peek(at, got, sizeof(got));
    cr_expect(zero(int, memcmp(got, was, sizeof(was))));
    cr_expect(zero(u64, fakegpu()->registered));
    fakegpu()->delay_us = 0;
    must(hearth_open(&r.opts, &r.h, &err), err);
}

Test(gpu_load_order, a_copy_that_fails_after_the_call_is_a_warning_with_the_number)
{
    struct hearth_piece other = p;
    char text[1000];
    uint32_t level;
    int found = 0;

    if (is_hip())
        return;
    other.data = (void *)(uintptr_t)device_new(1, sizeof(was));
    must(hearth_load(ckpt, &other, 1, 0, NULL, &err), err); /* a GPU that can undo registrations */
    must(hearth_checkpoint_stream(ckpt, stream, &err), err);
    fakegpu()->hold = 1;
    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    fakegpu_break(0, 700);
    fakegpu()->hold = 0;
    hearth_checkpoint_close(ckpt);
    await_leases(0);
    for (unsigned ms = 0; !found && ms < 5000; ms++) { /* the lease goes before the line comes */
        if (!hearth_log_poll(r.h, &level, text, sizeof(text)))
            pause_ms(1);
        else if (!strncmp(text, "load: ", 6)) {
            cr_expect(eq(u32, level, HEARTH_LOG_WARN));
            cr_expect(ne(ptr, strstr(text, "700"), NULL), "%s", text);
            cr_expect(ne(ptr, strstr(text, "'x'"), NULL), "%s", text);
            cr_expect(ne(ptr, strstr(text, "GPU 0"), NULL), "%s", text);
            found++;
        }
    }
    cr_expect(eq(int, found, 1));
}
