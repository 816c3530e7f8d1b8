/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that are loaded into GPU memory, registered with its driver, and given back. */
#include "gpu_load_rig.h"

#include <sys/wait.h>

#define N (10u << 20) /* floats: more than the two buffers */

static float was[N], got[N];
static const int64_t all[] = { N };
static struct hearth_piece p;
static uint64_t at;
static void *stream;

static void start(void)
{
    load_start();
    rank_fill(was, N, 5);
    at = device_new(0, sizeof(was));
    stream = fakegpu_stream();
}

TestSuite(gpu_load_pins, .init = start, .fini = load_stop);

static void load(struct hearth_checkpoint *ckpt)
{
    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
}

/* The buffers are registered by then: bytes of other nodes go through them. */
static struct hearth_checkpoint *saved(uint64_t step)
{
    struct hearth_checkpoint *ckpt;

    p = rank_piece("x", was, 1, all);
    rank_save(r.h, step, &p, 1, NULL, 0);
    p.data = (void *)(uintptr_t)at;
    fake_remote(r.fake, 1);
    ckpt = rank_recover(r.h, step);
    load(ckpt);
    hearth_checkpoint_close(ckpt);
    cr_assert(eq(u64, fakegpu()->registered, 1));
    fake_remote(r.fake, 0);
    return rank_recover(r.h, step);
}

static void holds(void)
{
    fakegpu_peek(at, got, sizeof(got));
    cr_assert(zero(int, memcmp(got, was, sizeof(got))));
    memset(got, 0, sizeof(got));
    fakegpu_poke(at, got, sizeof(got));
}

Test(gpu_load_pins, an_object_is_pinned_once_for_all_checkpoints_of_it_until_the_last_is_closed)
{
    struct hearth_checkpoint *ckpt = saved(1), *other;
    uint64_t ever;

    load(ckpt);
    holds();
    if (!pins_reads()) {
        pause_ms(50);
        cr_expect(eq(u64, fakegpu()->registered, 1), "the buffers alone");
        hearth_checkpoint_close(ckpt);
        return;
    }
    await_registered(2);
    ever = fakegpu()->registrations;
    must(hearth_checkpoint_open(r.h, 1, &other, &err), err);
    load(other);
    holds();
    load(ckpt);
    holds();
    cr_expect(eq(u64, fakegpu()->registrations, ever));
    hearth_checkpoint_close(ckpt);
    pause_ms(20);
    cr_expect(eq(u64, fakegpu()->registered, 2), "the other one reads it");
    hearth_checkpoint_close(other);
    await_registered(1);
}

Test(gpu_load_pins,
        a_pinned_object_is_copied_without_the_buffers_and_held_until_the_copies_are_done)
{
    struct hearth_checkpoint *ckpt;

    if (!pins_reads())
        return;
    ckpt = saved(1);
    load(ckpt);
    holds();
    await_registered(2);
    must(hearth_checkpoint_stream(ckpt, stream, &err), err);
    fakegpu()->hold = 1;
    load(ckpt); /* 40 MiB, and no buffer becomes free */
    hearth_checkpoint_close(ckpt);
    pause_ms(30);
    cr_expect(eq(u64, fakegpu()->registered, 2));
    cr_expect(eq(u32, fake_counts(r.fake).leases, 1));
    fakegpu()->hold = 0;
    fakegpu_wait(stream);
    holds();
    await_registered(1);
}

Test(gpu_load_pins,
        an_object_that_the_driver_does_not_pin_is_one_warning_and_goes_through_the_buffers)
{
    struct hearth_checkpoint *ckpt;
    char text[1000];
    uint32_t level;
    int found = 0;

    if (!pins_reads())
        return;
    ckpt = saved(1);
    fakegpu_refuse("cuMemHostRegister_v2", 0, 801);
    for (int i = 0; i < 2; i++) {
        load(ckpt);
        holds();
        pause_ms(30);
    }
    hearth_checkpoint_close(ckpt);
    while (hearth_log_poll(r.h, &level, text, sizeof(text)))
        if (!strncmp(text, "pin: ", 5)) {
            cr_expect(eq(u32, level, HEARTH_LOG_WARN), "%s", text);
            cr_expect(ne(ptr, strstr(text, "801"), NULL), "%s", text);
            found++;
        }
    cr_expect(eq(int, found, 1));
}

Test(gpu_load_pins, without_pinning_no_object_is_registered)
{
    struct hearth_checkpoint *ckpt = saved(1);

    hearth_checkpoint_close(ckpt);
    hearth_close(r.h, HEARTH_KEEP);
    r.opts.pin = HEARTH_PIN_NO;
    must(hearth_open(&r.opts, &r.h, &err), err);
    ckpt = rank_recover(r.h, 1);
    load(ckpt);
    holds();
    load(ckpt);
    holds();
    cr_expect(eq(u64, fakegpu()->registered, 1), "the buffers alone");
    hearth_checkpoint_close(ckpt);
}

