/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which rank a connection belongs to. The client names it once, in ATTACH, and all that the
 * connection may do follows from it: a rank's saves are its own, and a second process of a rank
 * comes as its helper.
 */
#include "rank.h"

#include "drop.h"
#include "engine/saves/reserve.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "fabric.h"

#include "core/base/auth.h"
#include "core/base/bytes.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define WITH_BINDS 15u /* the first local version that has all addresses of the engine */

static const struct client *rank_process(const struct hth_node *n, uint32_t rank)
{
    const struct client *c = n->clients;

    while (c && (!c->attached || c->helper || c->rank != rank))
        c = c->next;
    return c;
}

static uint32_t rank_flags(const struct hth_node *n)
{
    return (n->env.trusted ? HTH_LOCAL_TRUSTED : 0) | (n->env.strong ? HTH_LOCAL_STRONG : 0);
}

static int rank_differs(struct hearth_error *err, const char *option, const char *has,
        uint32_t rank, const char *says)
{
    return hth_fail(err, HEARTH_EINVAL, 0,
            "this node's engine runs with %s = %s, and rank %" PRIu32
            " has %s: give both the same, "
            "or end the engine first",
            option, has, rank, says);
}

static uint32_t rank_seen_pid(const struct hth_node *n, uint32_t client, uint32_t said)
{
    return n->env.pid_of ? n->env.pid_of(n->env.reply_self, client) : said;
}

/* The error names a pid only if both processes are in one pid namespace: in each pod the first
 * process is 1. */
static int rank_is_open(const struct hth_node *n, const struct client *c,
        const struct hth_local_attach *m, const struct client *first, struct hearth_error *err)
{
    char who[64 + HTH_LOCAL_HOST] = "a process of another pod or container";

    if (first->host[0])
        snprintf(who, sizeof(who), "a process of another pod or container, host %s,", first->host);
    if (first->seen_pid == first->pid && rank_seen_pid(n, c->id, m->pid) == m->pid)
        snprintf(who, sizeof(who), "process %" PRIu32, first->pid);
    return hth_fail(err, HEARTH_EEXIST, 0,
            "rank %" PRIu32 " is open in %s already: end that, or open as its helper", m->rank,
            who);
}

/* The host's name goes into another rank's error, so only letters, digits and other characters of
 * host names are kept. */
static void rank_host(const struct hth_local_attach *m, char out[HTH_LOCAL_HOST])
{
    const char *at = (const char *)(m + 1);
    size_t len = m->head.length - sizeof(*m), n = 0;

    while (n < len && n < HTH_LOCAL_HOST - 1 &&
            (isalnum((unsigned char)at[n]) || (at[n] && strchr("-._", at[n]))))
        n++;
    memcpy(out, at, n);
    out[n] = '\0';
}

static int rank_check(const struct hth_node *n, const struct client *c,
        const struct hth_local_attach *m, struct hearth_error *err)
{
    const struct client *first = rank_process(n, m->rank);

    if (hth_version_check(hth_versions_of(HTH_FORMAT_LOCAL), m->version, err))
        return hth_while(err, HEARTH_EPROTO, "rank and engine are of two versions of Hearth");
    if (strcmp(m->job, n->ctx.opts.job) != 0)
        return hth_fail(err, HEARTH_EINVAL, 0, "this engine serves another job");
    if ((m->flags ^ rank_flags(n)) & HTH_LOCAL_TRUSTED)
        return rank_differs(err, "network", n->env.trusted ? "trusted" : "hostile", m->rank,
                n->env.trusted ? "hostile" : "trusted");
    if ((m->flags ^ rank_flags(n)) & HTH_LOCAL_STRONG)
        return rank_differs(err, "integrity", n->env.strong ? "strong" : "crc32c", m->rank,
                n->env.strong ? "crc32c" : "strong");
    if (m->rank >= m->world)
        return hth_fail(err, HEARTH_EINVAL, 0, "rank %" PRIu32 " of a world of %" PRIu32, m->rank,
                m->world);
    if (c->attached)
        return hth_fail(
                err, HEARTH_ESTATE, 0, "this connection is rank %" PRIu32 "'s already", c->rank);
    if (m->helper && n->failure.code) { /* the helper's rank has no epoch in which to save */
        *err = n->failure;
        return n->failure.code;
    }
    return first && !m->helper ? rank_is_open(n, c, m, first, err) : HEARTH_OK;
}

/* The settings in effect, whether the command line or another rank chose them. */
static void rank_tell_settings(
        struct hth_node *n, const unsigned char *challenge, struct hth_local_attached *out)
{
    const struct hth_session_opts *own = &n->env.session;

