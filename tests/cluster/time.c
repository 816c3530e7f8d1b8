/* SPDX-License-Identifier: Apache-2.0 */
/* Time, and what a scenario says: to its record, and at the end why it was lost. */
#include "cluster.h"

#include <errno.h>
#include <stdarg.h>
#include <time.h>

uint64_t now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void nap_ms(unsigned ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    while (nanosleep(&t, &t) && errno == EINTR)
        continue;
}

static void stamp(struct world *w)
{
    struct timespec now = { 0 };
    struct tm tm;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    fprintf(w->log, "%02d:%02d:%02d.%03ld ", tm.tm_hour, tm.tm_min, tm.tm_sec,
            now.tv_nsec / 1000000);
}

void note(struct world *w, const char *format, ...)
{
    va_list ap;

    stamp(w);
    va_start(ap, format);
    vfprintf(w->log, format, ap);
    va_end(ap);
    fputc('\n', w->log);
}

int lost(struct world *w, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    vsnprintf(w->why, sizeof(w->why), format, ap);
    va_end(ap);
    note(w, "LOST: %s", w->why);
    return LOST_IT;
}
