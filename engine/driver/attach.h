/* SPDX-License-Identifier: Apache-2.0 */
/* The content of a request's descriptor, and of an answer's. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_ATTACH_H
#define HEARTH_ENGINE_ATTACH_H

#include "core/base/env.h"
#include <stddef.h>

#define HTH_ATTACH_MAX (UINT64_C(1) << 30) /* bytes of a descriptor's content */

/* Opens the content of a file in memory (a memfd). It is copied by read(), since the sender could
 * take away the pages of a mapping. Takes fd over, also on failure. Errors: HEARTH_EPROTO (not in
 * memory, too long), HEARTH_ENOMEM. */
int hth_attach_open(int fd, struct hth_content **out, struct hearth_error *err);

/* The semantics of struct hth_node_env's attach(): a memfd. */
int hth_attach_put(int *fd, const void *bytes, uint64_t off, size_t len, int last);

#endif
