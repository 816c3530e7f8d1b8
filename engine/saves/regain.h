/* SPDX-License-Identifier: Apache-2.0 */
/* REGAIN: slots that a rank has of an engine before this one. */
#ifndef HEARTH_ENGINE_REGAIN_H
#define HEARTH_ENGINE_REGAIN_H

#include "core/local/local.h"

struct client;
struct hth_node;

void regain_ask(struct hth_node *n, struct client *c, const struct hth_local_regain *m);

#endif
