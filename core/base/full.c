/* SPDX-License-Identifier: Apache-2.0 */
/* fstatfs() shows whether bytes or inodes are short. */
#include "full.h"

#include <errno.h>
#include <string.h>
#include <sys/vfs.h>

int hth_full_of_files(int fd)
{
    struct statfs fs;

    return !fstatfs(fd, &fs) && fs.f_files && !fs.f_ffree; /* f_files 0: inodes are not counted */
}

const char *hth_full_text(int fd, int why)
{
    if (why != ENOSPC && why != EDQUOT)
        return strerrordesc_np(why);
    if (why == ENOSPC && hth_full_of_files(fd))
        return "no inodes left; mount it with a larger nr_inodes= or remove files on it";
    return "no room left; enlarge the mount or remove what else is on it";
}
