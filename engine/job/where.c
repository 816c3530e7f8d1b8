/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PLACES: the newest map as JSON, a page of nodes and a page of ranks at a time. It says which node
 * should hold what, and which nodes are known to hold it: a node that has promised a kept save
 * under this very map. The coordinator knows the promise of each node. Any other engine knows only
 * whether all have promised (the map is settled); what it does not know is null.
 */
#include "where.h"

#include "engine/state/node_state.h"
#include "engine/state/quoted.h"

#include <stdio.h>

static void where_put_node_name(FILE *to, const char *key, const char *node)
{
    char name[QUOTED(HTH_NAME_MAX + 1)];

    quoted(node, name);
    fprintf(to, "\"%s\": \"%s\"", key, name);
}

static void where_put_flag(FILE *to, const char *key, int is)
{
    fprintf(to, ", \"%s\": %s", key, is ? "true" : "false");
}

static void where_put_kept(FILE *to, const struct hth_node *n)
{
    static const char *const words[] = { [HTH_KEPT_UNSURE] = "kept",
        [HTH_KEPT_DEGRADED] = "degraded",
        [HTH_KEPT_PROTECTED] = "protected" };
    const struct hth_keep *k = &n->ctx.keep;
    char save[HTH_SAVE_TEXT];

    fputs(", \"kept\": [", to);
    for (uint32_t i = 0; i < k->saves; i++) {
        hth_save_text(k->save[i], save);
        fprintf(to, "%s{\"save\": \"%s\", \"state\": \"%s\"", i ? ", " : "", save,
                words[hth_commit_kept(n->commit, i)]);
        where_put_flag(to, "bad", hth_keep_is_bad(k, k->save[i]));
        fputs("}", to);
    }
    fputs("]", to);
}

/* Whether the node has each kept save's objects that it should have; null: not known here. */
static void where_put_has(FILE *to, const struct hth_node *n, uint32_t node)
{
    static const char *const words[] = {
        [HTH_HAS_NOT] = "false", [HTH_HAS] = "true", [HTH_HAS_UNKNOWN] = "null"
    };

    fputs(", \"has\": [", to);
    for (uint32_t i = 0; i < n->ctx.keep.saves; i++)
        fprintf(to, "%s%s", i ? ", " : "", words[hth_commit_has(n->commit, i, node)]);
    fputs("]", to);
}

static void where_put_member(FILE *to, const struct hth_node *n, uint32_t node)
{
    const struct hth_member *m = &n->epoch.member[node];
    const char *between = "";

    fputs("{", to);
    where_put_node_name(to, "node", m->node);
    where_put_flag(to, "lost", n->ctx.lost && n->ctx.lost[node]);
    if (m->machine)
        fprintf(to, ", \"machine\": %" PRIu32, m->machine - 1);
    fputs(", \"domains\": [", to);
    for (uint32_t i = 0; i < HTH_DOMAINS_MAX && m->domain[i]; i++, between = ", ")
        fprintf(to, "%s\"%016" PRIx64 "\"", between, m->domain[i]);
    fputs("]", to);
    where_put_has(to, n, node);
    fputs("}", to);
}

static void where_put_index(FILE *to, const char *between, uint32_t node)
{
    if (node == HTH_NODE_NONE)
        fprintf(to, "%snull", between);
    else
        fprintf(to, "%s%" PRIu32, between, node);
}

/* [home, now, was] of each place, the owner's first. */
static void where_put_rank(FILE *to, const struct hth_node *n, uint32_t rank)
{
    struct hth_place place[HTH_COPIES_MAX + 1];
    uint32_t places = hth_commit_rank_places(n->commit, rank, place);

    fputs("[", to);
    for (uint32_t i = 0; i < places; i++) {
        const struct hth_place *p = &place[(i + places - 1) % places];

        where_put_index(to, i ? ", [" : "[", p->home);
        where_put_index(to, ", ", p->now);
        where_put_index(to, ", ", p->was);
        fputs("]", to);
    }
    fputs("]", to);
}

static void where_put_page(FILE *to, const struct hth_node *n, uint32_t skip)
{
    const struct hth_epoch *e = &n->epoch;
    char epoch[QUOTED_NUMBER];
    uint64_t ago_ms, mapped;
    int current = hth_commit_current(n->commit);

    fputs("{", to);
    where_put_node_name(to, "node", n->env.node);
    fputs(", ", to);
    where_put_node_name(to, "coordinator", e->nodes ? e->member[0].node : "");
    (void)hth_commit_as_of(n->commit, &ago_ms);
    fprintf(to, ", \"epoch\": %s, \"position\": %" PRIu64 ", \"as_of_ms\": ",
            quoted_number(e->epoch, epoch), hth_commit_position(n->commit));
    if (current || ago_ms)
        fprintf(to, "%" PRIu64, ago_ms);
    else
        fputs("null", to);
    where_put_flag(to, "current", current);
    where_put_flag(to, "settled", hth_commit_settled(n->commit, &mapped));
    fprintf(to,
            ", \"dead_ms\": %" PRIu32 ", \"copies\": %" PRIu32 ", \"members\": %" PRIu32
            ", \"world\": %" PRIu32,
            n->ctx.opts.dead_ms, n->ctx.opts.copies, e->nodes, e->world);
    where_put_kept(to, n);
    fputs(", \"nodes\": [", to);
    for (uint32_t i = skip; i < e->nodes && i - skip < HTH_PLACES_PAGE; i++) {
        fputs(i > skip ? ", " : "", to);
        where_put_member(to, n, i);
    }
    fputs("], \"ranks\": [", to);
    for (uint32_t i = skip; i < e->world && i - skip < HTH_PLACES_PAGE; i++) {
        fputs(i > skip ? ", " : "", to);
        where_put_rank(to, n, i);
    }
    fputs("]}", to);
}

int where_put(struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err)
{
    (void)what;
    if (!n->ctx.epoch)
        return hth_fail(err, HEARTH_ESTATE, 0,
                "the ranks have not joined under this engine, so it knows no placement");
    where_put_page(to, n, skip);
    return HEARTH_OK;
}
