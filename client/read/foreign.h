/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of somebody else's container. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_FOREIGN_H
#define HEARTH_CLIENT_FOREIGN_H

#include "checkpoint.h"

/* Map it and list its items, which say themselves what they are. */
int hth_source_open_foreign(
        struct hearth_checkpoint *c, struct hth_source *s, struct hearth_error *err);

#endif
