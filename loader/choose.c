/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The coordinator's part of recovery. When every member has said what it holds:
 *
 *   candidates: every save of which somebody has a valid manifest, newest first
 *   look at each from the newest down: fetch its manifest, find every object's holders
 *   chosen:     the first that is whole and not marked bad
 *   go on down to the newest save that a keep list names: what is whole on the way is kept
 *
 * then the plan goes to all by blob, votes come back, and GO is said when all agree. A no makes the
 * next older whole save the chosen one, in the same epoch. A silent member fails the epoch by name.
 */
#include "recover_state.h"

#include "core/base/bytes.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t nodes_of(const struct hth_recover *r)
{
    return r->co.nodes;
}

int choose_ready(struct hth_recover *r)
{
    unsigned char *plan;
    size_t len;

    if (!r->co.from) {
        r->co.nodes = r->ctx->epoch->nodes;
        r->co.from = calloc(r->co.nodes, sizeof(*r->co.from));
        r->co.before = serial_read(r->ctx, &plan, &len);
        free(plan);
    }
    return r->co.from != NULL;
}

/* ---- Gathering --------------------------------------------------------------------------------- */

static void forget_parts(struct gathered *g)
{
    for (uint32_t i = 0; i < g->parts; i++)
        free(g->part[i]);
    free(g->part);
    free(g->part_len);
    g->part = NULL;
    g->part_len = NULL;
    g->parts = g->got = 0;
}

static void join_parts(struct hth_recover *r, struct gathered *g, uint32_t origin)
{
    size_t len = 0;
    size_t at = 0;
    unsigned char *all;
    struct hearth_error err;

    for (uint32_t i = 0; i < g->parts; i++)
        len += g->part_len[i];
    all = malloc(len ? len : 1);
    if (!all)
        return;
    for (uint32_t i = 0; i < g->parts; i++) {
        memcpy(all + at, g->part[i], g->part_len[i]);
        at += g->part_len[i];
    }
    if (hth_inventory_decode(&g->inventory, all, len, &err)) {
        hth_say(&r->ctx->log, HEARTH_LOG_ERROR, "inventory-bad", "node %s: %s",
                r->ctx->epoch->member[origin].node, err.text);
    } else {
        g->complete = 1;
        r->co.complete++;
    }
    free(all);
    forget_parts(g);
}

void choose_inventory(
        struct hth_recover *r, uint32_t origin, const unsigned char *bytes, size_t len)
{
    uint32_t part = len >= 8 ? hth_get32(bytes) : 0;
    uint32_t parts = len >= 8 ? hth_get32(bytes + 4) : 0;
    struct gathered *g;

    if (!choose_ready(r) || parts == 0 || parts > 65536 || part >= parts)
        return;
    if (part == 0 && choose_failed(r, origin))
        return;
    g = &r->co.from[origin];
    if (g->complete && part == 0)
        give_again(r, g, origin);
    if (g->complete || r->state == ENDED)
        return;
    if (g->parts != parts) {
        forget_parts(g);
        g->part = calloc(parts, sizeof(*g->part));
        g->part_len = calloc(parts, sizeof(*g->part_len));
        if (!g->part || !g->part_len) {
            forget_parts(g);
            return;
        }
        g->parts = parts;
    }
    if (g->part[part])
        return;
    g->part[part] = malloc(len - 8 ? len - 8 : 1);
    if (!g->part[part])
        return;
    memcpy(g->part[part], bytes + 8, len - 8);
    g->part_len[part] = len - 8;
    if (++g->got == parts)
        join_parts(r, g, origin);
    choose_tick(r, hth_now_ms(&r->ctx->clock));
}

/* ---- Candidates --------------------------------------------------------------------------------- */

static int newest_first(const void *a, const void *b)
{
    const struct candidate *x = a;
    const struct candidate *y = b;

    return hth_save_cmp(y->id, x->id);
}

struct candidate *choose_find(struct hth_recover *r, struct hth_save_id id)
{
    for (uint32_t i = 0; i < r->co.candidates; i++)
        if (hth_save_cmp(r->co.candidate[i].id, id) == 0)
            return &r->co.candidate[i];
    return NULL;
}

