/* SPDX-License-Identifier: Apache-2.0 */
/* Landlock, as far as this process uses it. */
/* For this folder alone. */
#ifndef HEARTH_DAEMON_RULESET_H
#define HEARTH_DAEMON_RULESET_H

#include <stdint.h>

#define RULESET_RENAMES  2 /* the version since when files may change their directory */
#define RULESET_TRUNCATE (UINT64_C(1) << 14) /* LANDLOCK_ACCESS_FS_TRUNCATE, of version 3 */
#define RULESET_IOCTL    (UINT64_C(1) << 15) /* LANDLOCK_ACCESS_FS_IOCTL_DEV, of version 5 */

/* The version of this kernel's Landlock; less than 1: it has none, or it is switched off. */
int ruleset_version(void);
/* All that this version can forbid about files. */
uint64_t ruleset_files(int version);
/* A ruleset of all of that, without an exception; no_network: also TCP, and signals to other
 * processes, as far as the version knows them. A descriptor; -1 and errno. */
int ruleset_make(int version, int no_network);
/* An exception below this path. A missing path needs none. 0; -1 and errno. */
int ruleset_allow(int set, const char *path, uint64_t access);
/* It binds the calling thread and those that this one starts from here on, for good. 0 or an
 * errno. */
int ruleset_bind(int set);

#endif
