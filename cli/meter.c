/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of long work, on standard error where that is a terminal, at most ten times a second. */
#include "cli.h"

#include <time.h>
#include <unistd.h>

static uint64_t meter_now_ms(void)
{
    struct timespec t = { 0 };

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

void meter_add(struct meter *m, uint64_t bytes)
{
    uint64_t now;
    char done[32], total[32];

    if (!m)
        return;
    m->done += bytes;
    now = meter_now_ms();
    if (!m->shown_ms)
        m->shown_ms = now;
    if (now - m->shown_ms < 100 || !isatty(STDERR_FILENO))
        return;
    m->shown_ms = now;
    m->shown = 1;
    human(done, m->done);
    human(total, m->total);
    fprintf(stderr, "\rverified %s of %s (%u %%)\033[K", done, total,
            m->total ? (unsigned)(100 * ((double)m->done / (double)m->total)) : 100);
}

void meter_end(struct meter *m)
{
    if (m->shown)
        fputs("\r\033[K", stderr);
    m->shown = 0;
}
