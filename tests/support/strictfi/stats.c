/* SPDX-License-Identifier: Apache-2.0 */
/* Counters in a page that a test reads while the program runs, and after it. */
#include "strictfi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct strictfi_stats unnamed; /* used if STRICTFI_STATS is not set */
static struct strictfi_stats *page;
static pid_t page_of;
static pthread_mutex_t page_lock = PTHREAD_MUTEX_INITIALIZER;

static void stats_path(const char *name, char *out, size_t cap)
{
    const char *mark = strstr(name, "%p");

    if (mark)
        snprintf(out, cap, "%.*s%d%s", (int)(mark - name), name, (int)getpid(), mark + 2);
    else
        snprintf(out, cap, "%s", name);
}

static struct strictfi_stats *stats_map(void)
{
    const char *name = getenv("STRICTFI_STATS");
    char path[4096];
    void *map;
    int fd;

    if (!name || !*name)
        return &unnamed;
    stats_path(name, path, sizeof(path));
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 4096))
        sfi_sin("setup", "STRICTFI_STATS cannot be written: %s: %s", path, strerror(errno));
    map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED)
        sfi_sin("setup", "STRICTFI_STATS cannot be mapped: %s: %s", path, strerror(errno));
    return map;
}

/* A child that was forked counts for itself. */
struct strictfi_stats *sfi_stats(void)
{
    struct strictfi_stats *found;

    pthread_mutex_lock(&page_lock);
    if (!page || page_of != getpid()) {
        page = stats_map();
        page_of = getpid();
        atomic_store(&page->version, STRICTFI_STATS_VERSION);
    }
    found = page;
    pthread_mutex_unlock(&page_lock);
    return found;
}

void sfi_count(_Atomic uint64_t *counter, uint64_t n)
{
    atomic_fetch_add(counter, n);
}

void sfi_count_registration(uint64_t bytes)
{
    struct strictfi_stats *s = sfi_stats();
    uint32_t tid = (uint32_t)syscall(SYS_gettid);

    sfi_count(&s->registrations, 1);
    sfi_count(&s->registered_bytes, bytes);
    for (unsigned i = 0; i < STRICTFI_THREADS; i++) {
        uint32_t unused = 0;

        if (atomic_compare_exchange_strong(&s->threads[i].tid, &unused, tid) || unused == tid) {
            atomic_fetch_add(&s->threads[i].registrations, 1);
            return;
        }
    }
}
