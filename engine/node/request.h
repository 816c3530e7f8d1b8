/* SPDX-License-Identifier: Apache-2.0 */
/* A request is checked before any code decodes it. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_REQUEST_H
#define HEARTH_ENGINE_REQUEST_H

#include "core/local/local.h"
#include <stddef.h>

/* 1: its type is known, its length fits the type and its counts, and its names end within their
 * fields. */
int request_is_whole(const struct hth_local_head *head, size_t len);

#endif
