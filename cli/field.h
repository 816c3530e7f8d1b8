/* SPDX-License-Identifier: Apache-2.0 */
/* Fields of an engine's answer. A field that is not there, or of another kind, is 0 or "". */
/* For this folder alone. */
#ifndef HEARTH_CLI_FIELD_H
#define HEARTH_CLI_FIELD_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

static inline json_int_t field_int(const json_t *of, const char *key)
{
    return json_integer_value(json_object_get(of, key));
}

static inline const char *field_text(const json_t *of, const char *key)
{
    const char *text = json_string_value(json_object_get(of, key));

    return text ? text : "";
}

/* The decimal digits of a step or an epoch, which is a string from 2^63 on. */
static inline const char *field_number(const json_t *of, const char *key, char out[24])
{
    const char *text = field_text(of, key);

    if (text[0])
        snprintf(out, 24, "%.20s", text);
    else
        snprintf(out, 24, "%" JSON_INTEGER_FORMAT, field_int(of, key));
    return out;
}

/* 1: a number of bytes, in *out. */
static inline int field_bytes(const json_t *of, const char *key, uint64_t *out)
{
    const json_t *v = json_object_get(of, key);

    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return 0;
    *out = (uint64_t)json_integer_value(v);
    return 1;
}

#endif
