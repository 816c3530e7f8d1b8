/* SPDX-License-Identifier: Apache-2.0 */
/* A member's part of recovery; drawn in recover_state.h. What it says upwards it repeats until the
 * answer shows that it was heard. */
#include "recover_state.h"

#include <hearth/internal/core/auth.h>
#include <hearth/internal/core/bytes.h>

#include <stdio.h>
#include <stdlib.h>

#define LATER_MS 20u

int hth_recover_open(struct hth_ctx *ctx, const struct hth_recover_events *events,
        struct hth_recover **out, struct hearth_error *err)
{
    struct hth_recover *r = calloc(1, sizeof(*r));

    if (!r)
        return hth_fail(err, HEARTH_ENOMEM, 0, "recover");
    r->ctx = ctx;
    r->events = *events;
    *out = r;
    return HEARTH_OK;
}

/* What was chosen and from whom it came, in words. */
static void tell_sources(struct hth_recover *r, struct hearth_recovery *info)
{
    const struct hth_epoch *e = r->ctx->epoch;
    uint64_t *from = calloc(e->nodes, sizeof(*from));
    uint64_t total = 0;
    size_t size = sizeof(info->text);
    int n = snprintf(
            info->text, size, "step %" PRIu64 " of epoch %" PRIu64, info->step, info->epoch);

    if (from)
        hth_transfer_pulled(r->ctx, &total, from); /* counted since the join */
    for (uint32_t i = 0; from && i < e->nodes; i++) {
        if (!from[i])
            continue;
        info->sources++;
        if (n > 0 && (size_t)n < size)
            n += snprintf(info->text + n, size - (size_t)n, "; %.1f MiB from node %s",
                    (double)from[i] / 1048576.0, e->member[i].node);
    }
    free(from);
}

static void end(struct hth_recover *r, int code, const struct hearth_error *err)
{
    struct hearth_recovery info = { .struct_size = sizeof(info) };
    struct hth_save_id save = { 0 };
    uint64_t total = 0;

    r->state = ENDED;
    if (r->has_plan && !code) {
        save = r->plan.chosen;
        info.step = save.step;
        info.epoch = save.epoch;
        info.beyond = r->plan.beyond;
        hth_transfer_pulled(r->ctx, &total, NULL);
        info.pulled_bytes = total - r->pulled_before;
        info.inventory_ms = (uint32_t)(r->t_plan - r->t_start);
        info.pull_ms = (uint32_t)(r->t_pull - r->t_plan);
        info.vote_ms = (uint32_t)(hth_now_ms(&r->ctx->clock) - r->t_pull);
        info.degraded = 1;
        if (info.step || info.epoch)
            tell_sources(r, &info);
        else
            snprintf(info.text, sizeof(info.text), "nothing to recover");
    }
    if (hth_save_foreign(save))
        foreign_end(r, &info);
    info.now_epoch = r->ctx->epoch ? r->ctx->epoch->epoch : 0;
    r->events.on_end(r->events.self, code, err, save, &info);
}

void hth_recover_join(struct hth_recover *r)
{
    struct hearth_error err;

    if (r->state != IDLE && r->state != ENDED) {
        hth_fail(&err, HEARTH_ECANCELED, 0, "a new epoch began");
        end(r, HEARTH_ECANCELED, &err);
    }
    choose_fini(r);
    hth_plan_fini(&r->plan);
    free(r->inventory);
    r->inventory = NULL;
    r->commons = 0;
    r->digesting = 0;
    r->has_plan = 0;
    r->plan_waits = 0;
    r->waiting = 0;
    r->generation++;
    r->state = IDLE;
}

