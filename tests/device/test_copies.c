/* SPDX-License-Identifier: Apache-2.0 */
/* Copies through the table of a driver, beside plain loops; their order; broken contexts. Run once
 * for each profile. */
#include "side.h"

#include <time.h>

#define BYTES (1u << 20) /* of each buffer */
#define BOXES 200
#define MANY  50000u

static uint64_t seed = 0x243f6a8885a308d3;
static unsigned char *host, *before, *image, *want;
static uint64_t device;

static void buffers_open(void)
{
    gpu_open(1);
    host = host_new(BYTES);
    before = malloc(BYTES);
    image = malloc(BYTES);
    want = malloc(BYTES);
    device = fakegpu_alloc(fakegpu_context(0), BYTES, FAKEGPU_PLAIN);
    for (size_t i = 0; i < BYTES; i++) {
        host[i] = (unsigned char)side_random(&seed);
        image[i] = (unsigned char)side_random(&seed);
    }
    memcpy(before, host, BYTES);
    fakegpu_poke(device, image, BYTES);
}

static void buffers_close(void)
{
    host_free(host, BYTES);
    fakegpu_free(device);
    free(before);
    free(image);
    free(want);
    gpu_close();
}

static uint64_t gap(uint64_t most)
{
    return side_random(&seed) % 2 ? 0 : side_random(&seed) % most;
}

/* Rows within planes, or the other way round; in a source they may overlap. */
static void steps_draw(const struct hth_device_copy *c, int source, uint64_t *row, uint64_t *plane)
{
    if (source && side_random(&seed) % 8 == 0) {
        *row = side_random(&seed) % (c->width + 1);
        *plane = side_random(&seed) % 100;
    } else if (source && side_random(&seed) % 8 == 0) {
        *row = c->width + gap(60);
        *plane = *row * (side_random(&seed) % c->rows);
    } else if (side_random(&seed) % 4) {
        *row = c->width + gap(60);
        *plane = *row * c->rows + (side_random(&seed) % 2 ? *row * gap(4) : gap(100));
    } else {
        *plane = c->width + gap(60);
        *row = *plane * c->planes + gap(100);
    }
}

/* A box within the first 1/4 MiB from `at` on. */
static struct hth_device_copy box_draw(enum hth_device_way way, size_t at)
{
    struct hth_device_copy c = {
        .width = 1 + side_random(&seed) % 300,
        .rows = 1 + side_random(&seed) % 8,
        .planes = 1 + side_random(&seed) % 6,
        .host = host + at + side_random(&seed) % 1000,
        .device = device + at + side_random(&seed) % 1000,
    };

    steps_draw(&c, way == HTH_TO_DEVICE, &c.host_row, &c.host_plane);
    steps_draw(&c, way == HTH_FROM_DEVICE, &c.device_row, &c.device_plane);
    return c;
}

/* The oracle: to and from are the images of both buffers. */
static void box_do(enum hth_device_way way, const struct hth_device_copy *c, unsigned char *of_host,
        unsigned char *of_device)
{
    for (uint64_t p = 0; p < c->planes; p++)
        for (uint64_t r = 0; r < c->rows; r++) {
            unsigned char *h = of_host + ((unsigned char *)c->host - host) + p * c->host_plane +
                               r * c->host_row;
            unsigned char *d =
                    of_device + (c->device - device) + p * c->device_plane + r * c->device_row;

            memcpy(way == HTH_FROM_DEVICE ? h : d, way == HTH_FROM_DEVICE ? d : h, c->width);
        }
}

static void boxes_run(enum hth_device_way way, size_t count)
{
    struct hth_device_copy c[4];
    size_t calls, bad;

    for (size_t i = 0; i < count; i++) {
        c[i] = box_draw(way, i * (BYTES / 4));
        box_do(way, &c[i], before, image);
    }
    must(gpu->copy(gpu_stream, way, c, count, &calls, &bad, &gpu_err), gpu_err);
    cr_expect(ge(sz, calls, 1));
    gpu_drain();
    fakegpu_peek(device, want, BYTES);
    cr_assert(zero(int, memcmp(host, before, BYTES)), "the host's memory differs");
    cr_assert(zero(int, memcmp(want, image, BYTES)), "the device's memory differs");
}

