/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions between engines of an epoch (protocol 9). The engine that asks pulls the answer part by
 * part; the other engine sends one message for each that it receives, and nothing else:
 *
 *     ASK offset 0      ─► makes the answer; keeps it if it is longer than a part
 *                      ◄─ ANSWER: its first part, and the length of all
 *     ASK offset 8000   ─►
 *                      ◄─ ANSWER: the next part; the last one ends what is kept
 *
 *     ASK     0 u64 number   8 u32 type   12 u32 what   16 u32 skip   20 u32 offset
 *     ANSWER  0 u64 number   8 u32 outcome   12 u32 code   16 u32 length of all   20 u32 offset
 *             24 bytes: of the answer, or a sentence
 *
 * An ASK without an answer is sent again, up to a deadline. An engine keeps at most KEPT answers,
 * KEPT_EACH of one peer, for ELSEWHERE_MS; it makes at most MADE_MOST answers in a second, and
 * sends nothing on a connection that has not taken what was sent before. BUSY and GONE are repeated
 * by the engine that asks.
 */
#include "elsewhere.h"

#include "core/base/bytes.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"
#include "question.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASK_BODY    24u
#define ANSWER_HEAD 24u
#define PART        8000u
#define AGAIN_MS    250u
#define KEPT        16u
#define KEPT_EACH   4u
#define MADE_MOST   64u

_Static_assert(ANSWER_HEAD + PART <= HTH_BODY_MAX, "a part is one message");

enum outcome { ANSWER_PART, ANSWER_REFUSED, ANSWER_BUSY, ANSWER_GONE };

struct asked { /* by a client of this engine */
    struct asked *next;
    uint32_t client, node;
    uint64_t request, number;
    struct question question;
    uint64_t until_ms, again_ms;
    int queued; /* the last ASK waits in the session's queue, for a connection */
    int busy;   /* as the other engine has answered */
    char *text; /* [len]; NULL: no part is here */
    size_t len, got;
};

struct kept { /* an answer that is longer than a part */
    uint32_t peer;
    uint64_t number, until_ms;
    char *text; /* NULL: unused */
    size_t len;
};

struct elsewhere {
    struct asked *first;
    struct kept kept[KEPT];
    uint64_t second; /* in which so many answers were made */
    uint32_t made;
};

struct elsewhere *elsewhere_open(void)
{
    return calloc(1, sizeof(struct elsewhere));
}

/* ---- The engine that is asked ---------------------------------------------------------------- */

static void kept_free(struct kept *k)
{
    free(k->text);
    *k = (struct kept){ 0 };
}

static struct kept *kept_find(struct elsewhere *e, uint32_t peer, uint64_t number)
{
    for (struct kept *k = e->kept; k < e->kept + KEPT; k++)
        if (k->text && k->peer == peer && k->number == number)
            return k;
    return NULL;
}

/* A place for one more of this peer; NULL: there is none. */
static struct kept *kept_place(struct elsewhere *e, uint32_t peer)
{
    struct kept *place = NULL;
    uint32_t of_peer = 0;

    for (struct kept *k = e->kept; k < e->kept + KEPT; k++) {
        of_peer += k->text && k->peer == peer;
        if (!k->text)
            place = k;
    }
    return of_peer < KEPT_EACH ? place : NULL;
}

static void answer_send(struct hth_node *n, uint32_t to, uint64_t number, enum outcome outcome,
        int code, const char *text, size_t len, size_t off)
{
    unsigned char out[ANSWER_HEAD + PART];
    size_t part = len - off < PART ? len - off : PART;

    hth_put64(out, number);
    hth_put32(out + 8, outcome);
    hth_put32(out + 12, (uint32_t)code);
    hth_put32(out + 16, (uint32_t)len);
    hth_put32(out + 20, (uint32_t)off);
    memcpy(out + ANSWER_HEAD, text + off, part);
    (void)hth_session_send(n->ctx.session, to, HTH_MSG_ANSWER, out, ANSWER_HEAD + part);
}

static void answer_refuse(struct hth_node *n, uint32_t to, uint64_t number, enum outcome outcome,
        const struct hearth_error *err)
{
    answer_send(n, to, number, outcome, err->code, err->text, strlen(err->text), 0);
}

static void answer_busy(struct hth_node *n, uint32_t to, uint64_t number)
{
    struct hearth_error err;

    hth_fail(&err, HEARTH_EBUSY, 0, "its engine is asked too much at once");
    answer_refuse(n, to, number, ANSWER_BUSY, &err);
}

