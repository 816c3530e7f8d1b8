/* SPDX-License-Identifier: Apache-2.0 */
/* The checks, one function each, over the engine's state. */
#include "health.h"

#include "engine/state/client.h"
#include "engine/state/history.h"
#include "engine/state/node_state.h"
#include "engine/state/quoted.h"
#include "replication/commit/known.h"

#include <stdarg.h>
#include <string.h>

#define WRONG_MS 3600000u /* so long a check tells of wrong bytes */

const struct health_name health_names[HEALTH_ROWS] = {
#define HEALTH_ROW(name, level) { #name, level },
    HEALTH_CHECKS(HEALTH_ROW)
#undef HEALTH_ROW
};

static void __attribute__((format(printf, 3, 4)))
health_raise(struct health *h, enum health_row row, const char *fmt, ...)
{
    va_list ap;

    h->raised |= UINT32_C(1) << row;
    va_start(ap, fmt);
    vsnprintf(h->text[row], HEALTH_TEXT, fmt, ap);
    va_end(ap);
}

static const char *health_name_of(const struct hth_node *n, uint32_t node)
{
    return node < n->epoch.nodes ? n->epoch.member[node].node : "";
}

static unsigned long long health_s(uint64_t ms)
{
    return (unsigned long long)(ms / 1000);
}

/* ---- Names ----------------------------------------------------------------------------------- */

#define NAMES_SHOWN 3u
#define NAMES_TEXT  (NAMES_SHOWN * (HTH_NAME_MAX + 8) + 32)

/* The first of some members, and how many there are. */
struct names {
    uint32_t first[NAMES_SHOWN], count;
    uint64_t oldest_ms; /* for so long at least one of them has been among them */
};

static void names_add(struct names *names, uint32_t node, uint64_t since_ms)
{
    if (names->count < NAMES_SHOWN)
        names->first[names->count] = node;
    names->count++;
    if (since_ms > names->oldest_ms)
        names->oldest_ms = since_ms;
}

/* "n3", "n3 and n7", "n3, n7 and n9", "n3, n7 and 12 more" */
static const char *names_text(
        const struct hth_node *n, const struct names *names, char out[NAMES_TEXT])
{
    uint32_t shown = names->count <= NAMES_SHOWN ? names->count : NAMES_SHOWN - 1;
    size_t len = 0;

    out[0] = '\0';
    for (uint32_t i = 0; i < shown; i++)
        len += (size_t)snprintf(out + len, NAMES_TEXT - len, "%s%s",
                !i                                        ? ""
                : i == shown - 1 && shown == names->count ? " and "
                                                          : ", ",
                health_name_of(n, names->first[i]));
    if (shown < names->count)
        snprintf(out + len, NAMES_TEXT - len, " and %" PRIu32 " more", names->count - shown);
    return out;
}

/* ---- The job --------------------------------------------------------------------------------- */

static void health_of_epoch(const struct hth_node *n, struct health *h)
{
    if (n->over.code)
        health_raise(h, HEALTH_epoch_failed, "The engine of this node ends: %.380s", n->over.text);
    else if (n->failure.code)
        health_raise(h, HEALTH_epoch_failed, "Epoch %" PRIu64 " has failed: %.380s", n->epoch.epoch,
                n->failure.text);
    else if (!n->ctx.epoch)
        health_raise(h, HEALTH_not_running,
                "The engine of this node has joined no epoch of the job since it began: no save is "
                "protected here until the ranks join and recover");
    else if (!n->recovered)
        health_raise(h, HEALTH_not_running,
                "The ranks have not recovered in epoch %" PRIu64
                " yet: no save is protected until they have",
                n->epoch.epoch);
}

/* 1: this node's state of the job is the coordinator's. */
static int health_of_coordinator(const struct hth_node *n, struct health *h)
{
    uint64_t ago_ms;

    if (!n->ctx.epoch || !n->recovered)
        return 0;
    if (hth_commit_as_of(n->commit, &ago_ms))
        return 1;
    if (ago_ms)
        health_raise(h, HEALTH_coordinator_silent,
                "Nothing has come from the coordinator, node %s, for %llu s: what has happened to "
                "other nodes and to saves since is not known here",
                health_name_of(n, 0), health_s(ago_ms));
    else
        health_raise(h, HEALTH_coordinator_silent,
                "Nothing has come from the coordinator, node %s, since the engine of this node "
                "began: what has happened to other nodes and to saves is not known here",
                health_name_of(n, 0));
    return 0;
}

/* ---- Other nodes ----------------------------------------------------------------------------- */

static void health_raise_lost(const struct hth_node *n, struct health *h, const struct names *lost)
{
    char text[NAMES_TEXT];

    if (lost->count)
        health_raise(h, HEALTH_node_lost,
                "%s %s %s lost, which this engine has known for %llu s: their copies move to other "
                "nodes",
                lost->count == 1 ? "Node" : "Nodes", names_text(n, lost, text),
                lost->count == 1 ? "is" : "are", health_s(lost->oldest_ms));
}

