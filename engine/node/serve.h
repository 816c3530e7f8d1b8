/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of ranks, each to the file that answers it. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_SERVE_H
#define HEARTH_ENGINE_SERVE_H

#include "core/base/env.h"
#include <stddef.h>
#include <stdint.h>

struct hth_node;

/* Serves one packet of a client. *content: the content of the descriptor that came with it; NULL:
 * none. A handler that takes it over sets it to NULL. */
void serve_request(struct hth_node *n, uint32_t client, const void *bytes, size_t len,
        struct hth_content **content);

#endif
