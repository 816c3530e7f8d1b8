/* SPDX-License-Identifier: Apache-2.0 */
/* STATUS: the engine's state as one JSON object. */
#include "status.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/quoted.h"
#include "fabric.h"
#include "health.h"
#include "members.h"
#include "replication/commit/known.h"
#include "room.h"

#include <hearth/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A pair, with the comma before it. */
static void status_put_text(FILE *to, const char *key, const char *text)
{
    char *out = malloc(QUOTED(strlen(text) + 1));

    if (out)
        quoted(text, out);
    fprintf(to, ", \"%s\": \"%s\"", key, out ? out : "");
    free(out);
}

static void status_put_bytes(FILE *to, const char *key, uint64_t bytes)
{
    if (bytes == UINT64_MAX)
        fprintf(to, ", \"%s\": null", key);
    else
        fprintf(to, ", \"%s\": %" PRIu64, key, bytes);
}

/* Saves on the keep list, with their present state. */
static void status_put_kept(FILE *to, const struct hth_node *n)
{
    static const char *const words[] = { [HTH_KEPT_UNSURE] = "kept",
        [HTH_KEPT_DEGRADED] = "degraded",
        [HTH_KEPT_PROTECTED] = "protected" };
    char save[HTH_SAVE_TEXT];

    fputs(", \"kept\": [", to);
    for (uint32_t i = 0; i < n->ctx.keep.saves; i++) {
        hth_save_text(n->ctx.keep.save[i], save);
        fprintf(to,
                "%s{\"save\": \"%s\", \"state\": \"%s\", \"pinned\": %s, \"bad\": %s, \"tries\": %" PRIu32
                ", \"age_s\": %" PRIu64 "}",
                i ? ", " : "", save, words[hth_commit_kept(n->commit, i)],
                hth_keep_pinned(&n->ctx.keep, (int)i) ? "true" : "false",
                hth_keep_is_bad(&n->ctx.keep, n->ctx.keep.save[i]) ? "true" : "false",
                hth_keep_tries(&n->ctx.keep, n->ctx.keep.save[i]), hth_commit_kept_s(n->commit, i));
    }
    fputs("]", to);
}

/* How bytes of GPUs come into the slots of ranks here. Ranks beyond those that a machine has GPUs
 * for are left out. */
#define PINNED_MOST 64
static void status_put_pinned(FILE *to, const struct hth_node *n)
{
    static const char *const words[] = { "", "slots", "buffers", "nothing" };
    unsigned count = 0;

    fputs(", \"gpu\": [", to);
    for (const struct client *c = n->clients; c && count < PINNED_MOST; c = c->next) {
        if (!(c->pinned & 3))
            continue;
        fprintf(to, "%s{\"rank\": %" PRIu32 ", \"pinned\": \"%s\", \"ms_per_gib\": %" PRIu32 "}",
                count++ ? ", " : "", c->rank, words[c->pinned & 3], c->pinned >> 2);
    }
    fputs("]", to);
}

/* Members that the newest map known here calls lost. */
static uint32_t status_lost(const struct hth_node *n)
{
    uint32_t lost = 0;

    for (uint32_t i = 0; n->ctx.lost && i < n->epoch.nodes; i++)
        lost += n->ctx.lost[i] != 0;
    return lost;
}

static void status_put_epoch(FILE *to, struct hth_node *n)
{
    uint64_t pulled = 0, ago_ms;
    uint32_t saves = 0, still, busy;
    char epoch[QUOTED_NUMBER];

    hth_transfer_pulled(&n->ctx, &pulled, NULL);
    hth_session_late(n->ctx.session, &still, &busy);
    for (struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next)
        saves += !s->removed;
    fprintf(to,
            ", \"epoch\": %s, \"member\": %" PRIu32 ", \"members\": %" PRIu32
            ", \"ranks_attached\": %" PRIu32 ", \"recovered\": %s, \"saves\": %" PRIu32
            ", \"connections\": %" PRIu32 ", \"pulled_bytes\": %" PRIu64 ", \"rearmed\": %" PRIu32
            ", \"late\": %" PRIu32,
            quoted_number(n->epoch.epoch, epoch), n->epoch.self, n->epoch.nodes, client_count(n),
            n->recovered ? "true" : "false", saves, hth_session_connections(n->ctx.session), pulled,
            still, busy);
    status_put_text(to, "coordinator", n->epoch.nodes ? n->epoch.member[0].node : "");
    if (!hth_commit_as_of(n->commit, &ago_ms) && !ago_ms)
        ago_ms = UINT64_MAX;
    status_put_bytes(to, "as_of_ms", ago_ms);
    fprintf(to, ", \"lost\": %" PRIu32 ", \"degraded\": %" PRIu32, status_lost(n),
            (uint32_t)__builtin_popcount(n->ctx.keep.degraded));
}

