/* SPDX-License-Identifier: Apache-2.0 */
/* Another job of this root, which has the room that this one lacks. For this folder alone. */
#ifndef HEARTH_CORE_STORE_NEIGHBOUR_H
#define HEARTH_CORE_STORE_NEIGHBOUR_H

#include "tmpfs.h"

/* "; job 'old' takes 281000000 bytes of it and no engine serves it: ...": of the job that takes the
 * most beside ours. "" where none takes any, or none that this user may look at. The entries of at
 * most a few thousand files are looked at, at most once in ten seconds. */
const char *hth_neighbour(struct hth_tmpfs *t);

#endif
