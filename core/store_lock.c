/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine per job and node: an open-file lock on `.hearth/lock`, which the kernel drops with
 * the process, however it ends. Such a lock does not say who holds it, so the file does.
 */
#include "tmpfs.h"

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
static int ask(int fd, int command, struct flock *lock)
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

    if (ask(fd, F_OFD_SETLK, &lock)) {
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

/* The lock file of a job that is there. */
static int open_lock(
        const char *root, const char *job, char *path, size_t path_bytes, struct hearth_error *err)
{
    int root_fd, job_fd, own_fd, fd, rc = hth_job_check(job, err);

    if (rc)
        return rc;
    snprintf(path, path_bytes, "%s/%s", root, job);
    root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    job_fd = hth_sys_open_dir(root_fd, job);
    own_fd = hth_sys_open_dir(job_fd, HTH_RECORDS_DIR);
    fd = hth_sys_open_file(own_fd, "lock", O_RDWR);
    if (fd < 0)
        rc = hth_fail(err,
                root_fd < 0 || job_fd < 0 || own_fd < 0 || errno == ENOENT ? HEARTH_ENOENT
                                                                           : HEARTH_EIO,
                errno, "there is no job of Hearth's in %.200s", path);
    if (own_fd >= 0)
        close(own_fd);
    if (job_fd >= 0)
        close(job_fd);
    if (root_fd >= 0)
        close(root_fd);
    return rc ? rc : fd;
}

int hth_store_lock(const char *root, const char *job, int *out_fd, struct hearth_error *err)
{
    char path[512];
    int fd = open_lock(root, job, path, sizeof(path), err), rc;

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
    char path[512];
    struct flock lock;
    int fd = open_lock(root, job, path, sizeof(path), err);

    if (fd < 0)
        return fd;
    if (ask(fd, F_OFD_GETLK, &lock)) {
        int why = errno;
        close(fd);
        return hth_fail(err, HEARTH_EIO, why, "cannot ask for the lock of %.200s: %s", path,
                strerrordesc_np(why));
    }
    *out_pid = lock.l_type == F_UNLCK ? 0 : pid_in(fd);
    close(fd);
    return 0;
}
