/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A device's memory: a file without a name, mapped twice. At the device's address it has no
 * permissions, so that a processor that follows such a pointer dies; the driver's copies use the
 * other mapping. Managed memory may be read and written at its address.
 */
#include "inside.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct fgpu_memory *all;

static struct fgpu_memory *memory_at_locked(uint64_t at)
{
    for (struct fgpu_memory *m = all; m; m = m->next)
        if (at >= m->at && at - m->at < m->bytes)
            return m;
    return NULL;
}

struct fgpu_memory *fgpu_memory_at(uint64_t at)
{
    struct fgpu_memory *m;

    pthread_mutex_lock(&fgpu_lock);
    m = memory_at_locked(at);
    pthread_mutex_unlock(&fgpu_lock);
    return m;
}

unsigned char *fgpu_bytes(uint64_t at, size_t bytes, struct fgpu_memory **out)
{
    struct fgpu_memory *m = fgpu_memory_at(at);

    if (!m || bytes > m->bytes - (at - m->at))
        return NULL;
    if (out)
        *out = m;
    return m->backing + (at - m->at);
}

FGPU_API uint64_t fakegpu_alloc(void *context, size_t bytes, enum fakegpu_kind kind)
{
    struct fgpu_memory *m = calloc(1, sizeof(*m));
    int fd = memfd_create("fakegpu", MFD_CLOEXEC);
    int rights = kind == FAKEGPU_MANAGED ? PROT_READ | PROT_WRITE : PROT_NONE;
    void *view, *backing;

    if (!m || fd < 0 || ftruncate(fd, (off_t)bytes))
        abort();
    view = mmap(NULL, bytes, rights, MAP_SHARED, fd, 0);
    backing = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (view == MAP_FAILED || backing == MAP_FAILED)
        abort();
    m->at = (uint64_t)(uintptr_t)view;
    m->bytes = bytes;
    m->backing = backing;
    m->context = context;
    m->kind = kind;
    pthread_mutex_lock(&fgpu_lock);
    m->next = all;
    all = m;
    pthread_mutex_unlock(&fgpu_lock);
    return m->at;
}

FGPU_API void fakegpu_free(uint64_t at)
{
    struct fgpu_memory **p = &all, *m;

    pthread_mutex_lock(&fgpu_lock);
    while (*p && (*p)->at != at)
        p = &(*p)->next;
    m = *p;
    if (m)
        *p = m->next;
    pthread_mutex_unlock(&fgpu_lock);
    if (!m)
        return;
    munmap((void *)(uintptr_t)m->at, m->bytes);
    munmap(m->backing, m->bytes);
    free(m);
}

FGPU_API void fakegpu_peek(uint64_t at, void *out, size_t bytes)
{
    unsigned char *p = fgpu_bytes(at, bytes, NULL);

    if (!p)
        abort();
    memcpy(out, p, bytes);
}

FGPU_API void fakegpu_poke(uint64_t at, const void *bytes, size_t count)
{
    unsigned char *p = fgpu_bytes(at, count, NULL);

    if (!p)
        abort();
    memcpy(p, bytes, count);
}