/* All ranks gave it up, and this node has not heard or not finished. */
static int is_dropped(const struct hth_recover *r, struct hth_save_id id)
{
    return !hth_save_foreign(id) && id.epoch <= r->ctx->keep.dropped;
}

static int add_candidates(struct hth_recover *r, uint32_t node)
{
    const struct hth_inventory *inv = &r->co.from[node].inventory;

    for (uint32_t i = 0; i < inv->saves; i++) {
        struct candidate *more;

        if (!inv->save[i].has_manifest || choose_find(r, inv->save[i].id) ||
                is_dropped(r, inv->save[i].id))
            continue;
        more = realloc(r->co.candidate, (r->co.candidates + 1) * sizeof(*more));
        if (!more)
            return HEARTH_ENOMEM;
        r->co.candidate = more;
        more[r->co.candidates] = (struct candidate){ .id = inv->save[i].id, .holder = node };
        memcpy(more[r->co.candidates++].digest, inv->save[i].manifest, HTH_DIGEST);
    }
    return HEARTH_OK;
}

/* The newest keep list of all becomes ours, and what it names first is the watermark; but for what
 * was dropped since, whoever knows it. */
static void take_keep(struct hth_recover *r)
{
    struct hth_keep *ours = &r->ctx->keep;
    uint64_t dropped = ours->dropped;

    for (uint32_t n = 0; n < nodes_of(r); n++) {
        const struct hth_keep *k = &r->co.from[n].inventory.keep;

        if (k->saves && hth_save_cmp(k->save[0], r->co.watermark) > 0)
            r->co.watermark = k->save[0];
        if (k->dropped > dropped)
            dropped = k->dropped;
        if (k->epoch > ours->epoch || (k->epoch == ours->epoch && k->serial > ours->serial))
            *ours = *k;
    }
    hth_keep_drop(ours, dropped);
    if (is_dropped(r, r->co.watermark))
        r->co.watermark = (struct hth_save_id){ 0 };
}

static void make_candidates(struct hth_recover *r)
{
    take_keep(r);
    for (uint32_t n = 0; n < nodes_of(r); n++)
        if (add_candidates(r, n)) {
            choose_fail(r, HEARTH_ENOMEM, "the coordinator has no memory for the inventory");
            return;
        }
    if (hth_save_none(r->co.watermark) && foreign_candidates(r)) {
        choose_fail(r, HEARTH_ENOMEM, "the coordinator has no memory for the containers found");
        return;
    }
    if (r->co.candidates)
        qsort(r->co.candidate, r->co.candidates, sizeof(*r->co.candidate), newest_first);
    r->co.serial = r->co.before + 1;
}

static int set_manifest(struct candidate *c, const unsigned char *bytes, size_t len)
{
    unsigned char *copy = malloc(len ? len : 1);

    if (!copy || hth_manifest_decode(&c->manifest, bytes, len, NULL) ||
            memcmp(c->manifest.digest, c->digest, HTH_DIGEST) != 0) {
        free(copy);
        return HEARTH_ECORRUPT;
    }
    memcpy(copy, bytes, len);
    c->bytes = copy;
    c->len = len;
    c->has_manifest = 1;
    return HEARTH_OK;
}

void choose_manifest(
        struct hth_recover *r, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct candidate *c = choose_find(r, id->save);

    if (!c || c->has_manifest || id->kind != HTH_BLOB_MANIFEST)
        return;
    if (set_manifest(c, bytes, len))
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "manifest-bad", HTH_SAVE, HTH_SAVE_ARGS(id->save));
    choose_tick(r, hth_now_ms(&r->ctx->clock));
}

/* Somebody else who has this manifest; the next after the one who did not bring it. */
static void next_holder(struct hth_recover *r, struct candidate *c)
{
    for (uint32_t i = 1; i <= nodes_of(r); i++) {
        uint32_t n = (c->holder + i) % nodes_of(r);
        const struct hth_seen_save *s = hth_inventory_find(&r->co.from[n].inventory, c->id);

        if (s && s->has_manifest && memcmp(s->manifest, c->digest, HTH_DIGEST) == 0) {
            c->holder = n;
            return;
        }
    }
}

