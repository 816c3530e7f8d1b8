/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEARTH_CORE_BASE_OPTS_H
#define HEARTH_CORE_BASE_OPTS_H

#include <hearth/error.h>
#include <stddef.h>

/* No struct of ours will ever be as large: a larger struct_size is memory that was not set. */
#define HTH_STRUCT_MAX ((size_t)65536)

/* Copy a caller's option struct of any age into ours. Fields the caller does
 * not know become 0 (the default). Fields we do not know must be 0. */
int hth_opts_copy(void *ours, size_t ours_size, const void *theirs, struct hearth_error *err);

/* `mine[size]` to a caller's struct of any age; its struct_size stays. */
int hth_give(void *theirs, const void *mine, size_t size, struct hearth_error *err);

#endif
