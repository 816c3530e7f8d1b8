/* SPDX-License-Identifier: Apache-2.0 */
/* Loads into GPU memory from an object that is registered in several parts. */
#include "gpu_load_rig.h"

#include "client/device/device.h"
#include "core/format/block.h"
#include "core/format/chunk.h"

#define NEAR 200u /* bytes before and behind a border */

static void start(void)
{
    alarm(60);
    load_start();
}

TestSuite(gpu_load_large, .init = start, .fini = load_stop);

static unsigned char byte_at(uint64_t i)
{
    return (unsigned char)((i * UINT64_C(0x9e3779b97f4a7c15)) >> 55);
}

static struct hearth_piece bytes_of(
        const char *key, uint64_t at, uint32_t ndim, const int64_t *shape)
{
    struct hearth_piece p = rank_piece(key, (void *)(uintptr_t)at, ndim, shape);

    p.dtype = HEARTH_UINT8;
    return p;
}

/* This rank uses GPU memory, and the buffers are registered. */
static void warm_up(void)
{
    static const int64_t few = 100;
    struct hearth_piece p = bytes_of("w", device_new(0, 100), 1, &few);
    struct hearth_checkpoint *ckpt;
    static char host[100];

    p.data = host;
    rank_save(r.h, 1, &p, 1, NULL, 0);
    p.data = (void *)(uintptr_t)device_new(0, 100);
    fake_remote(r.fake, 1);
    ckpt = rank_recover(r.h, 1);
    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    hearth_checkpoint_close(ckpt);
    fake_remote(r.fake, 0);
    cr_assert(eq(u64, fakegpu()->registered, 1));
}

/* ---- every byte of an object in parts of two chunks ----------------------------------------- */

#define WIDE UINT64_C(4099)
#define ROWS UINT64_C(11260) /* 44 MiB: six registrations, and more than the two buffers */
#define STEP (WIDE + 13)     /* of a target's rows */
#define MOST (HTH_BLOCK + 2 * HTH_CHUNK)

static const int64_t shape[] = { ROWS, WIDE }, gaps[] = { STEP, 1 };

static void rows_hold(uint64_t at, uint64_t step)
{
    unsigned char *got = malloc(ROWS * step);

    fakegpu_peek(at, got, ROWS * step);
    for (uint64_t row = 0; row < ROWS; row++)
        for (uint64_t i = 0; i < step; i++)
            if (got[row * step + i] != (i < WIDE ? byte_at(row * WIDE + i) : 0))
                cr_assert(zero(int, 1), "byte %lu of row %lu", i, row);
    free(got);
}

/* One to nine bytes from each byte near a border on. Where the payload begins in its item is not
 * looked up: its header is shorter than what is near. */
static void near_borders(struct hearth_checkpoint *ckpt, void *stream)
{
    enum { BORDERS = 5, COUNT = BORDERS * 2 * NEAR };
    static const int64_t whole[] = { ROWS, WIDE };
    static int64_t offset[COUNT][2], box[COUNT][2];
    static struct hearth_piece p[COUNT];
    uint64_t at = device_new(0, COUNT * 9);
    static unsigned char got[COUNT * 9];

    for (uint64_t i = 0; i < COUNT; i++) {
        uint64_t byte = (i / (2 * NEAR) + 1) * 2 * HTH_CHUNK + i % (2 * NEAR) - 2 * NEAR + 10;

        offset[i][0] = (int64_t)(byte / WIDE);
        offset[i][1] = (int64_t)(byte % WIDE);
        box[i][0] = 1;
        box[i][1] = 1 + (int64_t)(i % 9);
        if (offset[i][1] + box[i][1] > (int64_t)WIDE)
            box[i][1] = 1;
        p[i] = bytes_of("x", at + i * 9, 2, box[i]);
        p[i].global_shape = whole;
        p[i].global_offset = offset[i];
    }
    must(hearth_load(ckpt, p, COUNT, 0, NULL, &err), err);
    if (stream)
        fakegpu_wait(stream);
    fakegpu_peek(at, got, sizeof(got));
    for (uint64_t i = 0; i < COUNT; i++)
        for (int64_t b = 0; b < box[i][1]; b++)
            cr_assert(eq(u8, got[i * 9 + (uint64_t)b],
                    byte_at((uint64_t)offset[i][0] * WIDE + (uint64_t)(offset[i][1] + b))));
    fakegpu_free(at);
}

