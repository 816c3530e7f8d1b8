/* SPDX-License-Identifier: Apache-2.0 */
/* Around each call of the driver: its lock, its counters, what it refuses; and sins. */
#include "inside.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAMES   64
#define REFUSED 16

static struct fakegpu page;
static pthread_once_t page_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t driver_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic pid_t started_by; /* 0: not initialised */

static struct {
    const char *name;
    uint64_t count;
} counted[NAMES];

static struct {
    const char *name; /* NULL: free */
    unsigned after;
    int code;
} refused[REFUSED];

static void page_fill(void)
{
    page.rate_mib_s = fgpu_setting("FAKEGPU_RATE_MIB_S", 0);
    page.delay_us = fgpu_setting("FAKEGPU_DELAY_US", 0);
    page.pin_ms = fgpu_setting("FAKEGPU_PIN_MS", 0);
    page.global = fgpu_setting("FAKEGPU_GLOBAL", 0);
    page.scale = fgpu_setting("FAKEGPU_SCALE", 1);
    page.light = fgpu_setting("FAKEGPU_LIGHT", 0);
    page.forgive = fgpu_setting("FAKEGPU_FORGIVE", 0);
}

FGPU_API struct fakegpu *fakegpu(void)
{
    pthread_once(&page_once, page_fill);
    return &page;
}

void fgpu_sin(const char *rule, const char *format, ...)
{
    char text[sizeof(page.sin)];
    int n = snprintf(text, sizeof(text), "%s: ", rule);
    va_list args;

    va_start(args, format);
    vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    va_end(args);
    fprintf(stderr, "FAKEGPU %s.\n", text);
    if (!fakegpu()->forgive) {
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    pthread_mutex_lock(&table_lock);
    memcpy(page.sin, text, sizeof(text));
    pthread_mutex_unlock(&table_lock);
    atomic_fetch_add(&page.sins, 1);
}

/* A driver that is used by a parent is not usable in its child. */
int fgpu_is_child(void)
{
    pid_t by = started_by;

    return by && by != getpid();
}

int fgpu_is_started(void)
{
    return started_by != 0;
}

void fgpu_started(void)
{
    if (!started_by)
        started_by = getpid();
}

/* Counts; returns the code that a test has planted, or 0. */
static int calls_count(const char *name)
{
    int code = 0;

    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < NAMES; i++)
        if (!counted[i].name || strcmp(counted[i].name, name) == 0) {
            counted[i].name = name;
            counted[i].count++;
            break;
        }
    for (size_t i = 0; !code && i < REFUSED; i++)
        if (refused[i].name && strcmp(refused[i].name, name) == 0 && refused[i].after-- == 0) {
            code = refused[i].code;
            refused[i].name = NULL;
        }
    pthread_mutex_unlock(&table_lock);
    return code;
}

static uint64_t now_ms(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

int fgpu_begin(const char *name, int needs)
{
    uint64_t from = now_ms(), waited;
    struct fgpu_context *now;
    int code = calls_count(name);

    if (!started_by || fgpu_is_child())
        return CU_NOT_INITIALIZED;
    if (fgpu_profile()->version_code)
        return fgpu_profile()->version_code;
    if (code)
        return code;
    now = fgpu_context_now();
    if (needs && !now)
        return CU_INVALID_CONTEXT;
    if (needs == FGPU_CONTEXT && now->broken)
        return now->broken;
    pthread_mutex_lock(&driver_lock);
    waited = now_ms() - from;
    if (waited > fakegpu()->stalled_ms)
        page.stalled_ms = waited;
    return CU_OK;
}

void fgpu_end(void)
{
    pthread_mutex_unlock(&driver_lock);
}

void fgpu_pause(void)
{
    pthread_mutex_unlock(&driver_lock);
}

void fgpu_resume(void)
{
    pthread_mutex_lock(&driver_lock);
}

FGPU_API uint64_t fakegpu_calls(const char *name)
{
    uint64_t sum = 0;

    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < NAMES && counted[i].name; i++)
        if (!name || strcmp(counted[i].name, name) == 0)
            sum += counted[i].count;
    pthread_mutex_unlock(&table_lock);
    return sum;
}

FGPU_API void fakegpu_calls_reset(void)
{
    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < NAMES; i++)
        counted[i].count = 0;
    pthread_mutex_unlock(&table_lock);
}

FGPU_API void fakegpu_refuse(const char *name, unsigned after, int code)
{
    pthread_mutex_lock(&table_lock);
    for (size_t i = 0; i < REFUSED; i++)
        if (!name) {
            refused[i].name = NULL;
        } else if (!refused[i].name) {
            refused[i].name = name;
            refused[i].after = after;
            refused[i].code = code;
            break;
        }
    pthread_mutex_unlock(&table_lock);
}