Test(copies, of_any_steps_equal_plain_loops)
{
    buffers_open();
    for (int i = 0; i < BOXES; i++)
        boxes_run(i % 2 ? HTH_FROM_DEVICE : HTH_TO_DEVICE, 1 + side_random(&seed) % 4);
    buffers_close();
}

Test(copies, of_nothing_are_no_call)
{
    struct hth_device_copy none[] = { { .rows = 1, .planes = 1 }, { .width = 1, .rows = 1 },
        { .width = 1, .planes = 1 } };
    size_t calls, bad;

    buffers_open();
    must(gpu->copy(gpu_stream, HTH_FROM_DEVICE, none, 3, &calls, &bad, &gpu_err), gpu_err);
    must(gpu->copy(gpu_stream, HTH_FROM_DEVICE, none, 0, &calls, &bad, &gpu_err), gpu_err);
    cr_expect(eq(sz, calls, 0));
    buffers_close();
}

/* What is contiguous in both places is one run. */
Test(copies, that_are_contiguous_take_one_call)
{
    struct hth_device_copy c = {
        .width = 64,
        .rows = 8,
        .planes = 4,
        .host_row = 64,
        .device_row = 64,
        .host_plane = 512,
        .device_plane = 512,
    };
    size_t calls, bad;

    buffers_open();
    c.host = host;
    c.device = device;
    fakegpu_calls_reset();
    must(gpu->copy(gpu_stream, HTH_FROM_DEVICE, &c, 1, &calls, &bad, &gpu_err), gpu_err);
    cr_expect(eq(sz, calls, 1));
    cr_expect(eq(u64, fakegpu_calls("cuMemcpyDtoHAsync_v2") + fakegpu_calls("hipMemcpyAsync"), 1));
    gpu_drain();
    cr_expect(zero(int, memcmp(host, image, 2048)));
    buffers_close();
}

static int has_batch(void)
{
    return strcmp(fakegpu_profile(), "12.0") != 0 && strcmp(fakegpu_profile(), "hip") != 0;
}

Test(copies, of_50000_small_tensors_go_in_batches)
{
    struct hth_device_copy *c = calloc(MANY, sizeof(*c));
    size_t calls, bad, most = has_batch() ? 13 : MANY;

    buffers_open();
    for (size_t i = 0; i < MANY; i++)
        c[i] = (struct hth_device_copy){
            .host = host + i * 20,
            .device = device + (MANY - 1 - i) * 20,
            .width = 20,
            .rows = 1,
            .planes = 1,
        };
    fakegpu_calls_reset();
    must(gpu->copy(gpu_stream, HTH_FROM_DEVICE, c, MANY, &calls, &bad, &gpu_err), gpu_err);
    cr_expect(le(sz, calls, most));
    cr_expect(eq(u64, fakegpu_calls(NULL), calls));
    gpu_drain();
    for (size_t i = 0; i < MANY; i++)
        cr_assert(zero(int, memcmp(host + i * 20, image + (MANY - 1 - i) * 20, 20)));
    fprintf(stderr, "%s: %.1f calls of the driver for 1,000 pieces\n", fakegpu_profile(),
            (double)calls * 1000 / MANY);
    free(c);
    buffers_close();
}

Test(copies, that_are_refused_name_the_piece_that_was)
{
    struct hth_device_copy c[3] = { { .width = 64, .rows = 1, .planes = 1 } };
    size_t calls, bad = 9;

    buffers_open();
    for (int i = 0; i < 3; i++) {
        c[i] = c[0];
        c[i].host = host + (size_t)i * 64;
        c[i].device = device + (uint64_t)i * 64;
    }
    c[1].device = device + BYTES - 8; /* beyond the device's memory */
    must_fail(gpu->copy(gpu_stream, HTH_FROM_DEVICE, c, 3, &calls, &bad, &gpu_err), HEARTH_EINVAL);
    cr_expect(eq(int, gpu_err.native, 1));
    if (strcmp(fakegpu_profile(), "12.8") == 0 || !has_batch())
        cr_expect(eq(sz, bad, 1));
    else
        cr_expect(lt(sz, bad, 3));
    gpu_drain();
    buffers_close();
}

