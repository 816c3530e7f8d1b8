/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The next engine is one that starts, as after a death of this one: it reads the store's records,
 * enters the epoch again, and the ranks attach again and repeat what they sent. So nothing of this
 * engine's memory is handed on. Here the moment is chosen:
 *
 *     asked ──► trial of the program, on a worker ──► may it replace this build? ──► waits ──► ends
 *                   └─ it does not run                    └─ no: named                │
 *                                                             a recovery that lasts ◄─┘
 *
 * A save that is under way goes on after a restart, and takes longer by the time in which nodes
 * find each other again, which may be too long for its deadline. So a moment without an undecided
 * save is awaited, for a while: a rank may be late by minutes. A recovery or a meeting of the ranks
 * is awaited for longer, and the upgrade is refused where it does not end.
 */
#include "upgrade.h"

#include "engine/saves/loan.h"
#include "engine/state/build.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"

#include <stdlib.h>
#include <string.h>

#define CALM_MS  5000u  /* a moment without an undecided save is awaited for so long */
#define WAIT_MS  30000u /* the end of a recovery */
#define AGAIN_MS 10u    /* it is looked at anew so often */

struct upgrade {
    struct hth_work work; /* first */
    struct hth_node *node;
    uint32_t client; /* 0: it has gone */
    uint64_t request;
    uint64_t since_ms; /* waits for its moment; 0: the trial runs */
    int code;          /* of the trial */
    struct hearth_error err;
    char printed[HTH_BUILD_TEXT];
};

static void upgrade_end(struct hth_node *n)
{
    free(n->upgrade);
    n->upgrade = NULL;
}

static void upgrade_refuse(struct hth_node *n, const struct hearth_error *why)
{
    const struct upgrade *u = n->upgrade;

    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "upgrade-refused", "%s", why->text);
    if (u->client)
        reply_error(n, u->client, u->request, why);
    upgrade_end(n);
}

/* ---- The trial ------------------------------------------------------------------------------- */

static void upgrade_try(struct hth_work *work)
{
    struct upgrade *u = (struct upgrade *)work;
    const struct hth_successor *s = u->node->env.successor;

    u->code = s->trial(s->self, u->printed, sizeof(u->printed), &u->err);
}

static struct hth_build_peers upgrade_peers(struct hth_node *n)
{
    struct hth_build_peers p = { 0 };

    for (uint32_t i = 0; n->ctx.epoch && i < n->epoch.nodes; i++) {
        uint32_t v = i == n->epoch.self ? 0 : hth_session_version(n->ctx.session, i);

        if (v && (!p.protocol || v < p.protocol))
            p.protocol = v;
    }
    for (const struct client *c = n->clients; c; c = c->next)
        if (c->attached && (!p.local || c->version < p.local))
            p.local = c->version;
    return p;
}

static void upgrade_tried(struct hth_work *work)
{
    struct upgrade *u = (struct upgrade *)work;
    struct hth_node *n = u->node;
    struct hth_build_peers peers = upgrade_peers(n);
    struct hth_build next, now;
    int rc = u->code;

    hth_build_this(&now);
    rc = rc ? rc : hth_build_parse(&next, u->printed, &u->err);
    rc = rc ? rc : hth_build_check(&next, &now, &peers, &u->err);
    if (rc) {
        upgrade_refuse(n, &u->err);
        return;
    }
    if (!u->client) {
        upgrade_end(n);
        return;
    }
    u->since_ms = hth_now_ms(&n->ctx.clock);
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "upgrade", "hearthd %s is to replace hearthd %s",
            next.version, now.version);
}

/* ---- The moment ------------------------------------------------------------------------------ */

static int upgrade_joins(const struct hth_node *n)
{
    return n->recovering || n->meetings || (n->ctx.epoch && !n->recovered && n->clients);
}

static int upgrade_saves(struct hth_node *n)
{
    const struct hth_ranks *ranks;

    for (const struct loan *l = n->loans; l; l = l->next)
        if (!l->ahead && !l->dead && !l->committed)
            return 1;
    return n->pending || (n->ctx.epoch && hth_commit_part(n->commit, 0, 0, &ranks));
}

void upgrade_tick(struct hth_node *n, uint64_t now_ms)
{
    struct upgrade *u = n->upgrade;
    struct hearth_error err;

    if (!u || !u->since_ms || n->ends)
        return;
    if (upgrade_joins(n)) {
        if (now_ms < u->since_ms + WAIT_MS)
            return;
        hth_fail(&err, HEARTH_EBUSY, 0,
                "the ranks of this job join or recover, and have not ended it in %u s: upgrade "
                "when they save",
                WAIT_MS / 1000);
        upgrade_refuse(n, &err);
        return;
    }
    if (upgrade_saves(n) && now_ms < u->since_ms + CALM_MS)
        return;
    reply_ok(n, u->client, u->request);
    upgrade_end(n);
    n->ends = n->hands_over = 1;
}

uint64_t upgrade_due_ms(const struct hth_node *n)
{
    return n->upgrade && n->upgrade->since_ms ? hth_now_ms(&n->ctx.clock) + AGAIN_MS : HTH_NEVER;
}

/* ---- Asked ----------------------------------------------------------------------------------- */

void upgrade_ask(struct hth_node *n, uint32_t client, const struct hth_local_head *m)
{
    struct upgrade *u;

    if (!n->env.successor) {
        reply_refusal(n, client, m->request, HEARTH_EUNSUPPORTED,
                "this engine runs inside a rank (start = in_process), and is upgraded with the "
                "rank's program: start the job again");
        return;
    }
    if (n->upgrade) {
        reply_refusal(
                n, client, m->request, HEARTH_EBUSY, "an upgrade of this engine is under way");
        return;
    }
    if (!(u = calloc(1, sizeof(*u)))) {
        reply_refusal(n, client, m->request, HEARTH_ENOMEM, "no memory for an upgrade");
        return;
    }
    u->work = (struct hth_work){ .run = upgrade_try, .done = upgrade_tried };
    u->node = n;
    u->client = client;
    u->request = m->request;
    n->upgrade = u;
    n->env.workers.submit(n->env.workers.self, &u->work);
}

void upgrade_gone(struct hth_node *n, uint32_t client)
{
    struct upgrade *u = n->upgrade;

    if (!u || u->client != client)
        return;
    u->client = 0;
    if (u->since_ms)
        upgrade_end(n);
}

void upgrade_close(struct hth_node *n)
{
    upgrade_end(n);
}
