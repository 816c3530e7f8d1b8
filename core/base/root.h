/* SPDX-License-Identifier: Apache-2.0 */
/* The root: the directory in which the jobs' directories stand, as a user or an administrator
 * names it. */
#ifndef HEARTH_CORE_BASE_ROOT_H
#define HEARTH_CORE_BASE_ROOT_H

#include <hearth/error.h>

/* Opens it with `flags` and O_DIRECTORY, and refuses one in which, or on whose way, another user
 * may exchange what is found: every user may write to it and it has no sticky bit; a link on the
 * way belongs to neither root nor this user. Links of these two are followed. `path` may be
 * relative. *out_fd is the caller's: close().
 *
 * Errors: HEARTH_EINVAL: refused; HEARTH_ENOENT: no directory is there; HEARTH_EIO: the system says
 * no. errno is set in each case, EPERM for what is refused. Any thread. */
int hth_root_open(const char *path, int flags, int *out_fd, struct hearth_error *err);

#endif
