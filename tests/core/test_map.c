/* SPDX-License-Identifier: Apache-2.0 */
/* A file with holes, read through a mapping. */
#include "check.h"

#include "core/base/map.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define PAGE  4096u
#define PAGES 2048u

static char path[64];

/* A file of a tmpfs with data in these pages alone, and some bytes behind the last whole page. */
static int sparse_file(const unsigned *data, size_t count)
{
    unsigned char page[PAGE];
    int fd;

    snprintf(path, sizeof(path), "/dev/shm/hearth-map-XXXXXX");
    fd = mkostemp(path, O_CLOEXEC);
    cr_assert(ge(int, fd, 0));
    cr_assert(zero(int, unlink(path)));
    cr_assert(zero(int, ftruncate(fd, (off_t)PAGES * PAGE + 100)));
    for (size_t i = 0; i < count; i++) {
        memset(page, (int)data[i] % 251 + 1, sizeof(page));
        cr_assert(eq(long, pwrite(fd, page, data[i] == PAGES ? 100 : PAGE, (off_t)data[i] * PAGE),
                data[i] == PAGES ? 100 : PAGE));
    }
    return fd;
}

/* All bytes are as they are to read(), and no page more is the file's. */
static void must_read_as_it_is(int fd)
{
    size_t len = (size_t)PAGES * PAGE + 100;
    unsigned char *want = malloc(len);
    const void *at = hth_map_sparse(fd, len);
    struct stat before, after;

    cr_assert(ne(ptr, (void *)(uintptr_t)at, NULL));
    cr_assert(zero(int, fstat(fd, &before)));
    cr_assert(eq(long, pread(fd, want, len, 0), (long)len));
    cr_assert(zero(int, memcmp(at, want, len)));
    cr_assert(zero(int, fstat(fd, &after)));
    cr_assert(eq(long, (long)after.st_blocks, (long)before.st_blocks));
    cr_assert(zero(int, munmap((void *)(uintptr_t)at, len)));
    free(want);
    close(fd);
}

Test(map, holes_are_zeros_and_take_no_room)
{
    static const unsigned some[] = { 0, 3, 4, 5, 900, PAGES };
    static const unsigned inner[] = { 1, 7 };
    unsigned odd[PAGES / 2];

    for (unsigned i = 0; i < PAGES / 2; i++)
        odd[i] = 2 * i + 1;
    must_read_as_it_is(sparse_file(some, 6));
    must_read_as_it_is(sparse_file(inner, 2));
    must_read_as_it_is(sparse_file(NULL, 0));
    must_read_as_it_is(sparse_file(odd, PAGES / 2));
}

/* A slot is longer than what is in it. Its end is in the middle of a page that has data. */
Test(map, a_part_that_ends_inside_a_page_of_data_ends_there)
{
    static const unsigned some[] = { 0, 1 };
    int fd = sparse_file(some, 2);
    const unsigned char *at;

    alarm(10);
    at = hth_map_sparse(fd, PAGE + 10);
    cr_assert(ne(ptr, (void *)(uintptr_t)at, NULL));
    cr_assert(eq(int, at[0], 1));
    cr_assert(eq(int, at[PAGE + 9], 2));
    cr_assert(zero(int, munmap((void *)(uintptr_t)at, PAGE + 10)));
    close(fd);
}
