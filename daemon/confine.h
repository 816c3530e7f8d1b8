/* SPDX-License-Identifier: Apache-2.0 */
/* The process keeps itself to the files that it needs: Landlock, for what is left where an engine is made to run
 * somebody else's code, or to open somebody else's name. */
/* For this folder alone. */
#ifndef HEARTH_DAEMON_CONFINE_H
#define HEARTH_DAEMON_CONFINE_H

#include "engine/config.h"

/* Before another thread is there: each has the limits of the one that makes it. What is needed of the rest of the
 * file system is loaded first. For good: neither this process nor what it starts opens another file, and nothing is
 * run. Where the kernel has no Landlock, or the command line wants none, all stays as it is. config->confinement says
 * which it was, for the log. */
void daemon_confine(struct hth_config *config);

#endif
