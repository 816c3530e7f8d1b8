/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registered host memory. What a registration covers is looked up in /proc/self/maps: it has to be
 * mapped, writable unless it is registered READ_ONLY, and it has to be the same mapping when it is
 * unregistered, and at the process's end.
 */
#include "inside.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u

/* What lies at an address. */
struct mapped {
    uint64_t inode, offset; /* of the byte in its file */
    int there, writable;
};

struct registration {
    uint64_t base, bytes, from, to; /* `from` and `to`: its pages */
    int read_only;
    struct mapped first, last;
    struct registration *next;
};

static struct registration *registrations;

static struct mapped mapped_at(uint64_t at)
{
    struct mapped out = { 0 };
    uint64_t from, to, offset, inode;
    char line[4400], rights[8];
    FILE *f = fopen("/proc/self/maps", "re");

    while (f && !out.there && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %" SCNu64, &from, &to, rights,
                    &offset, &inode) != 5 ||
                at < from || at >= to)
            continue;
        out.there = 1;
        out.writable = rights[1] == 'w';
        out.inode = inode;
        out.offset = inode ? offset + (at - from) : 0;
    }
    if (f)
        fclose(f);
    return out;
}

/* mincore() refuses a range of which a page is not mapped. */
static int all_mapped(uint64_t from, uint64_t to, uint64_t *out_absent)
{
    size_t pages = (size_t)(to - from) / PAGE;
    unsigned char *here = malloc(pages);
    int ok = here && mincore((void *)(uintptr_t)from, (size_t)(to - from), here) == 0;

    *out_absent = 0;
    for (size_t i = 0; ok && i < pages; i++)
        *out_absent += !(here[i] & 1);
    free(here);
    return ok;
}

static int same_mapping(const struct registration *r)
{
    struct mapped first = mapped_at(r->from), last = mapped_at(r->to - 1);
    uint64_t absent;

    return all_mapped(r->from, r->to, &absent) && first.inode == r->first.inode &&
           first.offset == r->first.offset && last.inode == r->last.inode &&
           last.offset == r->last.offset;
}

static void must_be_mapped(const struct registration *r)
{
    if (!same_mapping(r))
        fgpu_sin("unmapped",
                "%" PRIu64 " bytes at %" PRIx64 " are registered, and are not mapped as they were",
                r->to - r->from, r->base);
}

static void register_note(uint64_t bytes, uint64_t absent)
{
    struct fakegpu *page = fakegpu();
    uint32_t me = (uint32_t)syscall(SYS_gettid);

    page->registrations++;
    page->registered++;
    page->registered_bytes += bytes;
    page->register_absent += absent;
    if (bytes > page->register_most)
        page->register_most = bytes;
    for (int i = 0; i < FAKEGPU_THREADS; i++) {
        if (!page->register_threads[i])
            page->register_threads[i] = me;
        if (page->register_threads[i] == me)
            break;
    }
}

/* With the driver's lock, for so long: other calls wait for it. */
static void register_takes_time(void)
{
    uint64_t ms = fakegpu()->pin_ms;
    struct timespec ts = { .tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000 };

    if (ms)
        nanosleep(&ts, NULL);
}

static int register_refuses(uint64_t bytes, unsigned flags)
{
    const struct fgpu_profile *p = fgpu_profile();
    uint64_t scale = fakegpu()->scale ? fakegpu()->scale : 1;

    if (!bytes || flags & ~15u)
        return CU_INVALID_VALUE;
    if (flags & CU_REGISTER_READ_ONLY && !p->read_only)
        return CU_NOT_SUPPORTED;
    if (p->register_most && bytes >= p->register_most / scale)
        return p->register_code;
    return CU_OK;
}

static int register_overlaps(uint64_t from, uint64_t to)
{
    int found = 0;

    pthread_mutex_lock(&fgpu_lock);
    for (struct registration *r = registrations; r; r = r->next)
        found |= from < r->to && r->from < to;
    pthread_mutex_unlock(&fgpu_lock);
    return found;
}

int fgpu_register(void *base, size_t bytes, unsigned flags)
{
    struct registration r = { .base = (uint64_t)(uintptr_t)base, .bytes = bytes }, *kept;
    int rc = register_refuses(bytes, flags);
    uint64_t absent;

    if (rc)
        return rc;
    r.from = r.base / PAGE * PAGE;
    r.to = (r.base + bytes + PAGE - 1) / PAGE * PAGE;
    if (register_overlaps(r.from, r.to))
        return CU_ALREADY_REGISTERED;
    r.first = mapped_at(r.from);
    r.last = mapped_at(r.to - 1);
    r.read_only = !r.first.writable || !r.last.writable;
    if (!all_mapped(r.from, r.to, &absent))
        return CU_INVALID_VALUE;
    if (r.read_only && !(flags & CU_REGISTER_READ_ONLY) && !fgpu_profile()->host_pages)
        return CU_INVALID_VALUE;
    r.read_only |= !!(flags & CU_REGISTER_READ_ONLY);
    register_takes_time();
    kept = malloc(sizeof(*kept));
    if (!kept)
        return CU_OUT_OF_MEMORY;
    pthread_mutex_lock(&fgpu_lock);
    r.next = registrations;
    *kept = r;
    registrations = kept;
    register_note(bytes, absent);
    pthread_mutex_unlock(&fgpu_lock);
    return CU_OK;
}

int fgpu_unregister(void *base)
{
    uint64_t at = (uint64_t)(uintptr_t)base;
    struct registration **p = &registrations, *r;

    pthread_mutex_lock(&fgpu_lock);
    while (*p && (*p)->base != at)
        p = &(*p)->next;
    r = *p;
    if (r) {
        *p = r->next;
        fakegpu()->registered--;
        fakegpu()->registered_bytes -= r->bytes;
    }
    pthread_mutex_unlock(&fgpu_lock);
    if (!r)
        return CU_NOT_REGISTERED;
    if (fgpu_stream_busy((struct fgpu_range){ r->from, r->to }))
        fgpu_sin("pin-busy", "memory at %" PRIx64 " is unregistered while a copy uses it", r->base);
    must_be_mapped(r);
    free(r);
    return CU_OK;
}

int fgpu_registered(uint64_t at, size_t bytes, int *out_read_only)
{
    int found = 0;

    *out_read_only = 0;
    pthread_mutex_lock(&fgpu_lock);
    for (struct registration *r = registrations; r && !found; r = r->next) {
        if (at >= r->from && at + bytes <= r->to) {
            *out_read_only = r->read_only;
            found = 1;
        } else if (at < r->to && r->from < at + bytes) {
            found = -1;
        }
    }
    pthread_mutex_unlock(&fgpu_lock);
    return found;
}

/* What a process leaves registered has to be mapped still. */
__attribute__((destructor)) static void register_at_exit(void)
{
    if (!fgpu_is_child())
        for (struct registration *r = registrations; r; r = r->next)
            must_be_mapped(r);
}
