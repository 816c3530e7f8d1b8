/* SPDX-License-Identifier: Apache-2.0 */
/* Warnings and errors for the machine's system log, as syslog(3) sends them. Its caller's lock
 * guards it. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_LOG_SYSTEM_H
#define HEARTH_ENGINE_LOG_SYSTEM_H

#include "log.h"
#include "log_line.h"

#define LOG_SYSTEM_MOST 60 /* lines in LOG_SYSTEM_MS, at most */
#define LOG_SYSTEM_MS   60000

struct log_system {
    char path[HTH_LOGS_PATH]; /* of its socket; empty: no line goes there */
    int fd;                   /* -1: not connected */
    uint64_t since_ms;        /* the minute that `sent` counts */
    unsigned sent;
    uint64_t held_back, held_now; /* above the limit: ever, and not reported yet */
    uint64_t unsent;              /* that no process took, or took too slowly */
};

/* Connects, where it can. A missing socket is normal, in a container, and tried again. */
void log_system_open(struct log_system *s, const char *path);
/* Never waits. Lines below a warning are left out. */
void log_system_put(struct log_system *s, const struct log_line *line, uint64_t now_ms);
void log_system_close(struct log_system *s);

#endif
