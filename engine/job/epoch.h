/* SPDX-License-Identifier: Apache-2.0 */
/* Joining an epoch, or going on with one. */
#ifndef HEARTH_ENGINE_EPOCH_H
#define HEARTH_ENGINE_EPOCH_H

#include "core/base/env.h"
#include "core/local/local.h"

struct client;
struct hth_node;

void epoch_join(struct hth_node *n, struct client *c, const struct hth_local_join *m,
        struct hth_content *content);
/* After a restart under living ranks: enters their epoch again, if that is possible. */
int epoch_resume(struct hth_node *n, struct hearth_error *err);

#endif
