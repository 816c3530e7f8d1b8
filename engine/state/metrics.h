/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this engine has counted since it started, in memory of a fixed size; the engine's end loses
 * it. The engine's thread alone writes, except for lines of the log: they come from any thread, and
 * their counts are atomic.
 */
#ifndef HEARTH_ENGINE_METRICS_H
#define HEARTH_ENGINE_METRICS_H

#include "core/base/env.h"
#include "history.h"

/* Bounds of all histograms, in milliseconds; behind them is one bucket without a bound. */
#define METRICS_BOUNDS 14u
extern const uint32_t metrics_bound_ms[METRICS_BOUNDS];

struct metrics_histogram {
    uint64_t in[METRICS_BOUNDS + 1]; /* of each bucket alone: at most its bound, above the last */
    uint64_t sum_ms;
};

/* A save, from the first begin of a rank of this node until ... */
enum { METRICS_WRITTEN, METRICS_SEALED, METRICS_COPIED, METRICS_PROTECTED, METRICS_SAVE_PHASES };
extern const char *const metrics_save_phase[METRICS_SAVE_PHASES];

enum { METRICS_NO_ROOM, METRICS_FAILED, METRICS_UNKNOWN, METRICS_CAUSES };
extern const char *const metrics_cause[METRICS_CAUSES];

/* A recovery; the phases of history_recovery.info, and all of it. */
#define METRICS_RECOVERY_PHASES 7u
extern const char *const metrics_recovery_phase[METRICS_RECOVERY_PHASES];

/* Lines of the log that mean wrong bytes, by their event. */
#define METRICS_WRONG 4u
extern const char *const metrics_wrong[METRICS_WRONG];

struct metrics {
    uint64_t since_wall_ms;
    uint64_t saves, saves_degraded, saves_failed[METRICS_CAUSES];
    uint64_t sealed_bytes;
    uint64_t recoveries, recoveries_failed, recovered_bytes;
    struct metrics_histogram save[METRICS_SAVE_PHASES], recovery[METRICS_RECOVERY_PHASES];
    uint64_t errors, warnings, wrong[METRICS_WRONG]; /* atomic */
    struct hth_log log;                              /* where the lines go on to */
};

/* A log that counts its lines and passes them on to `log`. */
struct hth_log metrics_log(struct metrics *m, const struct hth_log *log);

void metrics_save(struct metrics *m, const struct history_save *s);         /* which has ended */
void metrics_recovery(struct metrics *m, const struct history_recovery *r); /* likewise */

#endif
