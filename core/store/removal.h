/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What commands remove, also as root in another user's directory. One rule: only what Hearth made
 * goes, entry by entry, out of a job's directory that carries Hearth's mark (`.hearth/` with a lock
 * or a store). A link, another user's file, a mount point, a directory that Hearth does not make
 * and a file that is not Hearth's stay, and each is reported.
 *
 * Every directory is opened once, relative to the one above it and through no link. An entry is
 * judged by its open file, is moved to a name of Hearth's own, and is removed if it is still that
 * file. So if another process exchanges names meanwhile, that changes what a command finds, never
 * where it looks, and no file of that process is lost.
 */
#ifndef HEARTH_CORE_STORE_REMOVAL_H
#define HEARTH_CORE_STORE_REMOVAL_H

#include "core/base/fail.h"
#include <stdint.h>
#include <sys/types.h>

/* `name` in the folder `where` of the job's directory ("" : in itself) is not removed; `why`:
 * "is a link". */
typedef void hth_removal_stays_fn(void *arg, const char *where, const char *name, const char *why);

/* A job's directory, held open for removal. */
struct hth_removal {
    int root_fd, job_fd, records_fd;
    int lock_fd;            /* keeps engines out; -1: none has been here */
    const char *root, *job; /* borrowed until close */
    uid_t owner;
    uint64_t mount;
    hth_removal_stays_fn *stays;
    void *arg;
};

/* `root` is absolute; no part of it may be a link. If the caller is root, only the system and the
 * job's owner may be able to exchange what lies in it. Errors: HEARTH_ENOENT: no such directory, or
 * it has no mark; HEARTH_EINVAL naming the link; HEARTH_EIO naming whose it is; HEARTH_ELOCKED
 * naming the engine. */
int hth_removal_open(struct hth_removal *out, const char *root, const char *job,
        hth_removal_stays_fn *stays, void *arg, struct hearth_error *err);
void hth_removal_close(struct hth_removal *r);

/* The save whose directory is `name`, in `.hearth/` or beside it. `before` runs once that is
 * known to be a save of the job and before its first file goes; an error of it ends the removal.
 * Errors: HEARTH_ENOENT: it is not there; HEARTH_EINVAL: a link, or not Hearth's; HEARTH_EIO;
 * those of `before`. */
int hth_removal_save(const struct hth_removal *r, const char *name, int in_records,
        int (*before)(void *arg, struct hearth_error *err), void *arg, struct hearth_error *err);

/* All that Hearth made of the job; then the directory, where nothing else is in it. Errors:
 * HEARTH_EIO. */
int hth_removal_job(const struct hth_removal *r, struct hearth_error *err);

#endif
