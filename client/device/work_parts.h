/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by work.c, which follows copies, and add.c, which enqueues them. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_WORK_PARTS_H
#define HEARTH_CLIENT_WORK_PARTS_H

#include "work.h"

#include "core/base/fail.h"

/* Copies of a work from one device. */
struct hth_work_on {
    struct hth_gpu *gpu;
    void *event;
    uint64_t marks;
    int pending;            /* the last mark was not seen done */
    int unmarked;           /* copies are enqueued, and the event behind them was refused */
    unsigned errors;        /* of the last looks */
    char key[HTH_KEY_TEXT]; /* of its first piece there */
};

struct hth_work {
    struct hth_work *next;
    struct hth_work_owner owner;
    unsigned refs; /* one is the thread's */
    unsigned gpus;
    struct hth_work_on on[HTH_GPUS_MOST];
    unsigned jobs;    /* that the ring has not taken wholly */
    unsigned in_ring; /* buffers that have not landed */
    int landing, ended, dropped, finished;
    struct hearth_error error; /* code 0: none */
};

/* The lock guards all fields of works but those that never change. No driver call and no copy runs
 * under it. */
void hth_works_lock(void);
void hth_works_unlock(void);
void hth_works_due_locked(void);     /* the thread has something to do */
void hth_works_changed_locked(void); /* those that wait for works look again */

struct hth_work_on *hth_work_find(
        struct hth_work *work, const struct hth_gpu *gpu); /* NULL: none */
/* 1: a stream of one device. NULL and the drivers' constants for default streams, 1 and 2, are of
 * the context that is current, so another device's is another stream. */
int hth_stream_is_of_one(const void *stream);
/* Its event is recorded. */
void hth_work_mark_locked(struct hth_work_on *on);

#endif
