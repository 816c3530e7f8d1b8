/* SPDX-License-Identifier: Apache-2.0 */
/* The running record: from this node's state, and back into options that a join would bring. */
#include "running.h"

#include "engine/state/node_state.h"

#include <stdlib.h>

_Static_assert(
        sizeof(struct hth_local_opts) == 64, "a new option goes into the running record too");

void running_write(struct hth_node *n)
{
    const struct hth_local_opts *o = &n->opts;
    struct hth_running r = {
        .epoch = n->epoch.epoch,
        .nonce = n->epoch.nonce,
        .chosen = n->chosen,
        .copies = o->copies,
        .min_copies = o->min_copies,
        .keep = o->keep,
        .allow_degraded = o->allow_degraded,
        .recover_ms = o->recover_ms,
        .save_ms = o->save_ms,
        .heartbeat_ms = o->heartbeat_ms,
        .dead_ms = o->dead_ms,
        .stall_ms = o->stall_ms,
        .linger_s = o->linger_s,
        .inflight_mib = o->inflight_mib,
        .bad_after = o->bad_after,
        .lease_bytes = o->lease_bytes,
        .spare_bytes = o->spare_bytes,
    };
    unsigned char bytes[HTH_RUNNING_BYTES];
    struct hearth_error err;

    hth_running_encode(&r, bytes);
    hth_point(&n->ctx.points, "running");
    if (n->env.store->ops->record_put(n->env.store, "running", bytes, sizeof(bytes), &err))
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "running-failed", "%s", err.text);
}

int running_read(struct hth_node *n, struct hth_running *out, struct hearth_error *err)
{
    struct hearth_error cause;
    void *bytes = NULL;
    size_t len = 0;
    int rc;

    *out = (struct hth_running){ 0 };
    if (n->env.store->ops->record_get(n->env.store, "running", &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_running_decode(out, bytes, len, &cause);
    free(bytes);
    if (rc == HEARTH_EUNSUPPORTED)
        return hth_fail(err, rc, 0, "%s", cause.text);
    if (rc)
        hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "running-bad", "%s", cause.text);
    return HEARTH_OK;
}

struct hth_local_opts running_opts(const struct hth_running *r)
{
    return (struct hth_local_opts){
        .copies = r->copies,
        .min_copies = r->min_copies,
        .keep = r->keep,
        .allow_degraded = r->allow_degraded,
        .recover_ms = r->recover_ms,
        .save_ms = r->save_ms,
        .heartbeat_ms = r->heartbeat_ms,
        .dead_ms = r->dead_ms,
        .stall_ms = r->stall_ms,
        .linger_s = r->linger_s,
        .inflight_mib = r->inflight_mib,
        .bad_after = r->bad_after,
        .lease_bytes = r->lease_bytes,
        .spare_bytes = r->spare_bytes,
    };
}
