/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A round is bounded in time, not in turns. A node that serves many pullers always finds another
 * turn to do, and a turn may take tens of milliseconds. The engine's pings leave by the tick that
 * follows the round, and requests of ranks are read after it: neither may wait until the pullers
 * are done.
 */
#include "round.h"

void hth_round(struct hth_transport *t, const struct hth_clock *clock)
{
    uint64_t until = hth_now_ms(clock) + HTH_ROUND_MS;

    for (unsigned i = 0; i < HTH_ROUND_TURNS && t->ops->progress(t) > 0; i++)
        if (hth_now_ms(clock) >= until)
            return;
}
