/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every call of the headers as a rank makes it, and how long it may wait: `until` has the words of
 * the table in docs/api.md. A call may stand twice, as one that waits and, of what is here already,
 * as one that does not.
 */
#ifndef CALLS_H
#define CALLS_H

#include "rank.h"

struct call {
    const char *name;
    int (*make)(void);
    const char *until;  /* NULL: it waits for no other process */
    int (*ready)(void); /* what it needs, made with an engine that answers; NULL */
};

/* The objects that the calls are made with. */
struct scene {
    struct rank r;
    struct hearth *helper;         /* another one of the same rank */
    struct hearth_save *save;      /* being written */
    struct hearth_save *spare;     /* given up */
    struct hearth_handle *handle;  /* of one handed over */
    struct hearth_checkpoint *old; /* all of it was read before */
    struct hearth_checkpoint *fresh;
    struct hearth_item item, text;
    struct hearth_view view;
    struct hearth_report *report;
    struct hearth_ticket ticket;
    uint64_t step; /* the newest that was begun */
    float x;
};
extern struct scene scene;
extern struct hearth_error calls_err;

/* Each ends with a row without a name. */
extern const struct call calls_plain[];   /* no engine, no job */
extern const struct call calls_own[];     /* of a job, in this order; wait for no other process */
extern const struct call calls_waiting[]; /* for this node's engine; recover is the last one */
extern const struct call calls_far[];     /* that bring bytes from another node */
extern const struct call calls_others[];  /* wait for other processes than the engine */

void scene_save(void); /* a step of what the calls look for, PROTECTED */

#endif
