/* SPDX-License-Identifier: Apache-2.0 */
/* Before slots are asked for: a slot whose file another program has removed or cut short is not
 * handed out, and not counted. */
#include "mend.h"

#include "engine/state/node_state.h"

static void mend_on_lost(
        void *self, struct hth_save_id save, uint64_t object, const struct hearth_error *why)
{
    struct hth_node *n = self;

    if (n->recovered && !hth_save_foreign(save))
        hth_commit_copy_lost(n->commit, save, object, why->text);
}

void mend_slots(struct hth_node *n)
{
    hth_held_mend(&n->ctx, mend_on_lost, n);
}
