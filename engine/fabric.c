/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric this node is on, where transport = auto. Until it has been in an epoch an engine takes
 * another one when the ranks have found that not all nodes have this one. Later peers know it by its
 * address and memory is registered there: then it ends, and the next engine begins on the other. Ranks ask
 * for that only where allow_slower is set.
 *
 *     opened, the best here ──► ranks meet ──► all have it open ──────────────────► JOIN
 *            ▲                      └──► another is the best of all: REFIT ──┐
 *            └──── opened, or left out of what this node has ◄───────────────┘
 */
#include "fabric.h"

#include "client.h"
#include "node_state.h"
#include "reply.h"

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

static int fabric_write(struct hth_node *n, uint32_t last)
{
    struct hth_node_fabrics *f = n->env.fabrics;
    struct hth_fabric_record r = { .first = f->first ? f->first : f->opened, .last = last };
    unsigned char bytes[HTH_FABRIC_BYTES];
    struct hearth_error err;

    hth_fabric_encode(&r, bytes);
    if (n->env.store->ops->record_put(n->env.store, "fabric", bytes, sizeof(bytes), &err)) {
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "fabric-not-kept", "%s", err.text);
        return 0;
    }
    f->first = r.first;
    f->last = r.last;
    return 1;
}

void fabric_keep(struct hth_node *n)
{
    struct hth_node_fabrics *f = n->env.fabrics;

    if (!f)
        return;
    if (!f->first || f->last != f->opened)
        fabric_write(n, f->opened);
    if (f->settled)
        f->settled(f->self);
}

const char *fabric_provider(const struct hth_node *n)
{
    const struct hth_fabric *f = n->env.fabrics ? hth_fabric_of(n->env.fabrics->opened) : NULL;

    return f ? f->provider : n->env.provider;
}

/* n->transport is NULL where it does not open. */
static int fabric_open(struct hth_node *n, const struct hth_fabric *fabric)
{
    struct hth_transport_events events = hth_session_events_for(n->ctx.session);
    struct hth_node_fabrics *f = n->env.fabrics;
    struct hearth_error err = { 0 };

    n->transport = f->open(f->self, fabric, &events, &err);
    if (!n->transport) {
        f->offered &= ~HTH_FABRIC_BIT(fabric->number);
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "fabric-left-out", "%s: %s", fabric->name, err.text);
        return 0;
    }
    f->opened = fabric->number;
    hth_session_attach(n->ctx.session, n->transport);
    return 1;
}

/* The old one goes first: both may want the one port that was given. */
static void fabric_change(
        struct hth_node *n, const struct hth_fabric *from, const struct hth_fabric *to)
{
    n->transport->ops->close(n->transport);
    n->transport = NULL;
    if (fabric_open(n, to) || fabric_open(n, from))
        return;
    hth_say(&n->ctx.log, HEARTH_LOG_ERROR, "fabric-gone", "nothing opens any more");
    n->ends = 1;
}

/* Peers and memory are bound to the old one: the next engine begins without. */
static void fabric_leave(struct hth_node *n, const struct hth_fabric *to)
{
    n->ends = n->comes_back = fabric_write(n, to->number);
}

static void fabric_take(struct hth_node *n, const struct hth_fabric *to)
{
    const struct hth_fabric *from = hth_fabric_of(n->env.fabrics->opened);

    /* The table has the best first: up, after engines of an older build have gone. */
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "fabric", "%s %s: this one takes %s",
            to < from ? "all nodes have what is better than" : "not all nodes have", from->name,
            to->name);
    if (n->ctx.epoch)
        fabric_leave(n, to);
    else
        fabric_change(n, from, to);
}

void fabric_refit(struct hth_node *n, struct client *c, const struct hth_local_refit *m)
{
    struct hth_local_refitted answer = { .head = { sizeof(answer), HTH_LOCAL_REFITTED,
                                                 m->head.request, 0 } };
    const struct hth_fabric *to = hth_fabric_of(m->fabric);
    struct hth_node_fabrics *f = n->env.fabrics;
    struct hearth_error err = { 0 };

    if (f && to && to->number != f->opened && (f->offered & HTH_FABRIC_BIT(to->number)))
        fabric_take(n, to);
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