/* So a caller waits for an event before it uses the memory for anything else. */
Test(copies, before_one_that_is_refused_may_be_done_all_the_same)
{
    struct hth_device_copy c[2];
    size_t calls, bad;

    buffers_open();
    for (int i = 0; i < 2; i++)
        c[i] = (struct hth_device_copy){
            .host = host, .device = device, .width = 64, .rows = 1, .planes = 1
        };
    c[1].device = device + BYTES;
    fakegpu()->partial = 1;
    must_fail(gpu->copy(gpu_stream, HTH_FROM_DEVICE, c, 2, &calls, &bad, &gpu_err), HEARTH_EINVAL);
    gpu_drain();
    cr_expect(zero(int, memcmp(host, image, 64)));
    buffers_close();
}

static uint64_t now_us(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

/* 1 MiB at 2 MiB/s. */
Test(copies, at_a_fixed_rate_take_their_time_and_the_call_does_not)
{
    uint64_t from;

    buffers_open();
    fakegpu()->rate_mib_s = 2;
    from = now_us();
    must(copy_one(HTH_FROM_DEVICE, host, device, BYTES), gpu_err);
    cr_expect(lt(u64, now_us() - from, 400000));
    gpu_drain();
    cr_expect(ge(u64, now_us() - from, 490000));
    fakegpu()->rate_mib_s = 0;
    buffers_close();
}

/* Of two streams the one that began later is done first, now and then. */
Test(copies, of_two_streams_overtake_each_other)
{
    void *streams[2], *events[2];
    int overtaken = 0;

    buffers_open();
    fakegpu()->delay_us = 2000;
    streams[0] = gpu_stream;
    must(gpu->stream_open(&streams[1], &gpu_err), gpu_err);
    for (int i = 0; i < 2; i++)
        must(gpu->event_open(&events[i], &gpu_err), gpu_err);
    for (int round = 0; round < 200 && !overtaken; round++) {
        int done[2] = { 0 };

        for (int i = 0; i < 2; i++)
            must(gpu->record(events[i], streams[i], &gpu_err), gpu_err);
        while (!done[0] || !done[1]) {
            must(gpu->done(events[1], &done[1], &gpu_err), gpu_err);
            must(gpu->done(events[0], &done[0], &gpu_err), gpu_err);
            overtaken |= done[1] && !done[0];
        }
    }
    cr_expect(eq(int, overtaken, 1));
    for (int i = 0; i < 2; i++)
        gpu->event_close(events[i]);
    gpu->stream_close(streams[1]);
    buffers_close();
}

Test(copies, hold_a_pattern_until_they_are_done)
{
    buffers_open();
    fakegpu()->hold = 1;
    must(copy_one(HTH_FROM_DEVICE, host, device, 4096), gpu_err);
    cr_expect(eq(int, host[0], FAKEGPU_PATTERN));
    cr_expect(eq(int, host[4095], FAKEGPU_PATTERN));
    cr_expect(eq(int, host[4096], before[4096]));
    fakegpu()->hold = 0;
    gpu_drain();
    cr_expect(zero(int, memcmp(host, image, 4096)));
    buffers_close();
}

/* ---- order ---- */

/* The trainer's stream writes `value`; Hearth's copies it out; the trainer's overwrites it. Returns
 * whether the copy has the value. */
static int overwritten(void *trainer, void *written, void *copied, int value, int fenced)
{
    int done = 0;

    fakegpu_fill(trainer, device, value, 512);
    must(gpu->record(written, trainer, &gpu_err), gpu_err);
    must(gpu->after(gpu_stream, written, &gpu_err), gpu_err);
    must(copy_one(HTH_FROM_DEVICE, host, device, 512), gpu_err);
    must(gpu->record(copied, gpu_stream, &gpu_err), gpu_err);
    if (fenced)
        must(gpu->after(trainer, copied, &gpu_err), gpu_err);
    fakegpu_fill(trainer, device, 0xee, 512);
    while (!done)
        must(gpu->done(copied, &done, &gpu_err), gpu_err);
    for (int i = 0; i < 512; i++)
        if (host[i] != value)
            return 0;
    return 1;
}

Test(copies, behind_a_fence_have_the_old_values)
{
    void *trainer, *written, *copied;
    int wrong = 0;

    buffers_open();
    trainer = fakegpu_stream();
    fakegpu()->delay_us = 50;
    must(gpu->event_open(&written, &gpu_err), gpu_err);
    must(gpu->event_open(&copied, &gpu_err), gpu_err);
    for (int i = 0; i < 1000; i++)
        cr_assert(eq(int, overwritten(trainer, written, copied, i % 200, 1), 1), "round %d", i);
    for (int i = 0; i < 1000 && !wrong; i++)
        wrong = !overwritten(trainer, written, copied, i % 200, 0);
    cr_expect(eq(int, wrong, 1), "without the fence no new value was seen");
    fakegpu_wait(trainer);
    gpu->event_close(written);
    gpu->event_close(copied);
    buffers_close();
}

Test(copies, to_a_device_come_before_the_stream_that_waits_for_them)
{
    unsigned char got;
    void *trainer, *copied;

    buffers_open();
    trainer = fakegpu_stream();
    fakegpu()->delay_us = 50;
    must(gpu->event_open(&copied, &gpu_err), gpu_err);
    for (int i = 0; i < 200; i++) {
        host[0] = (unsigned char)i;
        must(copy_one(HTH_TO_DEVICE, host, device, 1), gpu_err);
        must(gpu->record(copied, gpu_stream, &gpu_err), gpu_err);
        must(gpu->after(trainer, copied, &gpu_err), gpu_err);
        fakegpu_wait(trainer);
        fakegpu_peek(device, &got, 1);
        cr_assert(eq(int, got, i % 256));
    }
    gpu->event_close(copied);
    buffers_close();
}

Test(copies, of_two_devices_run_in_the_context_of_each)
{
    struct hth_device_at at = { .device = 1 };
    unsigned char one = 0;
    uint64_t there;
    void *stream_1;

    gpu_open(2);
    at.context = fakegpu_context(1);
    there = fakegpu_alloc(at.context, 64, FAKEGPU_PLAIN);
    host = host_new(4096);
    host[0] = 77;
    must(gpu->enter(&at, &gpu_err), gpu_err);
    must(gpu->stream_open(&stream_1, &gpu_err), gpu_err);
    gpu->leave();
    must(gpu->enter(&at, &gpu_err), gpu_err);
    {
        void *stream_0 = gpu_stream;

        gpu_stream = stream_1;
        must(copy_one(HTH_TO_DEVICE, host, there, 64), gpu_err);
        gpu_drain();
        gpu_stream = stream_0;
    }
    fakegpu_peek(there, &one, 1);
    cr_expect(eq(int, one, 77));
    gpu->stream_close(stream_1);
    gpu->leave();
    host_free(host, 4096);
    gpu_close();
}

/* ---- a broken context ---- */

Test(copies, in_a_broken_context_fail_with_its_code_and_end_nothing)
{
    void *event, *other;
    int done;

    buffers_open();
    must(gpu->event_open(&event, &gpu_err), gpu_err);
    fakegpu()->hold = 1;
    must(copy_one(HTH_FROM_DEVICE, host, device, 4096), gpu_err);
    must(gpu->record(event, gpu_stream, &gpu_err), gpu_err);
    must(gpu->done(event, &done, &gpu_err), gpu_err);
    cr_expect(eq(int, done, 0));
    fakegpu_break(0, 700);
    fakegpu()->hold = 0;
    must_fail(gpu->done(event, &done, &gpu_err), HEARTH_EIO);
    cr_expect(eq(int, gpu_err.native, 700));
    cr_expect(ne(ptr, strstr(gpu_err.text, "700 ("), NULL), "%s", gpu_err.text);
    cr_expect(ne(ptr, strstr(gpu_err.text, "started again"), NULL), "%s", gpu_err.text);
    must_fail(copy_one(HTH_FROM_DEVICE, host, device, 4096), HEARTH_EIO);
    must_fail(gpu->record(event, gpu_stream, &gpu_err), HEARTH_EIO);
    must_fail(gpu->stream_open(&other, &gpu_err), HEARTH_EIO);
    gpu->event_close(event);
    gpu->stream_close(gpu_stream);
    free(before);
    free(image);
    free(want);
}
