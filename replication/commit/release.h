/* SPDX-License-Identifier: Apache-2.0 */
/* A save leaves this node. */
#ifndef HEARTH_REPLICATION_RELEASE_H
#define HEARTH_REPLICATION_RELEASE_H

#include "replication/held/holdings.h"

/* The save's transfers end, its blobs are forgotten, and what is held of it is freed. Only a
 * head, the plan of a recovery, and a dropped job free a save. */
void hth_save_release(struct hth_ctx *ctx, struct hth_held_save *save);

#endif
