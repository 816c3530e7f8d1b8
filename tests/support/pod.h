/* SPDX-License-Identifier: Apache-2.0 */
/* A process that counts pids from one, as the first of a pod does. */
#ifndef POD_H
#define POD_H

#include <sys/types.h>

/* As fork(); the child is pid 1 of a namespace of its own. -1 also without the right to make one.
 * The caller's later children are in its own namespace again: a leak check starts a thread as such
 * a child, and could not once the pod's first process has ended. */
pid_t pod_fork(void);

#endif