/* 1: one more answer may be made in this second. */
static int answer_may_be_made(struct hth_node *n)
{
    struct elsewhere *e = n->elsewhere;
    uint64_t second = hth_now_ms(&n->ctx.clock) / 1000;

    if (second != e->second) {
        e->second = second;
        e->made = 0;
    }
    return e->made++ < MADE_MOST;
}

static void answer_first(struct hth_node *n, uint32_t to, uint64_t number, const struct question *q)
{
    struct kept *place = kept_place(n->elsewhere, to);
    struct hearth_error err;
    size_t len;
    char *text;

    if (!place || !answer_may_be_made(n)) {
        answer_busy(n, to, number);
        return;
    }
    if (question_text(n, q, &text, &len, &err)) {
        answer_refuse(n, to, number, ANSWER_REFUSED, &err);
        return;
    }
    answer_send(n, to, number, ANSWER_PART, 0, text, len, 0);
    if (len <= PART)
        free(text);
    else
        *place = (struct kept){ to, number, hth_now_ms(&n->ctx.clock) + ELSEWHERE_MS, text, len };
}

static void answer_ask(struct hth_node *n, uint32_t to, const unsigned char *body, size_t len)
{
    struct question q;
    uint64_t number;
    struct kept *k;
    size_t off;

    if (len != ASK_BODY || !hth_session_is_connected(n->ctx.session, to))
        return;
    number = hth_get64(body);
    q = (struct question){ hth_get32(body + 8), hth_get32(body + 12), hth_get32(body + 16) };
    off = hth_get32(body + 20);
    k = kept_find(n->elsewhere, to, number);
    if (!k && !off) {
        answer_first(n, to, number, &q);
        return;
    }
    if (!k || off >= k->len) {
        answer_send(n, to, number, ANSWER_GONE, 0, "", 0, 0);
        return;
    }
    answer_send(n, to, number, ANSWER_PART, 0, k->text, k->len, off);
    if (k->len - off <= PART)
        kept_free(k);
}

/* ---- The engine that asks -------------------------------------------------------------------- */

static const char *asked_node(const struct hth_node *n, const struct asked *a)
{
    return n->epoch.member[a->node].node;
}

static void asked_free(struct hth_node *n, struct asked *a)
{
    struct asked **at = &n->elsewhere->first;

    while (*at != a)
        at = &(*at)->next;
    *at = a->next;
    free(a->text);
    free(a);
}

static HTH_PRINTF(4, 5) void asked_fail(
        struct hth_node *n, struct asked *a, int code, const char *fmt, ...)
{
    struct hearth_error err;
    char why[HEARTH_ERROR_TEXT];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(why, sizeof(why), fmt, ap);
    va_end(ap);
    hth_fail(&err, code, 0, "node %s %s", asked_node(n, a), why);
    reply_error(n, a->client, a->request, &err);
    asked_free(n, a);
}

/* The answer is asked for from its beginning, under another number. */
static void asked_begin(struct hth_node *n, struct asked *a, uint64_t at_ms)
{
    free(a->text);
    a->text = NULL;
    a->len = a->got = 0;
    a->number = hth_random_next(&n->ctx.random); /* no other engine of this node has had it */
    a->again_ms = at_ms;
    a->queued = 0;
}

static void asked_send(struct hth_node *n, struct asked *a, uint64_t now_ms)
{
    int connected = hth_session_is_connected(n->ctx.session, a->node);
    uint8_t version = hth_session_version(n->ctx.session, a->node);
    unsigned char body[ASK_BODY];

    if (version && version < HTH_VERSION_ASK) {
        asked_fail(n, a, HEARTH_EUNSUPPORTED, "runs a version of Hearth that does not answer this");
        return;
    }
    a->again_ms = now_ms + AGAIN_MS;
    if (a->queued && !connected)
        return;
    hth_put64(body, a->number);
    hth_put32(body + 8, a->question.type);
    hth_put32(body + 12, a->question.what);
    hth_put32(body + 16, a->question.skip);
    hth_put32(body + 20, (uint32_t)a->got);
    a->queued = !hth_session_send(n->ctx.session, a->node, HTH_MSG_ASK, body, sizeof(body)) &&
                !connected;
}

