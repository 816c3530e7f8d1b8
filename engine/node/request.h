/* SPDX-License-Identifier: Apache-2.0 */
/* A request, judged before anybody takes it apart. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_REQUEST_H
#define HEARTH_ENGINE_REQUEST_H

#include "core/local/local.h"
#include <stddef.h>

/* Its type is known, its length is that of the type and of what it counts, and its names end within
 * their fields. */
int request_is_whole(const struct hth_local_head *head, size_t len);

#endif
