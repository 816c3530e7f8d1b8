/* SPDX-License-Identifier: Apache-2.0 */
/* What comes and goes in a memfd beside a packet. */
#include "attach.h"

#include <hearth/internal/engine/server.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

int hth_attach_read(int fd, void **out, size_t *out_len, struct hearth_error *err)
{
    struct statfs fs;
    struct stat st;
    size_t got = 0;
    char *bytes;

    if (fstat(fd, &st) || fstatfs(fd, &fs) || !S_ISREG(st.st_mode) || fs.f_type != TMPFS_MAGIC)
        return hth_fail(err, HEARTH_EPROTO, 0, "the descriptor of a request is no memfd");
    if ((uint64_t)st.st_size > HTH_ATTACH_MAX)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the descriptor of a request has %lld bytes, and at most %llu are taken",
                (long long)st.st_size, (unsigned long long)HTH_ATTACH_MAX);
    *out = NULL;
    *out_len = (size_t)st.st_size;
    if (st.st_size == 0)
        return HEARTH_OK;
    bytes = malloc((size_t)st.st_size);
    if (!bytes)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a request of %lld bytes",
                (long long)st.st_size);
    while (got < *out_len) {
        ssize_t n = pread(fd, bytes + got, *out_len - got, (off_t)got);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            free(bytes);
            return hth_fail(
                    err, HEARTH_EPROTO, 0, "the descriptor of a request changed while it was read");
        }
        got += (size_t)n;
    }
    *out = bytes;
    return HEARTH_OK;
}

int hth_attach_make(const void *bytes, size_t len)
{
    int fd = memfd_create("hearth-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    size_t put = 0;

    while (fd >= 0 && put < len) {
        ssize_t n = pwrite(fd, (const char *)bytes + put, len - put, (off_t)put);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int why = n ? errno : ENOSPC;

            close(fd);
            errno = why;
            return -1;
        }
        put += (size_t)n;
    }
    if (fd >= 0)
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    return fd;
}
