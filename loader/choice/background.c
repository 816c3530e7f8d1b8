/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The work of the choice that a worker does. It takes seconds in a large job, and the engine's
 * thread must answer its peers meanwhile:
 *
 *   background_check   decodes a candidate's manifest, and finds who has each of its objects
 *   background_plan   the plan, as it goes down and as it goes on record
 *
 * One at a time; the choice goes on when it is done. The worker reads inventories and candidates
 * where they lie: they do not change meanwhile, and a choice that begins anew leaves them to it.
 */
#include "choice_state.h"

#include "core/base/auth.h"
#include "core/format/plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct background {
    struct hth_work work;
    struct hth_choice *co;
    struct background *next; /* co->backgrounds */
    int left; /* the choice has given it up: from and candidate[] are this work's own */
    struct gathered *from;
    uint32_t nodes;
    struct candidate *candidate; /* all of them */
    uint32_t candidates;
    /* the candidate that is looked at or planned; NULL: a plan without a save */
    struct candidate *c;
    uint64_t epoch, nonce;
    uint32_t *rank_node; /* [world] */
    uint32_t world;
    background_done_fn *done;

    /* found */
    int code;
    struct hearth_error err;
    struct hth_manifest manifest; /* decoded, where the candidate has bytes alone */
    struct hth_sources *sources;
    uint32_t missing;
    char lost_text[200];

    made_fn *made_done;
    struct made made;
};

/* ---- On a worker ---------------------------------------------------------------------------- */

static void look_find(struct background *s, const struct hth_manifest *m)
{
    struct hth_inventory *all = calloc(s->nodes, sizeof(*all));
    const struct hth_object *lost = NULL;

    s->sources = calloc(m->objects ? m->objects : 1, sizeof(*s->sources));
    if (!all || !s->sources) {
        free(all);
        s->code = hth_fail(&s->err, HEARTH_ENOMEM, 0, "the coordinator has no memory to choose");
        return;
    }
    for (uint32_t n = 0; n < s->nodes; n++)
        all[n] = s->from[n].inventory;
    s->missing = hth_sources_find(all, s->nodes, s->rank_node, s->world, m, s->sources, &lost);
    free(all);
    if (s->missing)
        snprintf(s->lost_text, sizeof(s->lost_text),
                "step %" PRIu64 ": %" PRIu32 " of %" PRIu32
                " objects are on no node, the first is %s of rank %" PRIu32,
                s->c->id.step, s->missing, m->objects, lost->name, lost->owner);
}

static void look_run(struct hth_work *work)
{
    struct background *s = hth_owner_of(struct background, work, work);
    const struct candidate *c = s->c;

    if (!c->has_manifest)
        s->code = hth_manifest_decode(&s->manifest, c->bytes, c->len, &s->err);
    if (!s->code)
        look_find(s, c->has_manifest ? &c->manifest : &s->manifest);
}

/* The record is the plan with a head and a digest around it. */
static int plan_record(struct background *s)
{
    struct hth_plans p = { .epoch = s->epoch,
        .nonce = s->nonce,
        .serial = s->made.plan.serial,
        .plan = s->made.bytes,
        .plan_len = s->made.len };

    s->made.record_len = hth_plans_bytes(&p);
    s->made.record = malloc(s->made.record_len);
    if (!s->made.record)
        return hth_fail(&s->err, HEARTH_ENOMEM, 0, "no memory for the record of plans");
    hth_plans_encode(&p, s->made.record);
    return HEARTH_OK;
}

static void plan_run(struct hth_work *work)
{
    struct background *s = hth_owner_of(struct background, work, work);
    const struct candidate *c = s->c;

    if (c)
        s->code = hth_runs_make(&s->made.plan.from, c->sources, c->manifest.objects, &s->err);
    if (s->code)
        return;
    s->made.len = hth_plan_bytes(&s->made.plan);
    s->made.bytes = malloc(s->made.len);
    if (!s->made.bytes) {
        s->code = hth_fail(&s->err, HEARTH_ENOMEM, 0, "the coordinator has no memory for the plan");
        return;
    }
    hth_plan_encode(&s->made.plan, s->made.bytes);
    hth_digest(s->made.digest, s->made.bytes, s->made.len);
    s->code = plan_record(s);
}

/* ---- On the engine's thread ----------------------------------------------------------------- */