/* ---- over a long life ----------------------------------------------------------------------- */

enum { PARTS = 6, ROWS = 60, WIDE = 50 };

/* The rows of one tensor in other parts than those that were saved. */
static void reshard(struct hearth_checkpoint *ckpt, uint64_t to, const float *want, unsigned parts)
{
    static const int64_t global[] = { ROWS, WIDE };
    static float back[ROWS * WIDE];
    struct hearth_piece q[ROWS];
    int64_t shape[ROWS][2], offset[ROWS][2];

    for (unsigned i = 0; i < parts; i++) {
        offset[i][0] = (int64_t)(ROWS * i / parts);
        offset[i][1] = 0;
        shape[i][0] = (int64_t)(ROWS * (i + 1) / parts) - offset[i][0];
        shape[i][1] = WIDE;
        q[i] = rank_piece(
                "w", (void *)(uintptr_t)(to + (uint64_t)offset[i][0] * WIDE * 4), 2, shape[i]);
        q[i].global_shape = global;
        q[i].global_offset = offset[i];
    }
    must(hearth_load(ckpt, q, parts, 0, NULL, &err), err);
    fakegpu_peek(to, back, sizeof(back));
    cr_assert(zero(int, memcmp(back, want, sizeof(back))));
}

static void forks(struct hearth_checkpoint *ckpt)
{
    pid_t child = fork();
    int status;

    if (!child) {
        int refused = hearth_load(ckpt, &p, 1, 0, NULL, NULL) == HEARTH_EFORK;

        hearth_checkpoint_close(ckpt); /* changes nothing of the parent's */
        _exit(!refused);
    }
    cr_assert(eq(int, waitpid(child, &status, 0), child));
    cr_assert(zero(int, status));
}

Test(gpu_load_pins, two_hundred_saves_loads_and_fifty_forks_leave_what_is_mapped_registered,
        .timeout = 100)
{
    static float rows[ROWS * WIDE];
    static const int64_t global[] = { ROWS, WIDE }, part[] = { ROWS / PARTS, WIDE };
    uint64_t from, to, before = 0; /* registrations of slots, and the buffers */
    struct hearth_piece q[PARTS];
    int64_t offset[PARTS][2];

    alarm(100);
    from = device_new(0, sizeof(rows));
    to = device_new(0, sizeof(rows));
    for (unsigned i = 0; i < PARTS; i++) {
        offset[i][0] = (int64_t)(ROWS / PARTS * i);
        offset[i][1] = 0;
        q[i] = rank_piece(
                "w", (void *)(uintptr_t)(from + (uint64_t)offset[i][0] * WIDE * 4), 2, part);
        q[i].memory = HEARTH_CUDA;
        q[i].global_shape = global;
        q[i].global_offset = offset[i];
    }
    for (uint64_t step = 1; step <= 200; step++) {
        struct hearth_view view = HEARTH_VIEW_INIT;
        struct hearth_item item = HEARTH_ITEM_INIT;
        struct hearth_checkpoint *ckpt;
        struct hearth_save *save;
        size_t n;

        rank_fill(rows, ROWS * WIDE, (float)step);
        fakegpu_poke(from, rows, sizeof(rows));
        save = rank_begin(r.h, step, hearth_save_bytes(q, PARTS, NULL, 0));
        must(hearth_save_add(save, q, PARTS, &err), err);
        rank_protect(rank_commit(save));
        if (step % 50 == 0) {
            pause_ms(100);
            before = fakegpu()->registered;
        }
        if (step % 20 == 15) /* a new epoch: its slots are mapped anew */
            ckpt = rank_recover(r.h, step);
        else
            must(hearth_checkpoint_open(r.h, step, &ckpt, &err), err);
        reshard(ckpt, to, rows, 1 + (unsigned)(step % 9));
        if (step % 50 == 0)
            await_registered(before + (uint64_t)pins_reads());
        must(hearth_item_find(ckpt, "w", 1, &item, 1, &n, &err), err);
        must(hearth_view_open(ckpt, &item, &view, &err), err);
        if (step % 4 == 0)
            forks(ckpt);
        hearth_checkpoint_close(ckpt);
        cr_assert(zero(int, memcmp(view.data, rows, view.bytes)));
        hearth_view_close(r.h, &view);
        if (step % 50 == 0)
            await_registered(before);
    }
    cr_expect(ge(u64, before, is_hip() ? 1 : 2));
    cr_assert(zero(u32, fake_counts(r.fake).leases));
}
