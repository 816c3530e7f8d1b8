/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel returns ENOSPC both if a file system has no free bytes and if it has no free inodes;
 * fstatfs() shows which. */
#include "full.h"

#include "fail.h"
#include "open.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

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

const char *hth_limit_text(int why)
{
    switch (why) {
    case EMFILE:
        return "; raise the limit of open files (ulimit -n)";
    case ENFILE:
        return "; raise the machine's limit of open files (fs.file-max)";
    case EFBIG:
        return "; raise the limit of a file's size (ulimit -f)";
    case EAGAIN:
        return "; raise the limit of processes and threads (ulimit -u, and pids.max of the "
               "container)";
    case EPERM: /* of files and directories of one's own */
    case ENOSYS:
        return "; allow that call in the container's seccomp profile";
    default:
        return "";
    }
}

int hth_proc_check(struct hearth_error *err)
{
    int fd = hth_open_kernel("/proc/self/fd", O_PATH | O_DIRECTORY);

    if (fd >= 0)
        close(fd);
    if (fd >= 0 || errno == EMFILE || errno == ENFILE)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EINVAL, errno,
            "/proc/self/fd: %s: Hearth needs /proc; mount it in this container (mount -t proc proc "
            "/proc)",
            strerrordesc_np(errno));
}
