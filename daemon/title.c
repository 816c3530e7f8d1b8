/* SPDX-License-Identifier: Apache-2.0 */
#include "title.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

void title_set(const char *name, const char *does, const char *job, int argc, char *const *argv)
{
    size_t room = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) + 1 - argv[0]);

    prctl(PR_SET_NAME, name);
    memset(argv[0], 0, room);
    snprintf(argv[0], room, "%s: %s of job %s", name, does, job);
}
