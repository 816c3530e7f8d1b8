/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader has found a copy of this node to be wrong: a rank that reads it, or a node that pulls
 * it. A worker looks at all of it, and until then nothing of it is lent. A wrong copy is put aside
 * as evidence and fetched again from a peer; a rank that reads it meanwhile reads the peer's.
 *
 *     BAD of a rank ──┐                ┌─ right ─────────────────────────────► answered
 *     BAD of a node ──┴─► looked at ───┤
 *                                      └─ wrong ─► put aside, fetched again ─► answered: an object
 * with
 *                                            chunks at once, a common one when it is back (tick)
 */
#include "bad_copy.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"

#include <stdio.h>
#include <stdlib.h>

#define BAD_COPY_MS 20000u /* less than a rank waits for any answer */

struct bad_copy { /* a BAD that is not answered yet */
    struct bad_copy *next;
    uint32_t client;
    uint64_t request, until_ms;
    struct hth_save_id save;
    uint64_t object;
    int common;
};

static struct hth_held *bad_copy_find(
        struct hth_node *n, struct hth_save_id save, uint64_t object, struct hth_held_save **out)
{
    struct hth_held *h;

    *out = hth_holdings_find(&n->ctx, save);
    h = *out && !(*out)->removed ? hth_held_find(*out, object) : NULL;
    return h && h->state == HTH_HELD_SEALED && h->object.kind != HTH_OBJECT_FOREIGN ? h : NULL;
}

/* The coordinator asks the owner's node for a common object; where that is its own, any other has
 * it. */
static void bad_copy_fetch_common(
        struct hth_node *n, struct hth_save_id save, uint64_t object, uint32_t owner)
{
    struct hth_blob_id id = { HTH_BLOB_RAW, save, object };
    const struct hth_epoch *e = &n->epoch;
    uint32_t from = 1;

    if (!hth_is_coordinator(&n->ctx) || e->rank_node[owner % e->world] != e->self)
        return;
    while (from < e->nodes && n->ctx.lost[from])
        from++;
    if (from < e->nodes)
        (void)hth_blob_fetch(&n->ctx, &id, from, NULL);
}

/* A save that this node has to hold its part of. */
static int bad_copy_is_owed(const struct hth_node *n, struct hth_save_id id)
{
    return n->recovered && !hth_save_foreign(id) &&
           (hth_keep_has(&n->ctx.keep, id) || hth_save_cmp(id, n->chosen) == 0 ||
                   (id.epoch == n->epoch.epoch && id.nonce == n->epoch.nonce));
}

void bad_copy_set_aside(struct hth_node *n, struct hth_held_save *save, struct hth_held *held,
        const struct hearth_error *why)
{
    struct hth_save_id id = save->id;
    struct hth_object o = held->object;

    hth_held_condemn(&n->ctx, save, held, "payload");
    if (!bad_copy_is_owed(n, id)) {
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "copy-bad", "%s", why->text);
        return;
    }
    hth_commit_copy_lost(n->commit, id, o.id, why->text);
    if (o.kind == HTH_OBJECT_RAW)
        bad_copy_fetch_common(n, id, o.id, o.owner);
}

static void bad_copy_on_looked(void *self, struct hth_held_save *save, struct hth_held *held,
        int code, const struct hearth_error *err)
{
    struct hth_node *n = self;

    if (held->dropped || code == HEARTH_ECANCELED)
        return;
    if (code == HEARTH_ECORRUPT || hth_breaks(&n->ctx, HTH_BREAK_BAD)) {
        bad_copy_set_aside(n, save, held, err);
    } else if (code) {
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "look-failed", "%s", err->text);
    } else {
        hth_say(&n->ctx.log, HEARTH_LOG_INFO, "copy-right",
                HTH_SAVE " object '%s' of this node is right: its bytes were changed on their way",
                HTH_SAVE_ARGS(save->id), held->object.name);
        hth_commit_replica(n->commit, save->id, held->object.id); /* it may be promised again */
    }
}

static int bad_copy_look(
        struct hth_node *n, struct hth_held_save *s, struct hth_held *h, struct hearth_error *err)
{
    h->verified = 0;
    return hth_job_runs(&n->ctx, h) ? HEARTH_OK
                                    : hth_verify_start(&n->ctx, s, h, bad_copy_on_looked, n, err);
}

/* ---- Who says so ---------------------------------------------------------------------------- */

