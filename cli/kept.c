/* SPDX-License-Identifier: Apache-2.0 */
/* The word and the marks of a kept save, alike in every command. */
#include "cli.h"

#include <string.h>

/* A save that is marked bad is "bad", however many copies it has: a recovery passes over it. */
const char *kept_state(const json_t *row)
{
    const char *state = json_string_value(json_object_get(row, "state"));

    return state && json_is_true(json_object_get(row, "bad")) ? "bad" : state;
}

void kept_marks(int pinned, int64_t tries, char out[80])
{
    snprintf(out, 80, "%s", pinned ? "pinned" : "");
    if (tries > 0)
        snprintf(out + strlen(out), 80 - strlen(out),
                "%srecovered by %" PRId64 " jobs without a save", pinned ? ", " : "", tries);
}