/* ---- Inventory ------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const struct hth_seen_object *x = a;
    const struct hth_seen_object *y = b;

    return x->id < y->id ? -1 : x->id > y->id;
}

static int see_save(struct hth_held_save *s, struct hth_seen_save *out)
{
    uint32_t n = 0;

    for (struct hth_held *h = s->held; h; h = h->next)
        n += h->state == HTH_HELD_SEALED;
    *out = (struct hth_seen_save){ .id = s->id, .has_manifest = s->has_manifest };
    if (s->has_manifest)
        memcpy(out->manifest, s->manifest.digest, HTH_DIGEST);
    out->object = calloc(n ? n : 1, sizeof(*out->object));
    if (!out->object)
        return HEARTH_ENOMEM;
    for (struct hth_held *h = s->held; h; h = h->next) {
        if (h->state != HTH_HELD_SEALED)
            continue;
        out->object[out->objects].id = h->object.id;
        memcpy(out->object[out->objects++].digest, h->object.digest, HTH_DIGEST);
    }
    qsort(out->object, out->objects, sizeof(*out->object), by_id);
    return HEARTH_OK;
}

/* Manifests and raw objects of what we hold can be fetched from now on. */
static void serve(struct hth_ctx *ctx, struct hth_held_save *s)
{
    struct hth_blob_id id = { HTH_BLOB_MANIFEST, s->id, 0 };

    if (s->has_manifest)
        hth_blob_serve(ctx, &id, s->manifest_bytes, s->manifest_len, NULL);
}

static int make_inventory(struct hth_recover *r, struct hearth_error *err)
{
    struct hth_ctx *ctx = r->ctx;
    struct hth_inventory inv = { .store = ctx->store->ops->id(ctx->store), .keep = ctx->keep };
    uint32_t n = 0;
    int rc = HEARTH_OK;

    hth_point(&ctx->points, "inventory");
    for (struct hth_held_save *s = hth_holdings_first(ctx); s; s = s->next)
        n += !s->removed && foreign_listed(r, s);
    inv.save = calloc(n ? n : 1, sizeof(*inv.save));
    if (!inv.save)
        return hth_fail(err, HEARTH_ENOMEM, 0, "inventory");
    for (struct hth_held_save *s = hth_holdings_first(ctx); s && !rc; s = s->next) {
        if (s->removed || !foreign_listed(r, s))
            continue;
        if (!hth_save_foreign(s->id))
            serve(ctx, s);
        rc = hth_save_foreign(s->id) ? foreign_see(s, &inv.save[inv.saves++])
                                     : see_save(s, &inv.save[inv.saves++]);
    }
    r->inventory_len = hth_inventory_bytes(&inv);
    r->inventory = rc ? NULL : malloc(r->inventory_len);
    if (r->inventory)
        hth_inventory_encode(&inv, r->inventory);
    else
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "inventory");
    hth_inventory_fini(&inv);
    return rc;
}

static void send_inventory(struct hth_recover *r)
{
    const size_t max = HTH_TREE_MAX - 8;
    uint32_t parts = (uint32_t)((r->inventory_len + max - 1) / max);
    unsigned char body[HTH_TREE_MAX];

    for (uint32_t i = 0; i < parts; i++) {
        size_t n = i + 1 < parts ? max : r->inventory_len - i * max;

        hth_put32(body, i);
        hth_put32(body + 4, parts);
        memcpy(body + 8, r->inventory + i * max, n);
        hth_tree_up(r->ctx, HTH_KIND_INVENTORY, body, 8 + n);
    }
}

int hth_recover_start(struct hth_recover *r, uint32_t deadline_ms, struct hearth_error *err)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);
    uint64_t total = 0;
    int rc;

    if (r->state != IDLE)
        return hth_fail(err, HEARTH_ESTATE, 0, "recovery of this epoch has begun already");
    rc = foreign_digest(r) ? HEARTH_OK : make_inventory(r, err);
    if (rc)
        return rc;
    hth_transfer_pulled(r->ctx, &total, NULL);
    r->pulled_before = total;
    r->state = TOLD;
    r->t_start = now_ms;
    r->t_plan = r->t_pull = now_ms;
    r->deadline_ms = now_ms + deadline_ms;
    r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
    send_inventory(r);
    return HEARTH_OK;
}

void recover_inventory(struct hth_recover *r)
{
    struct hearth_error err;

    if (make_inventory(r, &err))
        end(r, err.code, &err);
    else
        send_inventory(r);
}

void hth_recover_common(struct hth_recover *r, const char *name)
{
    size_t len = strlen(name);

    for (uint32_t i = 0; i < r->commons; i++)
        if (!strcmp(r->common[i], name))
            return;
    if (len <= HTH_NAME_MAX && r->commons < HTH_RECOVER_COMMON)
        memcpy(r->common[r->commons++], name, len + 1);
}

/* ---- Plan --------------------------------------------------------------------------------------- */

