/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For units under AddressSanitizer: fork(), and the leaks of Criterion itself.
 *
 * Criterion forks while a thread of its own may be within the allocator, and the runtime of gcc 12
 * does not take the locks of that thread over a fork: the child waited for ever in its first
 * malloc(), in one fork of some thousands. Here calls are counted, and fork() waits until none is
 * under way.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

void *__interceptor_malloc(size_t bytes);
void *__interceptor_calloc(size_t count, size_t bytes);
void *__interceptor_realloc(void *p, size_t bytes);
void *__interceptor_reallocarray(void *p, size_t count, size_t bytes);
void *__interceptor_memalign(size_t align, size_t bytes);
void *__interceptor_aligned_alloc(size_t align, size_t bytes);
int __interceptor_posix_memalign(void **out, size_t align, size_t bytes);
void __interceptor_free(void *p);

static atomic_int within, forking;
static _Thread_local int depth; /* of a signal's handler within a call; of fork()'s own handlers */
static pid_t (*real_fork)(void);

static void enter(void)
{
    if (depth++)
        return;
    for (;;) {
        while (atomic_load(&forking))
            sched_yield();
        atomic_fetch_add(&within, 1);
        if (!atomic_load(&forking))
            return;
        atomic_fetch_sub(&within, 1);
    }
}

static void leave(void)
{
    if (!--depth)
        atomic_fetch_sub(&within, 1);
}

#define CALL(type, call)           \
    type result;                   \
                                   \
    enter();                       \
    result = __interceptor_##call; \
    leave();                       \
    return result

void *malloc(size_t bytes)
{
    CALL(void *, malloc(bytes));
}

void *calloc(size_t count, size_t bytes)
{
    CALL(void *, calloc(count, bytes));
}

void *realloc(void *p, size_t bytes)
{
    CALL(void *, realloc(p, bytes));
}

void *reallocarray(void *p, size_t count, size_t bytes)
{
    CALL(void *, reallocarray(p, count, bytes));
}

void *memalign(size_t align, size_t bytes)
{
    CALL(void *, memalign(align, bytes));
}

void *aligned_alloc(size_t align, size_t bytes)
{
    CALL(void *, aligned_alloc(align, bytes));
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    CALL(int, posix_memalign(out, align, bytes));
}

void free(void *p)
{
    enter();
    __interceptor_free(p);
    leave();
}

/* The process that starts the tests loses 48 bytes of Criterion's own where its last test is the
 * one that ran longest beside others. The tests run in processes that boxfort starts with this name
 * in their environment, and leaks of these are found as ever. */
int __lsan_is_turned_off(void)
{
    return !getenv("BXFI_MAP");
}

__attribute__((constructor)) static void find_fork(void)
{
    *(void **)&real_fork = dlsym(RTLD_NEXT, "fork");
}

pid_t fork(void)
{
    int none = 0;
    pid_t pid;

    while (!atomic_compare_exchange_weak(&forking, &none, 1)) {
        none = 0;
        sched_yield();
    }
    while (atomic_load(&within))
        sched_yield();
    depth++;
    pid = real_fork();
    depth--;
    atomic_store(&forking, 0);
    return pid;
}
