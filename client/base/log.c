/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The library's log. Lines go into a ring first, from any thread and under any lock; a sink gets
 * them afterwards, with no lock held. Without a sink they wait for hearth_log_poll(), the last 256
 * of them.
 */
#include "log.h"

#include "member.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES 256u

struct hth_log_line {
    uint32_t level;
    char event[32];
    char text[HTH_LINE_TEXT];
};

int hth_lines_init(struct hth_lines *lines, const struct hearth_opts *opts)
{
    lines->sink = opts->log;
    lines->arg = opts->log_arg;
    lines->level = opts->log_level ? opts->log_level : HEARTH_LOG_INFO;
    lines->line = calloc(LINES, sizeof(*lines->line));
    pthread_mutex_init(&lines->lock, NULL);
    return lines->line ? HEARTH_OK : HEARTH_ENOMEM;
}

void hth_lines_fini(struct hth_lines *lines)
{
    pthread_mutex_destroy(&lines->lock);
    free(lines->line);
}

void hth_line_add(struct hth_lines *lines, uint32_t level, const char *event, const char *fmt, ...)
{
    struct hth_log_line *line;
    va_list ap;

    if (level > lines->level)
        return;
    pthread_mutex_lock(&lines->lock);
    if (lines->count == LINES) {
        lines->first = (lines->first + 1) % LINES;
        lines->count--;
    }
    line = &lines->line[(lines->first + lines->count++) % LINES];
    line->level = level;
    snprintf(line->event, sizeof(line->event), "%s", event);
    va_start(ap, fmt);
    vsnprintf(line->text, sizeof(line->text), fmt, ap);
    va_end(ap);
    pthread_mutex_unlock(&lines->lock);
}

static int line_take(struct hth_lines *lines, struct hth_log_line *out)
{
    int found;

    pthread_mutex_lock(&lines->lock);
    found = lines->count > 0;
    if (found) {
        *out = lines->line[lines->first];
        lines->first = (lines->first + 1) % LINES;
        lines->count--;
    }
    pthread_mutex_unlock(&lines->lock);
    return found;
}

void hth_lines_drain(struct hth_lines *lines)
{
    struct hth_log_line line;

    while (lines->sink && line_take(lines, &line))
        lines->sink(lines->arg, (enum hearth_log_level)line.level, line.event, line.text);
}

int hearth_log_poll(struct hearth *h, uint32_t *out_level, char *text, size_t len)
{
    struct hth_log_line line;

    if (hth_enter(h, NULL) || !text || !len || !line_take(&h->lines, &line))
        return 0;
    if (out_level)
        *out_level = line.level;
    snprintf(text, len, "%s: %s", line.event, line.text);
    return 1;
}
