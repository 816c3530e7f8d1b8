/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' table of a joining goes from engine to engine. */
#ifndef HEARTH_TESTS_SIM_SCALE_JOIN_H
#define HEARTH_TESTS_SIM_SCALE_JOIN_H

#include "world.h"

/* To all ranks of a world that rests, as rank 0 would have it; prints what went out of the busiest
 * node and how long it took, and breaks the world where that is more than 64 MiB. */
void scale_join(struct world *w);

#endif
