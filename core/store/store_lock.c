/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine per job and node: an open-file lock on `.hearth/lock`, which the kernel drops with
 * the process, however it ends. The kernel does not say which process holds such a lock, so its pid is
 * in the file.
 */
#include "tmpfs.h"

#include "core/base/root.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PID_TEXT 24

static pid_t pid_in(int fd)
{
    char text[PID_TEXT + 1] = "";

    return pread(fd, text, PID_TEXT, 0) > 0 ? (pid_t)strtol(text, NULL, 10) : 0;
}

/* fcntl by open file: F_OFD_SETLK or F_OFD_GETLK. */
static int lock_control(int fd, int command, struct flock *lock)
{
    memset(lock, 0, sizeof(*lock));
    lock->l_type = F_WRLCK;
    lock->l_whence = SEEK_SET;
    return fcntl(fd, command, lock);
}

int hth_lock_take(int fd, const char *path, struct hearth_error *err)
{
    char text[PID_TEXT + 1];
    struct flock lock;
    struct stat st;

    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return hth_fail(err, HEARTH_EIO, 0,
                "the lock of %.200s is not a file: look at it, then remove it", path);
    if (lock_control(fd, F_OFD_SETLK, &lock)) {
        if (errno != EAGAIN && errno != EACCES)
            return hth_fail(
                    err, HEARTH_EIO, errno, "cannot lock %.200s: %s", path, strerrordesc_np(errno));
        return hth_fail(err, HEARTH_ELOCKED, errno,
                "%.200s is in use by the engine with pid %ld; end that one first", path,
                (long)pid_in(fd));
    }
    snprintf(text, sizeof(text), "%-*ld\n", PID_TEXT - 1, (long)getpid());
    if (pwrite(fd, text, PID_TEXT, 0) != PID_TEXT)
        return hth_fail(err, errno == ENOSPC ? HEARTH_ENOSPC : HEARTH_EIO, errno,
                "cannot write the pid into the lock of %.200s: %s", path, strerrordesc_np(errno));
    return 0;
}

/* ---- from outside of the store ---------------------------------------------------------------- */

/* `.hearth/` of a job that is there, through no link; the job's directory and it in st[2]. */
static int open_records(
        const char *root, const char *job, struct stat st[2], struct hearth_error *err)
{
    int fd[3] = { -1, -1, -1 }, why, rc = hth_job_check(job, err);

    if (rc)
        return rc;
    rc = hth_root_open(root, O_RDONLY, &fd[0], err);
    if (rc)
        return rc;
    fd[1] = hth_sys_open_dir(fd[0], job);
    if (fd[1] >= 0 && !fstat(fd[1], &st[0]))
        fd[2] = hth_sys_open_dir(fd[1], HTH_RECORDS_DIR);
    why = errno;
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    if (fd[2] >= 0 && !fstat(fd[2], &st[1]))
        return fd[2];
    return hth_fail(err,
            why == EACCES || why == EMFILE || why == ENFILE ? HEARTH_EIO : HEARTH_ENOENT, why,
            "there is no job of Hearth's in %.200s/%s: %s", root, job, strerrordesc_np(why));
}

int hth_store_records(const char *root, const char *job, int *out_fd, struct hearth_error *err)
{
    struct stat st[2] = { 0 };
    int fd = open_records(root, job, st, err);

    if (fd < 0)
        return fd;
    if (st[0].st_uid != geteuid() || st[1].st_uid != geteuid() ||
            (st[0].st_mode | st[1].st_mode) & (S_IWGRP | S_IWOTH)) {
        close(fd);
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%.200s/%s belongs to user %ld, or others may write to it; it must be ours alone",
                root, job, (long)st[0].st_uid);
    }
    *out_fd = fd;
    return 0;
}

static int open_lock_file(int records, const char *path, int flags, struct hearth_error *err)
{
    int fd = hth_sys_open_file(records, "lock", flags), why = errno;

    if (fd >= 0)
        return fd;
    return hth_fail(err, why == ENOENT ? HEARTH_ENOENT : HEARTH_EIO, why,
            "%.200s: the lock cannot be opened: %s", path, strerrordesc_np(why));
}

int hth_store_lock(int records, const char *path, int *out_fd, struct hearth_error *err)
{
    int fd = open_lock_file(records, path, O_RDWR, err), rc;

    if (fd < 0)
        return fd;
    rc = hth_lock_take(fd, path, err);
    if (rc) {
        close(fd);
        return rc;
    }
    *out_fd = fd;
    return 0;
}

int hth_store_locked(const char *root, const char *job, pid_t *out_pid, struct hearth_error *err)
{
    int records, fd, rc = 0;
    struct stat st[2];
    struct flock lock;

    records = open_records(root, job, st, err);
    if (records < 0)
        return records;
    fd = open_lock_file(records, job, O_RDONLY, err);
    close(records);
    if (fd < 0)
        return fd;
    if (lock_control(fd, F_OFD_GETLK, &lock))
        rc = hth_fail(err, HEARTH_EIO, errno, "cannot ask for the lock of %.200s/%s: %s", root, job,
                strerrordesc_np(errno));
    else
        *out_pid = lock.l_type == F_UNLCK ? 0 : pid_in(fd);
    close(fd);
    return rc;
}
