/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which save a rank may read without asking the others: one that is PROTECTED and kept, of this
 * epoch or an older one, or the one that was recovered, as long as its manifest is here. Another
 * node may know of a decision that is on its way to us, so that what is handed over and undecided
 * here is waited for; and after a recovery the list of what is kept, and manifests that this node
 * had not:
 *
 *     FIND ──► decided? ──► FOUND, or why there is none
 *       └─ not yet: kept, and looked at again until it is or its time is up (tick)
 *
 * A save that is about to be freed is found as well as any other: the manifest, asked for next,
 * says that it is gone.
 */
#include "find.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/reply.h"

#include <hearth/read.h>
#include <stdio.h>
#include <stdlib.h>

struct find { /* a FIND that waits for a decision */
    struct find *next;
    uint32_t client;
    uint64_t until_ms;
    struct hth_local_find ask;
};

static int find_is_chosen(const struct hth_node *n, struct hth_save_id id)
{
    return hth_save_cmp(id, n->chosen) == 0;
}

static int find_is_of_now(const struct hth_node *n, struct hth_save_id id)
{
    return id.epoch == n->epoch.epoch && id.nonce == n->epoch.nonce;
}

/* A save's level for readers: PROTECTED; at least COMPLETE for the recovered save, on which all
 * ranks have agreed; 0: it cannot be read. */
static uint32_t find_level(struct hth_node *n, const struct hth_held_save *s, int *out_degraded)
{
    enum hearth_level level = HEARTH_WRITTEN;
    int chosen = find_is_chosen(n, s->id);
    char text[256];
    int code = HEARTH_OK;

    *out_degraded = 0;
    if (s->removed || !s->has_manifest ||
            (!chosen && !find_is_of_now(n, s->id) && !hth_keep_has(&n->ctx.keep, s->id)))
        return 0;
    if (hth_commit_status(n->commit, s->id, &level, out_degraded, &code, text) || code)
        level = HEARTH_WRITTEN;
    if (level < HEARTH_COMPLETE && chosen)
        level = HEARTH_COMPLETE;
    return level >= HEARTH_PROTECTED || chosen ? (uint32_t)level : 0;
}

/* The newest save, or with a step the newest attempt at it: holdings are listed newest first. */
static const struct hth_held_save *find_decided(
        struct hth_node *n, uint64_t step, uint32_t *out_level, int *out_degraded)
{
    for (const struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next) {
        *out_level = find_level(n, s, out_degraded);
        if (*out_level && (step == HEARTH_STEP_NEWEST || s->id.step == step))
            return s;
    }
    return NULL;
}

static int find_fail_none(struct hth_node *n, const char *wanted, struct hearth_error *err)
{
    char there[300] = "";
    int len = 0, degraded;

    for (const struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next)
        if (find_level(n, s, &degraded) && len >= 0 && (size_t)len < sizeof(there))
            len += snprintf(there + len, sizeof(there) - (size_t)len, "%s%" PRIu64, len ? ", " : "",
                    s->id.step);
    return hth_fail(err, HEARTH_ENOENT, 0, "%s is here in epoch %" PRIu64 "; there is: %s", wanted,
            n->epoch.epoch, len ? there : "none");
}

static int find_fail_undecided(
        struct hth_node *n, struct hth_save_id id, int unknown, struct hearth_error *err)
{
    enum hearth_level level;
    char whom[256] = "";
    int degraded, code;

    hth_commit_status(n->commit, id, &level, &degraded, &code, whom);
    if (unknown)
        return hth_fail(err, HEARTH_EUNKNOWN, 0,
                "what became of attempt %" PRIu32 " at step %" PRIu64 " is not known: %s",
                id.attempt, id.step, whom);
    return hth_fail(err, HEARTH_ETIMEOUT, 0,
            "attempt %" PRIu32 " at step %" PRIu64 " is not decided yet: it waits for %s",
            id.attempt, id.step, whom[0] ? whom : "this node's ranks");
}

/* The saves that recovery has kept of older epochs reach every node with the first decision of this
 * epoch. */
static int find_list_is_due(const struct hth_node *n)
{
    return n->ctx.opts.keep > 1 && n->ctx.keep.epoch != n->epoch.epoch &&
           !hth_save_none(n->chosen) && (!hth_save_foreign(n->chosen) || n->ctx.keep.saves);
}

/* 1: the save is kept, or may be, and this node does not have its manifest yet. */
static int find_is_coming(struct hth_node *n, const uint64_t *step, const struct hth_save_id *id)
{
    if (find_list_is_due(n))
        return 1;
    for (uint32_t i = 0; i < n->ctx.keep.saves; i++) {
        struct hth_save_id kept = n->ctx.keep.save[i];
        const struct hth_held_save *s = hth_holdings_find(&n->ctx, kept);

        if ((id ? hth_save_cmp(*id, kept) == 0 : kept.step == *step) && !(s && s->has_manifest))
            return n->ctx.keep.epoch == n->epoch.epoch;
    }
    return 0;
}

static int find_fail_coming(struct hth_node *n, const char *wanted, struct hearth_error *err)
{
    return hth_fail(err, HEARTH_ETIMEOUT, 0,
            "%s is here yet in epoch %" PRIu64 ": what is kept of older epochs is still on its way",
            wanted, n->epoch.epoch);
}

