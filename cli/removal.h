/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing a job's files, also as root in somebody else's directory. Every directory is opened
 * once, relative to the one above it and never through a link; what may go is asked of the
 * opened directory, and what goes is named relative to it. So whoever exchanges names meanwhile
 * changes what is found, never where it is looked for.
 *
 * What is removed belongs to one owner: the caller, or, where root removes, whoever the job's
 * directory belongs to. A tree in which anything belongs to somebody else, lies on another mount
 * or is deeper than REMOVAL_DEPTH is refused before its first file goes.
 */
/* For this folder alone. */
#ifndef CLI_REMOVAL_H
#define CLI_REMOVAL_H

#include "core/base/fail.h"
#include <stdint.h>
#include <sys/types.h>

#define REMOVAL_DEPTH 32 /* directories below the job's */

/* A job's directory, held open for removal. */
struct removal {
    int root_fd, job_fd;
    const char *root, *job; /* for sentences; borrowed until close */
    uid_t owner;
    uint64_t mount;
};

/* `root` is absolute; no part of it may be a link. Of root's callers it is asked that nobody but
 * the system and the job's owner can exchange what lies in it.
 * Errors: HEARTH_ENOENT, HEARTH_EINVAL naming the link, HEARTH_EIO naming whose it is. */
int removal_open(struct removal *out, const char *root, const char *job, struct hearth_error *err);
void removal_close(struct removal *r);

/* May all of `dir/name` go, and all that is in it (NULL: all that is in `dir`)? `dir` is job_fd or
 * lies below it. Errors: HEARTH_EIO naming what may not. */
int removal_check(const struct removal *r, int dir, const char *name, struct hearth_error *err);

/* It goes, each part of it checked again. Nothing is opened but directories. What is gone already
 * is success. Errors: HEARTH_EIO. */
int removal_tree(const struct removal *r, int dir, const char *name, struct hearth_error *err);

/* The same of all that lies in `dir` but the entry `except` (NULL: of all). */
int removal_inside(const struct removal *r, int dir, const char *except, struct hearth_error *err);

/* A directory below the job's, open. A negative code: as removal_open(). */
int removal_enter(const struct removal *r, int dir, const char *name, struct hearth_error *err);

#endif
