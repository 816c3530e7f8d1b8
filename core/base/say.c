/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines on their way to the sink. */
#include "env.h"

#include <stdarg.h>
#include <stdio.h>

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
