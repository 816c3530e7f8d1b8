/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files, whole or not at all: written as `.hearth/new`, then renamed over what is there.
 * A process that dies in between leaves `new`, which the next start removes.
 */
#include "tmpfs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SMALL_MAX (UINT64_C(1) << 34) /* bytes that one read will take */

static int put(struct hth_tmpfs *t, int dir, const char *name, const void *bytes, size_t len)
{
    int fd, rc = 0;

    unlinkat(t->own_fd, NEW_FILE, 0);
    fd = hth_sys_create(t, t->own_fd, NEW_FILE);
    if (fd < 0)
        return -1;
    if (len)
        rc = hth_sys_write(t, fd, bytes, len, 0);
    close(fd);
    if (!rc)
        rc = renameat(t->own_fd, NEW_FILE, dir, name);
    if (rc) {
        int saved = errno;
        unlinkat(t->own_fd, NEW_FILE, 0);
        errno = saved;
    }
    return rc;
}

int hth_small_put(struct hth_tmpfs *t, int dir, const char *name, const void *bytes, size_t len,
        struct hearth_error *err)
{
    return put(t, dir, name, bytes, len) ? hth_sys_fail(t, err, "write", name) : 0;
}

static int read_all(int fd, unsigned char *at, size_t len)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = pread(fd, at + done, len - done, (off_t)done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n ? errno : EIO; /* shorter than a moment ago */
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

int hth_small_get(struct hth_tmpfs *t, int dir, const char *name, void **out, size_t *out_len,
        struct hearth_error *err)
{
    int fd = hth_sys_open_file(dir, name, O_RDONLY);
    unsigned char *bytes = NULL;
    struct stat st;
    int rc = -1;

    if (fd < 0)
        return hth_sys_fail(t, err, "open", name);
    if (fstat(fd, &st)) {
        rc = hth_sys_fail(t, err, "read", name);
    } else if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size > SMALL_MAX) {
        rc = hth_fail(err, HEARTH_ECORRUPT, 0, "%.200s: %.100s is not a small file", t->path, name);
    } else {
        bytes = malloc((size_t)st.st_size + 1);
        if (!bytes)
            rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %.100s", name);
        else
            rc = read_all(fd, bytes, (size_t)st.st_size) ? hth_sys_fail(t, err, "read", name) : 0;
    }
    close(fd);
    if (rc) {
        free(bytes);
        return rc;
    }
    *out = bytes;
    *out_len = (size_t)st.st_size;
    return 0;
}
