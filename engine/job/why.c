/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The record of saves and recoveries (engine/state/history.h): what comes into it, the line that
 * each save and each recovery leaves in the log, and the answer to HISTORY, as JSON.
 */
#include "why.h"

#include "engine/state/history.h"
#include "engine/state/node_state.h"
#include "engine/state/quoted.h"

#include <stdio.h>
#include <string.h>

/* A part of a save or of a recovery, in milliseconds since that began. */
struct phase {
    const char *name;
    uint32_t from_ms, to_ms;
};
#define PHASES 6u

static const struct {
    const char *name;
    enum hth_moment from, to;
} save_phase[PHASES] = {
    { "write", HTH_MOMENT_BEGUN, HTH_MOMENT_COMMITTED },
    { "seal", HTH_MOMENT_COMMITTED, HTH_MOMENT_SEALED },
    { "copy", HTH_MOMENT_OFFERED, HTH_MOMENT_COPIED },
    { "manifest", HTH_MOMENT_SEALED, HTH_MOMENT_HELD },
    { "promise", HTH_MOMENT_HELD, HTH_MOMENT_PROMISED },
    { "decision", HTH_MOMENT_PROMISED, HTH_MOMENT_ENDED },
};

static const char *const report_words[HISTORY_REPORTS] = { [HISTORY_WRITTEN] = "written",
    [HISTORY_COPIED] = "copied",
    [HISTORY_DONE] = "sealed",
    [HISTORY_HELD] = "held",
    [HISTORY_PROMISED] = "promised" };

static uint32_t why_save_phases(const struct history_save *s, struct phase out[PHASES])
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < PHASES; i++) {
        uint32_t ms = history_between(s, save_phase[i].from, save_phase[i].to);

        if (ms != HISTORY_NOT)
            out[n++] = (struct phase){ save_phase[i].name, s->at_ms[save_phase[i].from],
                s->at_ms[save_phase[i].from] + ms };
    }
    return n;
}

/* Joining came before the recovery's first news; pulls and verification run side by side. */
static uint32_t why_recovery_phases(const struct history_recovery *r, struct phase out[PHASES])
{
    const struct hearth_recovery *i = &r->info;
    uint32_t plan = i->join_ms + i->inventory_ms, pull = plan + i->plan_ms;
    uint32_t vote = pull + (i->pull_ms > i->verify_ms ? i->pull_ms : i->verify_ms);

    if (r->ms == HISTORY_NOT || r->code)
        return 0;
    out[0] = (struct phase){ "join", 0, i->join_ms };
    out[1] = (struct phase){ "inventory", i->join_ms, plan };
    out[2] = (struct phase){ "plan", plan, pull };
    out[3] = (struct phase){ "pull", pull, pull + i->pull_ms };
    out[4] = (struct phase){ "verify", pull, pull + i->verify_ms };
    out[5] = (struct phase){ "vote", vote, vote + i->vote_ms };
    return PHASES;
}

/* ---- The log --------------------------------------------------------------------------------- */

static const char *why_state(const struct history_save *s)
{
    if (s->at_ms[HTH_MOMENT_ENDED] == HISTORY_NOT)
        return "undecided";
    if (s->code)
        return s->code == HEARTH_EUNKNOWN ? "unknown" : "failed";
    return s->degraded ? "degraded" : "protected";
}

static size_t why_say_phases(char *out, size_t len, const struct phase *phase, uint32_t phases)
{
    size_t n = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < phases && n < len; i++)
        n += (size_t)snprintf(out + n, len - n, "%s%s %" PRIu32, i ? ", " : "; ms: ", phase[i].name,
                phase[i].to_ms - phase[i].from_ms);
    return n;
}

static void why_say_slowest(char *out, size_t len, const struct history_save *s)
{
    const struct history_node *copied = &s->reports[HISTORY_COPIED].last;
    uint32_t lag_ms, which = history_slowest(s, &lag_ms);

    out[0] = '\0';
    if (which < HISTORY_REPORTS)
        snprintf(out, len, "; slowest: node %s, %s %" PRIu32 " ms after the median",
                s->reports[which].last.name, report_words[which], lag_ms);
    else if (copied->name[0])
        snprintf(out, len, "; last copy: node %s, at %" PRIu32 " ms", copied->name, copied->ms);
}