/* The member that is meant; HTH_NODE_NONE: none is. */
static uint32_t elsewhere_member(const struct hth_node *n, const struct hth_local_elsewhere *m)
{
    uint32_t node = 0;

    if (m->node != HTH_NODE_NONE)
        return m->node < n->epoch.nodes ? m->node : HTH_NODE_NONE;
    if (!m->name[0])
        return 0; /* the coordinator */
    while (node < n->epoch.nodes && strcmp(n->epoch.member[node].node, m->name) != 0)
        node++;
    return node < n->epoch.nodes ? node : HTH_NODE_NONE;
}

static int elsewhere_check(const struct hth_node *n, const struct hth_local_elsewhere *m,
        uint32_t node, struct hearth_error *err)
{
    uint32_t waiting = 0;

    for (const struct asked *a = n->elsewhere->first; a; a = a->next)
        waiting++;
    if (!question_is(m->type))
        return hth_fail(err, HEARTH_EPROTO, 0,
                "a question of an unknown kind: use one version of "
                "Hearth");
    if (!n->ctx.epoch)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "the engine of node %s is in no epoch: no rank has joined", n->env.node);
    if (node == HTH_NODE_NONE)
        return m->name[0]
                       ? hth_fail(err, HEARTH_ENOENT, 0, "the job has no node '%s'", m->name)
                       : hth_fail(err, HEARTH_ENOENT, 0, "the job has no member %" PRIu32, m->node);
    if (n->ctx.lost && n->ctx.lost[node])
        return hth_fail(err, HEARTH_EPEER, 0, "node %s is lost", n->epoch.member[node].node);
    if (waiting >= ELSEWHERE_MOST)
        return hth_fail(err, HEARTH_EBUSY, 0, "the engine of node %s waits for %u answers already",
                n->env.node, waiting);
    return HEARTH_OK;
}

void elsewhere_ask(struct hth_node *n, uint32_t client, const struct hth_local_elsewhere *m)
{
    const struct question q = { m->type, m->what, m->skip };
    uint64_t now_ms = hth_now_ms(&n->ctx.clock);
    uint32_t node = elsewhere_member(n, m);
    struct hearth_error err;
    struct asked *a;

    if (elsewhere_check(n, m, node, &err)) {
        reply_error(n, client, m->head.request, &err);
        return;
    }
    if (node == n->epoch.self) {
        question_answer(n, client, m->head.request, &q);
        return;
    }
    a = calloc(1, sizeof(*a));
    if (!a) {
        reply_refusal(n, client, m->head.request, HEARTH_ENOMEM, "no memory for a question");
        return;
    }
    *a = (struct asked){ .next = n->elsewhere->first,
        .client = client,
        .node = node,
        .request = m->head.request,
        .question = q,
        .until_ms = now_ms + ELSEWHERE_MS };
    n->elsewhere->first = a;
    asked_begin(n, a, now_ms); /* the next tick, which comes at once, sends it */
}

/* ---- What comes ------------------------------------------------------------------------------ */

static struct asked *asked_find(const struct hth_node *n, uint32_t node, uint64_t number)
{
    struct asked *a = n->elsewhere->first;

    while (a && (a->node != node || a->number != number))
        a = a->next;
    return a;
}

/* 0: the part is not the one that was asked for, or cannot be one. */
static int asked_take(struct asked *a, size_t all, size_t off, const void *bytes, size_t len)
{
    size_t left;

    if (off != a->got || !all || all > QUESTION_MAX || (a->text && all != a->len))
        return 0;
    left = all - off;
    if (len != (left < PART ? left : PART))
        return 0;
    if (!a->text)
        a->text = malloc(all);
    if (!a->text)
        return 0;
    a->len = all;
    memcpy(a->text + off, bytes, len);
    a->got += len;
    return 1;
}

static void asked_part(
        struct hth_node *n, struct asked *a, const unsigned char *body, size_t len, uint64_t now_ms)
{
    char *text;

    if (!asked_take(a, hth_get32(body + 16), hth_get32(body + 20), body + ANSWER_HEAD,
                len - ANSWER_HEAD))
        return;
    if (a->got < a->len) {
        asked_send(n, a, now_ms);
        return;
    }
    text = a->text;
    a->text = NULL;
    question_reply(n, a->client, a->request, text, a->len);
    asked_free(n, a);
}

