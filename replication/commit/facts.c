/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The facts that a member sends to the coordinator, as listed in tree.h: DONE, HELD, PROMISE,
 * COPY_LOST and FAILED of a save, repeated until each has had its effect; UNREACHABLE of a node.
 * The coordinator is a member too, and receives its own facts within the call.
 */
#include "commit_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <string.h>

/* DONE: the save | u32 part, parts, objects, runs | the runs of its set of ranks
 * (core/format/ranks.h; all: none) | the objects. Each part has the set. */
void fact_done(struct hth_commit *c, struct track *t, struct hth_held_save *s)
{
    unsigned char body[HTH_TREE_MAX];
    uint32_t runs = t->ranks ? t->ranks->runs : 0;
    uint32_t head = DONE_HEAD + runs * HTH_RANK_RUN_BYTES;
    uint32_t room = (HTH_TREE_MAX - head) / HTH_MANIFEST_OBJECT;
    uint32_t count = 0;
    uint32_t part = 0;
    uint32_t parts;
    uint32_t total = 0;

    if (hth_attempt_set(t->id.attempt) && !runs)
        return; /* the ranks that take part are not known here */
    for (struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        total += local_owns(c->ctx, h);
    if (total < t->objects)
        return; /* an object was lost: a manifest without it would describe another save */
    parts = total ? (total + room - 1) / room : 1;
    save_put(body, t->id);
    hth_put32(body + SAVE_BYTES + 12, runs);
    if (runs)
        hth_ranks_encode(t->ranks, body + DONE_HEAD);
    for (struct hth_held *h = s ? s->held : NULL; h || part < parts; h = h ? h->next : NULL) {
        if (h && local_owns(c->ctx, h))
            hth_object_encode(&h->object, body + head + HTH_MANIFEST_OBJECT * count++);
        if (count < room && h)
            continue;
        hth_put32(body + SAVE_BYTES, part++);
        hth_put32(body + SAVE_BYTES + 4, parts);
        hth_put32(body + SAVE_BYTES + 8, count);
        hth_tree_up(c->ctx, HTH_KIND_DONE, body, head + HTH_MANIFEST_OBJECT * count);
        count = 0;
    }
    t->done_sent = 1;
}

/* HELD: the save | if a copy has no room on this node, the reason, to the end of the message. */
void fact_held(struct hth_commit *c, const struct track *t)
{
    unsigned char body[SAVE_BYTES + sizeof(t->refusal.text)];
    int refusal = track_is_refused(c, t) && t->refusal.node == c->ctx->epoch->self;
    size_t len = refusal ? strlen(t->refusal.text) : 0;

    save_put(body, t->id);
    memcpy(body + SAVE_BYTES, t->refusal.text, len);
    hth_tree_up(c->ctx, HTH_KIND_HELD, body, SAVE_BYTES + len);
}

void fact_promise(struct hth_commit *c, const struct track *t)
{
    unsigned char body[SAVE_BYTES + 8 + HTH_DIGEST];

    save_put(body, t->id);
    hth_put64(body + SAVE_BYTES, c->ctx->store->ops->id(c->ctx->store));
    head_map_name(c, body + SAVE_BYTES + 8);
    hth_tree_up(c->ctx, HTH_KIND_PROMISE, body, sizeof(body));
}

static void fact_failed(struct hth_commit *c, struct track *t)
{
    unsigned char body[SAVE_BYTES + 4 + sizeof(t->why)];
    size_t len = strlen(t->why);

    save_put(body, t->id);
    hth_put32(body + SAVE_BYTES, (uint32_t)t->fail_code);
    memcpy(body + SAVE_BYTES + 4, t->why, len);
    hth_tree_up(c->ctx, HTH_KIND_FAILED, body, SAVE_BYTES + 4 + len);
}

void hth_commit_fail(struct hth_commit *c, struct hth_save_id save, int code, const char *text)
{
    struct track *t = outcome_find(c, save) || !head_is_open(c, save) ? NULL : track_get(c, save);
    int n;

    if (!t)
        return;
    t->fail_code = code;
    n = snprintf(t->why, sizeof(t->why),
            "node %.40s: ", c->ctx->epoch->member[c->ctx->epoch->self].node);
    snprintf(t->why + n, sizeof(t->why) - (size_t)n, "%s", text);
    facts_sent(c, t);
    fact_failed(c, t);
}

/* COPY_LOST voids an earlier promise. It is repeated until this node can promise the save again. */
void fact_copy_lost(struct hth_commit *c, struct track *t)
{
    unsigned char body[COPY_LOST_BYTES];

    t->lost = 1;
    save_put(body, t->id);
    hth_put64(body + SAVE_BYTES, c->ctx->store->ops->id(c->ctx->store));
    hth_tree_up(c->ctx, HTH_KIND_COPY_LOST, body, sizeof(body));
}

void fact_dial(const struct hth_commit *c, uint32_t node)
{
    unsigned char echo[8] = { 0 };

    hth_put32(echo, node);
    hth_put16(echo + 4, HTH_KIND_ECHO);
    hth_session_send(c->ctx->session, node, HTH_MSG_TO, echo, sizeof(echo));
}

void fact_unreachable(const struct hth_commit *c, uint32_t node, enum reach_report what)
{
    unsigned char body[UNREACHABLE_BYTES];

    hth_put32(body, node);
    hth_put32(body + 4, (uint32_t)what);
    if (!hth_breaks(c->ctx, HTH_BREAK_UNREACHABLE))
        hth_tree_up(c->ctx, HTH_KIND_UNREACHABLE, body, sizeof(body));
}

/* ---- Again ----------------------------------------------------------------------------------- */

/* The more nodes send a fact, the longer it takes to have an effect, so the interval grows with
 * their number. It also doubles with the first repeats: while a slow node delays a save, the
 * coordinator need not receive the same facts at a constant rate. */
static uint64_t facts_wait_ms(const struct hth_commit *c, const struct track *t)
{
    uint64_t ms = c->ctx->opts.retry_ms * (UINT64_C(1) + c->ctx->epoch->nodes / 4096);
    uint32_t most = t->level >= HEARTH_PROTECTED ? 5 : 2; /* no rank waits for a kept save */

    return ms << (t->sends < most ? t->sends : most);
}

void facts_sent(const struct hth_commit *c, struct track *t)
{
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);

    t->sends = 0;
    t->send_ms = now_ms + facts_wait_ms(c, t);
    t->repeat_ms = now_ms + c->ctx->opts.retry_ms;
}