/* 1 when the manifest is here; else it has been asked for. */
static int have_manifest(struct hth_recover *r, struct candidate *c, uint64_t now_ms)
{
    struct hth_held_save *s = hth_holdings_find(r->ctx, c->id);
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, c->id, 0 };

    if (!c->has_manifest && s && s->has_manifest)
        set_manifest(c, s->manifest_bytes, s->manifest_len);
    if (c->has_manifest)
        return 1;
    if (c->asked_ms && now_ms < c->asked_ms + 4 * (uint64_t)r->ctx->opts.retry_ms)
        return 0;
    if (c->asked_ms || c->holder == r->ctx->epoch->self)
        next_holder(r, c);
    c->asked_ms = now_ms;
    if (c->holder != r->ctx->epoch->self)
        hth_blob_fetch(r->ctx, &id, c->holder, NULL);
    return 0;
}

static void look(struct hth_recover *r, struct candidate *c)
{
    struct hth_sources *sources =
            calloc(c->manifest.objects ? c->manifest.objects : 1, sizeof(*sources));
    struct hth_inventory *all = calloc(nodes_of(r), sizeof(*all));
    const struct hth_object *lost = NULL;
    uint32_t missing = 1;

    if (sources && all) {
        for (uint32_t n = 0; n < nodes_of(r); n++)
            all[n] = r->co.from[n].inventory;
        missing = hth_sources_find(all, nodes_of(r), r->ctx->epoch->rank_node, r->ctx->epoch->world,
                &c->manifest, sources, &lost);
    }
    free(sources);
    free(all);
    c->whole = missing == 0;
    c->lost = missing != 0;
    if (!missing)
        return;
    snprintf(r->co.lost_text, sizeof(r->co.lost_text),
            "step %" PRIu64 ": %" PRIu32 " of %" PRIu32
            " objects are on no node, the first is %s of rank %" PRIu32,
            c->id.step, missing, c->manifest.objects, lost ? lost->name : "?",
            lost ? lost->owner : 0);
    hth_say(&r->ctx->log, HEARTH_LOG_WARN, "beyond-redundancy", "%s", r->co.lost_text);
}

/* ---- Choice ------------------------------------------------------------------------------------ */

/* From the newest down until something is whole, and on to the watermark. 1: all looked at. */
static int look_at_all(struct hth_recover *r, uint64_t now_ms, struct candidate **out_chosen)
{
    *out_chosen = NULL;
    for (uint32_t i = 0; i < r->co.candidates; i++) {
        struct candidate *c = &r->co.candidate[i];

        if (*out_chosen &&
                (hth_save_foreign(c->id) || (hth_save_cmp(c->id, r->co.watermark) < 0 &&
                                                    !hth_keep_has(&r->ctx->keep, c->id))))
            break;
        if (!c->lost && !c->whole) {
            if (!have_manifest(r, c, now_ms) || (hth_save_foreign(c->id) && !foreign_look(r, c)))
                return 0;
            if (!c->lost)
                look(r, c);
        }
        if (c->whole && !*out_chosen)
            *out_chosen = c;
    }
    return 1;
}

/* Nothing can be had, and there was something. */
static int is_loss(const struct hth_recover *r, char *out, size_t len)
{
    if (!hth_save_none(r->co.watermark)) {
        snprintf(out, len,
                "beyond redundancy: step %" PRIu64
                " was protected and cannot be had, and there is no older one (%s); "
                "load from storage after `hearth rm`, or recover with accept_loss",
                r->co.watermark.step, r->co.lost_text[0] ? r->co.lost_text : "no manifest is left");
        return 1;
    }
    if (!r->co.candidates || !hth_save_foreign(r->co.candidate[r->co.candidates - 1].id))
        return 0; /* foreign ones are older than all of our own */
    snprintf(out, len,
            "no container that was found is whole (%.190s); bring back what is missing, load from "
            "storage, or remove it with `hearth rm`",
            r->co.lost_text);
    return 1;
}

