/* SPDX-License-Identifier: Apache-2.0 */
/* RECOVER, and the result that this node's ranks get. */
#ifndef HEARTH_ENGINE_RECOVERY_H
#define HEARTH_ENGINE_RECOVERY_H

#include "core/local/local.h"

struct client;
struct hth_node;

void recovery_join(struct hth_node *n); /* a new epoch: nothing is recovered yet */
void recovery_ask(struct hth_node *n, struct client *c, const struct hth_local_recover *m);
/* Recovery has ended on all nodes: saves may begin, or code and err give the reason why not. */
void recovery_end(struct hth_node *n, int code, const struct hearth_error *err,
        struct hth_save_id save, const struct hearth_recovery *info);
/* Recovery had ended before this engine's start. Saves of this epoch that have their manifest and
 * are not decided yet are promised again. Errors: HEARTH_EUNSUPPORTED, of the coordinator's record
 * of plans. */
int recovery_resume(struct hth_node *n, struct hth_save_id chosen, struct hearth_error *err);

#endif
