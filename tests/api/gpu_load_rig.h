/* SPDX-License-Identifier: Apache-2.0 */
/* A rank with GPUs of the tests' own driver, and a checkpoint of it that is loaded. */
#ifndef HEARTH_TESTS_API_GPU_LOAD_RIG_H
#define HEARTH_TESTS_API_GPU_LOAD_RIG_H

#include "check.h"
#include "fakegpu.h"
#include "rank.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static struct rank r;
static void *context;
static struct hearth_error err;

static inline void pause_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static inline void load_start(void)
{
    fakegpu_start(NULL, 2);
    context = fakegpu_context(0);
    fakegpu_current(context);
    rank_start(&r);
    rank_open(&r);
}

/* Leases go back, and nothing stays registered or mapped. Criterion does not count an expectation
 * that fails here. */
static inline void load_stop(void)
{
    char line[5000];
    unsigned mapped = 0;
    FILE *maps;

    hearth_close(r.h, HEARTH_KEEP);
    maps = fopen("/proc/self/maps", "re");
    while (maps && fgets(line, sizeof(line), maps))
        mapped += strstr(line, " r--s ") && strstr(line, "memfd:fake-slot");
    if (maps)
        fclose(maps);
    if (fakegpu()->registered || fakegpu()->sins || mapped) {
        fprintf(stderr, "%" PRIu64 " registrations and %u mappings are left; %s\n",
                (uint64_t)fakegpu()->registered, mapped, fakegpu()->sin);
        abort();
    }
    r.h = NULL;
    rank_end(&r);
}

static inline int is_hip(void)
{
    return strcmp(fakegpu_profile(), "hip") == 0;
}

/* Objects that are only read are registered. */
static inline int pins_reads(void)
{
    return !is_hip() && strcmp(fakegpu_profile(), "12.0") != 0;
}

static inline void await_registered(uint64_t count)
{
    for (int ms = 0; ms < 3000 && fakegpu()->registered != count; ms++)
        pause_ms(1);
    cr_assert(eq(u64, fakegpu()->registered, count));
    pause_ms(5); /* until the thread has noted it */
}

static inline uint64_t device_new(int device, size_t bytes)
{
    return fakegpu_alloc(fakegpu_context(device), bytes, FAKEGPU_PLAIN);
}

static inline void says(const char *what)
{
    cr_expect(ne(ptr, strstr(err.text, what), NULL), "no '%s' in: %s", what, err.text);
}

#endif