static void send_vote(struct hth_recover *r)
{
    unsigned char body[8 + 200];
    size_t len = r->failed_code ? strlen(r->failed) : 0;

    hth_put32(body, r->plan.serial);
    hth_put32(body + 4, (uint32_t)r->failed_code);
    memcpy(body + 8, r->failed, len);
    hth_tree_up(r->ctx, HTH_KIND_VOTE, body, 8 + len);
}

static void vote(struct hth_recover *r)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);

    r->t_pull = now_ms;
    r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
    r->state = VOTED;
    hth_point(&r->ctx->points, "vote");
    send_vote(r);
}

static void no_longer_waiting(struct hth_recover *r)
{
    r->waiting--;
    if (r->waiting == 0 && r->state == PULLING)
        vote(r);
}

/* One thing that a plan waits for; it may end after the plan has been replaced. */
struct wait {
    struct hth_recover *r;
    uint32_t generation;
    uint32_t index; /* fetched later */
    struct wait *next;
};

static struct wait *wait_new(struct hth_recover *r)
{
    struct wait *w = malloc(sizeof(*w));

    if (w)
        *w = (struct wait){ .r = r, .generation = r->generation };
    return w;
}

/* The recovery that still waits for it, or NULL. */
static struct hth_recover *wait_end(struct wait *w)
{
    struct hth_recover *r = w->r;
    int stale = w->generation != r->generation || r->state != PULLING;

    free(w);
    return stale ? NULL : r;
}

static void give_up_plan(struct hth_recover *r, int code, const char *text)
{
    if (r->failed_code)
        return;
    r->failed_code = code;
    snprintf(r->failed, sizeof(r->failed), "node %.40s: %.150s",
            r->ctx->epoch->member[r->ctx->epoch->self].node, text);
}

static void on_fetched(
        void *self, struct hth_fetch *fetch, int code, const struct hearth_error *err)
{
    struct hth_recover *r = wait_end(self);

    (void)fetch;
    if (!r)
        return;
    if (code)
        give_up_plan(r, code, err->text);
    no_longer_waiting(r);
}

/* Its slot is still being made, as on every node that has just come: no reason to refuse. */
static void fetch_later(struct hth_recover *r, struct wait *w, uint32_t index)
{
    w->index = index;
    w->next = r->later;
    r->later = w;
    r->later_ms = hth_now_ms(&r->ctx->clock) + LATER_MS;
    r->waiting++;
}

int recover_fetch(struct hth_recover *r, uint32_t index)
{
    struct hth_ctx *ctx = r->ctx;
    const struct hth_sources *from = &r->plan.sources[index];
    uint32_t node[HTH_PLAN_SOURCES];
    uint32_t count = 0;
    uint64_t now_ms = hth_now_ms(&ctx->clock);
    struct hearth_error err;
    struct hth_fetch *f;
    struct hth_fetch_want want = {
        .save = r->plan.chosen,
        .object = r->plan.manifest.object[index],
        .sources = node,
        .class = HTH_FETCH_RECOVERY,
        .deadline_ms = r->deadline_ms > now_ms ? (uint32_t)(r->deadline_ms - now_ms) : 1,
        .done = on_fetched,
        .self = wait_new(r),
    };

    for (uint32_t i = 0; i < from->count; i++)
        if (from->node[i] != ctx->epoch->self && from->node[i] < ctx->epoch->nodes)
            node[count++] = from->node[i];
    want.count = count;
    if (!want.self) {
        give_up_plan(r, HEARTH_ENOMEM, "no memory");
        return HEARTH_ENOMEM;
    }
    if (count == 0) {
        free(want.self);
        hth_fail(&err, HEARTH_ELOST, 0, HTH_SAVE ": nobody else has %s", HTH_SAVE_ARGS(want.save),
                want.object.name);
        give_up_plan(r, HEARTH_ELOST, err.text);
        return HEARTH_ELOST;
    }
    if (hth_fetch_start(ctx, &want, &f, &err)) {
        if (err.code == HEARTH_EBUSY) {
            fetch_later(r, want.self, index);
            return HEARTH_OK;
        }
        free(want.self);
        give_up_plan(r, err.code, err.text);
        return err.code;
    }
    r->waiting++;
    return HEARTH_OK;
}

