/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks' table, packed. A rank of the node brings it to its engine, or the engine receives
 * it from another one (fetch.c); the engine gives it to the node's other ranks. The engine does
 * not take it apart: each rank checks it against what rank 0 itself has said to that rank. One
 * table is kept, the newest.
 *
 *     MEET --> waits --the table of its gather comes--> BYTES
 *                +-- its time is up, or the table cannot be fetched --> an error: the rank
 *                                                                       asks rank 0
 */
#include "meet.h"

#include "engine/state/answer.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"

#include <stdlib.h>

#define WAIT_MAX_MS 60000u

struct meeting { /* a rank that waits */
    struct meeting *next;
    struct asker *asker; /* one */
    uint32_t client, round;
    uint64_t until_ms;
};

static void meeting_drop(struct meeting **at)
{
    struct meeting *w = *at;

    *at = w->next;
    askers_free(w->asker);
    free(w);
}

static void meet_let_go(struct hth_node *n, void *what)
{
    (void)n;
    hth_buf_put(what);
}

/* To all that wait for it, in one descriptor. */
static void meet_give(struct hth_node *n)
{
    struct asker *askers = NULL;

    for (struct meeting **at = &n->meetings; *at;) {
        struct meeting *w = *at;

        if (w->round != n->table_round) {
            at = &w->next;
            continue;
        }
        w->asker->next = askers;
        askers = w->asker;
        w->asker = NULL;
        meeting_drop(at);
    }
    if (askers)
        answer_bytes(n, askers,
                &(struct answer_bytes){ .at = n->table->at,
                        .len = n->table->len,
                        .let_go = meet_let_go,
                        .what = hth_buf_get(n->table) });
}

void meet_take(struct hth_node *n, uint32_t round, struct hth_buf *table)
{
    hth_buf_put(n->table);
    n->table = table;
    n->table_round = round;
    meet_give(n);
}

void meet_bring(struct hth_node *n, struct client *c, const struct hth_local_meet *m,
        struct hth_content *content)
{
    void *bytes = content && content->len ? malloc(content->len) : NULL;
    struct hth_buf *table;

    if (!bytes || content->read(content, 0, bytes, content->len)) {
        free(bytes);
        reply_refusal(n, c->id, m->head.request, HEARTH_EPROTO,
                "the ranks' table cannot be read, or there is no memory for it");
        return;
    }
    table = hth_buf_of(bytes, content->len);
    free(bytes);
    if (!table) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ENOMEM, "no memory for the ranks' table");
        return;
    }
    reply_ok(n, c->id, m->head.request);
    meet_take(n, m->round, table);
}

int meet_has(const struct hth_node *n, uint32_t round)
{
    return n->table && n->table_round == round;
}

void meet_refuse(struct hth_node *n, uint32_t round, const struct hearth_error *err)
{
    for (struct meeting **at = &n->meetings; *at;) {
        struct meeting *w = *at;

        if (w->round != round) {
            at = &w->next;
            continue;
        }
        askers_refuse(n, w->asker, err);
        w->asker = NULL;
        meeting_drop(at);
    }
}

void meet_ask(struct hth_node *n, struct client *c, const struct hth_local_meet *m)
{
    struct meeting *w = calloc(1, sizeof(*w));

    if (!w || asker_add(&w->asker, c->id, m->head.request, NULL)) {
        free(w);
        reply_refusal(n, c->id, m->head.request, HEARTH_ENOMEM, "no memory for a rank that waits");
        return;
    }
    w->client = c->id;
    w->round = m->round;
    w->until_ms = hth_now_ms(&n->ctx.clock) + (m->wait_ms < WAIT_MAX_MS ? m->wait_ms : WAIT_MAX_MS);
    w->next = n->meetings;
    n->meetings = w;
    if (n->table)
        meet_give(n);
}

void meet_tick(struct hth_node *n, uint64_t now_ms)
{
    struct hearth_error err;

    for (struct meeting **at = &n->meetings; *at;) {
        struct meeting *w = *at;

        if (now_ms < w->until_ms) {
            at = &w->next;
            continue;
        }
        hth_fail(&err, HEARTH_ETIMEOUT, 0,
                "no rank of node %s has brought the ranks' table to its engine", n->env.node);
        askers_refuse(n, w->asker, &err);
        w->asker = NULL;
        meeting_drop(at);
    }
}

uint64_t meet_due_ms(const struct hth_node *n)
{
    uint64_t due_ms = HTH_NEVER;

    for (const struct meeting *w = n->meetings; w; w = w->next)
        due_ms = w->until_ms < due_ms ? w->until_ms : due_ms;
    return due_ms;
}

void meet_gone(struct hth_node *n, uint32_t client)
{
    for (struct meeting **at = &n->meetings; *at;)
        if ((*at)->client == client)
            meeting_drop(at);
        else
            at = &(*at)->next;
}

void meet_close(struct hth_node *n)
{
    while (n->meetings)
        meeting_drop(&n->meetings);
    hth_buf_put(n->table);
    n->table = NULL;
}