/* ---- Health ---------------------------------------------------------------------------------- */

static void status_put_health(FILE *to, struct hth_node *n)
{
    struct health *h = calloc(1, sizeof(*h));

    fputs(", \"health\": ", to);
    if (h) {
        health_look(n, h);
        health_put(to, h);
    } else {
        fputs("null", to);
    }
    free(h);
}

/* Numbers with three digits behind the point, in any locale. */
static void status_put_thousandths(FILE *to, const char *key, uint64_t thousandths)
{
    fprintf(to, ", \"%s\": %" PRIu64 ".%03u", key, thousandths / 1000,
            (unsigned)(thousandths % 1000));
}

static void status_put_newest(FILE *to, const struct hth_node *n)
{
    struct health_newest newest = health_newest(n);
    char step[QUOTED_NUMBER];

    if (newest.is) {
        fprintf(to, ", \"newest_protected\": {\"step\": %s, \"state\": \"%s\"",
                quoted_number(newest.step, step), newest.state);
        status_put_thousandths(to, "age_s", newest.age_ms);
        if (newest.every_ms)
            status_put_thousandths(to, "intervals", 1000 * newest.age_ms / newest.every_ms);
        else
            fputs(", \"intervals\": null", to);
        fputs("}", to);
    } else {
        fputs(", \"newest_protected\": null", to);
    }
    if (newest.every_ms)
        status_put_thousandths(to, "interval_s", newest.every_ms);
    else
        fputs(", \"interval_s\": null", to);
}

static void status_put_copies(FILE *to, const struct hth_node *n)
{
    uint64_t oldest_ms;
    uint32_t saves = hth_commit_behind(n->commit, &oldest_ms);

    fprintf(to,
            ", \"copies\": {\"asked\": %" PRIu32 ", \"below\": %" PRIu32 ", \"no_domain\": %" PRIu32
            "}, \"behind\": {\"saves\": %" PRIu32 ", \"oldest_s\": %" PRIu64 ", \"bytes\": %" PRIu64
            "}",
            n->ctx.epoch ? n->ctx.opts.copies : 0,
            (uint32_t)__builtin_popcount(n->ctx.keep.degraded), hth_commit_crowded(n->commit),
            saves, oldest_ms / 1000, hth_transfer_behind(&n->ctx));
}

static void status_put_room(FILE *to, struct hth_node *n)
{
    struct room_kind kind[ROOM_KINDS];

    if (!room_look(n, kind)) {
        fputs(", \"room\": null", to);
        return;
    }
    fprintf(to, ", \"room\": {\"%s\": %" PRIu64, kind[0].name, kind[0].bytes);
    for (uint32_t i = 1; i < ROOM_KINDS; i++)
        status_put_bytes(to, kind[i].name, kind[i].bytes);
    fputs("}", to);
}

/* ---- All of it ------------------------------------------------------------------------------- */

static void status_put_node(FILE *to, const struct hth_node *n)
{
    char fabric[64];
    const char *provider = fabric_provider(n);

    snprintf(fabric, sizeof(fabric), "%s%s%s", n->transport->ops->name, provider[0] ? " " : "",
            provider);
    status_put_text(to, "version", HEARTH_VERSION);
    status_put_text(to, "fabric", fabric);
    fputs(", \"domains\": ", to);
    if (n->ctx.epoch)
        members_put_domains(to, n, n->epoch.self);
    else
        fputs("null", to);
}

int status_put(struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err)
{
    char text[400];

    (void)what, (void)skip, (void)err;
    hth_commit_text(n->commit, text, sizeof(text));
    fprintf(to, "{\"job\": \"%s\"", n->ctx.opts.job);
    status_put_text(to, "node", n->env.node);
    status_put_epoch(to, n);
    status_put_kept(to, n);
    status_put_pinned(to, n);
    status_put_text(to, "state", text);
    status_put_text(to, "confined", n->env.confined ? n->env.confined : "");
    status_put_text(to, "log", n->env.log_path);
    status_put_node(to, n);
    status_put_health(to, n);
    status_put_newest(to, n);
    status_put_copies(to, n);
    status_put_room(to, n);
    fputs("}", to);
    return HEARTH_OK;
}