/* 0: this node knows the end of the save only. Such a save leaves no line, and does not count. */
static int why_has_part(const struct history_save *s)
{
    return s->latest_ms || s->at_ms[HTH_MOMENT_BEGUN] != HISTORY_NOT ||
           s->at_ms[HTH_MOMENT_HELD] != HISTORY_NOT;
}

static void why_log_save(const struct hth_node *n, const struct history_save *s)
{
    char phases[200], slowest[200];
    struct phase phase[PHASES];

    why_say_phases(phases, sizeof(phases), phase, why_save_phases(s, phase));
    why_say_slowest(slowest, sizeof(slowest), s);
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "save",
            "%s " HTH_SAVE "%s after %" PRIu32 " ms, %" PRIu64 " bytes of this node%s%s",
            s->code ? why_state(s) : "protected", HTH_SAVE_ARGS(s->id),
            !s->code && s->degraded ? " (degraded)" : "", s->at_ms[HTH_MOMENT_ENDED], s->bytes,
            phases, slowest);
}

static void why_log_recovery(const struct hth_node *n, const struct history_recovery *r)
{
    const struct history_reports *late = r->vote.count ? &r->vote : &r->inventory;
    char phases[200], slowest[160] = "";
    struct phase phase[PHASES];

    why_say_phases(phases, sizeof(phases), phase, why_recovery_phases(r, phase));
    if (late->median_ms != HISTORY_NOT && late->last.ms > late->median_ms)
        snprintf(slowest, sizeof(slowest),
                "; slowest: node %s, its %s %" PRIu32 " ms after the median", late->last.name,
                late == &r->vote ? "vote" : "inventory", late->last.ms - late->median_ms);
    hth_say(&n->ctx.log, HEARTH_LOG_INFO, "recovery",
            "%s after %" PRIu32 " ms, %" PRIu64 " bytes pulled%s%s",
            r->code ? r->why : r->info.text, r->ms, r->info.pulled_bytes, phases, slowest);
}

/* ---- What is noted --------------------------------------------------------------------------- */

static uint64_t why_now_ms(const struct hth_node *n)
{
    return hth_now_ms(&n->ctx.clock);
}

static uint64_t why_wall_ms(const struct hth_node *n)
{
    return n->ctx.clock.wall_ms(n->ctx.clock.self);
}

static const char *why_node(const struct hth_node *n, uint32_t node)
{
    return node < n->epoch.nodes ? n->epoch.member[node].node : "";
}

void why_moment(struct hth_node *n, struct hth_save_id save, const struct hth_happened *happened)
{
    int report = happened->what == HTH_MOMENT_COPIED || happened->what > HTH_MOMENT_ENDED;
    const char *name = report ? why_node(n, happened->node) : NULL;
    const struct history_save *s;
    char rank[12];

    if (happened->what == HTH_MOMENT_RANK) {
        snprintf(rank, sizeof(rank), "%" PRIu32, happened->node);
        name = rank;
    }
    s = history_moment(n->history, save, happened, name, why_now_ms(n), why_wall_ms(n));

    if (!s || !why_has_part(s))
        return;
    why_log_save(n, s);
    metrics_save(&n->metrics, s);
}

void why_pull_begin(struct hth_node *n, struct hth_save_id save, uint64_t object, uint32_t from)
{
    history_pull_begin(n->history, save, object, why_node(n, from), why_now_ms(n));
}

void why_pull_end(struct hth_node *n, struct hth_save_id save, uint64_t object)
{
    struct hth_held_save *s = hth_holdings_find(&n->ctx, save);
    const struct hth_held *held = s ? hth_held_find(s, object) : NULL;

    history_pull_end(n->history, save, object, held ? held->object.data_len : 0, why_now_ms(n));
}

void why_over(struct hth_node *n, const char *why)
{
    n->metrics.saves_failed[METRICS_UNKNOWN] += history_over(n->history, why, why_now_ms(n));
}

void why_recovery_begin(struct hth_node *n)
{
    history_recovery_begin(n->history, n->epoch.epoch, why_now_ms(n), why_wall_ms(n));
}

void why_recovery_report(struct hth_node *n, int vote, uint32_t node, uint32_t count, uint32_t due)
{
    why_recovery_begin(n);
    history_recovery_report(n->history, vote, why_node(n, node), count, due, why_now_ms(n));
}

void why_recovery_end(struct hth_node *n, int code, const char *text, struct hth_save_id save)
{
    const struct history_recovery *r;

    why_recovery_begin(n);
    r = history_recovery_end(n->history, code, text, save, &n->info, why_now_ms(n));
    why_log_recovery(n, r);
    metrics_recovery(&n->metrics, r);
}