static void fetch_again(struct hth_recover *r)
{
    struct wait *w = r->later, *next;

    r->later = NULL;
    for (; w; w = next) {
        uint32_t index = w->index;

        next = w->next;
        if (!wait_end(w))
            continue;
        recover_fetch(r, index);
        no_longer_waiting(r);
    }
}

static uint32_t index_of(const struct hth_manifest *m, uint64_t id)
{
    const struct hth_object *o = hth_manifest_find(m, id);

    return o ? (uint32_t)(o - m->object) : UINT32_MAX;
}

static void on_verified(void *self, struct hth_held_save *save, struct hth_held *held, int code,
        const struct hearth_error *err)
{
    struct hth_recover *r = wait_end(self);
    uint32_t index;

    if (!r)
        return;
    if (code) {
        index = index_of(&r->plan.manifest, held->object.id);
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "copy-bad", "%s: taken from another holder",
                err->text);
        hth_held_condemn(r->ctx, save, held, "payload");
        if (index != UINT32_MAX)
            recover_fetch(r, index);
    }
    no_longer_waiting(r);
}

static void serve_raw(struct hth_ctx *ctx, struct hth_held_save *s, const struct hth_object *o)
{
    struct hth_blob_id id = { HTH_BLOB_RAW, s->id, o->id };
    void *bytes = NULL;
    size_t len = 0;

    if (ctx->store->ops->raw_get(ctx->store, s->id, o->name, &bytes, &len, NULL))
        return;
    hth_blob_serve(ctx, &id, bytes, len, NULL);
    free(bytes);
}

static void verify(struct hth_recover *r, struct hth_held_save *s, struct hth_held *h)
{
    struct wait *w = wait_new(r);
    struct hearth_error err;

    if (!w) {
        give_up_plan(r, HEARTH_ENOMEM, "no memory");
        return;
    }
    if (hth_verify_start(r->ctx, s, h, on_verified, w, &err)) {
        free(w);
        give_up_plan(r, err.code, err.text);
        return;
    }
    r->waiting++;
}

static void gather_raw(struct hth_recover *r, struct hth_held_save *s, uint32_t index, int here)
{
    const struct hth_object *o = &r->plan.manifest.object[index];
    struct hth_blob_id id = { HTH_BLOB_RAW, s->id, o->id };

    if (here)
        serve_raw(r->ctx, s, o);
    else if (r->plan.sources[index].count &&
             !hth_blob_fetch(r->ctx, &id, r->plan.sources[index].node[0], NULL))
        r->waiting++;
}

/* What our ranks need of the chosen save: their own objects, and every raw one. */
static void gather_needs(struct hth_recover *r, struct hth_held_save *s)
{
    const struct hth_epoch *epoch = r->ctx->epoch;
    const struct hth_manifest *m = &r->plan.manifest;

    for (uint32_t i = 0; i < m->objects; i++) {
        const struct hth_object *o = &m->object[i];
        struct hth_held *h = hth_held_find(s, o->id);

        if (h && memcmp(h->object.digest, o->digest, HTH_DIGEST) != 0) {
            hth_held_drop(r->ctx, s, h); /* not these bytes */
            h = NULL;
        }
        if (o->kind == HTH_OBJECT_RAW)
            gather_raw(r, s, i, h != NULL);
        else if (epoch->rank_node[o->owner % epoch->world] != epoch->self)
            continue;
        else if (!h)
            recover_fetch(r, i);
        else if (!h->verified)
            verify(r, s, h);
    }
}

static int is_kept(const struct hth_plan *p, struct hth_save_id save)
{
    for (uint32_t i = 0; i < p->keeps; i++)
        if (hth_save_cmp(p->keep[i], save) == 0)
            return 1;
    return 0;
}

static void free_the_rest(struct hth_recover *r)
{
    struct hth_ctx *ctx = r->ctx;
    struct hth_held_save *next;

    for (struct hth_held_save *s = hth_holdings_first(ctx); s; s = next) {
        next = s->next;
        if (s->removed || s->id.epoch == 0 || is_kept(&r->plan, s->id))
            continue;
        hth_say(&ctx->log, HEARTH_LOG_INFO, "plan-frees", HTH_SAVE, HTH_SAVE_ARGS(s->id));
        hth_point(&ctx->points, "free");
        hth_transfer_forget(ctx, s->id);
        hth_blobs_forget(ctx, s->id);
        hth_holdings_free_save(ctx, s);
    }
}

