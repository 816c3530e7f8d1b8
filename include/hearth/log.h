/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines of the library. Nothing is printed: a sink gets the lines. */
#ifndef HEARTH_LOG_H
#define HEARTH_LOG_H

#include <hearth/export.h>

HEARTH_BEGIN

enum hearth_log_level {
    HEARTH_LOG_ERROR = 10, /* work given up */
    HEARTH_LOG_WARN = 20,  /* less redundancy than asked for */
    HEARTH_LOG_INFO = 30,  /* per store or peer */
    HEARTH_LOG_DEBUG = 40, /* per checkpoint */
    HEARTH_LOG_TRACE = 50, /* per message */
};

enum hearth_log_format {
    HEARTH_LOG_TEXT = 0,
    HEARTH_LOG_JSON = 10,
};

/* event is stable ("peer-lost"); text is for people, valid during the call. May run on
 * any thread that calls Hearth, on several at once, and must not call Hearth itself. */
typedef void hearth_log_fn(
        void *arg, enum hearth_log_level level, const char *event, const char *text);

HEARTH_END

#endif
