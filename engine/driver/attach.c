/* SPDX-License-Identifier: Apache-2.0 */
/* Content that comes and goes in a memfd beside a packet. */
#include "attach.h"

#include "core/base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

struct attached {
    struct hth_content pub; /* first */
    int fd;
};

static int attached_read(struct hth_content *content, uint64_t off, void *out, size_t len)
{
    const struct attached *a = (const struct attached *)content;

    return hth_file_fill(a->fd, out, len, off);
}

static void attached_end(struct hth_content *content)
{
    struct attached *a = (struct attached *)content;

    close(a->fd);
    free(a);
}

static int attach_check(int fd, uint64_t *out_len, struct hearth_error *err)
{
    struct statfs fs;
    struct stat st;

    if (fstat(fd, &st) || fstatfs(fd, &fs) || !S_ISREG(st.st_mode) || fs.f_type != TMPFS_MAGIC)
        return hth_fail(err, HEARTH_EPROTO, 0, "the descriptor of a request is no memfd");
    if ((uint64_t)st.st_size > HTH_ATTACH_MAX)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "the descriptor of a request has %lld bytes, and at most %llu are taken",
                (long long)st.st_size, (unsigned long long)HTH_ATTACH_MAX);
    *out_len = (uint64_t)st.st_size;
    return HEARTH_OK;
}

int hth_attach_open(int fd, struct hth_content **out, struct hearth_error *err)
{
    struct attached *a = NULL;
    uint64_t len = 0;
    int rc = attach_check(fd, &len, err);

    if (!rc && !(a = calloc(1, sizeof(*a))))
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "no memory for a request");
    if (!a) {
        close(fd);
        return rc;
    }
    *a = (struct attached){ { len, attached_read, attached_end }, fd };
    *out = &a->pub;
    return HEARTH_OK;
}

int hth_attach_put(int *fd, const void *bytes, uint64_t off, size_t len, int last)
{
    size_t put = 0;

    if (*fd < 0)
        *fd = memfd_create("hearth-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    while (*fd >= 0 && put < len) {
        ssize_t n = pwrite(*fd, (const char *)bytes + put, len - put, (off_t)(off + put));

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            errno = n ? errno : ENOSPC;
            return -1;
        }
        put += (size_t)n;
    }
    if (*fd >= 0 && last)
        fcntl(*fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL);
    return *fd < 0 ? -1 : 0;
}
