/* SPDX-License-Identifier: Apache-2.0 */
/* By openat2() where there is one; else part by part. */
#include "open.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define BENEATH     (RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)
#define QUIET       (O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
#define MOVED_TRIES 8

static int without_openat2; /* Linux before 5.6, or a sandbox that does not know it */

static int open_close(int fd, int why)
{
    close(fd);
    errno = why;
    return -1;
}

/* 1: the name is absolute, or has a part `..`. */
static int open_leads_out(const char *name)
{
    if (*name == '/')
        return 1;
    for (; *name; name += strspn(name, "/")) {
        size_t len = strcspn(name, "/");

        if (len == 2 && name[0] == '.' && name[1] == '.')
            return 1;
        name += len;
    }
    return 0;
}

/* A link is ELOOP here; with O_DIRECTORY the kernel would return ENOTDIR for it. */
static int open_part(int dir, const char *part, int flags, mode_t mode)
{
    struct stat st;
    int fd = openat(dir, part, flags | O_NOFOLLOW | O_CLOEXEC, mode);

    if (fd < 0 && errno == ENOTDIR)
        errno = !fstatat(dir, part, &st, AT_SYMLINK_NOFOLLOW) && S_ISLNK(st.st_mode) ? ELOOP
                                                                                     : ENOTDIR;
    if (fd >= 0 && flags & O_PATH && (fstat(fd, &st) || S_ISLNK(st.st_mode)))
        return open_close(fd, ELOOP);
    return fd;
}

static int open_by_parts(int dir, const char *name, int flags, mode_t mode)
{
    char part[NAME_MAX + 1];
    int fd = -1, above;

    do {
        size_t len = strcspn(name, "/");

        if (len > NAME_MAX)
            return fd < 0 ? (errno = ENAMETOOLONG, -1) : open_close(fd, ENAMETOOLONG);
        memcpy(part, name, len);
        part[len] = '\0';
        name += len + strspn(name + len, "/");
        above = fd;
        fd = open_part(above < 0 ? dir : above, part, *name ? O_PATH | O_DIRECTORY : flags, mode);
        if (above >= 0) {
            int why = errno;

            close(above);
            errno = why;
        }
    } while (fd >= 0 && *name);
    return fd;
}

/* The kernel also returns EXDEV if another process moves the file out of the directory during the
 * look-up: an engine that publishes or frees a save does that. By then the name is free, or another
 * file has it. */
static int open_whole(int dir, const char *name, const struct open_how *how)
{
    for (int i = 0; i < MOVED_TRIES; i++) {
        long fd = syscall(SYS_openat2, dir, name, how, sizeof(*how));

        if (fd >= 0 || errno != EXDEV)
            return (int)fd;
    }
    errno = ENOENT;
    return -1;
}

int hth_open_below(int dir, const char *name, int flags, mode_t mode)
{
    struct open_how how = { .mode = flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY)) ? mode : 0,
        .resolve = BENEATH };
    int fd;

    if (open_leads_out(name)) {
        errno = EXDEV;
        return -1;
    }
    flags |= flags & O_PATH ? O_CLOEXEC : QUIET;
    how.flags = (uint64_t)(unsigned)flags;
    if (!__atomic_load_n(&without_openat2, __ATOMIC_RELAXED)) {
        fd = open_whole(dir, name, &how);
        if (fd >= 0 || (errno != ENOSYS && errno != EPERM)) /* EPERM: older sandboxes say so */
            return fd;
        if (errno == ENOSYS)
            __atomic_store_n(&without_openat2, 1, __ATOMIC_RELAXED);
    }
    return open_by_parts(dir, name, flags, mode);
}

static int open_must_be_file(int fd)
{
    struct stat st;

    if (fd < 0)
        return -1;
    if (fstat(fd, &st))
        return open_close(fd, errno);
    return S_ISREG(st.st_mode) ? fd : open_close(fd, EINVAL);
}

/* Checks the type before it opens the file, since some devices act when they are opened; and again
 * afterwards, since another process may have put another file there. */
int hth_open_file(int dir, const char *name, int flags)
{
    int look = open_must_be_file(hth_open_below(dir, name, O_PATH, 0));

    if (look < 0 && !(errno == ENOENT && flags & O_CREAT))
        return -1;
    if (look >= 0)
        close(look);
    return open_must_be_file(hth_open_below(dir, name, flags, S_IRUSR | S_IWUSR));
}

int hth_open_named(const char *path, int flags)
{
    return open(path, flags | QUIET);
}

int hth_open_part(int dir, const char *part, int flags)
{
    return openat(dir, part, flags | O_CLOEXEC);
}

int hth_open_kernel(const char *path, int flags)
{
    return open(path, flags | O_CLOEXEC);
}

FILE *hth_open_kernel_text(const char *path)
{
    int fd = hth_open_kernel(path, O_RDONLY);
    FILE *text = fd < 0 ? NULL : fdopen(fd, "r");

    if (fd >= 0 && !text)
        open_close(fd, errno);
    return text;
}

static DIR *open_list(int fd)
{
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (fd >= 0 && !list)
        open_close(fd, errno);
    return list;
}

DIR *hth_open_kernel_list(const char *path)
{
    return open_list(hth_open_kernel(path, O_RDONLY | O_DIRECTORY));
}

DIR *hth_open_list(int dir)
{
    return open_list(hth_open_below(dir, ".", O_RDONLY | O_DIRECTORY, 0));
}

int hth_open_again(int fd, int flags)
{
    char path[40];

    snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
    return open(path, flags | O_CLOEXEC);
}

int hth_open_parent(int dir)
{
    return openat(dir, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
}
