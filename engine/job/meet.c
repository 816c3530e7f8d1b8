/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ranks of this node that come to a gather of all ranks. The meeting itself has sockets and is the
 * driver's (env.meeting); here are the requests that wait for its end, and the packed table, which
 * each of them receives. The engine does not take the table apart: each rank checks the proof of
 * each row. One table is kept, the newest: other engines may fetch it (fetch.c).
 *
 *     MEET --> waits --met--> BYTES, all in one descriptor
 *                +-- the gather has failed --> an error
 */
#include "meet.h"

#include "engine/state/answer.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"

#include <stdlib.h>

struct meeting { /* a rank that waits */
    struct meeting *next;
    struct asker *asker; /* one */
    uint32_t client, rank;
    int done; /* the rank is to get the table that is here */
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

static void meeting_refuse(struct hth_node *n, struct meeting **at, int code, const char *text)
{
    struct asker *asker = (*at)->asker;
    struct hearth_error err;

    hth_fail(&err, code, 0, "%s", text);
    (*at)->asker = NULL;
    meeting_drop(at);
    askers_refuse(n, asker, &err);
}

static struct meeting **meeting_find(struct hth_node *n, uint32_t rank)
{
    struct meeting **at = &n->meetings;

    while (*at && ((*at)->rank != rank || (*at)->done))
        at = &(*at)->next;
    return at;
}

void meet_ask(struct hth_node *n, struct client *c, const struct hth_local_meet *m)
{
    const struct hth_node_meeting *hands = &n->env.meeting;
    struct meeting *w, **earlier = meeting_find(n, c->rank);
    struct hearth_error err;

    if (c->helper || !hands->come) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ESTATE,
                c->helper ? "a helper does not meet other ranks: its rank does"
                          : "this engine has no network on which ranks could meet");
        return;
    }
    w = calloc(1, sizeof(*w));
    if (!w || asker_add(&w->asker, c->id, m->head.request, NULL)) {
        free(w);
        reply_refusal(n, c->id, m->head.request, HEARTH_ENOMEM, "no memory for a rank that waits");
        return;
    }
    if (*earlier)
        meeting_refuse(n, earlier, HEARTH_ECANCELED, "the rank came to another gather meanwhile");
    w->client = c->id;
    w->rank = c->rank;
    w->next = n->meetings;
    n->meetings = w;
    if (hands->come(hands->self, c->rank, c->world, m, &err))
        meeting_refuse(n, meeting_find(n, c->rank), err.code, err.text);
}

void meet_table(struct hth_node *n, uint32_t round, struct hth_buf *table)
{
    meet_tick(n); /* ranks that still wait for the table before */
    hth_buf_get(table);
    hth_buf_put(n->table);
    n->table = table;
    n->table_round = round;
}

void meet_done(struct hth_node *n, uint32_t rank, uint32_t round, int code, const char *text)
{
    struct meeting **at = meeting_find(n, rank);

    if (!*at)
        return;
    if (code)
        meeting_refuse(n, at, code, text);
    else if (n->table && n->table_round == round)
        (*at)->done = 1;
    else
        meeting_refuse(n, at, HEARTH_ECANCELED, "a table of a later gather has come meanwhile");
}

void meet_tick(struct hth_node *n)
{
    struct asker *askers = NULL;

    for (struct meeting **at = &n->meetings; *at;) {
        struct meeting *w = *at;

        if (!w->done) {
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

uint64_t meet_due_ms(const struct hth_node *n)
{
    for (const struct meeting *w = n->meetings; w; w = w->next)
        if (w->done)
            return 0;
    return HTH_NEVER;
}

/* 1: rank 0's process is on this connection, and on no other one. */
static int meet_is_rank_0(const struct hth_node *n, uint32_t client)
{
    int is = 0;

    for (const struct client *c = n->clients; c; c = c->next)
        if (c->attached && !c->helper && !c->rank) {
            if (c->id != client)
                return 0;
            is = 1;
        }
    return is;
}

static void meet_say_gone(struct hth_node *n, uint32_t rank)
{
    if (n->env.meeting.gone)
        n->env.meeting.gone(n->env.meeting.self, rank);
}

void meet_gone(struct hth_node *n, uint32_t client)
{
    int is_rank_0 = meet_is_rank_0(n, client);

    if (is_rank_0) /* its engine may still serve other nodes */
        meet_say_gone(n, 0);
    for (struct meeting **at = &n->meetings; *at;) {
        struct meeting *w = *at;

        if (w->client != client) {
            at = &w->next;
            continue;
        }
        if (!w->done && !is_rank_0)
            meet_say_gone(n, w->rank);
        meeting_drop(at);
    }
}

void meet_fail_all(struct hth_node *n, const struct hearth_error *why)
{
    for (struct meeting **at = &n->meetings; *at;) {
        if ((*at)->done) {
            at = &(*at)->next;
            continue;
        }
        meet_say_gone(n, (*at)->rank);
        meeting_refuse(n, at, why->code, why->text);
    }
}

void meet_close(struct hth_node *n)
{
    while (n->meetings)
        meeting_drop(&n->meetings);
    hth_buf_put(n->table);
    n->table = NULL;
}
