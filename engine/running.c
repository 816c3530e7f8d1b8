/* SPDX-License-Identifier: Apache-2.0 */
/* The record is written by one engine, and read by the next one that starts on this store. */
#include "running.h"

#include "node_state.h"

#include <stdlib.h>
#include <string.h>

void running_write(struct hth_node *n)
{
    struct running r = {
        .bytes = sizeof(r),
        .world = n->epoch.world,
        .epoch = n->epoch.epoch,
        .nonce = n->epoch.nonce,
        .opts = n->opts,
        .chosen = hth_local_save_of(n->chosen),
    };
    struct hearth_error err;

    hth_point(&n->ctx.points, "running");
    if (n->env.store->ops->record_put(n->env.store, "running", &r, sizeof(r), &err))
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "running-failed", "%s", err.text);
}

int running_read(struct hth_node *n, struct running *out)
{
    void *bytes = NULL;
    size_t len = 0;
    int fits;

    if (n->env.store->ops->record_get(n->env.store, "running", &bytes, &len, NULL))
        return 0;
    fits = len == sizeof(*out);
    if (fits)
        memcpy(out, bytes, sizeof(*out));
    free(bytes);
    return fits && out->bytes == sizeof(*out) && out->epoch == n->epoch.epoch &&
           out->nonce == n->epoch.nonce;
}
