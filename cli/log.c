/* SPDX-License-Identifier: Apache-2.0 */
/* log: which lines a running engine's log keeps, what was lost of it, and another level. */
#include "cli.h"

#include "core/base/env.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *log_word(const json_t *log, const char *key)
{
    const char *text = json_string_value(json_object_get(log, key));

    return text ? text : "";
}

static json_int_t log_count(const json_t *log, const char *key)
{
    return json_integer_value(json_object_get(log, key));
}

static void log_print(const json_t *log, int changed)
{
    json_int_t lost = log_count(log, "lost"), now = log_count(log, "lost_now");

    say("level   %s", log_word(log, "level"));
    if (changed)
        say(", before: %s", log_word(log, "was"));
    say("\nfile    %s\n", log_word(log, "log")[0] ? log_word(log, "log") : "none");
    say("lost    %" JSON_INTEGER_FORMAT " lines", lost);
    if (lost)
        say("%s: %s", now ? ", and each one at present" : "", log_word(log, "why"));
    say("\nsystem  %" JSON_INTEGER_FORMAT " lines held back, %" JSON_INTEGER_FORMAT " not taken\n",
            log_count(log, "held_back"), log_count(log, "unsent"));
}

static enum status log_show(const struct args *a, int job, uint32_t level)
{
    struct hearth_error err = { 0 };
    char *text = engine_log_level(job, level, &err);
    json_t *log = text ? json_loads(text, 0, NULL) : NULL;
    enum status status = log_count(log, "lost_now") ? STATUS_WRONG : STATUS_OK;

    free(text);
    if (!log)
        return complain(&err);
    if (a->json && print_json(json_incref(log)))
        status = STATUS_SYSTEM;
    else if (!a->json)
        log_print(log, level != 0);
    json_decref(log);
    return status;
}

enum status run_log(const struct args *a)
{
    uint32_t level = a->count > 1 ? (uint32_t)hth_log_level_of(a->value[1]) : 0;
    struct hearth_error err = { 0 };
    enum status status;
    int job = -1, rc;

    if (!a->root)
        return complain_usage("log: which root? give --root or HEARTH_ROOT");
    if (a->count > 1 && !level)
        return complain_usage(
                "log: '%.64s' is not a level: error, warn, info, debug or trace", a->value[1]);
    rc = job_open(a->root, a->value[0], &job, &err);
    rc = rc ? rc : job_check(job, a->value[0], &err);
    if (rc == HEARTH_ENOENT)
        job_unknown(a->root, a->value[0], &err);
    status = rc ? complain(&err) : log_show(a, job, level);
    if (job >= 0)
        close(job);
    return status;
}
