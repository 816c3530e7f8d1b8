/* SPDX-License-Identifier: Apache-2.0 */
/* A save leaves this node. */
#ifndef HEARTH_REPLICATION_RELEASE_H
#define HEARTH_REPLICATION_RELEASE_H

#include "replication/held/holdings.h"

/* Its transfers end, its blobs are forgotten, what is held of it is freed. Called for PROTECTED and
 * CANCELLED, by the plan of a recovery, and when the job is dropped: nobody else frees a save. */
void hth_save_release(struct hth_ctx *ctx, struct hth_held_save *save);

#endif
