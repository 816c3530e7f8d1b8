/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's log lines: a ring with a lock of its own, since any holder of any lock may add one. */
#ifndef HEARTH_CLIENT_LOG_H
#define HEARTH_CLIENT_LOG_H

#include "core/base/fail.h"
#include <hearth/hearth.h>
#include <pthread.h>

#define HTH_LINE_TEXT 1000u /* bytes of a line; longer ones are cut */

struct hth_log_line;

struct hth_lines {
    pthread_mutex_t lock;
    hearth_log_fn *sink;
    void *arg;
    uint32_t level;
    uint32_t first, count;
    struct hth_log_line *line; /* a ring: the oldest make way */
};

int hth_lines_init(struct hth_lines *lines, const struct hearth_opts *opts);
void hth_lines_fini(struct hth_lines *lines);
void hth_line_add(struct hth_lines *lines, uint32_t level, const char *event, const char *fmt, ...)
        HTH_PRINTF(4, 5);
void hth_lines_drain(struct hth_lines *lines); /* to the sink, if there is one; no lock held */

#endif
