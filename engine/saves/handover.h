/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of a rank for the slots that it was lent: SEAL, COMMON, COMMIT, ABORT, CANCEL. */
#ifndef HEARTH_ENGINE_HANDOVER_H
#define HEARTH_ENGINE_HANDOVER_H

#include "core/base/env.h"
#include "core/local/local.h"

struct client;
struct hth_node;

void handover_written(
        struct hth_node *n, struct client *c, const struct hth_local_written_chunks *m);
void handover_seal(struct hth_node *n, struct client *c, const struct hth_local_seal *m);
/* If it needs *content, it takes it over and sets it to NULL. */
void handover_common(struct hth_node *n, struct client *c, const struct hth_local_common *m,
        struct hth_content **content);
void handover_commit(struct hth_node *n, struct client *c, const struct hth_local_head *m);
void handover_abort(struct hth_node *n, struct client *c, const struct hth_local_head *m);
/* BEGIN with the request m->token is not waited for any more: its slots come back. */
void handover_forget(struct hth_node *n, struct client *c, const struct hth_local_head *m);
void handover_cancel(struct hth_node *n, struct client *c, const struct hth_local_head *m);
/* After a restart in an epoch that continues: seals the objects on record. */
void handover_resume(struct hth_node *n);
void handover_gone(struct hth_node *n, uint32_t client);
void handover_new_epoch(
        struct hth_node *n); /* saves that are being written belong to an epoch that is over */

#endif
