/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One account of free memory for the engines of a user on a machine: each engine records how many
 * bytes it has promised to slots and raw objects and not made yet, since the kernel counts these
 * bytes as free for all of them.
 *
 *     /dev/shm/.hearth-room-<uid>     entries of 64 bytes:
 *         0 u64 bytes   8 u64 device of the mount   16 u64 cgroup, by a checksum of its path
 * An entry belongs to its engine as long as the engine holds a lock on its bytes, so the entry of a
 * killed engine does not count any more. An engine holds the lock behind the entries while it looks
 * and promises. Each user has a file of his own: if another user could write a number, he could
 * refuse memory to a job.
 */
#include "tmpfs.h"

#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "core/base/file.h"
#include "core/base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ACCOUNT_DIR     "/dev/shm"
#define ACCOUNT_NAME    ".hearth-room-%ld" /* user */
#define ACCOUNT_ENTRY   64u
#define ACCOUNT_ENTRIES 256u
#define ACCOUNT_BYTES   24u /* of an entry that mean something */
#define LOCK_TRIES      20u /* of half a millisecond: its holder may stand still */
#define CGROUP_BYTES    4096u

static int account_lock_is(int fd, int command, short type, off_t from, off_t len)
{
    struct flock lock = { .l_type = type, .l_whence = SEEK_SET, .l_start = from, .l_len = len };

    if (fcntl(fd, command, &lock))
        return -1;
    return command == F_OFD_GETLK && lock.l_type != F_UNLCK;
}

static off_t account_at(unsigned entry)
{
    return (off_t)entry * ACCOUNT_ENTRY;
}

void hth_account_lock(struct hth_tmpfs *t)
{
    const struct timespec little = { .tv_nsec = 500000 };

    for (unsigned i = 0;
            i < LOCK_TRIES && t->account_fd >= 0 &&
            account_lock_is(t->account_fd, F_OFD_SETLK, F_WRLCK, account_at(ACCOUNT_ENTRIES), 1);
            i++)
        nanosleep(&little, NULL);
}

void hth_account_unlock(struct hth_tmpfs *t)
{
    if (t->account_fd >= 0)
        (void)account_lock_is(t->account_fd, F_OFD_SETLK, F_UNLCK, account_at(ACCOUNT_ENTRIES), 1);
}

/* Opens the account only if it is ours alone and no link: any user may make files there. */
static int account_open_file(int dir)
{
    char name[64];
    struct stat st;
    int fd;

    snprintf(name, sizeof(name), ACCOUNT_NAME, (long)geteuid());
    fd = hth_open_below(dir, name, O_RDWR, 0);
    if (fd < 0 && errno == ENOENT) {
        fd = hth_open_below(dir, name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd < 0 && errno == EEXIST)
            fd = hth_open_below(dir, name, O_RDWR, 0);
    }
    if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
                           st.st_nlink != 1 || st.st_mode & (S_IWGRP | S_IWOTH))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static uint64_t account_cgroup(const char *proc)
{
    char path[CGROUP_BYTES], text[CGROUP_BYTES];
    ssize_t n;
    int fd;

    snprintf(path, sizeof(path), "%s/self/cgroup", proc ? proc : "/proc");
    fd = hth_open_kernel(path, O_RDONLY);
    n = fd >= 0 ? read(fd, text, sizeof(text)) : 0;
    if (fd >= 0)
        close(fd);
    return n > 0 ? hth_crc32c(text, (size_t)n) : 0;
}

void hth_account_say(struct hth_tmpfs *t, uint64_t bytes)
{
    unsigned char entry[ACCOUNT_BYTES];

    if (t->account_fd < 0 || bytes == t->account_said)
        return;
    hth_put64(entry, bytes);
    hth_put64(entry + 8, t->account_dev);
    hth_put64(entry + 16, t->account_cgroup);
    if (pwrite(t->account_fd, entry, sizeof(entry), account_at(t->account_entry)) ==
            (ssize_t)sizeof(entry))
        t->account_said = bytes;
}

static int account_open_own(void)
{
    int dir = hth_open_named(ACCOUNT_DIR, O_PATH | O_DIRECTORY), fd;

    fd = dir >= 0 ? account_open_file(dir) : -1;
    if (dir >= 0)
        close(dir);
    return fd;
}

int hth_store_tmpfs_account(char path[HTH_ACCOUNT_PATH])
{
    int fd = account_open_own();

    snprintf(path, HTH_ACCOUNT_PATH, ACCOUNT_DIR "/" ACCOUNT_NAME, (long)geteuid());
    if (fd < 0)
        return 0;
    close(fd);
    return 1;
}

void hth_account_open(struct hth_tmpfs *t)
{
    struct stat st;

    t->account_fd = account_open_own();
    if (t->account_fd < 0 || fstat(t->job_fd, &st)) {
        hth_say(&t->opts.log, HEARTH_LOG_DEBUG, "no-account",
                "%s: what other engines of this machine are about to use is not known: no file of "
                "ours in " ACCOUNT_DIR,
                t->path);
        hth_account_close(t);
        return;
    }
    t->account_dev = st.st_dev;
    t->account_cgroup = account_cgroup(t->opts.proc);
    t->account_said = UINT64_MAX;
    for (unsigned i = 0; i < ACCOUNT_ENTRIES; i++)
        if (!account_lock_is(t->account_fd, F_OFD_SETLK, F_WRLCK, account_at(i), ACCOUNT_ENTRY)) {
            t->account_entry = i;
            hth_account_say(t, 0);
            return;
        }
    hth_account_close(t);
}

void hth_account_close(struct hth_tmpfs *t)
{
    if (t->account_fd >= 0)
        close(t->account_fd); /* with its locks */
    t->account_fd = -1;
}

static uint64_t account_less(uint64_t room, uint64_t bytes)
{
    if (room == HTH_ROOM_NONE)
        return room;
    return room > bytes ? room - bytes : 0;
}

void hth_account_others(struct hth_tmpfs *t, struct hth_room *room)
{
    unsigned char entry[ACCOUNT_BYTES];

    for (unsigned i = 0; t->account_fd >= 0 && i < ACCOUNT_ENTRIES; i++) {
        uint64_t bytes;

        if (pread(t->account_fd, entry, sizeof(entry), account_at(i)) != (ssize_t)sizeof(entry))
            return;
        bytes = hth_get64(entry);
        if (!bytes || bytes > HTH_SLOT_MAX ||
                account_lock_is(
                        t->account_fd, F_OFD_GETLK, F_WRLCK, account_at(i), ACCOUNT_ENTRY) != 1)
            continue;
        room->others += bytes;
        room->memory = account_less(room->memory, bytes);
        if (hth_get64(entry + 16) == t->account_cgroup)
            room->cgroup = account_less(room->cgroup, bytes);
        if (hth_get64(entry + 8) == t->account_dev)
            room->mount = account_less(room->mount, bytes);
    }
}
