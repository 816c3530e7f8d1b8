/* SPDX-License-Identifier: Apache-2.0 */
/* Names of things, for sentences. */
#include "text.h"

#include <hearth/hearth.h>
#include <inttypes.h>
#include <stdio.h>

const char *hth_object_text(const struct hth_object *o, char out[HTH_OBJECT_TEXT])
{
    if (o->owner == HTH_OWNER_NONE)
        snprintf(out, HTH_OBJECT_TEXT, "object '%s'", o->name);
    else
        snprintf(out, HTH_OBJECT_TEXT, "object '%s' of rank %" PRIu32, o->name, o->owner);
    return out;
}

const char *hth_level_name(uint32_t level)
{
    static const struct {
        uint32_t level;
        const char *name;
    } names[] = { { HEARTH_PROTECTED, "PROTECTED" }, { HEARTH_COMPLETE, "COMPLETE" },
        { HEARTH_COPIED, "COPIED" }, { HEARTH_SEALED, "SEALED" }, { HEARTH_WRITTEN, "WRITTEN" },
        { HEARTH_OFF, "OFF" } };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (level >= names[i].level)
            return names[i].name;
    return "BEGUN";
}
