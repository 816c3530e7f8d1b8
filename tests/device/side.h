/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of client/device share: a device, its context, and Hearth's stream in it. */
#ifndef SIDE_H
#define SIDE_H

#include "check.h"

#include "client/device/driver.h"
#include "fakegpu.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct hth_driver *gpu;
static struct hearth_error gpu_err;
static struct hth_device_at gpu_at; /* of device 0 */
static void *gpu_stream;

/* The driver as FAKEGPU_PROFILE names it. The trainer's context is current in this thread, and a
 * stream of Hearth's is there. */
static inline void gpu_open(int devices)
{
    alarm(100);
    fakegpu_start(NULL, devices);
    fakegpu_current(fakegpu_context(0));
    must(hth_driver_find(&gpu, &gpu_err), gpu_err);
    cr_assert(ne(ptr, gpu, NULL));
    gpu_at = (struct hth_device_at){ .device = 0, .context = fakegpu_context(0) };
    must(gpu->enter(&gpu_at, &gpu_err), gpu_err);
    must(gpu->stream_open(&gpu_stream, &gpu_err), gpu_err);
}

static inline void gpu_close(void)
{
    gpu->stream_close(gpu_stream);
    gpu->leave();
    cr_expect(eq(u64, fakegpu()->sins, 0), "%s", fakegpu()->sin);
}

/* Until all that is enqueued on Hearth's stream is done. */
static inline void gpu_drain(void)
{
    void *event;
    int done = 0;

    must(gpu->event_open(&event, &gpu_err), gpu_err);
    must(gpu->record(event, gpu_stream, &gpu_err), gpu_err);
    while (!done) {
        must(gpu->done(event, &done, &gpu_err), gpu_err);
        usleep(20);
    }
    gpu->event_close(event);
}

/* Pages that are present, and pinned. */
static inline unsigned char *host_new(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    cr_assert(ne(ptr, p, MAP_FAILED));
    memset(p, 0x11, bytes);
    must(gpu->pin(p, bytes, 0, &gpu_err), gpu_err);
    return p;
}

static inline void host_free(unsigned char *p, size_t bytes)
{
    must(gpu->unpin(p, &gpu_err), gpu_err);
    munmap(p, bytes);
}

static inline int copy_one(enum hth_device_way way, void *host, uint64_t device, uint64_t bytes)
{
    struct hth_device_copy c = {
        .host = host, .device = device, .width = bytes, .rows = 1, .planes = 1
    };
    size_t calls, bad;

    return gpu->copy(gpu_stream, way, &c, 1, &calls, &bad, &gpu_err);
}

static inline uint64_t side_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state >> 11;
}

#endif
