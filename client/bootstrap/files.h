/* SPDX-License-Identifier: Apache-2.0 */
/* The descriptors that rank 0 has for the ranks. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_FILES_H
#define HEARTH_CLIENT_FILES_H

#include <hearth/error.h>
#include <sys/resource.h>

struct hth_files {
    int raised;
    struct rlimit was, is;
};

/* Room for `count` more descriptors and for some beside: the soft limit is raised as far as the
 * hard one lets it. Errors: HEARTH_EINVAL, with the remedy. */
int hth_files_raise(struct hth_files *f, unsigned count, struct hearth_error *err);
/* As it was, unless somebody else has changed it since. */
void hth_files_restore(const struct hth_files *f);

#endif
