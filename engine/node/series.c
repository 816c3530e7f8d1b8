/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer to METRICS: families of series, each with its type and its meaning. `hearth metrics`
 * adds the labels `job` and `node`, and prints them. What an engine does not know is left out.
 *
 *     {"job", "node", "families": [{"name", "type", "help", "samples": [[suffix, labels, value]]}]}
 */
#include "series.h"

#include "engine/job/fabric.h"
#include "engine/job/health.h"
#include "engine/job/room.h"
#include "engine/reads/read.h"
#include "engine/saves/loan.h"
#include "engine/state/answer.h"
#include "engine/state/client.h"
#include "engine/state/node_state.h"
#include "engine/state/quoted.h"
#include "engine/state/reply.h"
#include "replication/commit/known.h"

#include <hearth/version.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many peers have series of their own; the others are counted together, as peer "other". */
#define SERIES_PEERS 32u

struct series {
    FILE *to;
    unsigned families, samples;
};

/* ---- Writing --------------------------------------------------------------------------------- */

static void series_family(struct series *s, const char *name, const char *type, const char *help)
{
    fprintf(s->to, "%s{\"name\": \"%s\", \"type\": \"%s\", \"help\": \"%s\", \"samples\": [",
            s->families++ ? "]}, " : "", name, type, help);
    s->samples = 0;
}

static void series_labels(struct series *s, const char *suffix, const char *key, const char *text)
{
    char quote[QUOTED(HTH_NAME_MAX + 1)] = "";

    quoted(text, quote);
    fprintf(s->to, "%s[\"%s\", {", s->samples++ ? ", " : "", suffix);
    if (key)
        fprintf(s->to, "\"%s\": \"%s\"", key, quote);
}

/* key NULL: no label. */
static void series_add(struct series *s, const char *key, const char *text, uint64_t value)
{
    char number[QUOTED_NUMBER];

    series_labels(s, "", key, text);
    fprintf(s->to, "}, %s]", quoted_number(value, number));
}

static void series_add_ms(
        struct series *s, const char *suffix, const char *key, const char *text, uint64_t ms)
{
    series_labels(s, suffix, key, text);
    fprintf(s->to, "}, %" PRIu64 ".%03u]", ms / 1000, (unsigned)(ms % 1000));
}

static void series_one(
        struct series *s, const char *name, const char *type, const char *help, uint64_t value)
{
    series_family(s, name, type, help);
    series_add(s, NULL, "", value);
}

/* The buckets of one phase, in seconds, each with those below it. */
static void series_histogram(struct series *s, const char *phase, const struct metrics_histogram *h)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i <= METRICS_BOUNDS; i++) {
        sum += h->in[i];
        series_labels(s, "_bucket", "phase", phase);
        if (i < METRICS_BOUNDS)
            fprintf(s->to, ", \"le\": \"%g\"}, %" PRIu64 "]", metrics_bound_ms[i] / 1000.0, sum);
        else
            fprintf(s->to, ", \"le\": \"+Inf\"}, %" PRIu64 "]", sum);
    }
    series_add_ms(s, "_sum", "phase", phase, h->sum_ms);
    series_labels(s, "_count", "phase", phase);
    fprintf(s->to, "}, %" PRIu64 "]", sum);
}

/* ---- Families -------------------------------------------------------------------------------- */

static void series_engine(struct series *s, const struct hth_node *n)
{
    char fabric[QUOTED(64)], text[64];
    const char *provider = fabric_provider(n);

    snprintf(text, sizeof(text), "%s%s%s", n->transport->ops->name, provider[0] ? " " : "",
            provider);
    quoted(text, fabric);
    series_family(s, "hearth_engine_info", "gauge",
            "The engine that runs: its version, its epoch, its fabric.");
    series_labels(s, "", "version", HEARTH_VERSION);
    fprintf(s->to, ", \"epoch\": \"%" PRIu64 "\", \"fabric\": \"%s\"}, 1]", n->epoch.epoch, fabric);
    series_family(s, "hearth_engine_start_time_seconds", "gauge",
            "When this engine started, since 1970. Its counters begin at 0 there.");
    series_add_ms(s, "", NULL, "", n->metrics.since_wall_ms);
    series_one(s, "hearth_members", "gauge", "Nodes of the epoch.", n->epoch.nodes);
    series_one(s, "hearth_ranks", "gauge", "Processes of ranks that are attached to this engine.",
            client_count(n));
    series_one(s, "hearth_connections", "gauge", "Connections to engines of other nodes.",
            hth_session_connections(n->ctx.session));
}

