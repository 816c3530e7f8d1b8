/* SPDX-License-Identifier: Apache-2.0 */
/* STATUS: the engine's state as one JSON object. */
#include "status.h"

#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/quoted.h"

#include <stdio.h>
#include <string.h>

/* Saves on the keep list, with their present state; out[KEPT_JSON]. */
#define KEPT_JSON (HTH_KEEP_MAX * (HTH_SAVE_TEXT + 136) + 4)
static void status_kept_json(const struct hth_node *n, char *out)
{
    static const char *const words[] = { [HTH_KEPT_UNSURE] = "kept",
        [HTH_KEPT_DEGRADED] = "degraded",
        [HTH_KEPT_PROTECTED] = "protected" };
    char save[HTH_SAVE_TEXT];
    size_t len = 0;

    out[len++] = '[';
    for (uint32_t i = 0; i < n->ctx.keep.saves; i++) {
        hth_save_text(n->ctx.keep.save[i], save);
        len += (size_t)snprintf(out + len, KEPT_JSON - len,
                "%s{\"save\": \"%s\", \"state\": \"%s\", \"pinned\": %s, \"bad\": %s, \"tries\": %" PRIu32
                ", \"age_s\": %" PRIu64 "}",
                i ? ", " : "", save, words[hth_commit_kept(n->commit, i)],
                hth_keep_pinned(&n->ctx.keep, (int)i) ? "true" : "false",
                hth_keep_is_bad(&n->ctx.keep, n->ctx.keep.save[i]) ? "true" : "false",
                hth_keep_tries(&n->ctx.keep, n->ctx.keep.save[i]), hth_commit_kept_s(n->commit, i));
    }
    memcpy(out + len, "]", 2);
}

/* How bytes of GPUs come into the slots of ranks here; out[PINNED_JSON]. Ranks beyond those that a
 * machine has GPUs for are left out. */
#define PINNED_MOST 64
#define PINNED_JSON (PINNED_MOST * 72 + 4)
static void status_pinned_json(const struct hth_node *n, char *out)
{
    static const char *const words[] = { "", "slots", "buffers", "nothing" };
    unsigned count = 0;
    size_t len = 0;

    out[len++] = '[';
    for (const struct client *c = n->clients; c && count < PINNED_MOST; c = c->next) {
        if (!(c->pinned & 3))
            continue;
        len += (size_t)snprintf(out + len, PINNED_JSON - len,
                "%s{\"rank\": %" PRIu32 ", \"pinned\": \"%s\", \"ms_per_gib\": %" PRIu32 "}",
                count++ ? ", " : "", c->rank, words[c->pinned & 3], c->pinned >> 2);
    }
    memcpy(out + len, "]", 2);
}

/* Members that the newest map known here calls lost. */
static uint32_t status_lost(const struct hth_node *n)
{
    uint32_t lost = 0;

    for (uint32_t i = 0; n->ctx.lost && i < n->epoch.nodes; i++)
        lost += n->ctx.lost[i] != 0;
    return lost;
}

int status_put(struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err)
{
    char text[400], state[QUOTED(sizeof(text))], log[QUOTED(sizeof(n->env.log_path))];
    char kept[KEPT_JSON], pinned[PINNED_JSON], confined[QUOTED(HTH_CONFINED_TEXT)] = "";
    char json[1600 + sizeof(kept) + sizeof(pinned) + sizeof(state) + sizeof(log) +
              sizeof(confined)];
    char as_of[24] = "null";
    uint64_t pulled = 0, ago_ms;
    uint32_t saves = 0, still, busy;
    int len;

    hth_commit_text(n->commit, text, sizeof(text));
    quoted(text, state);
    quoted(n->env.log_path, log);
    if (n->env.confined)
        quoted(n->env.confined, confined);
    status_kept_json(n, kept);
    status_pinned_json(n, pinned);
    if (hth_commit_as_of(n->commit, &ago_ms) || ago_ms)
        snprintf(as_of, sizeof(as_of), "%" PRIu64, ago_ms);
    hth_transfer_pulled(&n->ctx, &pulled, NULL);
    hth_session_late(n->ctx.session, &still, &busy);
    for (struct hth_held_save *s = hth_holdings_first(&n->ctx); s; s = s->next)
        saves += !s->removed;
    len = snprintf(json, sizeof(json),
            "{\"job\": \"%s\", \"node\": \"%s\", \"epoch\": %" PRIu64 ", \"member\": %" PRIu32
            ", \"members\": %" PRIu32 ", \"ranks_attached\": %" PRIu32 ", \"recovered\": %s"
            ", \"saves\": %" PRIu32 ", \"connections\": %" PRIu32 ", \"pulled_bytes\": %" PRIu64
            ", \"rearmed\": %" PRIu32 ", \"late\": %" PRIu32
            ", \"coordinator\": \"%s\", \"as_of_ms\": %s, \"lost\": %" PRIu32
            ", \"degraded\": %" PRIu32
            ", \"kept\": %s, \"gpu\": %s, \"state\": \"%s\", \"confined\": \"%s\""
            ", \"log\": \"%s\"}",
            n->ctx.opts.job, n->env.node, n->epoch.epoch, n->epoch.self, n->epoch.nodes,
            client_count(n), n->recovered ? "true" : "false", saves,
            hth_session_connections(n->ctx.session), pulled, still, busy,
            n->epoch.nodes ? n->epoch.member[0].node : "", as_of, status_lost(n),
            (uint32_t)__builtin_popcount(n->ctx.keep.degraded), kept, pinned, state, confined, log);
    (void)what;
    (void)skip;
    if (len < 0 || (size_t)len >= sizeof(json))
        return hth_fail(err, HEARTH_EIO, 0, "the status does not fit");
    fputs(json, to);
    return HEARTH_OK;
}
