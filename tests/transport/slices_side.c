/* SPDX-License-Identifier: Apache-2.0 */
/* What owners and pullers have in common: a transport, its clock, bytes that say whose they are. */
#include "slices_parts.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

char slices_what[96] = "slices";

void slices_fail(const char *format, ...)
{
    char text[600];
    va_list ap;

    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(stderr, "%s: %s\n", slices_what, text);
    fflush(NULL);
    _exit(1);
}

static uint64_t clock_ms(clockid_t id)
{
    struct timespec ts;

    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

uint64_t slices_now_ms(void)
{
    return clock_ms(CLOCK_MONOTONIC);
}

static uint64_t side_now(void *self)
{
    (void)self;
    return slices_now_ms();
}

static uint64_t side_wall(void *self)
{
    (void)self;
    return clock_ms(CLOCK_REALTIME);
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t slices_random(uint64_t *state, uint64_t sides)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (z ^ (z >> 31)) % sides;
}

static void side_log(void *self, enum hearth_log_level level, const char *event, const char *text)
{
    (void)self;
    if (getenv("SLICES_LOG"))
        fprintf(stderr, "%s: %d %s: %s\n", slices_what, (int)level, event, text);
}

struct hth_transport *slices_open(
        const struct slices_fabric *fabric, const struct hth_transport_events *events)
{
    struct hth_transport_opts opts = {
        .bind = "127.0.0.1",
        .provider = fabric->provider,
        .trusted = 1,
        .connect_ms = 1000,
        .clock = { side_now, side_wall, NULL },
        .log = { side_log, NULL },
    };
    struct hth_transport *t = NULL;
    struct hearth_error err = { 0 };

    if (hth_transport_open("ofi", getenv("HEARTH_TEST_LIB"), &opts, events, &t, &err))
        slices_fail("%s", err.text);
    return t;
}

void slices_rest(struct hth_transport *t, uint64_t ms)
{
    uint64_t now = slices_now_ms(), until = now + ms, due;
    struct pollfd p = { .fd = -1, .events = POLLIN };

    if (!t->ops->arm(t, &p.fd, &due))
        return;
    until = due < until ? due : until;
    if (until > now)
        poll(&p, 1, (int)(until - now));
}

unsigned char *slices_map(uint64_t len)
{
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    SLICES_MUST(at != MAP_FAILED);
    return at;
}

static uint64_t word_of(uint32_t owner, uint64_t at)
{
    uint64_t state = at / 8 + ((uint64_t)owner << 40);

    return slices_random(&state, UINT64_MAX);
}

void slices_fill(unsigned char *out, uint64_t len, uint32_t owner)
{
    for (uint64_t at = 0; at < len; at += 8) {
        uint64_t word = word_of(owner, at);

        memcpy(out + at, &word, 8);
    }
}

int slices_is_filled(const unsigned char *bytes, uint64_t len, uint32_t owner, uint64_t off)
{
    for (uint64_t at = 0; at < len; at += 8) {
        uint64_t word = word_of(owner, off + at);

        if (memcmp(bytes + at, &word, 8) != 0)
            return 0;
    }
    return 1;
}
