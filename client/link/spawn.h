/* SPDX-License-Identifier: Apache-2.0 */
/* An engine of our own, as a process. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_SPAWN_H
#define HEARTH_CLIENT_SPAWN_H

#include "client/base/member.h"

/* By hth_until_ms() `until`. *out_words: what it prints, a memfd. *out_pidfd: -1 where it ended
 * already, HTH_PID_UNSEEN where the system does not show it. */
#define HTH_PID_UNSEEN (-2)
int hth_spawn(const struct hearth *h, uint64_t until, int *out_pidfd, int *out_words,
        struct hearth_error *err);

#endif
