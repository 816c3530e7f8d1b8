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
    cr_expect(zero(int, read_only));
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
    struct hth_pin *pin = hth_pin_open(&device, base, MAPPED);
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

Test(parts, a_part_that_is_refused_leaves_nothing_registered)
{
    char text[1000];
    struct hth_pin *pin;

    noted.refuse_at = 3;
    pin = hth_pin_open(&device, base, MAPPED);
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
    struct hth_pin *pin = hth_pin_open(&device, base, MAPPED);

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
    pin = hth_pin_open(gone, base, MAPPED);
    hth_pins_forget(gone);
    memset(gone, 0xee, sizeof(*gone));
    free(gone);
    await(3);
    cr_expect(eq(u32, lines.count, 0));
    hth_pin_close(pin);
}

Test(parts, a_context_that_is_gone_keeps_what_is_registered_mapped)
{
    struct hth_pin *pin = hth_pin_open(&device, base, MAPPED);

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

/* All parts of a copy, done by the processor. */
static void copy_in_parts(const struct hth_device_copy *whole, uint64_t *state)
{
    for (uint64_t off = 0; off < hth_device_bytes(whole);) {
        struct hth_device_copy c;
        uint64_t n = hth_device_part(whole, off, next(state, 700), &c);
        unsigned char *to = c.host;

        cr_assert(gt(u64, n, 0));
        for (uint64_t p = 0; p < c.planes; p++)
            for (uint64_t row = 0; row < c.rows; row++, to += c.width)
                memcpy(to,
                        (const char *)(uintptr_t)(c.device + p * c.device_plane +
                                                  row * c.device_row),
                        c.width);
        off += n;
    }
}

Test(parts, a_tensor_in_parts_of_any_size_is_the_tensor)
{
    static unsigned char from[200000], to[20000];
    uint64_t state = 1;

    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i * 131 >> 3);
    for (int round = 0; round < 3000; round++) {
        int64_t shape[3], strides[3];
        struct hth_device_copy c;
        size_t at = 0;

        for (int d = 2, step = 1; d >= 0; d--) {
            shape[d] = (int64_t)next(&state, 9);
            step = step * (int)next(&state, 2) + (int)next(&state, 2) - 1;
            strides[d] = step;
            step *= (int)shape[d];
        }
        if (hth_device_shape(&c, 4, 3, shape, strides))
            continue;
        cr_assert(eq(u64, hth_device_bytes(&c), (uint64_t)(4 * shape[0] * shape[1] * shape[2])));
        c.host = to;
        c.device = (uintptr_t)from;
        copy_in_parts(&c, &state);
        for (int64_t i = 0; i < shape[0]; i++)
            for (int64_t j = 0; j < shape[1]; j++)
                for (int64_t k = 0; k < shape[2]; k++, at += 4)
                    cr_assert(zero(int,
                            memcmp(to + at,
                                    from + 4 * (i * strides[0] + j * strides[1] + k * strides[2]),
                                    4)));
    }
}

Test(parts, what_a_copy_engine_cannot_do_is_refused)
{
    static const int64_t four[] = { 2, 2, 2, 2 }, gaps[] = { 1000, 100, 20, 3 };
    static const int64_t two[] = { 4, 4 }, back[] = { -4, 1 }, same[] = { 0, 1 };
    static const int64_t dense[] = { 8, 4, 2, 1 };
    struct hth_device_copy c;

    cr_expect(lt(int, hth_device_shape(&c, 4, 4, four, gaps), 0));
    cr_expect(lt(int, hth_device_shape(&c, 4, 2, two, back), 0));
    cr_expect(lt(int, hth_device_shape(&c, 4, 2, two, same), 0));
    must(hth_device_shape(&c, 4, 4, four, dense));
    cr_expect(eq(u64, c.width, 64));
    must(hth_device_shape(&c, 4, 0, NULL, NULL));
    cr_expect(eq(u64, c.width, 4));
}
