/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines on their way to the sink. */
#include "env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void hth_say(const struct hth_log *log, enum hearth_log_level level, const char *event,
        const char *fmt, ...)
{
    char text[2 * HEARTH_ERROR_TEXT];
    va_list ap;

    if (!log->emit)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log->emit(log->self, level, event, text);
}

void hth_log_state(const struct hth_log *log, struct hth_log_state *out)
{
    *out = (struct hth_log_state){ 0 };
    if (log->state)
        log->state(log->self, out);
}

static const struct {
    enum hearth_log_level level;
    const char *word;
} say_levels[] = { { HEARTH_LOG_ERROR, "error" }, { HEARTH_LOG_WARN, "warn" },
    { HEARTH_LOG_INFO, "info" }, { HEARTH_LOG_DEBUG, "debug" }, { HEARTH_LOG_TRACE, "trace" } };

#define SAY_LEVELS (sizeof(say_levels) / sizeof(say_levels[0]))

const char *hth_log_level_word(enum hearth_log_level level)
{
    for (size_t i = 0; i < SAY_LEVELS; i++)
        if (say_levels[i].level == level)
            return say_levels[i].word;
    return "other";
}

enum hearth_log_level hth_log_level_of(const char *word)
{
    for (size_t i = 0; i < SAY_LEVELS; i++)
        if (strcmp(say_levels[i].word, word) == 0)
            return say_levels[i].level;
    return (enum hearth_log_level)0;
}
