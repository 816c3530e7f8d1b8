/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system calls by which the store makes things, each of which can be made to fail by its
 * number, and the two ways of opening: relative to a directory and never through a link.
 */
#include "tmpfs.h"

#include "core/base/full.h"
#include "core/base/guard.h"
#include "core/base/map.h"
#include "core/base/open.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* 1: this call is the one that fails. */
#ifdef HEARTH_POINTS
static int sys_refused(struct hth_tmpfs *t)
{
    struct hth_store_faults *f = t->opts.faults;
    uint64_t call;

    if (!f || (call = __atomic_add_fetch(&f->calls, 1, __ATOMIC_RELAXED)) != f->fail_at)
        return 0;
    hth_say(&t->opts.log, HEARTH_LOG_WARN, "made-to-fail",
            "allocation %" PRIu64 " of the store fails, as asked for a test", call);
    errno = ENOSPC;
    return 1;
}
#else
static int sys_refused(const struct hth_tmpfs *t)
{
    (void)t;
    return 0;
}
#endif

int hth_sys_mkdir(struct hth_tmpfs *t, int dir, const char *name)
{
    return sys_refused(t) ? -1 : mkdirat(dir, name, 0700);
}

int hth_sys_create(struct hth_tmpfs *t, int dir, const char *name)
{
    if (sys_refused(t))
        return -1;
    return hth_open_below(dir, name, O_RDWR | O_CREAT | O_EXCL, 0600);
}

int hth_sys_truncate(struct hth_tmpfs *t, int fd, uint64_t len)
{
    return sys_refused(t) ? -1 : ftruncate(fd, (off_t)len);
}

/* Where a file system on disk has no fallocate, or a seccomp profile does not allow it: zeros. */
static int write_zeros(int fd, uint64_t off, uint64_t len)
{
    static const unsigned char zeros[1 << 16];

    while (len) {
        size_t n = len < sizeof(zeros) ? (size_t)len : sizeof(zeros);
        ssize_t done = pwrite(fd, zeros, n, (off_t)off);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return -1;
        off += (uint64_t)done;
        len -= (uint64_t)done;
    }
    return 0;
}

int hth_sys_allocate(struct hth_tmpfs *t, int fd, uint64_t off, uint64_t len)
{
    int rc;

    if (sys_refused(t))
        return -1;
    do
        rc = fallocate(fd, 0, (off_t)off, (off_t)len);
    while (rc && errno == EINTR); /* older kernels undo all of it on a signal */
    if (rc &&
            ((errno == EOPNOTSUPP && t->opts.allow_non_tmpfs) || errno == ENOSYS || errno == EPERM))
        rc = write_zeros(fd, off, len);
    return rc;
}

int hth_sys_write(struct hth_tmpfs *t, int fd, const void *bytes, size_t len, uint64_t off)
{
    const unsigned char *p = bytes;

    if (sys_refused(t))
        return -1;
    while (len) {
        ssize_t n = pwrite(fd, p, len, (off_t)off);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0) {
            errno = ENOSPC;
            return -1;
        }
        p += n;
        off += (uint64_t)n;
        len -= (size_t)n;
    }
    return 0;
}

int hth_sys_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
}

int hth_sys_rename_new(
        struct hth_tmpfs *t, int from_dir, const char *from, int to_dir, const char *to)
{
    return sys_refused(t) ? -1 : hth_sys_renameat2(from_dir, from, to_dir, to, RENAME_NOREPLACE);
}

int hth_sys_rename(struct hth_tmpfs *t, int from_dir, const char *from, int to_dir, const char *to)
{
    return sys_refused(t) ? -1 : renameat(from_dir, from, to_dir, to);
}

void *hth_sys_map(struct hth_tmpfs *t, int fd, uint64_t len, int writable)
{
    void *base = sys_refused(t) ? NULL
                                : hth_map_shared(fd, len, PROT_READ | (writable ? PROT_WRITE : 0));

    if (base)
        hth_guard_add(base, len);
    return base;
}

int hth_sys_map_over(void *base, int fd, uint64_t len)
{
    if (mmap(base, len, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != base)
        return -1;
    madvise(base, len, MADV_DONTFORK);
    madvise(base, len, MADV_DONTDUMP);
    return 0;
}

void hth_sys_unmap(void *base, uint64_t len)
{
    hth_guard_remove(base);
    munmap(base, len);
}

void *hth_sys_zalloc(struct hth_tmpfs *t, size_t bytes)
{
    return sys_refused(t) ? NULL : calloc(1, bytes);
}

int hth_sys_open_dir(int dir, const char *name)
{
    return hth_open_below(dir, name, O_RDONLY | O_DIRECTORY, 0);
}

int hth_sys_open_file(int dir, const char *name, int flags)
{
    return hth_open_below(dir, name, flags, 0);
}

int hth_sys_exchange(int a_dir, const char *a, int b_dir, const char *b)
{
    return renameat2(a_dir, a, b_dir, b, RENAME_EXCHANGE);
}

int hth_sys_open_elsewhere(int fd)
{
    /* A process that opens it in these microseconds waits until the write lease is given up, and
     * the kernel signals us: by SIGURG, which is ignored by default, where SIGIO would end us. */
    if (fcntl(fd, F_SETSIG, SIGURG) || fcntl(fd, F_SETLEASE, F_WRLCK))
        return errno == EAGAIN ? 1 : -1;
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return 0;
}

int hth_sys_fail(
        const struct hth_tmpfs *t, struct hearth_error *err, const char *doing, const char *name)
{
    int why = errno, code = HEARTH_EIO;

    if (why == ENOSPC || why == EDQUOT)
        code = HEARTH_ENOSPC;
    else if (why == ENOENT)
        code = HEARTH_ENOENT;
    else if (why == EEXIST)
        code = HEARTH_EEXIST;
    else if (why == ENOMEM)
        code = HEARTH_ENOMEM;
    return hth_fail(err, code, why, "%.200s: cannot %s %.100s: %s%s", t->path, doing, name,
            hth_full_text(t->root_fd, why), hth_limit_text(why));
}

int hth_sys_each(int dir, void (*entry)(void *arg, const char *name), void *arg)
{
    DIR *list = hth_open_list(dir);
    struct dirent *e;

    if (!list)
        return -1;
    while ((e = readdir(list)))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            entry(arg, e->d_name);
    closedir(list);
    return 0;
}
