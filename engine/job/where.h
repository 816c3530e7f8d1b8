/* SPDX-License-Identifier: Apache-2.0 */
/* PLACES: which nodes hold the objects of each rank, as this engine knows it. */
#ifndef HEARTH_ENGINE_WHERE_H
#define HEARTH_ENGINE_WHERE_H

#include <hearth/error.h>
#include <stdint.h>
#include <stdio.h>

struct hth_node;

/* Errors: HEARTH_ESTATE: it is in no epoch. */
int where_put(struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err);

#endif
