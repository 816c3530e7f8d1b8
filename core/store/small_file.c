/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small files, whole or not at all: written under another name, into memory that is ours already
 * (spare.c), then renamed in place of what is there.
 */
#include "tmpfs.h"

#include "core/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define SMALL_MAX (UINT64_C(1) << 34) /* bytes that one read will take */

int hth_small_put(struct hth_tmpfs *t, int dir, const char *name, const void *bytes, size_t len,
        struct hearth_error *err)
{
    return hth_spare_write(t, dir, name, bytes, len) ? hth_sys_fail(t, err, "write", name) : 0;
}

int hth_small_get(struct hth_tmpfs *t, int dir, const char *name, void **out, size_t *out_len,
        struct hearth_error *err)
{
    int fd = hth_sys_open_file(dir, name, O_RDONLY), rc = HEARTH_OK;

    if (fd < 0)
        return hth_sys_fail(t, err, "open", name);
    if (hth_file_read(fd, SMALL_MAX, out, out_len)) {
        if (errno == EINVAL || errno == EFBIG)
            rc = hth_fail(
                    err, HEARTH_ECORRUPT, 0, "%.200s: %.100s is not a small file", t->path, name);
        else if (errno == ENOMEM)
            rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %.100s", name);
        else
            rc = hth_sys_fail(t, err, "read", name);
    }
    close(fd);
    return rc;
}