/* A process that asks in vain raises engine_gone, so an engine has no series of it. */
static void series_checks(struct series *s, struct hth_node *n)
{
    struct health *h = calloc(1, sizeof(*h));
    uint64_t worst = 0;

    if (!h)
        return;
    health_look(n, h);
    series_family(
            s, "hearth_check", "gauge", "State of a named check: 0 well, 1 at risk, 2 broken.");
    for (uint32_t i = 0; i < HEALTH_ROWS; i++) {
        uint64_t level = h->raised >> i & 1 ? (uint64_t)health_names[i].level : 0;

        worst = level > worst ? level : worst;
        if (i != HEALTH_engine_gone)
            series_add(s, "name", health_names[i].name, level);
    }
    free(h);
    series_one(s, "hearth_health", "gauge",
            "The worst of all checks, as this engine knows the job: 0 well, 1 at risk, 2 broken.",
            worst);
}

static void series_members(struct series *s, const struct hth_node *n)
{
    static const char *const words[] = { [HTH_MEMBER_UNKNOWN] = "unknown",
        [HTH_MEMBER_OK] = "ok",
        [HTH_MEMBER_SILENT] = "silent",
        [HTH_MEMBER_UNREACHABLE] = "unreachable",
        [HTH_MEMBER_LOST] = "lost" };
    uint64_t count[HTH_MEMBER_LOST + 1] = { 0 }, ms;

    for (uint32_t i = 0; i < n->epoch.nodes; i++)
        count[hth_commit_member(n->commit, i, &ms)]++;
    series_family(s, "hearth_nodes", "gauge", "Nodes of the epoch by state, as this engine knows.");
    for (uint32_t i = 0; i <= HTH_MEMBER_LOST; i++)
        series_add(s, "state", words[i], count[i]);
    if (hth_commit_as_of(n->commit, &ms) || ms) {
        series_family(s, "hearth_coordinator_age_seconds", "gauge",
                "Time since the last news of the coordinator, in which this engine's knowledge of "
                "other nodes is from.");
        series_add_ms(s, "", NULL, "", ms);
    }
}

static void series_protection(struct series *s, const struct hth_node *n)
{
    struct health_newest newest = health_newest(n);
    uint64_t oldest_ms;
    uint32_t behind = hth_commit_behind(n->commit, &oldest_ms);

    if (newest.is) {
        series_one(s, "hearth_protected_step", "gauge", "Step of the newest protected save.",
                newest.step);
        series_family(
                s, "hearth_protected_age_seconds", "gauge", "Time since that save was protected.");
        series_add_ms(s, "", NULL, "", newest.age_ms);
    }
    if (newest.every_ms) {
        series_family(s, "hearth_save_interval_seconds", "gauge",
                "Median time between the last protected saves.");
        series_add_ms(s, "", NULL, "", newest.every_ms);
    }
    series_one(s, "hearth_copies_asked", "gauge", "Copies of each object that the job asks for.",
            n->epoch.nodes ? n->ctx.opts.copies : 0);
    series_one(s, "hearth_copies_below", "gauge", "Kept saves that have fewer copies.",
            (uint64_t)__builtin_popcount(n->ctx.keep.degraded));
    series_one(s, "hearth_behind_saves", "gauge",
            "Saves of which this node does not have all copies that it has to hold.", behind);
    series_one(s, "hearth_behind_bytes", "gauge", "Bytes that this node still has to pull.",
            hth_transfer_behind(&n->ctx));
}

