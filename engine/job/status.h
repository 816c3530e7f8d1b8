/* SPDX-License-Identifier: Apache-2.0 */
/* STATUS: JSON for people and programs; it may be asked for before ATTACH. */
#ifndef HEARTH_ENGINE_STATUS_H
#define HEARTH_ENGINE_STATUS_H

#include <hearth/error.h>
#include <stdint.h>
#include <stdio.h>

struct hth_node;

int status_put(
        struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err);

#endif
