/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The last saves and recoveries, as this engine has seen them, in memory of a fixed
 * size. The engine's end loses it. Times are milliseconds of the clock that never goes back, since
 * the engine first had news of the save; only `wall_ms` is of the wall clock.
 *
 *     begun ─► committed ─► sealed ─► held ─► promised ─► ended
 *                              └ offered ─► copied          (at the same time)
 */
#ifndef HEARTH_ENGINE_HISTORY_H
#define HEARTH_ENGINE_HISTORY_H

#include "replication/commit/commit.h"

#define HISTORY_SAVES      256u
#define HISTORY_RECOVERIES 16u
#define HISTORY_NOT        UINT32_MAX /* a time: it has not happened */

struct history_node {
    char name[HTH_NAME_MAX + 1]; /* "": no node */
    uint32_t ms;
};

/* The reports of a kind that have come from nodes: the last, and the last of another node. */
struct history_reports {
    uint32_t count, due; /* due 0: their number is not known */
    uint32_t median_ms;  /* the report with which half of the nodes had sent it; or HISTORY_NOT */
    struct history_node last, before;
};

/* WRITTEN: of ranks of this node, by their numbers; COPIED: of holders; then, at the coordinator,
 * of nodes. */
enum {
    HISTORY_WRITTEN,
    HISTORY_COPIED,
    HISTORY_DONE,
    HISTORY_HELD,
    HISTORY_PROMISED,
    HISTORY_REPORTS
};

#define HISTORY_PULLING 64u /* of copies that come here at once, so many are timed */

/* The copy that took longest to come to this node. */
struct history_pull {
    struct history_node from; /* "": none has come; ms: from the holder's offer until it is here */
    uint64_t bytes;
};

struct history_save {
    struct hth_save_id id;
    uint64_t first_ms, wall_ms; /* of the first news */
    uint32_t latest_ms;         /* no later news has an earlier time */
    uint64_t bytes;             /* of this node's objects, once they are sealed */
    uint32_t at_ms[HTH_MOMENTS];
    struct history_reports reports[HISTORY_REPORTS];
    struct history_pull pull;
    uint32_t slot_rank, slot_ms; /* which rank's begin waited longest for its slot's memory; 0 ms */
    enum hearth_level level;     /* from here on: once it has ended; degraded: at that time */
    int degraded, code;
    char why[200]; /* with a code */
};

struct history_recovery {
    uint64_t epoch;
    uint64_t first_ms, wall_ms; /* of the first news of it */
    uint32_t latest_ms;
    uint32_t ms;             /* until it ended; HISTORY_NOT: it has not */
    struct hth_save_id save; /* epoch 0: none was chosen, or it has failed */
    struct hearth_recovery info;
    struct history_reports inventory, vote; /* at the coordinator */
    int code;
    char why[256];
};

struct history;

/* Saves whose entry was overwritten before they ended. */
uint64_t history_dropped(const struct history *h);

struct history *history_open(void); /* NULL: no memory */
void history_close(struct history *h);

/* Notes it; name: of a report's node or rank, else NULL. Returns the save when this ended it. */
const struct history_save *history_moment(struct history *h, struct hth_save_id save,
        const struct hth_happened *happened, const char *name, uint64_t now_ms, uint64_t wall_ms);
/* That rank's begin of the save had room, and waited so long until its slot's memory was made. */
void history_slot(struct history *h, struct hth_save_id save, uint32_t rank, uint64_t ms);
/* An object of that save is offered to this node by a node of that name, and is here. */
void history_pull_begin(struct history *h, struct hth_save_id save, uint64_t object,
        const char *from, uint64_t now_ms);
void history_pull_end(struct history *h, struct hth_save_id save, uint64_t object, uint64_t bytes,
        uint64_t now_ms);
/* A save that has not ended by now will not: its outcome is unknown, for that reason. Returns the
 * number of such saves. */
uint32_t history_over(struct history *h, const char *why, uint64_t now_ms);

/* Changes nothing while one runs. */
void history_recovery_begin(struct history *h, uint64_t epoch, uint64_t now_ms, uint64_t wall_ms);
/* A node's inventory or vote has come to this node, the coordinator. */
void history_recovery_report(struct history *h, int vote, const char *name, uint32_t count,
        uint32_t due, uint64_t now_ms);
/* info: NULL with a code. */
const struct history_recovery *history_recovery_end(struct history *h, int code, const char *why,
        struct hth_save_id save, const struct hearth_recovery *info, uint64_t now_ms);

/* Number `at` of those that are remembered, the newest first; NULL: there are no more. */
const struct history_save *history_save_at(const struct history *h, uint32_t at);
const struct history_recovery *history_recovery_at(const struct history *h, uint32_t at);

/* Milliseconds from one moment of a save to another; HISTORY_NOT: one of them is not known. */
uint32_t history_between(const struct history_save *s, enum hth_moment from, enum hth_moment to);
/* The kind of report whose last node was latest behind the median; HISTORY_REPORTS: none was. */
uint32_t history_slowest(const struct history_save *s, uint32_t *out_lag_ms);

/* 1: the save was PROTECTED, between a rank's begin and the word of it here, both under this
 * engine. */
int history_protected_ms(
        const struct history *h, struct hth_save_id save, uint64_t *out_begun_ms, uint64_t *out_ms);
/* From one such save of an epoch to the next: the median of the last ones. 0: there are none. */
#define HISTORY_INTERVALS 15u
uint64_t history_interval_ms(const struct history *h);

#endif
