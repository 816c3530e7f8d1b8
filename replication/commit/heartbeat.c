/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's heartbeat, and as of when a node knows the state of the job. With each
 * heartbeat the coordinator sends POSITION down the tree, in place of a ping, with the position of
 * its newest head. A member that has missed a head, or may be called lost, sends ALIVE until a head
 * comes. A member that has received nothing for so long that each node on the way would be called
 * lost does not vouch for what it knows.
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#define POSITION_BYTES 8u

void heartbeat_tick(struct hth_commit *c, uint64_t now_ms)
{
    unsigned char body[POSITION_BYTES];

    if (!c->running || !c->ctx->opts.heartbeat_ms || now_ms < c->coord.heartbeat_ms)
        return;
    c->coord.heartbeat_ms = now_ms + c->ctx->opts.heartbeat_ms;
    hth_put64(body, c->head.position);
    hth_tree_down(c->ctx, HTH_KIND_POSITION, body, sizeof(body));
}

uint64_t heartbeat_due_ms(const struct hth_commit *c)
{
    return c->running && c->ctx->opts.heartbeat_ms ? c->coord.heartbeat_ms : HTH_NEVER;
}

void heartbeat_contact(struct hth_commit *c)
{
    c->contact_ms = hth_now_ms(&c->ctx->clock);
    /* A message of the coordinator has come, perhaps by way of other nodes, so the coordinator is
     * not lost. This node may have no connection to it, and no reason to dial it. */
    c->silent_since_ms = 0;
}

static int heartbeat_has_missed(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    if (len != POSITION_BYTES || hth_is_coordinator(c->ctx))
        return 0;
    heartbeat_contact(c);
    return hth_get64(bytes) > c->head.position && hth_get64(bytes) > c->awaited.position;
}

/* This node has missed a head, or the coordinator may call it lost: it sends ALIVE. */
void heartbeat_behind(struct hth_commit *c, int since_before)
{
    c->unsure = 1;
    if (since_before)
        return;
    c->alives = 0;
    c->alive_ms = hth_now_ms(&c->ctx->clock);
}

void heartbeat_receive(struct hth_commit *c, const unsigned char *bytes, size_t len)
{
    if (heartbeat_has_missed(c, bytes, len))
        heartbeat_behind(c, c->unsure);
}

/* Sends ALIVE if it is due. The coordinator answers with the newest head. */
void heartbeat_alive(struct hth_commit *c, uint64_t now_ms)
{
    if (!c->unsure || hth_is_coordinator(c->ctx) || now_ms < c->alive_ms)
        return;
    c->alive_ms = now_ms + ((uint64_t)c->ctx->opts.retry_ms << (c->alives < 4 ? c->alives++ : 4));
    hth_tree_up(c->ctx, HTH_KIND_ALIVE, NULL, 0);
}

int hth_commit_as_of(const struct hth_commit *c, uint64_t *out_ms)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock), hops = 1;

    *out_ms = hth_is_coordinator(c->ctx) || !c->contact_ms ? 0 : now_ms - c->contact_ms;
    if (hth_breaks(c->ctx, HTH_BREAK_VOUCH))
        return 1;
    if (!c->ctx->epoch || c->silent_since_ms)
        return 0;
    if (hth_is_coordinator(c->ctx) || !c->ctx->opts.heartbeat_ms)
        return 1;
    for (uint32_t n = c->ctx->epoch->self; n; hops++)
        n = hth_tree_above(c->ctx, n);
    return c->contact_ms && *out_ms <= c->ctx->opts.dead_ms + hops * c->ctx->opts.heartbeat_ms;
}