static int take_manifest(struct hth_recover *r, struct hth_held_save *s)
{
    unsigned char *copy;
    struct hearth_error err;

    if (s->has_manifest && memcmp(s->manifest.digest, r->plan.manifest.digest, HTH_DIGEST) == 0)
        return HEARTH_OK;
    copy = malloc(r->plan.manifest_len);
    if (!copy)
        return HEARTH_ENOMEM;
    if (hth_save_foreign(s->id)) /* made anew in each recovery, from what is there then */
        hth_held_forget_manifest(s);
    memcpy(copy, r->plan.manifest_bytes, r->plan.manifest_len);
    if (hth_held_set_manifest(r->ctx, s, copy, r->plan.manifest_len, &err)) {
        give_up_plan(r, err.code, err.text);
        return err.code;
    }
    return HEARTH_OK;
}

/* An object of the chosen save that something of the old epoch still has its hands on. */
static int still_moving(const struct hth_recover *r)
{
    struct hth_held_save *s = hth_holdings_find(r->ctx, r->plan.chosen);

    for (const struct hth_held *h = s ? s->held : NULL; h; h = h->next)
        if (h->state != HTH_HELD_SEALED)
            return 1;
    return 0;
}

static void carry_out(struct hth_recover *r)
{
    struct hth_held_save *s;

    r->plan_waits = still_moving(r);
    if (r->plan_waits) {
        r->state = TOLD; /* tick looks again */
        return;
    }
    hth_point(&r->ctx->points, "plan");
    r->t_plan = hth_now_ms(&r->ctx->clock);
    r->state = PULLING;
    r->generation++;
    r->waiting = 1; /* ourselves, until all is begun */
    r->failed_code = HEARTH_OK;
    free_the_rest(r);
    if (!hth_save_none(r->plan.chosen)) {
        hth_point(&r->ctx->points, "retrieve");
        s = hth_holdings_get(r->ctx, r->plan.chosen);
        if (!s || take_manifest(r, s))
            give_up_plan(r, HEARTH_ENOMEM, "no memory for the manifest");
        else if (hth_save_foreign(s->id))
            foreign_needs(r, s);
        else
            gather_needs(r, s);
    }
    no_longer_waiting(r);
}

static void on_plan(struct hth_recover *r, const unsigned char *bytes, size_t len)
{
    struct hth_plan plan;
    struct hearth_error err;

    if (r->state != TOLD && r->state != VOTED && r->state != PULLING)
        return;
    if (hth_plan_decode(&plan, bytes, len, &err)) {
        hth_say(&r->ctx->log, HEARTH_LOG_WARN, "plan-bad", "%s", err.text);
        return;
    }
    if (r->has_plan && plan.serial <= r->plan.serial) {
        hth_plan_fini(&plan);
        return;
    }
    hth_plan_fini(&r->plan);
    r->plan = plan;
    r->has_plan = 1;
    carry_out(r);
}

static void on_raw(
        struct hth_recover *r, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    struct hth_ctx *ctx = r->ctx;
    const struct hth_object *o;
    struct hth_held_save *s = hth_holdings_find(ctx, id->save);
    unsigned char digest[HTH_DIGEST];
    struct hearth_error err;

    if (r->state != PULLING || !s || hth_save_cmp(id->save, r->plan.chosen) != 0)
        return;
    o = hth_manifest_find(&r->plan.manifest, id->object);
    if (!o || hth_held_find(s, id->object))
        return;
    hth_digest(digest, bytes, len);
    if (len != o->data_len || memcmp(digest, o->digest, HTH_DIGEST) != 0)
        give_up_plan(r, HEARTH_ECORRUPT, "a common object is not what the manifest says");
    else if (ctx->store->ops->raw_put(ctx->store, id->save, o->name, bytes, len, &err))
        give_up_plan(r, err.code, err.text);
    else
        hth_held_add(s, o, HTH_HELD_SEALED, NULL);
    no_longer_waiting(r);
}

void hth_recover_blob(
        struct hth_recover *r, const struct hth_blob_id *id, const unsigned char *bytes, size_t len)
{
    if (id->kind == HTH_BLOB_PLAN)
        on_plan(r, bytes, len);
    else if (id->kind == HTH_BLOB_RAW)
        on_raw(r, id, bytes, len);
    else if (hth_is_coordinator(r->ctx))
        choose_manifest(r, id, bytes, len);
}

