/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `log` lies in the store, so it is bounded: at 4 MiB it becomes `log.1`. A file that an operator
 * names is his: he, or logrotate, shortens or renames it, and it is opened anew then. Each line is
 * one write to a file opened for appending, so that a second engine, which finds the lock taken,
 * can say so in the same file.
 */
#include "log_file.h"

#include "core/base/open.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES (4 << 20)
#define FILE_AHEAD (64 << 10)

/* Has the pages of the next lines made, behind the end of `log`. When its tmpfs is full, the lines
 * that explain it still fit, also where no system log is. */
static void file_reach(struct log_file *f)
{
    if (!f->path && f->made < f->size + FILE_AHEAD / 2 &&
            !fallocate(f->fd, FALLOC_FL_KEEP_SIZE, f->size, FILE_AHEAD))
        f->made = f->size + FILE_AHEAD;
}

/* If something other than a file has this name, nothing is written to it. */
int log_file_open(struct log_file *f)
{
    int flags = O_WRONLY | O_CREAT | O_APPEND, fd;
    struct stat st;

    fd = f->path ? hth_open_named(f->path, flags | O_NOFOLLOW)
                 : hth_open_file(f->dir, "log", flags);
    if (fd < 0)
        return -1;
    if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_nlink > 1) {
        close(fd);
        errno = EINVAL;
        return -1;
    }
    f->fd = fd;
    f->size = st.st_size;
    f->made = 0;
    file_reach(f);
    return 0;
}

/* Renames `log` to `log.1`; if that fails, empties it. */
static int file_turn_over(struct log_file *f)
{
    if (renameat(f->dir, "log", f->dir, "log.1")) {
        f->size = ftruncate(f->fd, 0) ? f->size : 0;
        return 0;
    }
    log_file_close(f);
    return log_file_open(f);
}

/* 1: no reader finds the open file by the name any more. */
static int file_is_gone(const struct log_file *f)
{
    struct stat st, named;

    if (fstat(f->fd, &st))
        return 0;
    return !st.st_nlink ||
           (f->path && (fstatat(AT_FDCWD, f->path, &named, AT_SYMLINK_NOFOLLOW) ||
                               named.st_ino != st.st_ino || named.st_dev != st.st_dev));
}

/* The file system was full in mid-line. What another engine has written behind it stays. */
static void file_take_back(struct log_file *f, off_t bytes)
{
    off_t end = lseek(f->fd, 0, SEEK_CUR);
    struct stat st;

    f->made = 0;
    if (end >= bytes && !fstat(f->fd, &st) && st.st_size == end && !ftruncate(f->fd, end - bytes))
        return;
    f->size += bytes;
}

static int file_write(struct log_file *f, const char *bytes, size_t len)
{
    size_t done = 0;
    ssize_t n;

    do {
        n = write(f->fd, bytes + done, len - done);
        done += n > 0 ? (size_t)n : 0;
    } while (done < len && (n > 0 || (n < 0 && errno == EINTR)));
    if (done < len) {
        int why = n < 0 ? errno : ENOSPC;

        if (done)
            file_take_back(f, (off_t)done);
        return why;
    }
    f->size += (off_t)len;
    file_reach(f);
    return 0;
}

int log_file_put(struct log_file *f, const char *bytes, size_t len)
{
    if (f->fd >= 0 && file_is_gone(f))
        log_file_close(f);
    f->opened = 0;
    if ((f->fd < 0 && log_file_open(f)) ||
            (!f->path && f->size + (off_t)len > FILE_BYTES && file_turn_over(f)))
        return errno ? errno : EIO;
    f->opened = 1;
    return file_write(f, bytes, len);
}

void log_file_close(struct log_file *f)
{
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}
