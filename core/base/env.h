/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The clock, random numbers and workers of a state machine. The engine hands in the machine's
 * clock and threads; the simulator hands in virtual ones. `self` goes to each call.
 */
#ifndef HEARTH_CORE_BASE_ENV_H
#define HEARTH_CORE_BASE_ENV_H

#include "fail.h"
#include <hearth/log.h>
#include <stddef.h>
#include <stdint.h>

#define HTH_NEVER UINT64_MAX /* a time that does not come */

struct hth_clock {
    uint64_t (*now_ms)(void *self);  /* never goes back; the origin means nothing */
    uint64_t (*wall_ms)(void *self); /* since 1970 */
    void *self;
};

struct hth_random {
    uint64_t (*next)(void *self); /* good enough for a nonce: never predictable in production */
    void *self;
};

/* Work that takes too long for the engine's thread. It is embedded in its owner, which must not
 * touch it from submit() until `done`. */
struct hth_work {
    void (*run)(struct hth_work *work);  /* on any thread */
    void (*done)(struct hth_work *work); /* on the engine's, never inside submit() */
    struct hth_work *next;               /* the pool's */
};

struct hth_workers {
    void (*submit)(void *self, struct hth_work *work);
    void *self;
};

/* Bytes that came with a request, to be copied out piece by piece. Its owner calls end(). */
struct hth_content {
    uint64_t len;
    /* out[len] from `off` on; any thread, one at a time. Not 0: it has changed meanwhile. */
    int (*read)(struct hth_content *content, uint64_t off, void *out, size_t len);
    void (*end)(struct hth_content *content); /* any thread */
};

/* What a log reports of itself. Counts are since the engine's start. */
struct hth_log_state {
    enum hearth_log_level level; /* lines up to it are kept; 0: not known */
    uint64_t lost;               /* lines that a file of the log does not have */
    uint64_t lost_now;           /* of these, since a line was written last; 0: lines are kept */
    int why;                     /* errno of the newest of them */
    uint64_t held_back;          /* warnings and errors above the system log's limit */
    uint64_t unsent;             /* that the system log did not take: it is missing, or behind */
};

struct hth_log {
    hearth_log_fn *emit; /* NULL: silence */
    void *self;
    void (*state)(void *self, struct hth_log_state *out);       /* NULL: nothing is known */
    void (*set_level)(void *self, enum hearth_log_level level); /* NULL: it has none */
};

/* One line to the sink. */
void hth_say(const struct hth_log *log, enum hearth_log_level level, const char *event,
        const char *fmt, ...) HTH_PRINTF(4, 5);

/* Any thread. Where the log knows nothing, all is 0. */
void hth_log_state(const struct hth_log *log, struct hth_log_state *out);
/* "error" to "trace"; and the level of such a word, 0: there is none. */
const char *hth_log_level_word(enum hearth_log_level level);
enum hearth_log_level hth_log_level_of(const char *word);

/* A named point in the code where a test may stop the process (`chunk`, `promise`, ...). The
 * engine hands in a function only when a test names a point; NULL: nothing happens. */
struct hth_points {
    void (*reached)(void *self, const char *point);
    void *self;
};

static inline uint64_t hth_now_ms(const struct hth_clock *clock)
{
    return clock->now_ms(clock->self);
}

static inline uint64_t hth_random_next(const struct hth_random *random)
{
    return random->next(random->self);
}

static inline void hth_point(const struct hth_points *points, const char *point)
{
#ifdef HEARTH_POINTS
    if (points->reached)
        points->reached(points->self, point);
#else
    (void)points, (void)point;
#endif
}

/* splitmix64 (Steele, Lea, Flood 2014): the next number of a 64-bit seed. */
static inline uint64_t hth_splitmix64(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

#endif
