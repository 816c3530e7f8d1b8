/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator gives the plan to all by blob, once a worker has made it (background.c), and
 * sends GO.
 *
 * An engine may die before GO and be started again under its ranks. If it is a member's, it is
 * given the
 * same plan again. If it is the coordinator's, it asks all for their inventories again and plans
 * anew under
 * the next serial. GO is on record at the coordinator before it is sent, so no plan is made after
 * it; the plan
 * is on record too, for a member whose engine died together with the coordinator's.
 */
#include "choice_state.h"

#include "core/base/bytes.h"

#include <stdlib.h>
#include <string.h>

/* ---- Plan ----------------------------------------------------------------------------------- */

static void send_add_keep(struct hth_plan *p, struct hth_save_id id)
{
    for (uint32_t i = 0; i < p->keeps; i++)
        if (hth_save_cmp(p->keep[i], id) == 0)
            return;
    if (p->keeps < HTH_PLAN_KEEP)
        p->keep[p->keeps++] = id;
}

/* If a loss is accepted, the remains of the lost saves are kept, because a node with the rest may
 * return. The save that was PROTECTED comes first; at most opts.keep are kept, so that there is
 * room for new saves. */
static void send_keep_lost(struct hth_choice *co, struct hth_plan *p)
{
    struct hth_save_id newest = co->watermark;

    if (!hth_save_none(newest))
        send_add_keep(p, newest);
    for (uint32_t i = 0; i < co->candidates; i++) {
        struct hth_save_id id = co->candidate[i].id;

        if (hth_save_foreign(id) ||
                (p->keeps < co->ctx->opts.keep &&
                        (hth_save_none(newest) || hth_save_cmp(id, newest) < 0)))
            send_add_keep(p, id);
    }
}

/* Every whole save between the watermark and the chosen one, both included, and the keep lists. */
static void send_fill_keeps(struct hth_choice *co, struct hth_plan *p)
{
    if (!hth_save_none(p->chosen))
        send_add_keep(p, p->chosen);
    if (hth_breaks(co->ctx, HTH_BREAK_KEEP_CHOSEN))
        return;
    if (hth_save_none(p->chosen) && co->accept_loss)
        send_keep_lost(co, p);
    for (uint32_t i = 0; i < co->candidates; i++) {
        const struct candidate *c = &co->candidate[i];

        if (c->whole && !hth_save_after(c->id, p->chosen) &&
                hth_save_cmp(c->id, co->watermark) >= 0)
            send_add_keep(p, c->id);
    }
    for (uint32_t n = 0; n < co->nodes; n++) {
        const struct hth_keep *k = &co->from[n].inventory.keep;

        for (uint32_t i = 0; i < k->saves; i++) {
            const struct candidate *c = candidate_find(co, k->save[i]);

            if (c && c->whole && !hth_save_after(c->id, p->chosen))
                send_add_keep(p, c->id);
        }
    }
}

/* Members that lack the manifest request it, each from its parent; from here on this node holds
 * it. */
static int send_manifest(struct hth_choice *co, struct hearth_error *err)
{
    const struct candidate *c = candidate_find(co, co->chosen);
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, co->chosen, 0 };
    const unsigned char *bytes;
    size_t len;

    if (!c)
        return HEARTH_OK; /* nothing is chosen */
    bytes = hth_blob_find(co->ctx, &id, &len);
    if (bytes && (len != c->len || memcmp(bytes + len - HTH_DIGEST, c->digest, HTH_DIGEST) != 0))
        hth_blobs_forget(co->ctx, id.save); /* of a foreign save, from the engine before this one */
    return hth_blob_serve(co->ctx, &id, c->bytes, c->len, err);
}

static int send_plan_bytes(struct hth_choice *co, const struct hth_blob_id *id,
        const struct made *m, struct hearth_error *err)
{
    struct hth_buf *buf = hth_buf_new(m->len, m->digest);
    int rc;

    if (!buf)
        return hth_fail(err, HEARTH_ENOMEM, 0, "a plan of %zu bytes", m->len);
    memcpy(buf->at, m->bytes, m->len);
    rc = hth_blob_give_buf(co->ctx, id, buf, err);
    hth_buf_put(buf);
    return rc;
}

