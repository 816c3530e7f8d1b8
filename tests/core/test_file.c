/* SPDX-License-Identifier: Apache-2.0 */
/* Small files read whole: their bytes and a NUL, or why not. */
#include "check.h"

#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int file_of(const char *text)
{
    int fd = memfd_create("file", MFD_CLOEXEC);

    cr_assert(ge(int, fd, 0));
    cr_assert(eq(int, (int)write(fd, text, strlen(text)), (int)strlen(text)));
    return fd;
}

static void refused(int fd, uint64_t most, int why)
{
    void *bytes = NULL;
    size_t len = 7;

    errno = 0;
    cr_assert(eq(int, hth_file_read(fd, most, &bytes, &len), -1));
    cr_assert(eq(int, errno, why));
    cr_assert(eq(ptr, bytes, NULL));
    cr_assert(eq(sz, len, 7));
}

Test(file, is_read_from_its_beginning_with_a_terminator)
{
    static const char *const texts[] = { "some text", "" };

    for (int i = 0; i < 2; i++) {
        int fd = file_of(texts[i]);
        void *bytes = NULL;
        size_t len = 7;

        cr_assert(eq(int, hth_file_read(fd, strlen(texts[i]), &bytes, &len), 0));
        cr_assert(eq(sz, len, strlen(texts[i])));
        cr_assert(zero(int, strcmp(bytes, texts[i])));
        free(bytes);
        close(fd);
    }
}

Test(file, that_is_larger_than_wanted_is_not_read)
{
    int fd = file_of("some text");

    refused(fd, 8, EFBIG);
    close(fd);
}

Test(file, must_be_one)
{
    int dir = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC), pipes[2];

    refused(dir, 100, EINVAL);
    close(dir);
    cr_assert(eq(int, pipe(pipes), 0));
    refused(pipes[0], 100, EINVAL);
    close(pipes[0]);
    close(pipes[1]);
    refused(-1, 100, EBADF);
}