/* ---- GO ------------------------------------------------------------------------------------------ */

static void on_go(struct hth_recover *r, const unsigned char *bytes, size_t len)
{
    if (len != 4 || r->state != VOTED || !r->has_plan || hth_get32(bytes) != r->plan.serial)
        return;
    end(r, HEARTH_OK, NULL);
}

static void on_epoch_failed(struct hth_recover *r, const unsigned char *bytes, size_t len)
{
    struct hearth_error err;

    if (len < 4 || len > 4 + 400 || r->state == IDLE || r->state == ENDED)
        return;
    hth_fail(&err, (int)hth_get32(bytes), 0, "%.*s", (int)(len - 4), (const char *)bytes + 4);
    end(r, err.code, &err);
}

void hth_recover_deliver(struct hth_recover *r, uint32_t origin, uint16_t kind,
        const unsigned char *bytes, size_t len)
{
    int coordinator = hth_is_coordinator(r->ctx);

    if (coordinator && kind == HTH_KIND_INVENTORY)
        choose_inventory(r, origin, bytes, len);
    else if (coordinator && kind == HTH_KIND_VOTE)
        choose_vote(r, origin, bytes, len);
    else if (kind == HTH_KIND_GO)
        on_go(r, bytes, len);
    else if (kind == HTH_KIND_EPOCH_FAILED)
        on_epoch_failed(r, bytes, len);
}

void hth_recover_peer_down(struct hth_recover *r, uint32_t node, const char *text)
{
    struct hearth_error err;

    if (r->state == IDLE || r->state == ENDED)
        return;
    if (hth_is_coordinator(r->ctx)) {
        choose_fail(r, HEARTH_EPEER, text);
    } else if (node == 0) {
        hth_fail(&err, HEARTH_EPEER, 0, "%s: recovery has no coordinator, restart the job", text);
        end(r, HEARTH_EPEER, &err);
    }
}

static void deadline(struct hth_recover *r)
{
    struct hearth_error err;

    if (hth_is_coordinator(r->ctx)) {
        choose_fail(r, HEARTH_ETIMEOUT, NULL);
        return;
    }
    hth_fail(&err, HEARTH_ETIMEOUT, 0, "recovery: no word from the coordinator, node %s, in time",
            r->ctx->epoch->member[0].node);
    end(r, HEARTH_ETIMEOUT, &err);
}

void hth_recover_tick(struct hth_recover *r)
{
    uint64_t now_ms = hth_now_ms(&r->ctx->clock);

    if (r->state == IDLE)
        return;
    if (r->state != ENDED && now_ms >= r->deadline_ms) {
        deadline(r);
        return;
    }
    if (r->state != ENDED && now_ms >= r->repeat_ms) {
        r->repeat_ms = now_ms + r->ctx->opts.retry_ms;
        if (r->plan_waits)
            carry_out(r);
        else if (r->state == TOLD)
            send_inventory(r);
        else if (r->state == VOTED)
            send_vote(r);
    }
    if (r->later && now_ms >= r->later_ms)
        fetch_again(r);
    if (hth_is_coordinator(r->ctx))
        choose_tick(r, now_ms);
}

uint64_t hth_recover_due_ms(const struct hth_recover *r)
{
    uint64_t due_ms = r->repeat_ms < r->deadline_ms ? r->repeat_ms : r->deadline_ms;

    if (r->state == IDLE || r->state == ENDED)
        return HTH_NEVER;
    return r->later && r->later_ms < due_ms ? r->later_ms : due_ms;
}

uint32_t hth_recover_sources(
        const struct hth_recover *r, uint64_t object, uint32_t out[HTH_PLAN_SOURCES])
{
    uint32_t index = r->has_plan ? index_of(&r->plan.manifest, object) : UINT32_MAX;

    if (index == UINT32_MAX)
        return 0;
    memcpy(out, r->plan.sources[index].node, sizeof(r->plan.sources[index].node));
    return r->plan.sources[index].count;
}

void hth_recover_close(struct hth_recover *r)
{
    if (!r)
        return;
    for (struct wait *w = r->later, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    choose_fini(r);
    hth_plan_fini(&r->plan);
    free(r->inventory);
    free(r);
}