/* ---- HISTORY --------------------------------------------------------------------------------- */

/* ranks: the name is a rank's number. */
static void why_put_node(FILE *to, const char *key, const struct history_node *node, int ranks)
{
    char name[QUOTED(sizeof(node->name))];

    quoted(node->name, name);
    if (node->name[0])
        fprintf(to, ", \"%s\": {\"%s\": %s%s%s, \"ms\": %" PRIu32 "}", key, ranks ? "rank" : "node",
                ranks ? "" : "\"", name, ranks ? "" : "\"", node->ms);
}

static void why_put_reports(FILE *to, const char *key, const struct history_reports *r)
{
    int ranks = key == report_words[HISTORY_WRITTEN];

    if (!r->count)
        return;
    fprintf(to, ", \"%s\": {\"count\": %" PRIu32, key, r->count);
    if (r->due)
        fprintf(to, ", \"due\": %" PRIu32, r->due);
    if (r->median_ms != HISTORY_NOT)
        fprintf(to, ", \"median_ms\": %" PRIu32, r->median_ms);
    why_put_node(to, "last", &r->last, ranks);
    why_put_node(to, "before", &r->before, ranks);
    fputs("}", to);
}

static void why_put_phases(FILE *to, const struct phase *phase, uint32_t phases)
{
    fputs(", \"phases\": [", to);
    for (uint32_t i = 0; i < phases; i++)
        fprintf(to, "%s{\"phase\": \"%s\", \"from_ms\": %" PRIu32 ", \"to_ms\": %" PRIu32 "}",
                i ? ", " : "", phase[i].name, phase[i].from_ms, phase[i].to_ms);
    fputs("]", to);
}

/* At the coordinator: which kind of report came last of all, behind its median, and whose it was.
 * On the node itself: which begin waited longest for its slot, and which copy took longest to
 * come. */
static void why_put_slowest(FILE *to, const struct history_save *s)
{
    char name[QUOTED(HTH_NAME_MAX + 1)];
    uint32_t lag_ms, which = history_slowest(s, &lag_ms);

    if (which < HISTORY_REPORTS) {
        quoted(s->reports[which].last.name, name);
        fprintf(to,
                ", \"slowest\": {\"node\": \"%s\", \"report\": \"%s\", \"lag_ms\": %" PRIu32 "}",
                name, report_words[which], lag_ms);
    }
    if (s->slot_ms)
        fprintf(to, ", \"slot\": {\"rank\": %" PRIu32 ", \"ms\": %" PRIu32 "}", s->slot_rank,
                s->slot_ms);
    if (!s->pull.from.name[0])
        return;
    quoted(s->pull.from.name, name);
    fprintf(to, ", \"pull\": {\"node\": \"%s\", \"bytes\": %" PRIu64 ", \"ms\": %" PRIu32 "}", name,
            s->pull.bytes, s->pull.from.ms);
}

/* Which parts of an undecided save are missing now, and whose: as status has it. */
static void why_put_waits(FILE *to, const struct hth_node *n, const struct history_save *s)
{
    char text[256], words[QUOTED(sizeof(text))];
    enum hearth_level level;
    int degraded, code;

    if (s->at_ms[HTH_MOMENT_ENDED] != HISTORY_NOT ||
            hth_commit_status(n->commit, s->id, &level, &degraded, &code, text) || code || !text[0])
        return;
    quoted(text, words);
    fprintf(to, ", \"waits_for\": \"%s\"", words);
}

static void why_put_save(FILE *to, const struct hth_node *n, const struct history_save *s)
{
    char id[HTH_SAVE_TEXT], why[QUOTED(sizeof(s->why))];
    struct phase phase[PHASES];

    hth_save_text(s->id, id);
    quoted(s->why, why);
    fprintf(to, "{\"save\": \"%s\", \"since_ms\": %" PRIu64 ", \"state\": \"%s\"", id, s->wall_ms,
            why_state(s));
    if (s->at_ms[HTH_MOMENT_ENDED] != HISTORY_NOT)
        fprintf(to, ", \"ms\": %" PRIu32, s->at_ms[HTH_MOMENT_ENDED]);
    if (s->at_ms[HTH_MOMENT_SEALED] != HISTORY_NOT)
        fprintf(to, ", \"bytes\": %" PRIu64, s->bytes);
    if (s->code)
        fprintf(to, ", \"error\": %d, \"reason\": \"%s\"", s->code, why);
    why_put_waits(to, n, s);
    why_put_phases(to, phase, why_save_phases(s, phase));
    for (uint32_t i = 0; i < HISTORY_REPORTS; i++)
        why_put_reports(to, report_words[i], &s->reports[i]);
    why_put_slowest(to, s);
    fputs("}", to);
}