void choose(struct hth_recover *r, uint64_t now_ms)
{
    struct candidate *chosen;
    uint32_t newer;
    char text[400];

    if (!look_at_all(r, now_ms, &chosen))
        return;
    newer = chosen ? (uint32_t)(chosen - r->co.candidate) : r->co.candidates;
    r->co.beyond = 0;
    for (uint32_t i = 0; i < newer; i++)
        r->co.beyond += hth_save_cmp(r->co.candidate[i].id, r->co.watermark) <= 0;
    if (!chosen && is_loss(r, text, sizeof(text))) {
        if (!r->accept_loss) {
            choose_fail(r, HEARTH_ELOST, text);
            return;
        }
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "loss-accepted", "%s", text);
    }
    hth_say(&r->ctx->log, HEARTH_LOG_INFO, "chosen",
            chosen ? "step %" PRIu64 " of epoch %" PRIu64
                   : "nothing to recover (%" PRIu64 ", %" PRIu64 ")",
            chosen ? chosen->id.step : 0, chosen ? chosen->id.epoch : 0);
    give_plan(r, chosen);
}

/* ---- Ends ------------------------------------------------------------------------------------ */

static void who_is_missing(const struct hth_recover *r, char *out, size_t len)
{
    uint32_t named = 0;
    int n;

    if (foreign_waits(r, out, len))
        return;
    n = snprintf(out, len, r->co.serial ? "no vote from" : "no inventory from");

    for (uint32_t i = 0; i < nodes_of(r) && n > 0 && (size_t)n < len; i++) {
        const struct gathered *g = r->co.from ? &r->co.from[i] : NULL;

        if (g && (r->co.serial ? g->voted == r->co.serial : g->complete))
            continue;
        if (named++ < 5)
            n += snprintf(out + n, len - (size_t)n, "%s node %s", named > 1 ? "," : "",
                    r->ctx->epoch->member[i].node);
    }
}

void choose_fail(struct hth_recover *r, int code, const char *text)
{
    struct coordinator *co = &r->co;
    char missing[300];
    size_t len;

    if (co->gone || co->failed_len || r->state == ENDED)
        return;
    if (!text) {
        who_is_missing(r, missing, sizeof(missing));
        text = missing;
    }
    len = strnlen(text, sizeof(co->failed) - 4);
    hth_put32(co->failed, (uint32_t)code);
    memcpy(co->failed + 4, text, len);
    co->failed_len = 4 + len;
    hth_say(&r->ctx->log, HEARTH_LOG_ERROR, "recovery-failed", "%s", text);
    hth_tree_down(r->ctx, HTH_KIND_EPOCH_FAILED, co->failed, co->failed_len);
}

int choose_failed(struct hth_recover *r, uint32_t node)
{
    if (!r->co.failed_len)
        return 0;
    hth_tree_to(r->ctx, node, HTH_KIND_EPOCH_FAILED, r->co.failed, r->co.failed_len);
    return 1;
}

void choose_tick(struct hth_recover *r, uint64_t now_ms)
{
    if (r->state == ENDED || r->co.gone || !r->co.from)
        return;
    if (r->co.complete < nodes_of(r)) {
        give_ask(r, now_ms);
        return;
    }
    if (r->co.serial == 0)
        make_candidates(r);
    if (r->state == ENDED || (r->has_plan && r->plan.serial == r->co.serial))
        return;
    choose(r, now_ms);
}

void choose_fini(struct hth_recover *r)
{
    for (uint32_t i = 0; r->co.from && i < nodes_of(r); i++) {
        forget_parts(&r->co.from[i]);
        hth_inventory_fini(&r->co.from[i].inventory);
    }
    for (uint32_t i = 0; i < r->co.candidates; i++) {
        names_leave(r->co.candidate[i].names);
        hth_manifest_fini(&r->co.candidate[i].manifest);
        free(r->co.candidate[i].bytes);
        free(r->co.candidate[i].look);
    }
    free(r->co.from);
    free(r->co.candidate);
    r->co = (struct coordinator){ 0 };
}