static void asked_answer(struct hth_node *n, uint32_t from, const unsigned char *body, size_t len)
{
    uint64_t now_ms = hth_now_ms(&n->ctx.clock);
    struct asked *a = len < ANSWER_HEAD ? NULL : asked_find(n, from, hth_get64(body));
    int text_len = (int)(len - ANSWER_HEAD);

    if (!a)
        return;
    switch (hth_get32(body + 8)) {
    case ANSWER_PART:
        asked_part(n, a, body, len, now_ms);
        break;
    case ANSWER_REFUSED:
        asked_fail(n, a, (int)hth_get32(body + 12), "refuses to answer: %.*s", text_len,
                (const char *)body + ANSWER_HEAD);
        break;
    case ANSWER_BUSY:
        a->busy = 1;
        break;
    case ANSWER_GONE:
        asked_begin(n, a, now_ms + AGAIN_MS);
        break;
    default:
        break;
    }
}

int elsewhere_message(
        struct hth_node *n, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    if (type == HTH_MSG_ASK)
        answer_ask(n, from, body, len);
    else if (type == HTH_MSG_ANSWER)
        asked_answer(n, from, body, len);
    else
        return 0;
    return 1;
}

/* ---- What ends them -------------------------------------------------------------------------- */

void elsewhere_peer_down(struct hth_node *n, uint32_t node, const char *text)
{
    struct asked *next;

    for (struct asked *a = n->elsewhere->first; a; a = next) {
        next = a->next;
        if (a->node == node)
            asked_fail(n, a, HEARTH_EPEER, "cannot be reached (%s)", text);
    }
    for (struct kept *k = n->elsewhere->kept; k < n->elsewhere->kept + KEPT; k++)
        if (k->text && k->peer == node)
            kept_free(k);
}

void elsewhere_over(struct hth_node *n)
{
    while (n->elsewhere->first)
        asked_fail(n, n->elsewhere->first, HEARTH_ESTATE,
                "was asked in an epoch that is over: ask again");
    for (struct kept *k = n->elsewhere->kept; k < n->elsewhere->kept + KEPT; k++)
        kept_free(k);
}

void elsewhere_gone(struct hth_node *n, uint32_t client)
{
    struct asked *next;

    for (struct asked *a = n->elsewhere->first; a; a = next) {
        next = a->next;
        if (a->client == client)
            asked_free(n, a);
    }
}

void elsewhere_close(struct elsewhere *e)
{
    struct asked *next;

    if (!e)
        return;
    for (struct asked *a = e->first; a; a = next) {
        next = a->next;
        free(a->text);
        free(a);
    }
    for (struct kept *k = e->kept; k < e->kept + KEPT; k++)
        kept_free(k);
    free(e);
}

/* ---- Time ------------------------------------------------------------------------------------ */

static void asked_tick(struct hth_node *n, struct asked *a, uint64_t now_ms)
{
    if (n->ctx.lost && n->ctx.lost[a->node])
        asked_fail(n, a, HEARTH_EPEER, "is lost");
    else if (now_ms >= a->until_ms && a->busy)
        asked_fail(n, a, HEARTH_EBUSY, "is asked too much at once: ask again");
    else if (now_ms >= a->until_ms)
        asked_fail(n, a, HEARTH_ETIMEOUT, "has not answered within %u s", ELSEWHERE_MS / 1000);
    else if (now_ms >= a->again_ms)
        asked_send(n, a, now_ms);
}

void elsewhere_tick(struct hth_node *n, uint64_t now_ms)
{
    struct asked *next;

    for (struct asked *a = n->elsewhere->first; a; a = next) {
        next = a->next;
        asked_tick(n, a, now_ms);
    }
    for (struct kept *k = n->elsewhere->kept; k < n->elsewhere->kept + KEPT; k++)
        if (k->text && now_ms >= k->until_ms)
            kept_free(k);
}

uint64_t elsewhere_due_ms(const struct hth_node *n)
{
    uint64_t due_ms = HTH_NEVER;

    for (const struct asked *a = n->elsewhere->first; a; a = a->next) {
        due_ms = a->again_ms < due_ms ? a->again_ms : due_ms;
        due_ms = a->until_ms < due_ms ? a->until_ms : due_ms;
    }
    for (const struct kept *k = n->elsewhere->kept; k < n->elsewhere->kept + KEPT; k++)
        if (k->text && k->until_ms < due_ms)
            due_ms = k->until_ms;
    return due_ms;
}
