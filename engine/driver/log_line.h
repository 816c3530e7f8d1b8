/* SPDX-License-Identifier: Apache-2.0 */
/* A line of the log, as text and as JSON. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_LOG_LINE_H
#define HEARTH_ENGINE_LOG_LINE_H

#include <hearth/log.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_LINE_BYTES 8192 /* holds each line that hth_say() makes */

struct log_line {
    uint64_t wall_ms;
    enum hearth_log_level level;
    const char *event, *text;
    const char *job, *node;
};

/* `time level event text`. Both return the bytes of the line, newline included. */
size_t log_line_text(char out[LOG_LINE_BYTES], const struct log_line *line);
/* {"time", "level", "event", "job", "node", "text"} */
size_t log_line_json(char out[LOG_LINE_BYTES], const struct log_line *line);
/* The text for a system log (RFC 3164, section 4.1). Its header has no time and host: a receiver
 * adds its own (section 4.3.2), and the time of a zone is state of the whole process. No newline.
 */
size_t log_line_system(char out[LOG_LINE_BYTES], const struct log_line *line);

#endif
