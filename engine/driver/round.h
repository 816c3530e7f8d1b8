/* SPDX-License-Identifier: Apache-2.0 */
/* The transport's part of a round of the engine's loop. */
#ifndef HEARTH_ENGINE_ROUND_H
#define HEARTH_ENGINE_ROUND_H

#include "transport/transport.h"

#define HTH_ROUND_MS    10u  /* then the next turn waits for the next round */
#define HTH_ROUND_TURNS 256u /* at most, for a clock that stands still */

/* Turns of progress() until nothing is left to do, or HTH_ROUND_MS have passed. */
void hth_round(struct hth_transport *t, const struct hth_clock *clock);

#endif
