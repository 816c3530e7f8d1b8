/* SPDX-License-Identifier: Apache-2.0 */
/* FOLLOW: a rank that is back asks for a save that it wrote. */
#ifndef HEARTH_ENGINE_FOLLOW_H
#define HEARTH_ENGINE_FOLLOW_H

#include "core/local/local.h"

struct client;
struct hth_node;

void follow_ask(struct hth_node *n, struct client *c, const struct hth_local_follow *m);

#endif
