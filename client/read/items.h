/* SPDX-License-Identifier: Apache-2.0 */
/* The items of a checkpoint, as callers see them. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_ITEMS_H
#define HEARTH_CLIENT_ITEMS_H

#include "checkpoint.h"

/* The entry that a caller's item speaks of. */
int hth_item_taken(const struct hearth_checkpoint *c, const struct hearth_item *item,
        const struct hth_entry **out, struct hearth_error *err);

#endif
