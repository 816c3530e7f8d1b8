/* SPDX-License-Identifier: Apache-2.0 */
/* The other job of this root that takes the most room. For this folder alone. */
#ifndef HEARTH_CORE_STORE_NEIGHBOUR_H
#define HEARTH_CORE_STORE_NEIGHBOUR_H

#include "tmpfs.h"

/* "; job 'old' takes 281000000 bytes of it and no engine serves it: ...": names the job that takes
 * the most besides ours. "" if no job that this user may read takes any. Looks at a few
 * thousand files and jobs at most, at most once in ten seconds. */
const char *hth_neighbour(struct hth_tmpfs *t);

#endif
