/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store on a tmpfs. Directories 0700, files 0600:
 *
 *     <root>/<job>/
 *         step-<N>_ckpt/                  a COMPLETE save: its objects under their names
 *         .hearth/
 *             lock                        locked by the engine; its pid as text
 *             store                       96 bytes: store id, job, starts (store_tmpfs.c)
 *             pool/<slot id>              free and held slots; the id is the file's inode number
 *             <save>/                     a save that is not published
 *                 <name>.tmp, <name>      received, sealed: slots; or raw objects
 *             <save>.dir                  which directory is this save's, by inode number
 *             <save>.manifest, epoch ...  records
 *             evidence/<slot id>-<why>    condemned slots, at most HTH_EVIDENCE_MAX
 *             new, new-<n>                a slot or raw object on its way to its name
 *             spare-<n>                   memory for records; a record on its way to its name
 *
 * What a directory holds is decided by the blocks in it, then by `<save>.dir`, and by its name only
 * inside .hearth/: a process may die between the exchange of two saves of one step and the rename
 * that puts the older one's name right. A slot's file is never shorter than it was made, and is a
 * multiple of 2 MiB; a raw object whose size happens to be one is made read-only; kind.c tells it
 * from a slot by the block, the mode and the manifest.
 *
 * scan() reports files of foreign containers as slots that are mapped read-only and not in the
 * pool: their capacity is the file's length, give() unlinks the name. A container with an
 * `unfinished` marker beside it is left out.
 *
 * condemn() ends the slot: the caller ends what `user` stands for before. It puts a slot aside only
 * where a new one fits in its place, else it gives.
 */
#ifndef HEARTH_CORE_STORE_STORE_TMPFS_H
#define HEARTH_CORE_STORE_STORE_TMPFS_H

#include "core/base/env.h"
#include "need.h"
#include "store.h"
#include <sys/types.h>

#define HTH_EVIDENCE_MAX 4

/* Counts the system calls that allocate (mkdir, create, ftruncate, fallocate, pwrite, mmap, renames
 * that publish or seal a raw object) and heap allocations; the one that makes `calls` equal to
 * fail_at fails. Only in builds with HEARTH_POINTS. */
struct hth_store_faults {
    uint64_t calls;
    uint64_t fail_at; /* 0: none */
};

struct hth_store_tmpfs_opts {
    const char *root;
    const char *job;
    uint64_t margin_bytes; /* left free for others and small files; 0: 1/16 of the mount,
                                         at most 64 MiB */
    uint64_t limit_bytes;  /* most bytes in slots; 0: what fits */
    int lock;              /* a descriptor of the lock that an engine before this one holds, and
                                         hands over; borrowed until return; 0: none */
    int allow_non_tmpfs;   /* a directory on a disk will do, with a line in the log */
    int no_prefault;       /* work() allocates, but touches no page */
    int no_collapse;       /* for tests: as with a Linux before 6.1 */
    struct hth_log log;
    struct hth_points points;
    struct hth_workers workers; /* make the memory of slots, free that of large raw objects; submit
                                   NULL: work() itself, and at once */
    struct hth_store_faults *faults; /* NULL: none; borrowed until close */
    const char *proc;                /* NULL: /proc */
    int test_truncate;               /* give() truncates the slot to nothing and back: wrong, and
                                         there so that a test can see that it would be found */
};

#define HTH_ACCOUNT_PATH 64

/* Makes, if it can, the file in which engines of this machine record what they have promised:
 * returns 1, and its path. For a process that gives up the right to make it before it opens a
 * store. */
int hth_store_tmpfs_account(char path[HTH_ACCOUNT_PATH]);

/* Errors: HEARTH_EINVAL (names, no root, root not a tmpfs, directory of another user),
 * HEARTH_ELOCKED naming the other engine's pid, HEARTH_ECORRUPT (.hearth/store damaged or of
 * another job), HEARTH_EUNSUPPORTED (another version's; nothing is touched), HEARTH_ENOSPC,
 * HEARTH_EIO. Call scan() before anything else: it adopts what is there. */
int hth_store_tmpfs_open(
        const struct hth_store_tmpfs_opts *opts, struct hth_store **out, struct hearth_error *err);

/* `.hearth/` of <root>/<job> as a directory, through no link below root. It and the job's directory
 * are of our user, and writable by no other. The caller closes *out_fd. Makes nothing.
 * Errors: HEARTH_ENOENT (no such job here), HEARTH_EINVAL naming the owner, HEARTH_EIO. */
int hth_store_records(const char *root, const char *job, int *out_fd, struct hearth_error *err);

/* Keep engines out of the job with these records until *out_fd is closed; `path` is for sentences.
 * Makes nothing. Errors: HEARTH_ELOCKED naming the pid, HEARTH_ENOENT (no engine has been here),
 * HEARTH_EIO (also: the lock is no file). */
int hth_store_lock(int records, const char *path, int *out_fd, struct hearth_error *err);

/* Which engine has a job. */
struct hth_lock_holder {
    int held;      /* 1: one runs */
    pid_t pid;     /* 0: it has none in this process's namespace, or has not written it yet */
    pid_t there;   /* as its own namespace counts it */
    char host[65]; /* its host name, which is a pod's; "" of an older engine */
};
/* "pid 12", or of one in another pid namespace its host name; returns out. */
#define HTH_LOCK_HOLDER_TEXT 144
const char *hth_lock_holder_text(
        const struct hth_lock_holder *holder, char out[HTH_LOCK_HOLDER_TEXT]);

/* Does an engine run on <root>/<job>? Takes no lock, so it never keeps one out. Errors:
 * HEARTH_ENOENT, HEARTH_EIO. */
int hth_store_locked(
        const char *root, const char *job, struct hth_lock_holder *out, struct hearth_error *err);

/* Before close: removes all that is Hearth's, and its memory too once no process maps it. With
 * keep_records the records and the log stay. Files that are not Hearth's always stay. */
void hth_store_tmpfs_erase(struct hth_store *s, int keep_records);

/* 1: another process has removed the job's directory under this engine: what the engine writes is
 * in no directory. */
int hth_store_tmpfs_removed(struct hth_store *s);

/* The lock, for another engine: it stays locked until this descriptor is closed too. -1 and errno.
 * The caller closes. */
int hth_store_tmpfs_keep_lock(const struct hth_store *s);

/* 1: another process has removed the lock, as if it were a stale one: nothing keeps another engine
 * out. */
int hth_store_tmpfs_unlocked(struct hth_store *s);
/* Make and take it anew. Errors: HEARTH_ELOCKED: another engine has it by now; else a later call
 * may be able to. */
int hth_store_tmpfs_relock(struct hth_store *s, struct hearth_error *err);

/* Bytes that reserve() promised and work() has not yet made. */
uint64_t hth_store_tmpfs_missing(struct hth_store *s);

#endif