static void series_saves(struct series *s, const struct hth_node *n)
{
    const struct metrics *m = &n->metrics;

    series_family(s, "hearth_saves_total", "counter",
            "Saves that were decided, by level. A recovered save counts again once it is "
            "protected again.");
    series_add(s, "level", "protected", m->saves);
    series_add(s, "level", "degraded", m->saves_degraded);
    series_family(s, "hearth_saves_failed_total", "counter",
            "Saves that failed, by cause. unknown: the epoch ended before this node had the "
            "decision; if that comes later, the save counts there, too.");
    for (uint32_t i = 0; i < METRICS_CAUSES; i++)
        series_add(s, "cause", metrics_cause[i], m->saves_failed[i]);
    series_one(s, "hearth_records_dropped_total", "counter",
            "Saves whose record was given up before they were decided; no other series has them.",
            history_dropped(n->history));
    series_one(s, "hearth_sealed_bytes_total", "counter",
            "Bytes of objects that ranks of this node have saved.", m->sealed_bytes);
    series_family(s, "hearth_save_seconds", "histogram",
            "Time from the first begin of a rank of this node until its ranks had written, all "
            "objects were sealed, the last copy was reported, the save was protected.");
    for (uint32_t i = 0; i < METRICS_SAVE_PHASES; i++)
        series_histogram(s, metrics_save_phase[i], &m->save[i]);
}

static void series_recoveries(struct series *s, const struct hth_node *n)
{
    const struct metrics *m = &n->metrics;

    series_one(
            s, "hearth_recoveries_total", "counter", "Recoveries that went well.", m->recoveries);
    series_one(s, "hearth_recoveries_failed_total", "counter", "Recoveries that failed.",
            m->recoveries_failed);
    series_one(s, "hearth_recovered_bytes_total", "counter",
            "Bytes that recoveries have pulled to this node.", m->recovered_bytes);
    series_family(s, "hearth_recovery_seconds", "histogram",
            "Time of a recovery, by phase; all: from join to end. Pulls and verification run side "
            "by side.");
    for (uint32_t i = 0; i < METRICS_RECOVERY_PHASES; i++)
        series_histogram(s, metrics_recovery_phase[i], &m->recovery[i]);
}

/* Members that the newest map calls lost have no series. */
static void series_of_peers(struct series *s, const struct hth_node *n, const char *name,
        const char *help, size_t field)
{
    uint32_t count, shown = 0;
    const struct hth_tally_node *peer = hth_transfer_peers(&n->ctx, &count);
    uint64_t others = 0;

    series_family(s, name, "counter", help);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value = *(const uint64_t *)(const void *)((const char *)&peer[i] + field);

        if (peer[i].node >= n->epoch.nodes || (n->ctx.lost && n->ctx.lost[peer[i].node]))
            continue;
        if (shown++ < SERIES_PEERS)
            series_add(s, "peer", n->epoch.member[peer[i].node].node, value);
        else
            others += value;
    }
    if (shown > SERIES_PEERS)
        series_add(s, "peer", "other", others);
}

static void series_peers(struct series *s, const struct hth_node *n)
{
    static const struct {
        const char *name, *help;
        size_t field;
    } row[] = {
        { "hearth_pulled_bytes_total",
                "Bytes that this node has pulled from the peer in this epoch.",
                offsetof(struct hth_tally_node, bytes) },
        { "hearth_pulls_total", "Pulls from the peer in this epoch.",
                offsetof(struct hth_tally_node, pulls) },
        { "hearth_pull_retries_total",
                "Times in this epoch that the peer was left alone for a while, because a pull from "
                "it failed or stalled.",
                offsetof(struct hth_tally_node, retries) },
        { "hearth_pulled_wrong_total",
                "Pieces that came from the peer in this epoch and were wrong by their checksum; "
                "they were pulled again.",
                offsetof(struct hth_tally_node, bad) },
        { "hearth_copied_objects_total",
                "Objects of this node that the peer has reported as copied in this epoch.",
                offsetof(struct hth_tally_node, given) },
        { "hearth_copied_bytes_total",
                "Bytes of objects of this node that the peer has reported as copied in this epoch.",
                offsetof(struct hth_tally_node, given_bytes) },
    };

    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++)
        series_of_peers(s, n, row[i].name, row[i].help, row[i].field);
}