static void bad_copy_say(struct hth_node *n, const char *who, struct hth_save_id save,
        const struct hth_object *o, uint64_t chunk)
{
    char what[32] = "its table";

    if (o && o->kind == HTH_OBJECT_RAW)
        snprintf(what, sizeof(what), "it");
    else if (chunk < HTH_BAD_TABLE)
        snprintf(what, sizeof(what), "chunk %" PRIu64, chunk);
    hth_say(&n->ctx.log, HEARTH_LOG_WARN, "bad-chunk",
            HTH_SAVE " object '%s', as node %s gave it to %s: %s is wrong", HTH_SAVE_ARGS(save),
            o ? o->name : "?", n->env.node, who, what);
}

void bad_copy_peer(
        struct hth_node *n, uint32_t from, struct hth_save_id save, uint64_t object, uint64_t chunk)
{
    struct hth_held_save *s;
    struct hth_held *h = bad_copy_find(n, save, object, &s);
    struct hearth_error err;
    char who[HTH_NAME_MAX + 16];

    if (!h)
        return;
    snprintf(who, sizeof(who), "node %s", n->epoch.member[from].node);
    bad_copy_say(n, who, save, &h->object, chunk);
    if (bad_copy_look(n, s, h, &err))
        hth_say(&n->ctx.log, HEARTH_LOG_WARN, "look-failed", "%s", err.text);
}

/* If the object is not held here, the rank's bytes came from another node. That node was notified
 * when they were found wrong on their way here; if they were right then, there is nothing to
 * verify. */
void bad_copy_ask(struct hth_node *n, struct client *c, const struct hth_local_bad *m)
{
    struct hth_save_id save = hth_local_save_to(m->save);
    struct hth_held_save *s;
    struct hth_held *h = bad_copy_find(n, save, m->object, &s);
    struct bad_copy *d;
    struct hearth_error err;
    char who[16];

    snprintf(who, sizeof(who), "rank %" PRIu32, c->rank);
    bad_copy_say(n, who, save,
            h                      ? &h->object
            : s && s->has_manifest ? hth_manifest_find(&s->manifest, m->object)
                                   : NULL,
            m->chunk);
    d = h ? malloc(sizeof(*d)) : NULL;
    if (h && !d)
        hth_fail(&err, HEARTH_ENOMEM, 0, "no memory to look at an object");
    if (!h || !d || bad_copy_look(n, s, h, &err)) {
        free(d);
        if (h)
            reply_error(n, c->id, m->head.request, &err);
        else
            reply_ok(n, c->id, m->head.request);
        return;
    }
    *d = (struct bad_copy){ n->bad_copies, c->id, m->head.request,
        hth_now_ms(&n->ctx.clock) + BAD_COPY_MS, save, m->object,
        h->object.kind == HTH_OBJECT_RAW };
    n->bad_copies = d;
}

/* ---- Answers -------------------------------------------------------------------------------- */

static int bad_copy_is_over(struct hth_node *n, const struct bad_copy *d)
{
    struct hth_held_save *s;
    const struct hth_held *h = bad_copy_find(n, d->save, d->object, &s);

    if (h)
        return h->verified;
    return !d->common || !s || s->removed;
}

void bad_copy_tick(struct hth_node *n, uint64_t now_ms)
{
    struct bad_copy **at = &n->bad_copies;

    while (*at) {
        struct bad_copy *d = *at;

        if (now_ms < d->until_ms && !bad_copy_is_over(n, d)) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        reply_ok(n, d->client, d->request);
        free(d);
    }
}

uint64_t bad_copy_due_ms(const struct hth_node *n)
{
    uint64_t due_ms = HTH_NEVER;

    for (const struct bad_copy *d = n->bad_copies; d; d = d->next)
        due_ms = d->until_ms < due_ms ? d->until_ms : due_ms;
    return due_ms;
}

void bad_copy_gone(struct hth_node *n, uint32_t client)
{
    struct bad_copy **at = &n->bad_copies;

    while (*at) {
        struct bad_copy *d = *at;

        if (d->client != client) {
            at = &d->next;
            continue;
        }
        *at = d->next;
        free(d);
    }
}

void bad_copy_close(struct hth_node *n)
{
    while (n->bad_copies) {
        struct bad_copy *d = n->bad_copies;

        n->bad_copies = d->next;
        free(d);
    }
}
