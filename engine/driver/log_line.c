/* SPDX-License-Identifier: Apache-2.0 */
#include "log_line.h"

#include "core/base/env.h"
#include "engine/state/quoted.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define TEXT_BYTES (2 * HEARTH_ERROR_TEXT) /* as hth_say() cuts a text */
#define NAME_BYTES 260                     /* of a job, a node or an event */
#define DAEMON     (3 << 3)                /* facility, RFC 3164 table 1 */

static void line_time(uint64_t wall_ms, char out[40])
{
    time_t s = (time_t)(wall_ms / 1000);
    struct tm tm;
    size_t n;

    gmtime_r(&s, &tm);
    n = strftime(out, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(out + n, 40 - n, ".%03uZ", (unsigned)(wall_ms % 1000));
}

/* One line, and no escape sequences: control characters become blanks. `end` comes behind it. */
static size_t line_plain(char out[LOG_LINE_BYTES], int n, const char *end)
{
    size_t len = n < 0 ? 0 : (size_t)n;

    len = len < LOG_LINE_BYTES - 2 ? len : LOG_LINE_BYTES - 2;
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)out[i] < ' ')
            out[i] = ' ';
    if (*end)
        out[len++] = *end;
    return len;
}

size_t log_line_text(char out[LOG_LINE_BYTES], const struct log_line *line)
{
    char when[40];

    line_time(line->wall_ms, when);
    return line_plain(out,
            snprintf(out, LOG_LINE_BYTES, "%s %s %s %.*s", when, hth_log_level_word(line->level),
                    line->event, TEXT_BYTES, line->text),
            "\n");
}

/* Quoted as it stands in JSON; cut at `bytes`. */
static const char *line_quoted(const char *text, size_t bytes, char *out)
{
    char cut[TEXT_BYTES];

    snprintf(cut, bytes, "%s", text);
    quoted(cut, out);
    return out;
}

size_t log_line_json(char out[LOG_LINE_BYTES], const struct log_line *line)
{
    char when[40], job[QUOTED(NAME_BYTES)], node[QUOTED(NAME_BYTES)], text[QUOTED(TEXT_BYTES)];

    line_time(line->wall_ms, when);
    line_quoted(line->job, NAME_BYTES, job);
    line_quoted(line->node, NAME_BYTES, node);
    line_quoted(line->text, TEXT_BYTES, text);
    return line_plain(out,
            snprintf(out, LOG_LINE_BYTES,
                    "{\"time\": \"%s\", \"level\": \"%s\", \"event\": \"%.64s\", \"job\": \"%s\", "
                    "\"node\": \"%s\", \"text\": \"%s\"}",
                    when, hth_log_level_word(line->level), line->event, job, node, text),
            "\n");
}

size_t log_line_system(char out[LOG_LINE_BYTES], const struct log_line *line)
{
    int severity = line->level <= HEARTH_LOG_ERROR ? 3 : line->level <= HEARTH_LOG_WARN ? 4 : 6;

    return line_plain(out,
            snprintf(out, LOG_LINE_BYTES, "<%d>hearthd[%ld]: job %s node %s: %s %.*s",
                    DAEMON | severity, (long)getpid(), line->job, line->node, line->event,
                    TEXT_BYTES, line->text),
            "");
}
