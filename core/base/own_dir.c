/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader names a library by its path, but a program by the first word of its command line. A
 * program that a shell found by PATH is called `hearth` there, and so may be any file of the
 * current directory. A name that is not absolute is therefore not used: the kernel says which file
 * is mapped at this code.
 */
#include "own_dir.h"

#include "open.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <hearth/error.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char here;

/* The path in a line of /proc/self/maps that covers this code; NULL: it does not, or has none. */
static char *own_dir_in_line(char *line)
{
    uintptr_t at = (uintptr_t)&here, from, to = 0;
    char *path = strchr(line, '/'), *rest;

    from = strtoull(line, &rest, 16);
    if (*rest == '-')
        to = strtoull(rest + 1, NULL, 16);
    if (at < from || at >= to || !path)
        return NULL;
    path[strcspn(path, "\n")] = '\0';
    return path;
}

static int own_dir_of_map(char out[PATH_MAX])
{
    char line[PATH_MAX + 128];
    int fd = hth_open_named("/proc/self/maps", O_RDONLY);
    FILE *maps = fd < 0 ? NULL : fdopen(fd, "r");
    const char *path = NULL;

    while (maps && !path && fgets(line, sizeof(line), maps))
        path = own_dir_in_line(line);
    if (maps)
        fclose(maps);
    else if (fd >= 0)
        close(fd);
    if (!path || strlen(path) >= PATH_MAX)
        return HEARTH_ENOENT;
    memcpy(out, path, strlen(path) + 1);
    return HEARTH_OK;
}

int hth_own_dir(char *out, size_t len)
{
    char path[PATH_MAX];
    Dl_info info;
    char *slash;

    if ((!dladdr(&here, &info) || !info.dli_fname || info.dli_fname[0] != '/' ||
                !realpath(info.dli_fname, path)) &&
            own_dir_of_map(path))
        return HEARTH_ENOENT;
    slash = strrchr(path, '/');
    slash[slash == path] = '\0';
    return snprintf(out, len, "%s", path) < (int)len ? HEARTH_OK : HEARTH_ENOENT;
}
