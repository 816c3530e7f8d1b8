/* SPDX-License-Identifier: Apache-2.0 */
/*
 * FOLLOW, after a rank has lost its connection or its engine: what became of a save. It asks, and
 * changes nothing: the commit record has what the rank had handed over. From here on the rank gets
 * the events of the save like any other rank.
 */
#include "follow.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "loan.h"

#include <stdio.h>

static int follow_may(const struct hth_node *n, struct hth_save_id save, struct hearth_error *err)
{
    if (n->ctx.epoch && save.epoch == n->epoch.epoch && save.nonce == n->epoch.nonce)
        return HEARTH_OK;
    return hth_fail(err, HEARTH_EUNKNOWN, 0,
            "this node's engine is new, or in another epoch: what became of step %" PRIu64
            " shows at the next hearth_recover()",
            save.step);
}

void follow_ask(struct hth_node *n, struct client *c, const struct hth_local_follow *m)
{
    struct hth_save_id save = hth_local_save_to(m->save);
    struct loan *l = loan_make(n, c);
    enum hearth_level level = HEARTH_WRITTEN;
    struct hearth_error err;
    char text[256] = "";
    int degraded = 0, code = HEARTH_OK, rc;

    rc = l ? follow_may(n, save, &err) : hth_fail(&err, HEARTH_ENOMEM, 0, "no memory to follow");
    if (rc || !l) {
        if (l)
            loan_free(n, l);
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    l->has_id = 1;
    l->committed = 1;
    l->save = save;
    if (hth_commit_status(n->commit, save, &level, &degraded, &code, text)) {
        code = HEARTH_EUNKNOWN; /* no further event would come for the save */
        snprintf(text, sizeof(text),
                "it was decided before this engine started, and is not kept any more, or the "
                "commit record could not be written");
    }
    reply_ok(n, c->id, m->head.request);
    loan_event(n, l, level, degraded, code, text);
}
