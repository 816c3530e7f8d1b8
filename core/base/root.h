/* SPDX-License-Identifier: Apache-2.0 */
/* The root: the directory in which the jobs' directories stand, as a user or an administrator
 * names it. */
#ifndef HEARTH_CORE_BASE_ROOT_H
#define HEARTH_CORE_BASE_ROOT_H

#include <hearth/error.h>

/* Opens the directory with `flags` and O_DIRECTORY. Refuses it if another user may exchange its
 * entries, since every user may write to it and it has no sticky bit; or the way to it, since a
 * link there belongs to neither root nor this user. Links of these two are followed. `path` may be
 * relative. *out_fd is the caller's: close().
 *
 * Errors: HEARTH_EINVAL: refused; HEARTH_ENOENT: no directory is there; HEARTH_EIO: the system
 * refuses. errno is set in each case, EPERM if it is refused. Any thread. */
int hth_root_open(const char *path, int flags, int *out_fd, struct hearth_error *err);

#endif
