/* SPDX-License-Identifier: Apache-2.0 */
/* See core/base/map.h. A kernel puts a file at any page; we ask for more, and cut:
 *
 *     | head |  file, from a multiple of 2 MiB on  | tail |
 */
#include "map.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>

#define HUGE_PAGE UINT64_C(0x200000)
#define PAGE      UINT64_C(4096)

void *hth_map_shared(int fd, uint64_t len, int prot)
{
    unsigned char *place, *at;
    uint64_t head;

    if (len > UINT64_MAX / 2) {
        errno = ENOMEM;
        return NULL;
    }
    len = (len + PAGE - 1) / PAGE * PAGE;
    place = mmap(
            NULL, len + HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (place == MAP_FAILED)
        return NULL;
    head = -(uintptr_t)place & (HUGE_PAGE - 1);
    at = mmap(place + head, len, prot, MAP_SHARED | MAP_FIXED, fd, 0);
    if (at == MAP_FAILED) {
        int why = errno;

        munmap(place, len + HUGE_PAGE);
        errno = why;
        return NULL;
    }
    if (head)
        munmap(place, head);
    munmap(at + len, HUGE_PAGE - head);
    madvise(at, len, MADV_DONTFORK);
    madvise(at, len, MADV_DONTDUMP);
    return at;
}

void *hth_map_memory(uint64_t len)
{
    void *at = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED)
        return NULL;
    madvise(at, len, MADV_DONTFORK);
    return at;
}

void hth_unmap_memory(void *at, uint64_t len)
{
    munmap(at, len);
}