void facts_anew(struct hth_commit *c)
{
    for (struct track *t = c->tracks; t; t = t->next) {
        uint64_t first_ms;

        t->sends = 0;
        first_ms = hth_now_ms(&c->ctx->clock) + facts_wait_ms(c, t);
        t->send_ms = t->send_ms < first_ms ? t->send_ms : first_ms;
    }
}

/* Repeats the facts that have had no effect yet. A promise ends with its map. It is not sent under
 * the name of the next map before this node has all that the next map assigns to it. */
void facts_repeat(struct hth_commit *c, struct track *t)
{
    struct hth_held_save *s = hth_holdings_find(c->ctx, t->id);
    uint64_t now_ms = hth_now_ms(&c->ctx->clock);

    if (now_ms < t->send_ms)
        return;
    if (t->fail_code && !hth_is_coordinator(c->ctx))
        fact_failed(c, t);
    else if (t->done_sent && (!s || !s->has_manifest))
        fact_done(c, t, s);
    else if (t->lost)
        fact_copy_lost(c, t);
    else if (t->promised && t->promised_map == c->head.mapped)
        fact_promise(c, t);
    else if (t->held && (t->level < HEARTH_COMPLETE || t->refusal.warned))
        fact_held(c, t);
    t->sends++;
    t->send_ms = now_ms + facts_wait_ms(c, t);
    if (t->level >= HEARTH_PROTECTED)
        t->repeat_ms = t->send_ms;
}
