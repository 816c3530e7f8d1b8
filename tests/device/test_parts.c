/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as rows and planes, and slots pinned in parts: over a table of functions of this test. */
#include "check.h"

#include "client/base/clock.h"
#include "client/device/cut.h"
#include "client/device/device.h"
#include "client/device/pin.h"
#include "core/base/fail.h"
#include "core/format/block.h"
#include "core/format/chunk.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define MOST   (HTH_BLOCK + 2 * HTH_CHUNK) /* of a registration here */
#define MAPPED (7 * HTH_CHUNK + HTH_BLOCK)

/* ---- a driver that notes what it is asked for ----------------------------------------------- */

static struct {
    pthread_mutex_t lock;
    struct {
        unsigned char *base;
        uint64_t bytes;
    } now[16];
    unsigned registered, ever, undone, refuse_at; /* refuse_at: 0: none */
    int read_only;                                /* calls with it */
    unsigned char *last_undone;
    uint64_t at_ms[16];
    pthread_t thread;
} noted = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int note_enter(const struct hth_device_at *at, struct hearth_error *err)
{
    return at->device ? hth_fail(err, HEARTH_EIO, 201, "another device") : 0;
}

static void note_leave(void)
{
}

static int note_pin(void *base, uint64_t bytes, int read_only, struct hearth_error *err)
{
    int rc = 0;

    pthread_mutex_lock(&noted.lock);
    noted.read_only += read_only;
    cr_expect(le(u64, bytes, MOST));
    noted.thread = pthread_self();
    noted.at_ms[noted.ever] = hth_mono_ms();
    if (++noted.ever == noted.refuse_at)
        rc = hth_fail(err, HEARTH_ENOMEM, 2, "the call says 2");
    if (!rc) {
        noted.now[noted.registered].base = base;
        noted.now[noted.registered++].bytes = bytes;
    }
    pthread_mutex_unlock(&noted.lock);
    return rc;
}

static int note_unpin(void *base, struct hearth_error *err)
{
    int rc = 0;

    pthread_mutex_lock(&noted.lock);
    if (!noted.registered || noted.now[noted.registered - 1].base != base)
        rc = hth_fail(err, HEARTH_EIO, 713, "not the last one");
    else
        noted.registered--;
    noted.undone++;
    pthread_mutex_unlock(&noted.lock);
    return rc;
}

static const struct hth_driver driver = { .name = "test",
    .pin_most = MOST,
    .enter = note_enter,
    .leave = note_leave,
    .pin = note_pin,
    .unpin = note_unpin };

static struct hth_lines lines;
static struct hth_device device = { .driver = &driver, .lines = &lines, .pin = 1 };
static unsigned char *base;