    snprintf(out->node, sizeof(out->node), "%s", n->env.node);
    snprintf(out->log, sizeof(out->log), "%s", n->env.log_path);
    snprintf(out->transport, sizeof(out->transport), "%s", n->transport->ops->name);
    snprintf(out->provider, sizeof(out->provider), "%s", fabric_provider(n));
    snprintf(out->bind, sizeof(out->bind), "%s", n->env.bind);
    snprintf(out->first_bind, sizeof(out->first_bind), "%.*s", (int)strcspn(n->env.bind, ","),
            n->env.bind);
    snprintf(out->device, sizeof(out->device), "%s", n->env.device);
    if (out->addr_len >= 4) /* family, one more byte, port */
        out->port = hth_get16(out->addr + 2);
    out->flags = rank_flags(n);
    out->heartbeat_ms = own->heartbeat_ms;
    out->dead_ms = own->dead_ms;
    out->stall_ms = own->stall_ms;
    out->fabrics = n->env.fabrics ? n->env.fabrics->offered : 0;
    out->first_fabric = n->env.fabrics ? n->env.fabrics->first : 0;
    out->has_key = own->key != NULL;
    if (own->key)
        hth_local_proof(out->key_proof, own->key->bytes, challenge);
    if (n->ctx.epoch)
        out->opts = n->opts;
}

static int rank_is_attached(const struct hth_node *n, uint32_t rank)
{
    const struct client *c = rank_process(n, rank);

    return c && c->epoch == n->epoch.epoch && c->nonce == n->epoch.nonce;
}

static void rank_expects(struct hth_node *n, uint64_t until_ms)
{
    n->expects_ms = until_ms;
    if (n->env.store->ops->expect)
        n->env.store->ops->expect(n->env.store, until_ms != HTH_NEVER);
}

void rank_expect(struct hth_node *n)
{
    rank_expects(n, hth_now_ms(&n->ctx.clock) + n->ctx.opts.dead_ms);
}

void rank_tick(struct hth_node *n, uint64_t now_ms)
{
    if (n->expects_ms <= now_ms)
        rank_expects(n, HTH_NEVER);
}

uint64_t rank_due_ms(const struct hth_node *n)
{
    return n->expects_ms;
}

void rank_is_here(struct hth_node *n)
{
    if (n->expects_ms == HTH_NEVER || !n->ctx.epoch)
        return;
    for (uint32_t r = 0; r < n->epoch.world; r++)
        if (n->epoch.rank_node[r] == n->epoch.self && !rank_is_attached(n, r))
            return;
    rank_expects(n, HTH_NEVER);
}

void rank_attach(struct hth_node *n, struct client *c, const struct hth_local_attach *m)
{
    struct hth_local_attached answer = { .head = { sizeof(answer), HTH_LOCAL_ATTACHED,
                                                 m->head.request, 0 } };
    struct hearth_error err;

    if (rank_check(n, c, m, &err) ||
            n->transport->ops->address(n->transport, answer.addr, &answer.addr_len, &err)) {
        reply_error(n, c->id, m->head.request, &err);
        return;
    }
    c->attached = 1;
    c->rank = m->rank;
    c->world = m->world;
    c->pid = m->pid;
    c->version = m->version;
    c->seen_pid = rank_seen_pid(n, c->id, m->pid);
    rank_host(m, c->host);
    c->helper = m->helper != 0;
    c->ahead = m->ahead && !m->helper;
    n->lend_ahead_look = 1;
    c->epoch = m->epoch;
    c->nonce = m->nonce;
    c->has_recovered = m->epoch != 0; /* or was about to */
    rank_is_here(n);
    reserve_look_again(n);
    answer.store = n->env.store->ops->id(n->env.store);
    answer.wall_ms = n->ctx.clock.wall_ms(n->ctx.clock.self);
    answer.random = hth_random_next(&n->ctx.random);
    answer.highest_epoch = hth_holdings_highest_epoch(&n->ctx, &answer.random);
    answer.epoch = n->ctx.epoch ? n->epoch.epoch : 0;
    answer.nonce = n->ctx.epoch ? n->epoch.nonce : 0;
    answer.recovered = (uint32_t)n->recovered;
    rank_tell_settings(n, m->challenge, &answer);
    hth_session_versions(n->ctx.session, &answer.version_low, &answer.version_high);
    if (m->version < WITH_BINDS)
        answer.head.length = offsetof(struct hth_local_attached, bind);
    reply_packet(n, c->id, &answer, answer.head.length);
}

int rank_may_join(const struct client *c, const struct hth_local_join *m, struct hearth_error *err)
{
    if (c->helper)
        return hth_fail(err, HEARTH_ESTATE, 0, "a helper does not join: its rank does");
    if (m->rank != c->rank || m->world != c->world)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "rank %" PRIu32 " of %" PRIu32 " joins as rank %" PRIu32 " of %" PRIu32, c->rank,
                c->world, m->rank, m->world);
    return HEARTH_OK;
}

void rank_close(struct hth_node *n, struct client *c, const struct hth_local_close *m)
{
    reply_ok(n, c->id, m->head.request);
    if (m->leave == HEARTH_DROP)
        drop_rank(n, c);
}
