/* SPDX-License-Identifier: Apache-2.0 */
/* Engines that end as soon as they serve. For this folder alone. */
#ifndef HEARTH_CLIENT_FALLEN_H
#define HEARTH_CLIENT_FALLEN_H

#include <hearth/error.h>
#include <stdint.h>
#include <sys/types.h>

struct hth_fallen {
    int pidfd;         /* of the engine that served last; -1: not known */
    pid_t group;       /* of processes, the engine and those beside it; 0: not one of their own */
    uint64_t since_ms; /* since when it serves; 0: it has ended, and is counted */
    unsigned count;    /* atomic: engines that ended within STEADY_MS, one after the other */
    uint64_t not_before_ms; /* no engine is started before */
    char how[96];           /* the last one ended: "killed by signal 9 (Killed)"; "": not known */
};

/* An engine serves on `sock`. */
void hth_fallen_serves(struct hth_fallen *f, int sock, uint64_t now_ms);
/* It has done what engines are for. */
void hth_fallen_forget(struct hth_fallen *f);
/* No engine serves. 1: another one may be started; 0: later. Errors: HEARTH_EENGINE: too many have
 * ended. `records` is for the sentence. */
int hth_fallen_may_start(
        struct hth_fallen *f, uint64_t now_ms, const char *records, struct hearth_error *err);
void hth_fallen_close(struct hth_fallen *f);

#endif
