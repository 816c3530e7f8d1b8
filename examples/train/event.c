/* SPDX-License-Identifier: Apache-2.0 */
/* Events for whoever watches the job: appended with one write each, so that a reader never sees
 * half a line, and nothing is lost when this process is killed. */
#include "train.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define HALT_S 60 /* whoever asked for the halt ends this process; else it ends itself */

static struct {
    int fd;
    uint32_t launch, rank;
} events = { .fd = -1 };

double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

int event_open(const char *dir, uint32_t launch, uint32_t rank)
{
    char path[4096];

    events.launch = launch;
    events.rank = rank;
    snprintf(path, sizeof(path), "%s/rank%u.jsonl", dir, rank);
    events.fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (events.fd < 0)
        fprintf(stderr, "hearth_train: cannot write %s\n", path);
    return events.fd < 0 ? -1 : 0;
}

void event(const char *name, const char *fmt, ...)
{
    char line[2048];
    va_list args;
    int len = snprintf(line, sizeof(line),
            "{\"event\":\"%s\",\"launch\":%u,\"rank\":%u,\"at_ms\":%.1f", name, events.launch,
            events.rank, now_ms());

    if (*fmt) {
        line[len++] = ',';
        va_start(args, fmt);
        len += vsnprintf(line + len, sizeof(line) - (size_t)len - 3, fmt, args);
        va_end(args);
        if (len > (int)sizeof(line) - 4)
            len = (int)sizeof(line) - 4;
    }
    line[len++] = '}';
    line[len++] = '\n';
    if (events.fd >= 0 && write(events.fd, line, (size_t)len) != len)
        fprintf(stderr, "hearth_train: an event was not written\n");
}

void halt(const char *where, int64_t step)
{
    event("halt", "\"where\":\"%s\",\"step\":%lld", where, (long long)step);
    sleep(HALT_S);
    fprintf(stderr, "hearth_train: halted %s and nobody came\n", where);
    _exit(3);
}
