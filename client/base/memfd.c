/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes without a file. */
#include "memfd.h"

#include "core/base/fail.h"
#include "core/base/full.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* A write past the limit ends the process by a signal where the caller does not ignore that. */
static int memfd_too_large(size_t len)
{
    struct rlimit file;

    if (getrlimit(RLIMIT_FSIZE, &file) || file.rlim_cur == RLIM_INFINITY || len <= file.rlim_cur)
        return 0;
    errno = EFBIG;
    return 1;
}

static int memfd_write(int fd, const char *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(fd, bytes + done, len - done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC;
        if (n <= 0)
            return -1;
        done += (size_t)n;
    }
    return 0;
}

int hth_memfd(const char *name, const void *bytes, size_t len, struct hearth_error *err)
{
    int fd = memfd_too_large(len) ? -1 : memfd_create(name, MFD_CLOEXEC), keep;

    if (fd >= 0 && !memfd_write(fd, bytes, len))
        return fd;
    keep = errno;
    if (fd >= 0)
        close(fd);
    hth_fail(err, HEARTH_ENOMEM, keep,
            "memfd_create: %zu bytes for the engine cannot be kept in memory: %s%s", len,
            strerrordesc_np(keep), hth_limit_text(keep));
    errno = keep;
    return -1;
}
