/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes without a file. */
#include "memfd.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

int hth_memfd(const char *name, const void *bytes, size_t len)
{
    int fd = memfd_create(name, MFD_CLOEXEC);
    size_t done = 0;

    while (fd >= 0 && done < len) {
        ssize_t n = write(fd, (const char *)bytes + done, len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int keep = n ? errno : ENOSPC;

            close(fd);
            errno = keep;
            return -1;
        }
        done += (size_t)n;
    }
    return fd;
}