/* A worker has made the plan. */
static void send_made(struct hth_choice *co, struct made *m)
{
    struct hth_blob_id id = hth_restore_plan_id(co->ctx, co->serial);
    struct hearth_error err;

    if (serial_write(co->ctx, co->serial, m->record, m->record_len, &err)) {
        hth_choice_fail(co, err.code, err.text);
        return;
    }
    if (send_manifest(co, &err)) {
        hth_choice_fail(co, err.code, err.text);
        return;
    }
    if (send_plan_bytes(co, &id, m, &err))
        hth_choice_fail(co, HEARTH_ENOMEM, "the plan cannot be given out");
    else
        hth_restore_take(co->restore, &id, &m->plan); /* this node is a member too */
}

void send_plan(struct hth_choice *co, struct candidate *c)
{
    struct hth_plan plan = {
        .serial = co->serial, .beyond = co->beyond, .passed = co->passed, .tries = co->tries
    };

    if (c) {
        plan.chosen = c->id;
        memcpy(plan.manifest, c->digest, HTH_DIGEST);
    }
    send_fill_keeps(co, &plan);
    co->chosen = plan.chosen;
    co->votes = 0;
    background_plan(co, &plan, c, send_made);
}

/* ---- Engines that are new ------------------------------------------------------------------- */

/* A member that repeats its inventory has no plan: the plan is on its way, or was given to the
 * engine that
 * ran there before. If that engine has voted, its vote is void. */
void send_plan_again(struct hth_choice *co, struct gathered *g, uint32_t node)
{
    unsigned char body[4];

    if (!hth_restore_has_plan(co->restore, co->serial) ||
            (hth_restore_ended(co->restore) && !co->gone))
        return;
    if (g->voted == co->serial && !co->gone) {
        g->voted = 0;
        co->votes--;
    }
    hth_put32(body, co->serial);
    hth_tree_to(co->ctx, node, HTH_KIND_PLAN, body, sizeof(body));
}

/* Members that have a plan of the engine before this one repeat their inventory only if they are
 * asked. */
void send_ask(struct hth_choice *co, uint64_t now_ms)
{
    unsigned char body[4];

    if (!co->before || now_ms < co->asked_ms)
        return;
    co->asked_ms = now_ms + 2 * (uint64_t)co->ctx->opts.retry_ms;
    hth_put32(body, co->before);
    hth_tree_down(co->ctx, HTH_KIND_ASK_INVENTORY, body, sizeof(body));
}

/* ---- GO ------------------------------------------------------------------------------------- */

void send_go(struct hth_choice *co, uint32_t node)
{
    unsigned char body[4];

    hth_put32(body, co->serial);
    if (node == HTH_NODE_NONE)
        hth_tree_down(co->ctx, HTH_KIND_GO, body, sizeof(body));
    else
        hth_tree_to(co->ctx, node, HTH_KIND_GO, body, sizeof(body));
}

/* Serves the plan of the GO that was sent, for a member whose engine was killed together with this
 * engine. */
int hth_choice_resume(struct hth_choice *co, struct hearth_error *err)
{
    struct hearth_error cause;
    struct hth_blob_id id;
    struct given given;
    int rc = serial_read(co->ctx, &given, err);

    if (rc)
        return rc;
    if (!gather_ready(co)) {
        free(given.plan);
        return HEARTH_OK;
    }
    co->serial = given.serial;
    co->gone = 1;
    id = hth_restore_plan_id(co->ctx, co->serial);
    if (given.len && hth_restore_resume(co->restore, given.plan, given.len, &cause))
        hth_say(&co->ctx->log, HEARTH_LOG_WARN, "plan-bad", "%s", cause.text);
    else if (given.len)
        (void)hth_blob_give(co->ctx, &id, given.plan, given.len, NULL);
    free(given.plan);
    return HEARTH_OK;
}
