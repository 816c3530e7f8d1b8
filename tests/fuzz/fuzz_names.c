/* SPDX-License-Identifier: Apache-2.0 */
/* Names that a directory, a table or a peer may bring: what passes is a name of ours, and comes
 * back. */
#include "core/base/id.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void names_plain(const char *name)
{
    if (!name[0] || strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *name = calloc(1, size + 1);
    struct hth_save_id id;
    char text[HTH_SAVE_TEXT], dir[40];
    uint64_t step;

    if (!name)
        return 0;
    memcpy(name, data, size);
    if (!hth_save_parse(name, &id)) {
        hth_save_text(id, text);
        if (strcmp(text, name) != 0)
            abort();
    }
    if (!hth_step_dir_parse(name, &step)) {
        snprintf(dir, sizeof(dir), "step-%" PRIu64 "_ckpt", step);
        if (strcmp(dir, name) != 0)
            abort();
    }
    if (!hth_job_check(name, NULL) || !hth_node_check(name, NULL) ||
            !hth_object_name_check(name, NULL) || !hth_foreign_name_check(name, NULL))
        names_plain(name);
    free(name);
    return 0;
}