static void start(void)
{
    struct hearth_opts opts = HEARTH_OPTS_INIT;

    opts.log_level = HEARTH_LOG_INFO;
    must(hth_lines_init(&lines, &opts));
    base = mmap(NULL, MAPPED, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    cr_assert(ne(ptr, base, MAP_FAILED));
}

static void stop(void)
{
    cr_assert(hth_pins_closed(hth_until_ms(5000)));
    cr_expect(eq(u32, noted.registered, 0));
    hth_lines_fini(&lines);
}

TestSuite(parts, .init = start, .fini = stop);

/* Tries of the first `calls` are over. */
static void await(unsigned calls)
{
    const struct timespec ms = { .tv_nsec = 1000000 };
    unsigned ever = 0;

    for (int i = 0; i < 3000 && ever < calls; i++) {
        nanosleep(&ms, NULL);
        pthread_mutex_lock(&noted.lock);
        ever = noted.ever;
        pthread_mutex_unlock(&noted.lock);
    }
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
}

Test(parts, a_slot_is_pinned_in_parts_that_end_where_chunks_do)
{
    struct hth_pin *pin = hth_pin_open(&device, base, MAPPED, 0);
    uint64_t at = 0;

    cr_assert(ne(ptr, pin, NULL));
    await(4);
    cr_assert(eq(u32, noted.registered, 4));
    cr_expect(zero(int, pthread_equal(noted.thread, pthread_self())));
    for (unsigned i = 0; i < 4; i++) {
        cr_expect(eq(ptr, noted.now[i].base, base + at));
        at += noted.now[i].bytes;
        cr_expect(eq(u64, at, i < 3 ? HTH_BLOCK + 2 * (i + 1) * HTH_CHUNK : MAPPED));
        cr_expect(!i || gt(u64, noted.at_ms[i], noted.at_ms[i - 1])); /* a pause */
    }
    cr_expect(eq(u64, hth_pin_reach(pin, base), MOST));
    cr_expect(eq(u64, hth_pin_reach(pin, base + MOST - 1), 1));
    cr_expect(eq(u64, hth_pin_reach(pin, base + MOST), 2 * HTH_CHUNK));
    cr_expect(eq(u64, hth_pin_reach(pin, base + MAPPED - 5), 5));
    hth_pin_close(pin);
}

Test(parts, a_mapping_that_is_only_read_is_pinned_as_such_where_the_device_can)
{
    struct hth_pin *pin = hth_pin_open(&device, base, MAPPED, 1);

    cr_expect(eq(ptr, pin, NULL));
    device.pin_reads = device.read_only = 1;
    must(mprotect(base, MAPPED, PROT_READ));
    pin = hth_pin_open(&device, base, MAPPED, 1);
    await(4);
    cr_expect(eq(u32, noted.registered, 4));
    cr_expect(eq(int, noted.read_only, 4));
    cr_expect(eq(u64, hth_pin_reach(pin, base), MOST));
    hth_pin_close(pin);
    cr_assert(hth_pins_closed(hth_until_ms(5000)));
    device.read_only = 0; /* it uses the processor's page tables */
    base = mmap(NULL, MAPPED, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pin = hth_pin_open(&device, base, MAPPED, 1);
    await(8);
    cr_expect(eq(int, noted.read_only, 4));
    hth_pin_close(pin);
}

Test(parts, a_part_that_is_refused_leaves_nothing_registered)
{
    char text[1000];
    struct hth_pin *pin;

    noted.refuse_at = 3;
    pin = hth_pin_open(&device, base, MAPPED, 0);
    await(3);
    cr_expect(eq(u32, noted.registered, 0));
    cr_expect(eq(u32, noted.undone, 2));
    cr_expect(zero(u64, hth_pin_reach(pin, base)));
    cr_expect(eq(u32, lines.count, 1));
    snprintf(text, sizeof(text), "%d", atomic_load(&device.said));
    must_say(text, "1");
    hth_pin_close(pin);
}

Test(parts, a_slot_that_goes_while_it_is_pinned_leaves_nothing_registered)
{
    struct hth_pin *pin = hth_pin_open(&device, base, MAPPED, 0);

    await(1);
    hth_pin_close(pin);
    cr_assert(hth_pins_closed(hth_until_ms(5000)));
    cr_expect(eq(u32, noted.registered, 0));
    cr_expect(eq(int, msync(base, 4096, MS_ASYNC), -1)); /* unmapped */
}

Test(parts, a_slot_whose_membership_is_gone_is_not_spoken_of)
{
    struct hth_device *gone = malloc(sizeof(*gone));
    struct hth_pin *pin;

    *gone = device;
    noted.refuse_at = 3;
    pin = hth_pin_open(gone, base, MAPPED, 0);
    hth_pins_forget(gone);
    memset(gone, 0xee, sizeof(*gone));
    free(gone);
    await(3);
    cr_expect(eq(u32, lines.count, 0));
    hth_pin_close(pin);
}

Test(parts, a_context_that_is_gone_keeps_what_is_registered_mapped)
{
    struct hth_pin *pin = hth_pin_open(&device, base, MAPPED, 0);

    await(4);
    pthread_mutex_lock(&noted.lock);
    noted.registered--; /* the driver refuses the last one now */
    pthread_mutex_unlock(&noted.lock);
    hth_pin_close(pin);
    cr_assert(hth_pins_closed(hth_until_ms(5000)));
    cr_expect(zero(int, msync(base, 4096, MS_ASYNC)));
    noted.registered = 0;
}

/* ---- cut ------------------------------------------------------------------------------------ */

static uint64_t next(uint64_t *state, uint64_t most)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (*state >> 33) % most + 1;
}

/* All parts of a copy, done by the processor, in random sizes. */
static void copy_in_parts(const struct hth_device_copy *whole, uint64_t *state)
{
    for (uint64_t off = 0; off < hth_device_bytes(whole);) {
        struct hth_device_copy c;
        uint64_t most = next(state, 700), reach = next(state, 3000);
        uint64_t n = hth_device_part(whole, off, most, reach, &c);
        unsigned char *host = c.host;

        cr_assert(gt(u64, n, 0));
        cr_assert(le(u64, n, most));
        cr_assert(le(
                u64, (c.planes - 1) * c.host_plane + (c.rows - 1) * c.host_row + c.width, reach));
        cr_assert(eq(ptr, c.host, hth_device_host(whole, off)));
        for (uint64_t p = 0; p < c.planes; p++)
            for (uint64_t row = 0; row < c.rows; row++)
                memcpy(host + p * c.host_plane + row * c.host_row,
                        (const char *)(uintptr_t)(c.device + p * c.device_plane +
                                                  row * c.device_row),
                        c.width);
        off += n;
    }
}

/* Strides of dimensions in a random order, some with gaps. Returns the elements that they span. */
static int64_t strides_random(
        uint64_t *state, uint32_t ndim, const int64_t *shape, int shuffle, int64_t *out)
{
    uint32_t order[8];
    int64_t step = 1;

    for (uint32_t i = 0; i < ndim; i++)
        order[i] = ndim - 1 - i;
    for (uint32_t i = ndim; shuffle && i > 1; i--) {
        uint32_t j = (uint32_t)next(state, i) - 1, was = order[i - 1];

        order[i - 1] = order[j];
        order[j] = was;
    }
    for (uint32_t i = 0; i < ndim; i++) {
        step = step + (next(state, 3) == 1 ? (int64_t)next(state, 3) : 0);
        out[order[i]] = step;
        step *= shape[order[i]];
    }
    return step;
}

Test(parts, a_tensor_of_any_strides_in_parts_of_any_size_is_the_tensor)
{
    static unsigned char from[4000000], to[4000000];
    uint64_t state = 1, most_copies = 0;

    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i * 131 >> 3);
    for (int round = 0; round < 3000; round++) {
        uint32_t ndim = (uint32_t)next(&state, 7), elem = 1u << (next(&state, 5) - 1);
        int64_t shape[8], host[8], steps[8], first = 0, elements = 1, span;
        struct hth_device_shape s;
        struct hth_device_copy c;

        for (uint32_t d = 0; d < ndim; d++)
            elements *= shape[d] = (int64_t)next(&state, 4);
        span = strides_random(&state, ndim, shape, next(&state, 2) == 1, steps);
        if (span * elem > (int64_t)sizeof(from) ||
                strides_random(&state, ndim, shape, 0, host) * elem > (int64_t)sizeof(to))
            continue;
        for (uint32_t d = 0; d < ndim; d++)
            if (next(&state, 6) == 1) { /* backwards */
                first += (shape[d] - 1) * steps[d];
                steps[d] = -steps[d];
            } else if (next(&state, 12) == 1) { /* the same elements again */
                steps[d] = 0;
            }
        hth_device_shape(&s, elem, ndim, shape, host, steps);
        most_copies = s.copies > most_copies ? s.copies : most_copies;
        for (uint64_t i = 0; i < s.copies; i++) {
            hth_device_shape_at(&s, i, to, (uintptr_t)(from + first * elem), &c);
            copy_in_parts(&c, &state);
        }
        for (int64_t e = 0; e < elements; e++) {
            int64_t rest = e, at_host = 0, at_device = first;

            for (uint32_t d = ndim; d-- > 0; rest /= shape[d]) {
                at_host += rest % shape[d] * host[d];
                at_device += rest % shape[d] * steps[d];
            }
            cr_assert(zero(int, memcmp(to + at_host * elem, from + at_device * elem, elem)),
                    "round %d", round);
        }
    }
    cr_expect(gt(u64, most_copies, 1));
}