static uint64_t series_atomic(const uint64_t *counter)
{
    return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static void series_lines(struct series *s, const struct hth_node *n)
{
    const struct metrics *m = &n->metrics;
    struct hth_log_state log;

    hth_log_state(&n->ctx.log, &log);
    series_one(s, "hearth_log_lines_lost_total", "counter",
            "Lines that the engine's log does not have, because there was no room or no file.",
            log.lost);
    series_family(s, "hearth_log_lines_total", "counter",
            "Lines of this engine's log, by the level of the line.");
    series_add(s, "level", "error", series_atomic(&m->errors));
    series_add(s, "level", "warn", series_atomic(&m->warnings));
    series_family(s, "hearth_checksum_events_total", "counter",
            "Events of wrong bytes, by the event of the log: bad-chunk: bytes that were pulled or "
            "given were wrong; copy-bad: a copy was put aside; copy-lost: a copy is made again; "
            "copy-right: the copy is right, its bytes were changed on their way.");
    for (uint32_t i = 0; i < METRICS_WRONG; i++)
        series_add(s, "cause", metrics_wrong[i], series_atomic(&m->wrong[i]));
}

static void series_memory(struct series *s, const struct hth_node *n)
{
    uint64_t lent = 0;

    for (const struct loan *l = n->loans; l; l = l->next)
        for (uint32_t i = 0; i < l->objects; i++)
            lent += l->object[i].slot != NULL;
    series_one(s, "hearth_lent_slots", "gauge",
            "Slots that ranks of this node have: they write into them, or were lent them ahead.",
            lent);
    series_one(s, "hearth_leases", "gauge", "Objects that readers of this node have mapped.",
            read_leases(n));
}

static void series_room(struct series *s, struct hth_node *n)
{
    struct room_kind kind[ROOM_KINDS];

    if (!room_look(n, kind))
        return;
    series_family(s, "hearth_room_bytes", "gauge",
            "Memory of this node, by kind; a limit that does not exist has no series.");
    for (uint32_t i = 0; i < ROOM_KINDS; i++)
        if (kind[i].bytes != UINT64_MAX)
            series_add(s, "kind", kind[i].name, kind[i].bytes);
}

static void series_put_all(FILE *to, struct hth_node *n)
{
    struct series s = { .to = to };
    char node[QUOTED(HTH_NAME_MAX + 1)];

    quoted(n->env.node, node);
    fprintf(to, "{\"job\": \"%s\", \"node\": \"%s\", \"families\": [", n->ctx.opts.job, node);
    series_engine(&s, n);
    series_checks(&s, n);
    series_members(&s, n);
    series_protection(&s, n);
    series_saves(&s, n);
    series_recoveries(&s, n);
    series_peers(&s, n);
    series_lines(&s, n);
    series_memory(&s, n);
    series_room(&s, n);
    fputs("]}]}", to);
}

static void series_let_go(struct hth_node *n, void *text)
{
    (void)n;
    free(text);
}

void series_ask(struct hth_node *n, uint32_t client, uint64_t request)
{
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);

    if (to)
        series_put_all(to, n);
    if (!to || fclose(to)) {
        free(text);
        reply_refusal(n, client, request, HEARTH_ENOMEM, "no memory for the metrics");
        return;
    }
    answer_bytes_to(n, client, request,
            &(struct answer_bytes){
                    .at = text, .len = len, .let_go = series_let_go, .what = text });
}
