/* SPDX-License-Identifier: Apache-2.0 */
/* Time and chance as the machine has them. */
#include "hands.h"

#include <errno.h>
#include <sys/random.h>
#include <time.h>

static uint64_t clock_read_ms(clockid_t id)
{
    struct timespec t = { 0 };

    clock_gettime(id, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static uint64_t clock_now_ms(void *self)
{
    (void)self;
    return clock_read_ms(CLOCK_MONOTONIC);
}

static uint64_t clock_wall_ms(void *self)
{
    (void)self;
    return clock_read_ms(CLOCK_REALTIME);
}

uint64_t hth_system_busy_ms(void)
{
    return clock_read_ms(CLOCK_THREAD_CPUTIME_ID);
}

/* A kernel that refuses getrandom(2) is older than the supported ones, or filters the call. Then
 * the clock's nanoseconds still make two engines differ. */
static uint64_t clock_next_random(void *self)
{
    struct timespec t = { 0 };
    uint64_t v;
    ssize_t n;

    (void)self;
    do
        n = getrandom(&v, sizeof(v), 0);
    while (n < 0 && errno == EINTR);
    if (n == (ssize_t)sizeof(v))
        return v;
    clock_gettime(CLOCK_MONOTONIC, &t);
    v = (uint64_t)t.tv_sec << 30 ^ (uint64_t)t.tv_nsec;
    return hth_splitmix64(&v);
}

struct hth_clock hth_system_clock(void)
{
    return (struct hth_clock){ .now_ms = clock_now_ms, .wall_ms = clock_wall_ms };
}

struct hth_random hth_system_random(void)
{
    return (struct hth_random){ .next = clock_next_random };
}
