/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel returns ENOSPC both if a file system has no free bytes and if it has no free inodes.
 * The remedies differ. */
#ifndef HEARTH_CORE_BASE_FULL_H
#define HEARTH_CORE_BASE_FULL_H

/* 1: the file system of `fd` has no inode left. It may have free bytes. */
int hth_full_of_files(int fd);

/* The text of errno `why`, from a call that made or wrote a file on the file system of `fd`. For
 * ENOSPC and EDQUOT it has the remedy. A literal, or the C library's. */
const char *hth_full_text(int fd, int why);

#endif
