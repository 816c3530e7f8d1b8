/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's state at its engine. With h->lock held, on a connection that no other thread uses
 * yet. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_SESSION_H
#define HEARTH_CLIENT_SESSION_H

#include "client/base/member.h"

int hth_attach_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err);
/* Restores at this engine the state that this rank had at the engine before. */
int hth_restore_locked(struct hearth *h, int fd, uint64_t until, struct hearth_error *err);

#endif
