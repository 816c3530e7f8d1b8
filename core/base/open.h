/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every file that Hearth opens, it opens here. Below an open directory no link is followed, since
 * another user could have put it there; a path that a user or an administrator names may have
 * links. No open waits for the other end of a fifo, and hth_open_file() accepts regular files
 * only.
 *
 * All return a descriptor that no child inherits, or -1 and errno. Any thread; also in a signal
 * handler.
 */
#ifndef HEARTH_CORE_BASE_OPEN_H
#define HEARTH_CORE_BASE_OPEN_H

#include <dirent.h>
#include <stdio.h>
#include <sys/types.h>

/* As openat(2). ELOOP: a part of the name, or what it names, is a link; EXDEV: it is absolute, or
 * has `..`. */
int hth_open_below(int dir, const char *name, int flags, mode_t mode);

/* The same of a regular file; EINVAL: it is something else, and was not touched. One that is made
 * is 0600. */
int hth_open_file(int dir, const char *name, int flags);

/* A path that a user or an administrator names. Links are followed; with O_NOFOLLOW the last one is
 * not. */
int hth_open_named(const char *path, int flags);

/* One part of such a name, as the kernel takes it; with O_PATH | O_NOFOLLOW a link itself. */
int hth_open_part(int dir, const char *part, int flags);

/* A file of the kernel: below /proc or /sys, or /dev/null. The two below return NULL instead of
 * -1. */
int hth_open_kernel(const char *path, int flags);
FILE *hth_open_kernel_text(const char *path);
DIR *hth_open_kernel_list(const char *path);

/* Opens the file of fd once more: another open file description, with other rights. It needs
 * /proc. */
int hth_open_again(int fd, int flags);

/* hth_open_parent(): the directory in which this one lies, with O_PATH. hth_open_list(): the
 * entries of this one, from the first; NULL instead of -1. */
int hth_open_parent(int dir);
DIR *hth_open_list(int dir);

#endif
