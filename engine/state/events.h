/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last lines of the engine's log, of level info and above, in memory of a fixed size; the
 * engine's end loses them. Lines come from any thread.
 */
#ifndef HEARTH_ENGINE_EVENTS_H
#define HEARTH_ENGINE_EVENTS_H

#include "core/base/env.h"

#define EVENTS_MOST 256u

struct event {
    uint64_t wall_ms;
    enum hearth_log_level level;
    char event[32]; /* the line's id, as `peer-lost` */
    char text[320];
};

struct events;

struct events *events_open(const struct hth_clock *clock); /* NULL: no memory */
void events_close(struct events *e);

/* A log that remembers its lines and passes them on to `log`. */
struct hth_log events_log(struct events *e, const struct hth_log *log);

uint64_t events_count(struct events *e); /* since the engine's start */
/* Number `at` of those that are remembered, the newest first; 0: there are no more. */
int events_at(struct events *e, uint32_t at, struct event *out);

#endif
