/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wall clock of a process, moved: the first 8 bytes of the file that PODS_CLOCK names are the
 * milliseconds to add. Trainers are linked with it, engines load it by LD_PRELOAD. The C library's
 * own calls, as of a log's time stamps, are not moved.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *moved_ms;

/* Before an engine confines itself, and again in a trainer, which has the file later. */
void pods_clock_open(void);

__attribute__((constructor)) void pods_clock_open(void)
{
    const char *path = getenv("PODS_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *at = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*moved_ms), PROT_READ, MAP_SHARED, fd, 0);

    if (at != MAP_FAILED)
        moved_ms = at;
    if (fd >= 0)
        close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *out)
{
    int64_t ms = moved_ms ? __atomic_load_n(moved_ms, __ATOMIC_RELAXED) : 0;
    int rc = (int)syscall(SYS_clock_gettime, clock, out);

    if (!rc && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        out->tv_sec += (time_t)(ms / 1000);
    return rc;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec t;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &t);
    *out = (struct timeval){ t.tv_sec, t.tv_nsec / 1000 };
    return 0;
}

time_t time(time_t *out)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    if (out)
        *out = t.tv_sec;
    return t.tv_sec;
}