/* HEARTH_ETIMEOUT: not decided yet, ask again. Where the newest is asked for, the last time takes
 * the newest that is decided. */
static int find_by_step(struct hth_node *n, const struct hth_local_find *m, int last,
        struct hth_local_found *out, struct hearth_error *err)
{
    int degraded = 0, unknown = 0, any = m->step == HEARTH_STEP_NEWEST;
    const struct hth_held_save *s = find_decided(n, m->step, &out->level, &degraded);
    struct hth_save_id open;
    char wanted[40] = "no PROTECTED step";

    if ((!any || !last) &&
            hth_commit_undecided(n->commit, any ? NULL : &m->step, &open, &unknown) &&
            (!s || hth_save_cmp(open, s->id) > 0) && !(any && unknown))
        return find_fail_undecided(n, open, unknown, err);
    if (!s) {
        if (!any)
            snprintf(wanted, sizeof(wanted), "no PROTECTED step %" PRIu64, m->step);
        return !any && find_is_coming(n, &m->step, NULL) ? find_fail_coming(n, wanted, err)
                                                         : find_fail_none(n, wanted, err);
    }
    out->save = hth_local_save_of(s->id);
    out->degraded = (uint32_t)degraded;
    return HEARTH_OK;
}

/* 1: the save may still be decided: it is of this epoch, and newer than the last decision that this
 * node has. A rank on another node may have been notified of it earlier. */
static int find_may_come(const struct hth_node *n, struct hth_save_id id)
{
    return find_is_of_now(n, id) &&
           (!n->ctx.keep.saves || hth_save_cmp(id, n->ctx.keep.save[0]) > 0);
}

/* HEARTH_ETIMEOUT: not decided yet, ask again. */
static int find_by_id(struct hth_node *n, struct hth_save_id id, struct hth_local_found *out,
        struct hearth_error *err)
{
    const struct hth_held_save *s = hth_holdings_find(&n->ctx, id);
    enum hearth_level level;
    char text[256], wanted[80];
    int degraded = 0, code = HEARTH_OK;

    if (s && (out->level = find_level(n, s, &degraded))) {
        out->save = hth_local_save_of(id);
        out->degraded = (uint32_t)degraded;
        return HEARTH_OK;
    }
    if (find_is_of_now(n, id) &&
            !hth_commit_status(n->commit, id, &level, &degraded, &code, text) && code)
        return hth_fail(err, code, 0, "attempt %" PRIu32 " at step %" PRIu64 ": %s", id.attempt,
                id.step, text);
    if (find_may_come(n, id))
        return find_fail_undecided(n, id, 0, err);
    snprintf(
            wanted, sizeof(wanted), "no attempt %" PRIu32 " at step %" PRIu64, id.attempt, id.step);
    return find_is_coming(n, NULL, &id) ? find_fail_coming(n, wanted, err)
                                        : find_fail_none(n, wanted, err);
}

static int find_now(struct hth_node *n, const struct hth_local_find *m, int last,
        struct hth_local_found *out, struct hearth_error *err)
{
    if (!n->ctx.epoch || !n->recovered)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "hearth_recover() has not ended yet in this epoch: it comes first");
    return m->save.epoch ? find_by_id(n, hth_local_save_to(m->save), out, err)
                         : find_by_step(n, m, last, out, err);
}

/* 1: the request was answered; the last try always answers. */
static int find_answer(
        struct hth_node *n, uint32_t client, const struct hth_local_find *m, int last)
{
    struct hth_local_found answer = { .head = { sizeof(answer), HTH_LOCAL_FOUND, m->head.request,
                                              0 } };
    struct hearth_error err;
    int rc = find_now(n, m, last, &answer, &err);

    if (rc == HEARTH_ETIMEOUT && !last)
        return 0;
    if (rc)
        reply_error(n, client, m->head.request, &err);
    else
        reply_packet(n, client, &answer, sizeof(answer));
    return 1;
}

void find_ask(struct hth_node *n, struct client *c, const struct hth_local_find *m)
{
    struct find *f;

    if (find_answer(n, c->id, m, m->wait_ms == 0))
        return;
    f = malloc(sizeof(*f));
    if (!f) {
        reply_refusal(n, c->id, m->head.request, HEARTH_ENOMEM, "no memory to wait for a save");
        return;
    }
    *f = (struct find){ n->finds, c->id, hth_now_ms(&n->ctx.clock) + m->wait_ms, *m };
    n->finds = f;
}

void find_tick(struct hth_node *n, uint64_t now_ms)
{
    struct find **at = &n->finds;

    while (*at) {
        struct find *f = *at;

        if (!find_answer(n, f->client, &f->ask, now_ms >= f->until_ms)) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        free(f);
    }
}

uint64_t find_due_ms(const struct hth_node *n)
{
    uint64_t due_ms = HTH_NEVER;

    for (const struct find *f = n->finds; f; f = f->next)
        due_ms = f->until_ms < due_ms ? f->until_ms : due_ms;
    return due_ms;
}

void find_gone(struct hth_node *n, uint32_t client)
{
    struct find **at = &n->finds;

    while (*at) {
        struct find *f = *at;

        if (f->client != client) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        free(f);
    }
}

void find_close(struct hth_node *n)
{
    while (n->finds) {
        struct find *f = n->finds;

        n->finds = f->next;
        free(f);
    }
}
