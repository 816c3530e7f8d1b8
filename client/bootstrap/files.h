/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors that rank 0 needs for the ranks. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_FILES_H
#define HEARTH_CLIENT_FILES_H

#include <hearth/error.h>
#include <sys/resource.h>

struct hth_files {
    int raised;
    struct rlimit was, is;
};

/* Makes room for `count` more descriptors, and some besides: raises the soft limit, at most to the
 * hard one. Errors: HEARTH_EINVAL, with the remedy. */
int hth_files_raise(struct hth_files *f, unsigned count, struct hearth_error *err);
/* Sets the soft limit back, unless the program has changed it since. */
void hth_files_restore(const struct hth_files *f);

#endif
