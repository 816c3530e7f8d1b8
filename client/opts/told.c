/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine is told of a rank's options when it joins. */
#include "told.h"

void hth_opts_told(const struct hearth_opts *o, struct hth_local_join *m)
{
    *m = (struct hth_local_join){ .opts = { .copies = o->copies,
                                          .min_copies = o->min_copies,
                                          .keep = o->keep,
                                          .allow_degraded = o->allow_degraded,
                                          .recover_ms = o->recover_ms,
                                          .save_ms = o->save_ms,
                                          .heartbeat_ms = o->heartbeat_ms,
                                          .dead_ms = o->dead_ms,
                                          .stall_ms = o->stall_ms,
                                          .linger_s = o->linger_s,
                                          .inflight_mib = o->inflight_mib,
                                          .lease_bytes = o->lease_bytes,
                                          .spare_bytes = o->spare_bytes },
        .world = o->world,
        .rank = o->rank,
        .object_count = (uint32_t)o->object_count };
    for (size_t i = 0; i < o->object_count; i++)
        m->object_bytes[i] = o->object_bytes[i];
}
