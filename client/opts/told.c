/* SPDX-License-Identifier: Apache-2.0 */
/* The options that a rank sends to the engine when it joins, and the engine's answer: the values
 * in effect. */
#include "told.h"

#include "core/base/options.h"
#include <stddef.h>
#include <string.h>

/* Fields of one name, and of one size. */
#define LOCAL(field) (((struct hth_local_opts *)0)->field)
#define ROW_NO(field)
#define ROW_TOLD(field) \
    _Static_assert(sizeof(LOCAL(field)) == sizeof(((struct hearth_opts *)0)->field), #field);
#define OPTION(field, kind, hearthd, running, joining, ...) ROW_##joining(field)
#include "core/base/options.def"
#undef ROW_TOLD
#define ROW_TOLD(field)                                                            \
    { offsetof(struct hearth_opts, field), offsetof(struct hth_local_opts, field), \
        sizeof(LOCAL(field)) },

static const struct {
    size_t at, told_at, len;
} told[] = {
#define OPTION(field, kind, hearthd, running, joining, ...) ROW_##joining(field)
#include "core/base/options.def"
};

#define TOLD (sizeof(told) / sizeof(told[0]))

void hth_opts_told(const struct hearth_opts *o, struct hth_local_join *m)
{
    *m = (struct hth_local_join){ .world = o->world, .rank = o->rank };
    for (size_t i = 0; i < TOLD; i++)
        memcpy((char *)&m->opts + told[i].told_at, (const char *)o + told[i].at, told[i].len);
}

void hth_opts_joined(const struct hth_local_opts *joined, struct hearth_opts *out)
{
    for (size_t i = 0; i < TOLD; i++)
        memcpy((char *)out + told[i].at, (const char *)joined + told[i].told_at, told[i].len);
}
