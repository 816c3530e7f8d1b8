/* SPDX-License-Identifier: Apache-2.0 */
/* Tests' own tmpfs: mounted where no other process sees it, so that a test that dies leaves
 * nothing. */
#include "tmp_root.h"

#include <ftw.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define PLACE "/mnt"

const char *tmp_root_mount(uint64_t bytes, const char *more)
{
    char options[128];

    snprintf(options, sizeof(options), "size=%" PRIu64 ",mode=0700%s%s", bytes, more ? "," : "",
            more ? more : "");
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
            mount("tmpfs", PLACE, "tmpfs", 0, options))
        return NULL;
    return PLACE;
}

const char *tmp_root(uint64_t bytes)
{
    static char path[] = "/dev/shm/hearth-test-XXXXXX";
    const char *mounted = tmp_root_mount(bytes, NULL);

    return mounted ? mounted : mkdtemp(path);
}

int tmp_root_is_mounted(const char *path)
{
    return !strcmp(path, PLACE);
}

static int gone(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

void tmp_root_remove(const char *path)
{
    if (path && !tmp_root_is_mounted(path))
        nftw(path, gone, 16, FTW_DEPTH | FTW_PHYS);
}
