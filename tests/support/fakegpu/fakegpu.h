/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests: what the driver of the tests is to do, what it has seen, and a device's memory by the
 * back door. A test links libcuda.so.1 (target fakegpu) or libamdhip64.so.6 (fakehip); all
 * functions here are in both. Settings may change at any time, except the profile.
 */
#ifndef FAKEGPU_H
#define FAKEGPU_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define FAKEGPU_PATTERN 0xdb /* what a destination holds before its copy is done */
#define FAKEGPU_THREADS 16

struct fakegpu {
    /* Settings; the first value comes from FAKEGPU_<NAME> in the environment. */
    _Atomic uint64_t rate_mib_s; /* of a stream's copies; 0: no limit */
    _Atomic uint64_t delay_us;   /* an operation of a stream begins after a random time up to it */
    _Atomic uint64_t hold;       /* 1: no stream begins anything */
    _Atomic uint64_t pin_ms;     /* a registration holds the driver's lock so long */
    _Atomic uint64_t scale;      /* the profile's limits of a registration are divided by it */
    _Atomic uint64_t light;      /* 1: destinations keep what they have until the copy is done, so
                                    that a call costs the same for all sizes; 2: for ever */
    _Atomic uint64_t partial;    /* 1: of a call that is refused, the copies before are done */
    _Atomic uint64_t global;  /* 1: captures are global, so that calls of other threads end them */
    _Atomic uint64_t forgive; /* 1: sins are counted, and do not end the process */

    /* What was seen. */
    _Atomic uint64_t sins;
    char sin[256]; /* the last one: its rule, ": ", a sentence */
    _Atomic uint64_t registrations, registered, registered_bytes; /* ever; now */
    _Atomic uint64_t register_most;                               /* bytes of a call */
    _Atomic uint64_t register_absent;                             /* pages that were not present */
    _Atomic uint32_t register_threads[FAKEGPU_THREADS];           /* that called it; 0: none */
    _Atomic uint64_t copies, copied_bytes;                        /* that are done */
    _Atomic uint64_t staged, staged_bytes; /* of these, host memory that is not registered */
    _Atomic uint64_t contexts;             /* created */
    _Atomic uint64_t stalled_ms;           /* the longest time that a call waited for the lock */
};

struct fakegpu *fakegpu(void);

/* Of fakegpu's calls by name; NULL: all of them. */
uint64_t fakegpu_calls(const char *name);
void fakegpu_calls_reset(void);

/* Before anything else, in cuInit()'s place. NULL: as FAKEGPU_PROFILE names it, else `recent`. */
void fakegpu_start(const char *profile, int devices);
const char *fakegpu_profile(void);

/* Of call `name` the next but `after` returns `code` and does nothing; once. With NULL all that is
 * planted is taken back. */
void fakegpu_refuse(const char *name, unsigned after, int code);
/* All contexts of the device are broken by this code, and stay so. Waits for the operations that
 * run: a driver reports such an error once nothing of the context runs any more. */
void fakegpu_break(int device, int code);

/* Memory: of a device, managed, or of cuMemCreate() (without a context). */
enum fakegpu_kind { FAKEGPU_PLAIN, FAKEGPU_MANAGED, FAKEGPU_MAPPED };
uint64_t fakegpu_alloc(void *context, size_t bytes, enum fakegpu_kind kind);
void fakegpu_free(uint64_t at);
void fakegpu_peek(uint64_t at, void *out, size_t bytes);
void fakegpu_poke(uint64_t at, const void *bytes, size_t count);

/* Contexts: the device's primary one, made active by this call, or one more. */
void *fakegpu_context(int device);
void *fakegpu_context_more(int device);
void fakegpu_primary_end(int device); /* not active any more */
void fakegpu_current(void *context);  /* of this thread; NULL: none */

/* The trainer's work: a kernel that writes `value`, on a stream of the current context (NULL: the
 * default stream). */
void *fakegpu_stream(void);
void fakegpu_fill(void *stream, uint64_t at, int value, size_t bytes);
/* A kernel that reads, and writes what it has read elsewhere on the device. */
void fakegpu_move(void *stream, uint64_t to, uint64_t from, size_t bytes);
void fakegpu_wait(void *stream);
/* From this thread. Returns what became of the capture before: 0 none, 1 well, 2 invalidated. */
int fakegpu_capture(void *stream, int on);

#endif
