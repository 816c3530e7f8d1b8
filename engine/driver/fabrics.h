/* SPDX-License-Identifier: Apache-2.0 */
/* The fabrics that transport = auto may use on this node: found while the engine does its other
 * work at the start. */
/* For this folder alone. */
#ifndef HEARTH_ENGINE_FABRICS_H
#define HEARTH_ENGINE_FABRICS_H

#include "config.h"
#include "engine/state/node.h"

struct hth_fabrics;

typedef struct hth_transport *hth_fabric_open_fn(void *self, const struct hth_fabric *fabric,
        const struct hth_transport_events *events, struct hearth_error *err);

/* Begins to ask the libraries, each in a process of its own. Call it before there are threads. The
 * config is borrowed until hth_fabrics_close(). open: opens a fabric, for hth_fabrics_open(). NULL:
 * no memory. */
struct hth_fabrics *hth_fabrics_ask(
        const struct hth_config *config, hth_fabric_open_fn *open, void *self);
/* Waits for the answers, once, and opens the fabric that was open last, or else the best that
 * opens. The log has each fabric that is left out, with the reason. offers: `last` is read, offered
 * and opened are written. Errors: HEARTH_EINVAL: no fabric can be opened, and why. */
struct hth_transport *hth_fabrics_open(struct hth_fabrics *f, struct hth_node_fabrics *offers,
        const struct hth_transport_events *events, const struct hth_log *log,
        struct hearth_error *err);
void hth_fabrics_close(struct hth_fabrics *f); /* NULL: nothing */

#endif