/* Pairs of the map, and members that this node does not reach, whatever the map says. */
static void health_raise_unreachable(
        const struct hth_node *n, struct health *h, const struct names *cut)
{
    const struct hth_pair_note *first = NULL;
    char text[NAMES_TEXT], of_map[2 * HTH_NAME_MAX + 120] = "", of_us[NAMES_TEXT + 120] = "";
    uint32_t pairs = 0;

    for (uint32_t i = 0; i < n->ctx.pairs; i++) {
        if (!n->ctx.pair[i].unreachable)
            continue;
        first = first ? first : &n->ctx.pair[i];
        pairs++;
    }
    if (!pairs && !cut->count)
        return;
    if (pairs == 1)
        snprintf(of_map, sizeof(of_map),
                "Nodes %s and %s do not reach each other, or cannot pull from each other",
                health_name_of(n, first->a), health_name_of(n, first->b));
    else if (pairs)
        snprintf(of_map, sizeof(of_map),
                "Nodes %s and %s, and %" PRIu32
                " other pairs, do not reach each other, or cannot pull from each other",
                health_name_of(n, first->a), health_name_of(n, first->b), pairs - 1);
    if (cut->count)
        snprintf(of_us, sizeof(of_us),
                "%shis node has not reached %s, or not pulled from there, for %llu s",
                pairs ? "; t" : "T", names_text(n, cut, text), health_s(cut->oldest_ms));
    health_raise(h, HEALTH_node_unreachable, "%s%s", of_map, of_us);
}

static void health_of_members(const struct hth_node *n, struct health *h)
{
    struct names lost = { .count = 0 }, cut = { .count = 0 };
    uint64_t since_ms;

    for (uint32_t i = 0; i < n->epoch.nodes; i++)
        switch (hth_commit_member(n->commit, i, &since_ms)) {
        case HTH_MEMBER_LOST:
            names_add(&lost, i, since_ms);
            break;
        case HTH_MEMBER_SILENT:
            names_add(&cut, i, since_ms);
            break;
        default:
            break;
        }
    health_raise_lost(n, h, &lost);
    health_raise_unreachable(n, h, &cut);
}

/* ---- Saves ----------------------------------------------------------------------------------- */

static void health_of_copies(const struct hth_node *n, struct health *h)
{
    const struct hth_keep *k = &n->ctx.keep;
    uint32_t below = 0, first = 0;
    char more[48] = "";

    if (k->saves && k->epoch != n->epoch.epoch) {
        health_raise(h, HEALTH_copies_below,
                "The copies of step %" PRIu64 " have not been counted in this epoch yet",
                k->save[0].step);
        return;
    }
    for (uint32_t i = k->saves; i-- > 0;)
        if (hth_keep_degraded(k, (int)i)) {
            first = i;
            below++;
        }
    if (!below)
        return;
    if (below > 1)
        snprintf(more, sizeof(more), " (and %" PRIu32 " older saves)", below - 1);
    health_raise(h, HEALTH_copies_below,
            "Step %" PRIu64 "%s has fewer copies than the %" PRIu32
            " asked for, or may have since a node was lost",
            k->save[first].step, more, n->ctx.opts.copies);
}

static void health_of_objects(const struct hth_node *n, struct health *h)
{
    struct hth_gone gone;

    /* where no node is lost the object lies with a node that is not asked yet */
    if (h->raised >> HEALTH_node_lost & 1 && hth_commit_gone(n->commit, &gone) &&
            gone.since_ms > n->ctx.opts.save_ms)
        health_raise(h, HEALTH_object_lost,
                "Of step %" PRIu64
                ", which is kept, this node has to hold the object of rank %" PRIu32
                " and has asked in vain for %llu s: no node that it can ask has it",
                gone.save.step, gone.rank, health_s(gone.since_ms));
}

struct health_newest health_newest(const struct hth_node *n)
{
    static const char *const words[] = { [HTH_KEPT_UNSURE] = "kept",
        [HTH_KEPT_DEGRADED] = "degraded",
        [HTH_KEPT_PROTECTED] = "protected" };
    struct health_newest out = { .every_ms = history_interval_ms(n->history) };
    uint64_t now_ms = hth_now_ms(&n->ctx.clock), begun_ms, ended_ms;

    if (!n->ctx.keep.saves)
        return out;
    out.is = 1;
    out.step = n->ctx.keep.save[0].step;
    out.state = words[n->ctx.epoch ? hth_commit_kept(n->commit, 0) : HTH_KEPT_UNSURE];
    out.age_ms = 1000 * hth_commit_kept_s(n->commit, 0);
    if (!history_protected_ms(n->history, n->ctx.keep.save[0], &begun_ms, &ended_ms))
        return out;
    if (out.age_ms < now_ms - ended_ms)
        out.age_ms = now_ms - ended_ms;
    if (out.age_ms > now_ms - begun_ms)
        out.age_ms = now_ms - begun_ms;
    return out;
}

