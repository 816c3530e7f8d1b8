/* SPDX-License-Identifier: Apache-2.0 */
/* The remedies for bytes, inodes, descriptors, processes, calls and /proc that the machine, the
 * container or a limit does not give. */
#ifndef HEARTH_CORE_BASE_FULL_H
#define HEARTH_CORE_BASE_FULL_H

struct hearth_error;

/* With fewer files an engine of one rank does not reach its first save, and could fail anywhere. */
#define HTH_FILES_LEAST 64

/* 1: the file system of `fd` has no inode left. It may have free bytes. */
int hth_full_of_files(int fd);

/* The text of errno `why`, from a call that made or wrote a file on the file system of `fd`. For
 * ENOSPC and EDQUOT it has the remedy. A literal, or the C library's. */
const char *hth_full_text(int fd, int why);

/* The remedy for errno `why` of a limit on this process, or on the container that it runs in, to
 * stand behind the errno's text: "; raise ..."; "" if there is none. */
const char *hth_limit_text(int why);

/* What Hearth needs of the kernel's files is there. Errors: HEARTH_EINVAL. */
int hth_proc_check(struct hearth_error *err);

#endif
