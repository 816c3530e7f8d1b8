/* SPDX-License-Identifier: Apache-2.0 */
/*
 * As of when a node knows what it says. With each heartbeat the coordinator says NOW down the tree, in place of a
 * ping, with the position of its newest head. A member that has not heard it for so long that each node on the way
 * would be called lost does not vouch for what it knows; one that has missed a head asks for it.
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#define NOW_BYTES 8u

void now_tick(struct hth_commit *c, uint64_t now_ms)
{
    unsigned char body[NOW_BYTES];

    if (!c->running || !c->ctx->opts.heartbeat_ms || now_ms < c->coord.now_ms)
        return;
    c->coord.now_ms = now_ms + c->ctx->opts.heartbeat_ms;
    hth_put64(body, c->head.position);
    hth_tree_down(c->ctx, HTH_KIND_NOW, body, sizeof(body));
}

uint64_t now_due_ms(const struct hth_commit *c)
{
    return c->running && c->ctx->opts.heartbeat_ms ? c->coord.now_ms : HTH_NEVER;
}

void now_heard(struct hth_commit *c)
{
    c->heard_ms = hth_now_ms(&c->ctx->clock);
    /* It is there, if by way of others: nobody here may have a reason to dial it. */
    c->silent_since_ms = 0;
}

int now_said(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    if (len != NOW_BYTES || hth_is_coordinator(c->ctx))
        return 0;
    now_heard(c);
    return hth_get64(bytes) > c->head.position && hth_get64(bytes) > c->awaited.position;
}

int hth_commit_as_of(const struct hth_commit *c, uint64_t *out_ms)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock), hops = 1;

    *out_ms = hth_is_coordinator(c->ctx) || !c->heard_ms ? 0 : now_ms - c->heard_ms;
    if (!c->ctx->epoch || c->silent_since_ms)
        return 0;
    if (hth_is_coordinator(c->ctx) || !c->ctx->opts.heartbeat_ms)
        return 1;
    for (uint32_t n = c->ctx->epoch->self; n; hops++)
        n = hth_tree_above(c->ctx, n);
    return c->heard_ms && *out_ms <= c->ctx->opts.dead_ms + hops * c->ctx->opts.heartbeat_ms;
}