static void background_free(struct background *s)
{
    if (s->left) {
        gather_free(s->from, s->nodes);
        candidates_free(s->candidate, s->candidates);
    }
    hth_manifest_fini(&s->manifest);
    hth_plan_fini(&s->made.plan);
    free(s->made.bytes);
    free(s->made.record);
    free(s->sources);
    free(s->rank_node);
    free(s);
}

static void background_unlink(struct background *s)
{
    struct background **at = &s->co->backgrounds;

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    if (s->co->background == s)
        s->co->background = NULL;
}

/* The manifest is requested again later: other nodes may have it too. */
static void look_bad(struct hth_choice *co, struct candidate *c)
{
    hth_say(&co->ctx->log, HEARTH_LOG_WARN, "manifest-bad", HTH_SAVE, HTH_SAVE_ARGS(c->id));
    free(c->bytes);
    c->bytes = NULL;
    c->asked_ms = hth_now_ms(&co->ctx->clock);
}

static void look_take(struct background *s)
{
    struct hth_choice *co = s->co;
    struct candidate *c = s->c;

    if (!c->has_manifest) {
        c->manifest = s->manifest;
        s->manifest = (struct hth_manifest){ 0 };
        c->has_manifest = 1;
    }
    c->sources = s->sources;
    s->sources = NULL;
    c->whole = s->missing == 0;
    c->lost = s->missing != 0;
    if (!c->lost)
        return;
    memcpy(co->lost_text, s->lost_text, sizeof(co->lost_text));
    rule_out(co, "beyond-redundancy", "%s", co->lost_text);
}

static void look_done(struct hth_work *work)
{
    struct background *s = hth_owner_of(struct background, work, work);
    struct hth_choice *co = s->co;
    background_done_fn *done = s->done;
    int left = s->left;

    background_unlink(s);
    if (!left && s->code == HEARTH_ENOMEM)
        hth_choice_fail(co, s->code, s->err.text);
    else if (!left && s->code)
        look_bad(co, s->c);
    else if (!left)
        look_take(s);
    background_free(s);
    if (!left)
        done(co);
}

static void plan_done(struct hth_work *work)
{
    struct background *s = hth_owner_of(struct background, work, work);
    struct hth_choice *co = s->co;

    background_unlink(s);
    if (s->code && !s->left)
        hth_choice_fail(co, s->code, s->err.text);
    else if (!s->left && !co->failed_len && !hth_restore_ended(co->restore))
        s->made_done(co, &s->made);
    background_free(s);
}

static struct background *background_new(struct hth_choice *co)
{
    const struct hth_epoch *e = co->ctx->epoch;
    struct background *s = calloc(1, sizeof(*s));

    if (!s || !(s->rank_node = malloc((e->world + 1) * sizeof(*s->rank_node)))) {
        free(s);
        hth_choice_fail(co, HEARTH_ENOMEM, "the coordinator has no memory to choose");
        return NULL;
    }
    if (e->world)
        memcpy(s->rank_node, e->rank_node, e->world * sizeof(*s->rank_node));
    s->world = e->world;
    s->epoch = e->epoch;
    s->nonce = e->nonce;
    s->co = co;
    s->from = co->from;
    s->nodes = co->nodes;
    return s;
}

static void background_start(struct background *s)
{
    struct hth_choice *co = s->co;

    s->next = co->backgrounds;
    co->backgrounds = co->background = s;
    co->ctx->workers.submit(co->ctx->workers.self, &s->work);
}

void background_check(struct hth_choice *co, struct candidate *c, background_done_fn *done)
{
    struct background *s = background_new(co);

    if (!s)
        return;
    s->c = c;
    s->done = done;
    s->work = (struct hth_work){ .run = look_run, .done = look_done };
    background_start(s);
}

void background_plan(
        struct hth_choice *co, const struct hth_plan *plan, struct candidate *c, made_fn *done)
{
    struct background *s = background_new(co);

    if (!s)
        return;
    s->c = c;
    s->made.plan = *plan;
    s->made_done = done;
    s->work = (struct hth_work){ .run = plan_run, .done = plan_done };
    background_start(s);
}

void background_abandon(struct hth_choice *co)
{
    struct background *s = co->background;

    if (!s)
        return;
    s->left = 1;
    s->candidate = co->candidate;
    s->candidates = co->candidates;
    co->background = NULL;
    co->from = NULL;
    co->candidate = NULL;
    co->nodes = co->candidates = 0;
}

void background_close(struct hth_choice *co)
{
    struct background *s;

    while ((s = co->backgrounds)) {
        background_unlink(s);
        background_free(s);
    }
}
