/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record `.hearth/running` (core/format/running.h): written once recovery has ended well, and
 * read by the next engine that starts on this store.
 */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_RUNNING_H
#define HEARTH_ENGINE_RUNNING_H

#include "core/format/running.h"
#include "core/local/local.h"

struct hth_node;

void running_write(
        struct hth_node *n); /* a failure is logged: the ranks would have to join again */

/* Epoch 0: there is none, or it is damaged, which is logged. Errors: HEARTH_EUNSUPPORTED. */
int running_read(struct hth_node *n, struct hth_running *out, struct hearth_error *err);
struct hth_local_opts running_opts(const struct hth_running *r);

#endif
