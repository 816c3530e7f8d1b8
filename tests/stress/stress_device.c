/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that copy, pin, classify and ask at once, over the driver of the tests with random delays
 * and slow registrations: every copy has the bytes of its own round.
 */
#include "client/device/driver.h"
#include "fakegpu.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define THREADS 4
#define ROUNDS  150
#define BYTES   65536u

static const struct hth_driver *gpu;
static _Atomic int failures;

#define MUST(call)                                        \
    do {                                                  \
        struct hearth_error err = { 0 };                  \
        if (call) {                                       \
            fprintf(stderr, "%s: %s\n", #call, err.text); \
            failures++;                                   \
        }                                                 \
    } while (0)

struct worker {
    struct hth_device_at at;
    uint64_t device;
    unsigned char *host;
    void *stream, *event, *trainer;
};

static void worker_wait(const struct worker *w)
{
    int done = 0;

    MUST(gpu->record(w->event, w->stream, &err));
    while (!done && !failures) {
        MUST(gpu->done(w->event, &done, &err));
        usleep(10);
    }
}

static void worker_round(const struct worker *w, int value)
{
    struct hth_device_copy c[2] = { { 0 } };
    size_t calls, bad;

    for (int i = 0; i < 2; i++)
        c[i] = (struct hth_device_copy){
            .host = w->host + (size_t)i * BYTES / 2,
            .device = w->device + (uint64_t)i * BYTES / 2,
            .width = BYTES / 2,
            .rows = 1,
            .planes = 1,
        };
    MUST(gpu->pin(w->host, BYTES, 0, &err));
    fakegpu_fill(w->trainer, w->device, value, BYTES);
    MUST(gpu->record(w->event, w->trainer, &err));
    MUST(gpu->after(w->stream, w->event, &err));
    MUST(gpu->copy(w->stream, HTH_FROM_DEVICE, c, 2, &calls, &bad, &err));
    worker_wait(w);
    for (size_t i = 0; i < BYTES; i++)
        if (w->host[i] != value) {
            fprintf(stderr, "byte %zu is %d, not %d\n", i, w->host[i], value);
            failures++;
            break;
        }
    MUST(gpu->unpin(w->host, &err));
}

static void *worker_run(void *arg)
{
    struct worker w = { .at = { .device = (int)(intptr_t)arg % 2 } };
    struct hth_device_at seen;

    w.at.context = fakegpu_context(w.at.device);
    w.device = fakegpu_alloc(w.at.context, BYTES, FAKEGPU_PLAIN);
    w.host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(gpu->enter(&w.at, &err));
    MUST(gpu->stream_open(&w.stream, &err));
    MUST(gpu->event_open(&w.event, &err));
    w.trainer = fakegpu_stream();
    for (int i = 0; i < ROUNDS && !failures; i++) {
        MUST(gpu->at((void *)(uintptr_t)w.device, &seen, &err));
        if (seen.device != w.at.device)
            failures++;
        worker_round(&w, i % 200);
    }
    gpu->event_close(w.event);
    gpu->stream_close(w.stream);
    gpu->leave();
    munmap(w.host, BYTES);
    return NULL;
}

int main(void)
{
    struct hearth_error err = { 0 };
    pthread_t threads[THREADS];

    alarm(100);
    fakegpu_start(NULL, 2);
    fakegpu()->delay_us = 100;
    fakegpu()->pin_ms = 1;
    if (hth_driver_find(&gpu, &err) || !gpu) {
        fprintf(stderr, "no driver: %s\n", err.text);
        return 1;
    }
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, worker_run, (void *)(intptr_t)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("%d rounds, %llu copies, longest stall %llu ms\n", THREADS * ROUNDS,
            (unsigned long long)fakegpu()->copies, (unsigned long long)fakegpu()->stalled_ms);
    return failures != 0;
}