static void why_put_recovery(FILE *to, const struct history_recovery *r)
{
    char id[HTH_SAVE_TEXT] = "", text[QUOTED(sizeof(r->why))], epoch[QUOTED_NUMBER];
    struct phase phase[PHASES];

    if (!hth_save_none(r->save))
        hth_save_text(r->save, id);
    quoted(r->code ? r->why : r->info.text, text);
    fprintf(to, "{\"epoch\": %s, \"since_ms\": %" PRIu64 ", \"state\": \"%s\", \"save\": \"%s\"",
            quoted_number(r->epoch, epoch), r->wall_ms,
            r->ms == HISTORY_NOT ? "running"
            : r->code            ? "failed"
                                 : "done",
            id);
    if (r->ms != HISTORY_NOT)
        fprintf(to, ", \"ms\": %" PRIu32 ", \"%s\": \"%s\"", r->ms, r->code ? "reason" : "text",
                text);
    if (r->code)
        fprintf(to, ", \"error\": %d", r->code);
    fprintf(to, ", \"pulled_bytes\": %" PRIu64, r->info.pulled_bytes);
    why_put_phases(to, phase, why_recovery_phases(r, phase));
    why_put_reports(to, "inventory", &r->inventory);
    why_put_reports(to, "vote", &r->vote);
    fputs("}", to);
}

static void why_put_peers(FILE *to, const struct hth_node *n)
{
    uint64_t since_ms = hth_transfer_since_ms(&n->ctx), now_ms = why_now_ms(n);
    uint32_t count;
    const struct hth_tally_node *peer = hth_transfer_peers(&n->ctx, &count);
    char name[QUOTED(HTH_NAME_MAX + 1)];
    const char *between = "";

    if (since_ms)
        fprintf(to, ", \"peers_ms\": %" PRIu64, now_ms - since_ms);
    fputs(", \"peers\": [", to);
    for (uint32_t i = 0; i < count && i < HTH_HISTORY_PAGE; i++, between = ", ") {
        quoted(why_node(n, peer[i].node), name);
        fprintf(to,
                "%s{\"node\": \"%s\", \"pulled_bytes\": %" PRIu64 ", \"pulls\": %" PRIu64
                ", \"retries\": %" PRIu64 ", \"bad\": %" PRIu64 ", \"given\": %" PRIu64
                ", \"given_bytes\": %" PRIu64 ", \"pull_ms\": %" PRIu64 "}",
                between, name, peer[i].bytes, peer[i].pulls, peer[i].retries, peer[i].bad,
                peer[i].given, peer[i].given_bytes, hth_tally_pull_ms(&peer[i], now_ms));
    }
    fputs("]", to);
}

static void why_put_page(FILE *to, const struct hth_node *n, int saves, uint32_t skip)
{
    char name[QUOTED(HTH_NAME_MAX + 1)];

    quoted(n->env.node, name);
    fprintf(to, "{\"node\": \"%s\"", name);
    quoted(why_node(n, 0), name);
    fprintf(to, ", \"coordinator\": \"%s\"", name);
    why_put_peers(to, n);
    fprintf(to, ", \"%s\": [", saves ? "saves" : "recoveries");
    for (uint32_t i = 0; i < HTH_HISTORY_PAGE && i <= UINT32_MAX - skip; i++) {
        const struct history_save *s = saves ? history_save_at(n->history, skip + i) : NULL;
        const struct history_recovery *r = saves ? NULL : history_recovery_at(n->history, skip + i);

        if (!s && !r)
            break;
        fputs(i ? ", " : "", to);
        if (s)
            why_put_save(to, n, s);
        else
            why_put_recovery(to, r);
    }
    fputs("]}", to);
}

int why_put(struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err)
{
    if (what > HTH_HISTORY_RECOVERIES)
        return hth_fail(
                err, HEARTH_EPROTO, 0, "a history of an unknown kind: use one version of Hearth");
    why_put_page(to, n, what == HTH_HISTORY_SAVES, skip);
    return HEARTH_OK;
}
