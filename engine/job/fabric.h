/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric this node is on, where transport = auto: its record, and REFIT. */
#ifndef HEARTH_ENGINE_FABRIC_H
#define HEARTH_ENGINE_FABRIC_H

#include "core/local/local.h"

struct client;
struct hth_node;

/* Call it before a transport is opened. A damaged record is ignored. Errors:
 * HEARTH_EUNSUPPORTED. */
int fabric_load(struct hth_node *n, struct hearth_error *err);
/* An epoch was joined, or continues, on the fabric that is open now. */
void fabric_keep(struct hth_node *n);
const char *fabric_provider(const struct hth_node *n);

void fabric_refit(struct hth_node *n, struct client *c, const struct hth_local_refit *m);

#endif
