/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator gives the plan to all by blob, and says GO.
 *
 * An engine that dies before GO and is started again under its ranks: a member's is given the same
 * plan again; the coordinator's asks all to say again what they hold, and plans anew under the next
 * serial. GO is on record at the coordinator before it is said, so nobody plans after it; nor is the
 * plan forgotten, so a member that died with the coordinator has it from there.
 */
#include "recover_state.h"

#include "core/base/bytes.h"

#include <stdlib.h>

/* ---- Plan ------------------------------------------------------------------------------------------ */

static void add_keep(struct hth_plan *p, struct hth_save_id id)
{
    for (uint32_t i = 0; i < p->keeps; i++)
        if (hth_save_cmp(p->keep[i], id) == 0)
            return;
    if (p->keeps < HTH_PLAN_KEEP)
        p->keep[p->keeps++] = id;
}

/* Where a loss is accepted, what is left of it: a node with the rest may come back yet. What was
 * protected comes first, and no more of it is kept than leaves room for the saves to come. */
static void keep_lost(struct hth_recover *r, struct hth_plan *p)
{
    struct hth_save_id newest = r->co.watermark;

    if (!hth_save_none(newest))
        add_keep(p, newest);
    for (uint32_t i = 0; i < r->co.candidates; i++) {
        struct hth_save_id id = r->co.candidate[i].id;

        if (hth_save_foreign(id) ||
                (p->keeps < r->ctx->opts.keep &&
                        (hth_save_none(newest) || hth_save_cmp(id, newest) < 0)))
            add_keep(p, id);
    }
}

/* Every whole save between the watermark and the chosen one, both included, and the keep lists. */
static void fill_keeps(struct hth_recover *r, struct hth_plan *p)
{
    if (!hth_save_none(p->chosen))
        add_keep(p, p->chosen);
    if (hth_breaks(r->ctx, HTH_BREAK_KEEP_CHOSEN))
        return;
    if (hth_save_none(p->chosen) && r->accept_loss)
        keep_lost(r, p);
    for (uint32_t i = 0; i < r->co.candidates; i++) {
        const struct candidate *c = &r->co.candidate[i];

        if (c->whole && hth_save_cmp(c->id, p->chosen) < 0 &&
                hth_save_cmp(c->id, r->co.watermark) >= 0)
            add_keep(p, c->id);
    }
    for (uint32_t n = 0; n < r->co.nodes; n++) {
        const struct hth_keep *k = &r->co.from[n].inventory.keep;

        for (uint32_t i = 0; i < k->saves; i++) {
            const struct candidate *c = candidate_find(r, k->save[i]);

            if (c && c->whole && hth_save_cmp(c->id, p->chosen) <= 0)
                add_keep(p, c->id);
        }
    }
}

static int plan_sources(struct hth_recover *r, const struct candidate *c, struct hth_plan *p)
{
    struct hth_inventory *all = calloc(r->co.nodes, sizeof(*all));

    p->sources = calloc(c->manifest.objects ? c->manifest.objects : 1, sizeof(*p->sources));
    if (!all || !p->sources) {
        free(all);
        return HEARTH_ENOMEM;
    }
    for (uint32_t n = 0; n < r->co.nodes; n++)
        all[n] = r->co.from[n].inventory;
    hth_sources_find(all, r->co.nodes, r->ctx->epoch->rank_node, r->ctx->epoch->world, &c->manifest,
            p->sources, NULL);
    free(all);
    return HEARTH_OK;
}

void give_plan(struct hth_recover *r, const struct candidate *c)
{
    struct hth_plan plan = { .serial = r->co.serial, .beyond = r->co.beyond };
    struct hth_blob_id id = recover_plan_id(r, r->co.serial);
    struct hearth_error err;
    unsigned char *bytes = NULL;
    size_t len;
    int rc = HEARTH_OK;

    if (c) {
        plan.chosen = c->id;
        plan.manifest = c->manifest;
        plan.manifest_bytes = c->bytes;
        plan.manifest_len = c->len;
        rc = plan_sources(r, c, &plan);
    }
    fill_keeps(r, &plan);
    len = rc ? 0 : hth_plan_bytes(&plan);
    bytes = rc ? NULL : malloc(len);
    r->co.chosen = plan.chosen;
    r->co.votes = 0;
    if (!bytes) {
        free(plan.sources);
        fail_epoch(r, HEARTH_ENOMEM, "the coordinator has no memory for the plan");
        return;
    }
    hth_plan_encode(&plan, bytes);
    free(plan.sources);
    if (serial_write(r->ctx, r->co.serial, bytes, len, &err))
        fail_epoch(r, err.code, err.text);
    else if (hth_blob_give(r->ctx, &id, bytes, len, NULL))
        fail_epoch(r, HEARTH_ENOMEM, "the plan cannot be given out");
    else
        hth_recover_blob(r, &id, bytes, len); /* the giver is a member too */
    free(bytes);
}

/* ---- Engines that are new ------------------------------------------------------------------------ */

/* Who says again what it holds has no plan: it is on its way, or was given to the engine before. That
 * one's word, if it has voted, stands for nobody any more. */
void give_again(struct hth_recover *r, struct gathered *g, uint32_t node)
{
    unsigned char body[4];

    if (!r->has_plan || r->plan.serial != r->co.serial || (r->state == ENDED && !r->co.gone))
        return;
    if (g->voted == r->co.serial && !r->co.gone) {
        g->voted = 0;
        r->co.votes--;
    }
    hth_put32(body, r->co.serial);
    hth_tree_to(r->ctx, node, HTH_KIND_PLAN, body, sizeof(body));
}

/* Members that have a plan of the engine before us say no more what they hold, unless asked. */
void give_ask(struct hth_recover *r, uint64_t now_ms)
{
    unsigned char body[4];

    if (!r->co.before || now_ms < r->co.asked_ms)
        return;
    r->co.asked_ms = now_ms + 2 * (uint64_t)r->ctx->opts.retry_ms;
    hth_put32(body, r->co.before);
    hth_tree_down(r->ctx, HTH_KIND_ASK_INVENTORY, body, sizeof(body));
}

/* ---- GO ------------------------------------------------------------------------------------------ */

void give_go(struct hth_recover *r, uint32_t node)
{
    unsigned char body[4];

    hth_put32(body, r->co.serial);
    if (node == HTH_NODE_NONE)
        hth_tree_down(r->ctx, HTH_KIND_GO, body, sizeof(body));
    else
        hth_tree_to(r->ctx, node, HTH_KIND_GO, body, sizeof(body));
}

/* The plan that GO was said for, for whoever was killed with us and does not have it any more. */
void give_resume(struct hth_recover *r)
{
    struct hth_blob_id id;
    unsigned char *bytes;
    size_t len;
    struct hearth_error err;

    if (!gather_ready(r))
        return;
    r->co.serial = serial_read(r->ctx, &bytes, &len);
    r->co.gone = 1;
    id = recover_plan_id(r, r->co.serial);
    if (len && hth_plan_decode(&r->plan, bytes, len, &err)) {
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "plan-bad", "%s", err.text);
    } else if (len) {
        r->has_plan = 1;
        (void)hth_blob_give(r->ctx, &id, bytes, len, NULL);
    }
    free(bytes);
}
