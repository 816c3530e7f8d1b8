/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine's log: each line goes to every place that the option `log` lists, with commas between.
 *
 *     file           `log` in `.hearth/`, at most two files of 4 MiB (log, log.1)
 *     /PATH          appended to a file; whoever keeps it shortens or renames it
 *     stderr
 *     syslog         warnings and errors, to /dev/log; syslog:/PATH: to another socket
 *
 * A line is written whole or not at all. Lines that a file does not take are counted, and reported
 * (`log-lost`) in front of the next line that it takes.
 */
#ifndef HEARTH_ENGINE_LOG_H
#define HEARTH_ENGINE_LOG_H

#include "core/base/env.h"

struct hth_logs;

#define HTH_LOGS_PATH 108 /* bytes of a path in the list, with terminator */

struct hth_logs_opts {
    const char *to; /* the list; borrowed until close, as are job and node */
    enum hearth_log_level level;
    int json;        /* one JSON object a line, in files and on stderr */
    int also_stderr; /* whether the list has it or not */
    const char *job, *node;
    struct hth_clock clock;
};

/* The next word of a list, from *at on: 1, 0: there are no more. */
int hth_logs_next(const char **at, char word[HTH_LOGS_PATH + 8]);
/* The path of a word that names a file; NULL: it is none. */
const char *hth_logs_path(const char *word);
/* Errors: HEARTH_EINVAL, one sentence with the word that is wrong. */
int hth_logs_check(const char *to, struct hearth_error *err);

/* `file` gets lines once hth_logs_open() has its folder; until then they wait, up to 4 KiB.
 * Errors: HEARTH_EIO: a /PATH cannot be opened. */
int hth_logs_make(
        struct hth_logs **out, const struct hth_logs_opts *opts, struct hearth_error *err);
/* `dir` is borrowed until return, `path` is for error sentences. Errors: HEARTH_EIO, also if
 * something other than a file lies there; lines then continue to wait. */
int hth_logs_open(struct hth_logs *logs, int dir, const char *path, struct hearth_error *err);
struct hth_log hth_logs_sink(struct hth_logs *logs); /* any thread */
void hth_logs_close(struct hth_logs *logs);          /* NULL: nothing */

#endif
