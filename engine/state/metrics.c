/* SPDX-License-Identifier: Apache-2.0 */
/* Saves and recoveries are counted once, when their entry in the history ends: its moments are
 * what the histograms have. */
#include "metrics.h"

#include <string.h>

const uint32_t metrics_bound_ms[METRICS_BOUNDS] = { 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000,
    10000, 30000, 60000, 300000 };
const char *const metrics_save_phase[METRICS_SAVE_PHASES] = { "written", "sealed", "copied",
    "protected" };
const char *const metrics_cause[METRICS_CAUSES] = { "no_room", "failed", "unknown" };
const char *const metrics_recovery_phase[METRICS_RECOVERY_PHASES] = { "join", "inventory", "plan",
    "pull", "verify", "vote", "all" };
const char *const metrics_wrong[METRICS_WRONG] = { "bad-chunk", "copy-bad", "copy-lost",
    "copy-right" };

static void metrics_add(struct metrics_histogram *h, uint64_t ms)
{
    uint32_t i = 0;

    while (i < METRICS_BOUNDS && ms > metrics_bound_ms[i])
        i++;
    h->in[i]++;
    h->sum_ms += ms;
}

void metrics_save(struct metrics *m, const struct history_save *s)
{
    static const enum hth_moment until[METRICS_SAVE_PHASES] = { HTH_MOMENT_COMMITTED,
        HTH_MOMENT_SEALED, HTH_MOMENT_COPIED, HTH_MOMENT_ENDED };

    if (s->code)
        m->saves_failed[s->code == HEARTH_ENOSPC     ? METRICS_NO_ROOM
                        : s->code == HEARTH_EUNKNOWN ? METRICS_UNKNOWN
                                                     : METRICS_FAILED]++;
    else if (s->degraded)
        m->saves_degraded++;
    else
        m->saves++;
    m->sealed_bytes += s->code == HEARTH_EUNKNOWN ? 0 : s->bytes;
    for (uint32_t i = 0; i < METRICS_SAVE_PHASES; i++) {
        uint32_t ms = history_between(s, HTH_MOMENT_BEGUN, until[i]);

        if (ms != HISTORY_NOT && (until[i] != HTH_MOMENT_ENDED || !s->code))
            metrics_add(&m->save[i], ms);
    }
}

void metrics_recovery(struct metrics *m, const struct history_recovery *r)
{
    const struct hearth_recovery *i = &r->info;
    const uint64_t ms[METRICS_RECOVERY_PHASES] = { i->join_ms, i->inventory_ms, i->plan_ms,
        i->pull_ms, i->verify_ms, i->vote_ms, i->join_ms + (uint64_t)r->ms };

    if (r->code) {
        m->recoveries_failed++;
        return;
    }
    m->recoveries++;
    m->recovered_bytes += i->pulled_bytes;
    for (uint32_t p = 0; p < METRICS_RECOVERY_PHASES; p++)
        metrics_add(&m->recovery[p], ms[p]);
}

/* ---- Lines of the log ------------------------------------------------------------------------ */

static void metrics_count(uint64_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static void metrics_emit(
        void *self, enum hearth_log_level level, const char *event, const char *text)
{
    struct metrics *m = self;

    if (level == HEARTH_LOG_ERROR)
        metrics_count(&m->errors);
    else if (level == HEARTH_LOG_WARN)
        metrics_count(&m->warnings);
    for (uint32_t i = 0; i < METRICS_WRONG && level <= HEARTH_LOG_INFO; i++)
        if (!strcmp(event, metrics_wrong[i]))
            metrics_count(&m->wrong[i]);
    m->log.emit(m->log.self, level, event, text);
}

static void metrics_log_state(void *self, struct hth_log_state *out)
{
    const struct metrics *m = self;

    hth_log_state(&m->log, out);
}

static void metrics_log_set_level(void *self, enum hearth_log_level level)
{
    const struct metrics *m = self;

    m->log.set_level(m->log.self, level);
}

struct hth_log metrics_log(struct metrics *m, const struct hth_log *log)
{
    m->log = *log;
    return (struct hth_log){ .emit = log->emit ? metrics_emit : NULL,
        .self = m,
        .state = metrics_log_state,
        .set_level = log->set_level ? metrics_log_set_level : NULL };
}
