/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel has one number, ENOSPC, for a file system without free bytes and for one without free
 * inodes. What helps differs. */
#ifndef HEARTH_CORE_BASE_FULL_H
#define HEARTH_CORE_BASE_FULL_H

/* 1: the file system of `fd` has no inode left, and may have room. */
int hth_full_of_files(int fd);

/* Words for the errno of a call that makes or writes a file on the file system of `fd`; of ENOSPC
 * and EDQUOT with what to do. A literal, or the C library's. */
const char *hth_full_text(int fd, int why);

#endif
