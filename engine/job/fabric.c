/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric of this node, where transport = auto. Peers know the engine by its address on it, and
 * memory is registered there. So an engine never changes it: where the ranks have found that all
 * nodes have another fabric in common, the engine records that fabric and ends, and the next engine
 * begins on it.
 *
 *     opened: the recorded one, else the best here ──► ranks meet ──► all have it open ──► JOIN
 *            ▲                                            └──► another is the best of all: REFIT
 *            └──────────────────── recorded, and this engine ends ◄─────────┘
 */
#include "fabric.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"

#include "core/base/bytes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fabric_load(struct hth_node *n, struct hearth_error *err)
{
    struct hth_node_fabrics *f = n->env.fabrics;
    struct hth_fabric_record r;
    struct hearth_error cause;
    void *bytes = NULL;
    size_t len = 0;
    int rc;

    if (!f || n->env.store->ops->record_get(n->env.store, "fabric", &bytes, &len, NULL))
        return HEARTH_OK;
    rc = hth_fabric_decode(&r, bytes, len, &cause);
    free(bytes);
    if (rc == HEARTH_EUNSUPPORTED)
        return hth_fail(err, rc, 0, "%s", cause.text);
    if (rc)
        hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "fabric-bad", "%s", cause.text);
    else
        f->first = r.first, f->last = r.last;
    return HEARTH_OK;
}

static int fabric_write(struct hth_node *n, const struct hth_fabric_record *r)
{
    struct hth_node_fabrics *f = n->env.fabrics;
    unsigned char bytes[HTH_FABRIC_BYTES];
    struct hearth_error err;

    hth_fabric_encode(r, bytes);
    if (n->env.store->ops->record_put(n->env.store, "fabric", bytes, sizeof(bytes), &err)) {
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "fabric-not-kept", "%s", err.text);
        return 0;
    }
    f->first = r->first;
    f->last = r->last;
    return 1;
}

void fabric_keep(struct hth_node *n)
{
    struct hth_node_fabrics *f = n->env.fabrics;

    if (!f)
        return;
    if (!f->first || f->last != f->opened)
        fabric_write(n, &(struct hth_fabric_record){
                                .first = f->first ? f->first : f->opened, .last = f->opened });
    if (f->settled)
        f->settled(f->self);
}

const char *fabric_provider(const struct hth_node *n)
{
    const struct hth_fabric *f = n->env.fabrics ? hth_fabric_of(n->env.fabrics->opened) : NULL;

    return f ? f->provider : n->env.provider;
}

/* If the record cannot be written, the next engine would not find the choice: then this node stays
 * on its fabric, and no longer offers `to`. */
static void fabric_leave(struct hth_node *n, const struct hth_fabric *to)
{
    struct hth_node_fabrics *f = n->env.fabrics;
    const struct hth_fabric *from = hth_fabric_of(f->opened);

    /* The table has the best first: up, after engines of an older build have gone. */
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "fabric", "%s %s: the next engine takes %s",
            to < from ? "all nodes have what is better than" : "not all nodes have", from->name,
            to->name);
    n->ends = fabric_write(n, &(struct hth_fabric_record){ .first = f->first, .last = to->number });
    if (!n->ends)
        f->offered &= ~HTH_FABRIC_BIT(to->number);
}

void fabric_refit(struct hth_node *n, struct client *c, const struct hth_local_refit *m)
{
    struct hth_local_refitted answer = { .head = { sizeof(answer), HTH_LOCAL_REFITTED,
                                                 m->head.request, 0 } };
    const struct hth_fabric *to = hth_fabric_of(m->fabric);
    struct hth_node_fabrics *f = n->env.fabrics;
    struct hearth_error err = { 0 };

    if (f && to && to->number != f->opened && (f->offered & HTH_FABRIC_BIT(to->number)))
        fabric_leave(n, to);
    if (n->ends)
        return;
    if (n->transport->ops->address(n->transport, answer.addr, &answer.addr_len, &err)) {
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    answer.fabrics = f ? f->offered : 0;
    if (answer.addr_len >= 4) /* family, one more byte, port */
        answer.port = hth_get16(answer.addr + 2);
    snprintf(answer.transport, sizeof(answer.transport), "%s", n->transport->ops->name);
    snprintf(answer.provider, sizeof(answer.provider), "%s", fabric_provider(n));
    reply_packet(n, c->id, &answer, sizeof(answer));
}