static void health_of_age(const struct hth_node *n, struct health *h)
{
    struct health_newest newest = health_newest(n);
    uint64_t noticed_ms = n->ctx.opts.dead_ms + 2 * (uint64_t)n->ctx.opts.heartbeat_ms;

    if (newest.is && newest.every_ms && client_count(n) && newest.age_ms > noticed_ms &&
            newest.age_ms > HEALTH_OLD * newest.every_ms)
        health_raise(h, HEALTH_protection_old,
                "The newest protected save, step %" PRIu64
                ", is %llu s old: the last ones came every %llu.%03llu s",
                newest.step, health_s(newest.age_ms), health_s(newest.every_ms),
                (unsigned long long)(newest.every_ms % 1000));
}

/* The newest save of this epoch that has ended; NULL: none has. */
static const struct history_save *health_last(const struct hth_node *n)
{
    const struct history_save *s;

    for (uint32_t i = 0; (s = history_save_at(n->history, i)); i++)
        if (s->at_ms[HTH_MOMENT_ENDED] != HISTORY_NOT)
            return s->id.epoch == n->epoch.epoch && s->id.nonce == n->epoch.nonce ? s : NULL;
    return NULL;
}

static void health_of_last(const struct hth_node *n, struct health *h)
{
    const struct history_save *s = health_last(n);
    uint64_t now_ms = hth_now_ms(&n->ctx.clock), ms;

    if (!s || !s->code)
        return;
    ms = s->first_ms + s->at_ms[HTH_MOMENT_ENDED];
    ms = now_ms > ms ? now_ms - ms : 0;
    health_raise(h, HEALTH_save_failed, "The last save, step %" PRIu64 ", %s %llu s ago: %s",
            s->id.step,
            s->code == HEARTH_EUNKNOWN ? "has an outcome that is not known here, since" : "failed",
            health_s(ms), s->why);
    if (s->code == HEARTH_ENOSPC)
        health_raise(h, HEALTH_no_room,
                "For the last save, step %" PRIu64 ", there was no room %llu s ago: %s", s->id.step,
                health_s(ms), s->why);
}

static void health_of_room(const struct hth_node *n, struct health *h)
{
    struct hth_refused refused;

    if (hth_commit_refused(n->commit, &refused))
        health_raise(h, HEALTH_no_room, "Node %s has no room for a copy of step %" PRIu64 ": %s",
                health_name_of(n, refused.node), refused.save.step, refused.text);
}

/* ---- This node ------------------------------------------------------------------------------- */

static void health_of_bytes(const struct hth_node *n, struct health *h)
{
    const struct hth_wrong *w = &n->ctx.wrong;
    uint64_t now_ms = hth_now_ms(&n->ctx.clock);
    uint64_t ms = now_ms > w->last_ms ? now_ms - w->last_ms : 0;

    if (w->count && ms < WRONG_MS)
        health_raise(h, HEALTH_checksum_error,
                "This node has found wrong bytes %" PRIu64
                " times since its engine began, the last %llu s ago, of step %" PRIu64 ": %s",
                w->count, health_s(ms), w->save.step, w->text);
}

static void health_of_log(const struct hth_node *n, struct health *h)
{
    struct hth_log_state log;

    hth_log_state(&n->ctx.log, &log);
    if (log.lost_now)
        health_raise(h, HEALTH_log_lost,
                "The last %" PRIu64 " lines of this engine's log could not be written: %s",
                log.lost_now, strerrordesc_np(log.why) ? strerrordesc_np(log.why) : "no reason");
}

void health_look(struct hth_node *n, struct health *h)
{
    int sure;

    h->raised = 0;
    health_of_epoch(n, h);
    sure = health_of_coordinator(n, h);
    if (sure) {
        health_of_members(n, h);
        health_of_copies(n, h);
        health_of_objects(n, h);
    }
    if (n->ctx.epoch && n->recovered) {
        health_of_age(n, h);
        health_of_last(n, h);
        health_of_room(n, h);
    }
    health_of_bytes(n, h);
    health_of_log(n, h);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static int health_worst(const struct health *h)
{
    int worst = 0;

    for (uint32_t i = 0; i < HEALTH_ROWS; i++)
        if (h->raised >> i & 1 && health_names[i].level > worst)
            worst = health_names[i].level;
    return worst;
}

const char *health_state(const struct health *h)
{
    static const char *const words[] = { "well", "at risk", "broken" };

    return words[health_worst(h)];
}

void health_put(FILE *to, const struct health *h)
{
    char text[QUOTED(HEALTH_TEXT)];
    const char *between = "";

    fprintf(to, "{\"state\": \"%s\", \"checks\": [", health_state(h));
    for (uint32_t i = 0; i < HEALTH_ROWS; i++) { /* the rows are in that order */
        if (!(h->raised >> i & 1))
            continue;
        quoted(h->text[i], text);
        fprintf(to, "%s{\"name\": \"%s\", \"level\": %d, \"text\": \"%s\"}", between,
                health_names[i].name, health_names[i].level, text);
        between = ", ";
    }
    fputs("]}", to);
}
