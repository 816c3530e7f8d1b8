/* SPDX-License-Identifier: Apache-2.0 */
/* A directory for one test's store. With the right to mount it is a tmpfs of its own, in a mount
 * namespace of this process, and ends with it; else a directory in /dev/shm. */
#ifndef TMP_ROOT_H
#define TMP_ROOT_H

#include <stdint.h>

/* A tmpfs of just this many bytes, more mount options (NULL: none); NULL without the right to.
 * Once per process. */
const char *tmp_root_mount(uint64_t bytes, const char *more);

/* The same where it can be had, else a new directory in /dev/shm (the test removes it with
 * tmp_root_remove()). */
const char *tmp_root(uint64_t bytes);

/* True of what was mounted: it holds no more than its bytes. */
int tmp_root_is_mounted(const char *path);

/* Remove a directory of /dev/shm and all in it; a mounted one is left to the kernel. */
void tmp_root_remove(const char *path);

#endif
