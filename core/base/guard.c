/* SPDX-License-Identifier: Apache-2.0 */
/* A list of the process, since a signal handler is given nothing else. Its entries are used again
 * and never freed, so that a handler may walk it while others add and remove. */
#include "guard.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE ((uintptr_t)4096)

struct guarded {
    struct guarded *next; /* written before it is in the list */
    uintptr_t base;       /* atomic; 0: not in use */
    uintptr_t end;        /* atomic; written while base is 0 */
};

static struct guarded *guards; /* atomic */

static int guard_use(struct guarded *g, uintptr_t base, uintptr_t end)
{
    uintptr_t none = 0, taken = 1; /* no mapping begins there */

    if (!__atomic_compare_exchange_n(&g->base, &none, taken, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        return 0;
    __atomic_store_n(&g->end, end, __ATOMIC_RELAXED);
    __atomic_store_n(&g->base, base, __ATOMIC_RELEASE);
    return 1;
}

void hth_guard_add(void *base, uint64_t len)
{
    uintptr_t from = (uintptr_t)base, end = from + (uintptr_t)((len + PAGE - 1) / PAGE * PAGE);
    struct guarded *g = __atomic_load_n(&guards, __ATOMIC_ACQUIRE);

    while (g && !guard_use(g, from, end))
        g = g->next;
    if (g || !(g = calloc(1, sizeof(*g)))) /* without memory: not guarded */
        return;
    g->base = from;
    g->end = end;
    g->next = __atomic_load_n(&guards, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(
            &guards, &g->next, g, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        continue;
}

static struct guarded *guard_of(uintptr_t at)
{
    struct guarded *g = __atomic_load_n(&guards, __ATOMIC_ACQUIRE);

    for (; g; g = g->next) {
        uintptr_t base = __atomic_load_n(&g->base, __ATOMIC_ACQUIRE);

        if (base >= PAGE && at >= base && at < __atomic_load_n(&g->end, __ATOMIC_RELAXED))
            return g;
    }
    return NULL;
}

void hth_guard_remove(void *base)
{
    struct guarded *g = base ? guard_of((uintptr_t)base) : NULL;

    if (g)
        __atomic_store_n(&g->base, 0, __ATOMIC_RELEASE);
}

int hth_guard_patch(void *at)
{
    uintptr_t page = (uintptr_t)at / PAGE * PAGE;
    struct guarded *g = guard_of((uintptr_t)at);
    int why = errno, ok;

    if (!g)
        return 0;
    ok = mmap((void *)page, __atomic_load_n(&g->end, __ATOMIC_RELAXED) - page,
                 PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                 -1, 0) != MAP_FAILED;
    errno = why;
    return ok;
}
