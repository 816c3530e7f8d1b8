/* SPDX-License-Identifier: Apache-2.0 */
/* See core/base/map.h. The kernel may map a file at any page, so we reserve more addresses than it
 * needs and return the rest:
 *
 *     | head |  file, from a multiple of 2 MiB on  | tail |
 */
#include "map.h"

#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE UINT64_C(0x200000)
#define PAGE      UINT64_C(4096)

#define PIECES_MOST \
    16384 /* mappings: Linux lets a process have 65,530; the rest of such a file takes its room */

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

/* The next data of the file in [*from, len), in whole pages. 0: the rest is a hole. */
static int map_next_data(int fd, uint64_t len, uint64_t *from, uint64_t *to)
{
    off_t data = *from < len ? lseek(fd, (off_t)*from, SEEK_DATA) : -1, hole;

    if (*from >= len || (data < 0 && errno == ENXIO))
        return 0;
    hole = data < 0 ? -1 : lseek(fd, data, SEEK_HOLE);
    if (hole < 0) { /* a file system without holes */
        *to = len;
        return *from < len;
    }
    *from = (uint64_t)data / PAGE * PAGE;
    *to = ((uint64_t)hole + PAGE - 1) / PAGE * PAGE;
    *to = *to < len ? *to : len;
    return *from < len;
}

/* A fault in a hole of a tmpfs allocates the page, even if the process only reads it. So holes are
 * mapped from anonymous memory, whose zeros share one page, and only data is mapped from the
 * file. */
const void *hth_map_sparse(int fd, uint64_t len)
{
    unsigned char *at =
            mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint64_t from = 0, to = 0;

    if (at == MAP_FAILED)
        return NULL;
    for (unsigned i = 0; map_next_data(fd, len, &from, &to); i++, from = to) {
        if (i == PIECES_MOST)
            to = len;
        if (mmap(at + from, to - from, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, (off_t)from) ==
                MAP_FAILED) {
            int why = errno;

            munmap(at, len);
            errno = why;
            return NULL;
        }
    }
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