static void shape_is(uint32_t ndim, const int64_t *shape, const int64_t *steps, uint64_t copies,
        uint64_t width, uint64_t rows, uint64_t planes)
{
    struct hth_device_shape s;

    hth_device_shape(&s, 4, ndim, shape, NULL, steps);
    cr_expect(eq(u64, s.copies, copies));
    cr_expect(eq(u64, s.copy.width, width));
    cr_expect(eq(u64, s.copy.rows, rows));
    cr_expect(eq(u64, s.copy.planes, planes));
}

Test(parts, a_tensor_is_as_few_copies_as_it_can_be)
{
    static const int64_t four[] = { 2, 2, 2, 2 }, gaps[] = { 1000, 100, 20, 3 };
    static const int64_t dense[] = { 8, 4, 2, 1 }, apart[] = { 1000, 100, 10, 1 };
    static const int64_t five[] = { 3, 7, 2, 4, 5 }, more[] = { 100000, 9000, 500, 30, 2 };

    shape_is(0, NULL, NULL, 1, 4, 1, 1);
    shape_is(4, four, dense, 1, 64, 1, 1);
    shape_is(4, four, NULL, 1, 64, 1, 1);
    shape_is(4, four, apart, 2, 8, 2, 2);
    shape_is(4, four, gaps, 4, 4, 2, 2);
    shape_is(5, five, more, 24, 4, 5, 7); /* 3 * 2 * 4 copies: the longest are in them */
}
