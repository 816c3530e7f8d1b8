/* SPDX-License-Identifier: Apache-2.0 */
/* GIVE and TAKE: a save that goes on in another process of its rank. */
#ifndef HEARTH_ENGINE_PASS_H
#define HEARTH_ENGINE_PASS_H

#include "core/local/local.h"

struct client;
struct hth_node;

void pass_give(struct hth_node *n, struct client *c, const struct hth_local_give *m);
void pass_take(struct hth_node *n, struct client *c, const struct hth_local_take *m);

#endif
