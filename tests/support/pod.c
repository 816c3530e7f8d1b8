/* SPDX-License-Identifier: Apache-2.0 */
#include "pod.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

pid_t pod_fork(void)
{
    int own = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
    pid_t pid = own < 0 || unshare(CLONE_NEWPID) ? -1 : fork();

    if (pid > 0 && setns(own, CLONE_NEWPID))
        _exit(1);
    if (own >= 0)
        close(own);
    return pid;
}
