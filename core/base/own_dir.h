/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of the file that this code was loaded from: a library's, or a program's that it is
 * linked into. */
#ifndef HEARTH_CORE_BASE_OWN_DIR_H
#define HEARTH_CORE_BASE_OWN_DIR_H

#include <stddef.h>

/* An absolute path. It never depends on the current directory, where files of any user may lie.
 * Errors: HEARTH_ENOENT: the system does not report the path, or it does not fit. Any thread. */
int hth_own_dir(char *out, size_t len);

#endif
