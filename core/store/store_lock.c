/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine per job and node: an open-file lock on `.hearth/lock`, which the kernel drops with the
 * process, however it ends. The kernel does not report which process holds such a lock, so the file
 * has it:
 *
 *     "4711", blanks up to byte 23, newline       the pid, as the engine's own namespace counts it
 *     "4026531836 pod-a", newline                 that namespace, and the host name
 *
 * In another namespace (a pod, a container) the pid is none, or another process's.
 */
#include "tmpfs.h"

#include "core/base/full.h"
#include "core/base/open.h"
#include "core/base/root.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PID_TEXT  24
#define LOCK_TEXT 128

/* 0: there is no /proc. */
static uint64_t own_namespace(void)
{
    int fd = hth_open_kernel("/proc/self/ns/pid", O_RDONLY);
    struct stat st;
    uint64_t number = fd >= 0 && !fstat(fd, &st) ? st.st_ino : 0;

    if (fd >= 0)
        close(fd);
    return number;
}

static void holder_read(int fd, struct hth_lock_holder *out)
{
    char text[LOCK_TEXT + 1] = "", *host = text;
    uint64_t space = 0;

    *out = (struct hth_lock_holder){ .held = 1 };
    if (pread(fd, text, LOCK_TEXT, 0) <= 0)
        return;
    out->there = (pid_t)strtol(text, NULL, 10);
    if (strlen(text) > PID_TEXT)
        space = strtoull(text + PID_TEXT, &host, 10);
    if (space && *host == ' ')
        snprintf(out->host, sizeof(out->host), "%.*s", (int)strcspn(host + 1, "\n"), host + 1);
    if (!space || space == own_namespace()) /* an older engine says nothing of it */
        out->pid = out->there;
}

const char *hth_lock_holder_text(
        const struct hth_lock_holder *holder, char out[HTH_LOCK_HOLDER_TEXT])
{
    if (holder->pid > 0)
        snprintf(out, HTH_LOCK_HOLDER_TEXT, "pid %ld", (long)holder->pid);
    else if (holder->there > 0)
        snprintf(out, HTH_LOCK_HOLDER_TEXT, "in another pod or container: host %s, pid %ld there",
                holder->host, (long)holder->there);
    else
        snprintf(out, HTH_LOCK_HOLDER_TEXT, "of a pid that is not known");
    return out;
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
    char text[LOCK_TEXT + 1], host[65] = "", who[HTH_LOCK_HOLDER_TEXT];
    struct hth_lock_holder holder;
    struct flock lock;
    struct stat st;

    if (fstat(fd, &st) || !S_ISREG(st.st_mode))
        return hth_fail(err, HEARTH_EIO, 0,
                "the lock of %.200s is not a file: look at it, then remove it", path);
    if (lock_control(fd, F_OFD_SETLK, &lock)) {
        if (errno != EAGAIN && errno != EACCES)
            return hth_fail(
                    err, HEARTH_EIO, errno, "cannot lock %.200s: %s", path, strerrordesc_np(errno));
        holder_read(fd, &holder);
        return hth_fail(err, HEARTH_ELOCKED, 0,
                "%.200s is in use by the engine %s%s; end that one first", path,
                holder.pid > 0 ? "with " : "", hth_lock_holder_text(&holder, who));
    }
    gethostname(host, sizeof(host) - 1);
    snprintf(text, sizeof(text), "%-*ld\n%" PRIu64 " %s\n", PID_TEXT - 1, (long)getpid(),
            own_namespace(), host[0] ? host : "-");
    if (ftruncate(fd, 0) || pwrite(fd, text, strlen(text), 0) != (ssize_t)strlen(text))
        return hth_fail(err, errno == ENOSPC ? HEARTH_ENOSPC : HEARTH_EIO, errno,
                "cannot write the pid into the lock of %.200s: %s", path, hth_full_text(fd, errno));
    return 0;
}

/* ---- from outside of the store
 * ---------------------------------------------------------------- */

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

int hth_store_locked(
        const char *root, const char *job, struct hth_lock_holder *out, struct hearth_error *err)
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
    else if (lock.l_type == F_UNLCK)
        *out = (struct hth_lock_holder){ 0 };
    else
        holder_read(fd, out);
    close(fd);
    return rc;
}