Test(gpu_load_large, every_byte_at_the_borders_of_registrations_arrives)
{
    static struct hth_driver small; /* the least registrations that there are */
    struct hearth_piece p[2];
    struct hearth_checkpoint *ckpt;
    void *stream = fakegpu_stream();
    unsigned char *host = malloc(ROWS * WIDE);

    if (!pins_reads()) {
        free(host);
        return;
    }
    warm_up();
    small = *r.h->device->driver;
    small.pin_most = MOST;
    r.h->device->driver = &small;
    for (uint64_t i = 0; i < ROWS * WIDE; i++)
        host[i] = byte_at(i);
    p[0] = bytes_of("x", (uint64_t)(uintptr_t)host, 2, shape);
    rank_save(r.h, 2, p, 1, NULL, 0);
    free(host);
    p[0].data = (void *)(uintptr_t)device_new(0, ROWS * WIDE);
    p[1] = p[0];
    p[1].data = (void *)(uintptr_t)device_new(1, ROWS * STEP);
    p[1].strides = gaps;
    ckpt = rank_recover(r.h, 2);
    near_borders(ckpt, NULL); /* it is queued to be registered */
    await_registered(1 + 6);
    cr_expect(le(u64, fakegpu()->register_most, UINT64_C(32) << 20), "the buffers");
    must(hearth_checkpoint_stream(ckpt, stream, &err), err);
    fakegpu()->hold = 1; /* no buffer becomes free */
    must(hearth_load(ckpt, p, 2, 0, NULL, &err), err);
    fakegpu()->hold = 0;
    fakegpu_wait(stream);
    rows_hold((uint64_t)(uintptr_t)p[0].data, WIDE);
    rows_hold((uint64_t)(uintptr_t)p[1].data, STEP);
    near_borders(ckpt, stream);
    hearth_checkpoint_close(ckpt);
    await_registered(1);
}

/* ---- more than 1 GiB ------------------------------------------------------------------------ */

#define LARGE  ((UINT64_C(1) << 30) + (UINT64_C(5) << 20))
#define BORDER ((UINT64_C(1) << 30) - HTH_CHUNK) /* of its data: 1 GiB with the block, at most */
#define PART   (UINT64_C(1) << 20)               /* of it that is not 0, in the middle the border */

static struct hearth_checkpoint *save_large(void)
{
    static const int64_t all[] = { LARGE };
    struct hearth_piece p = bytes_of("x", 0, 1, all);
    struct hearth_save *save = rank_begin(r.h, 2, hearth_save_bytes(&p, 1, NULL, 0));
    void *at;

    must(hearth_save_reserve(save, &p, 1, &at, &err), err);
    for (uint64_t i = BORDER - PART / 2; i < BORDER + PART / 2; i++)
        ((unsigned char *)at)[i] = byte_at(i);
    rank_protect(rank_commit(save));
    return rank_recover(r.h, 2);
}

static void load_border(struct hearth_checkpoint *ckpt, uint64_t at)
{
    static const int64_t all[] = { LARGE }, part[] = { PART }, from[] = { BORDER - PART / 2 };
    struct hearth_piece p = bytes_of("x", at, 1, part);
    static unsigned char got[PART];

    p.global_shape = all;
    p.global_offset = from;
    must(hearth_load(ckpt, &p, 1, 0, NULL, &err), err);
    fakegpu_peek(at, got, PART);
    for (uint64_t i = 0; i < PART; i++)
        if (got[i] != byte_at(i + BORDER - PART / 2))
            cr_assert(zero(int, 1), "byte %lu of the part", i);
    memset(got, 0, PART);
    fakegpu_poke(at, got, PART);
}

/* The least that a driver or a kernel refuses in one call is 1 GiB here. */
Test(gpu_load_large, an_object_of_more_than_a_gib_is_registered_in_parts)
{
    struct hearth_checkpoint *ckpt;
    uint64_t at;

    if (!pins_reads())
        return;
    fakegpu()->scale = strcmp(fakegpu_profile(), "r580") ? 2 : 512;
    warm_up();
    at = device_new(0, PART);
    ckpt = save_large();
    load_border(ckpt, at);
    await_registered(1 + 2);
    cr_expect(lt(u64, fakegpu()->register_most, UINT64_C(1) << 30));
    cr_expect(gt(u64, fakegpu()->registered_bytes, LARGE));
    cr_expect(zero(u64, fakegpu()->register_absent), "pages are present before");
    load_border(ckpt, at);
    hearth_checkpoint_close(ckpt);
    await_registered(1);
}
