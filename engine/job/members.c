/* SPDX-License-Identifier: Apache-2.0 */
/*
 * NODES: a page of members, each with what this engine knows of it. What only the member itself
 * knows is not here: its own engine has it. Where a value cannot be known here it is null.
 */
#include "members.h"

#include "engine/state/node_state.h"
#include "engine/state/quoted.h"
#include "replication/commit/known.h"
#include "transport/address.h"

#include <string.h>

/* Numbers of a page's members. */
struct page {
    uint32_t first, count;
    uint32_t ranks[HTH_NODES_PAGE], holds[HTH_NODES_PAGE], owes[HTH_NODES_PAGE];
};

static void members_count(const struct hth_node *n, struct page *p)
{
    memset(p->ranks, 0, sizeof(p->ranks));
    for (uint32_t r = 0; r < n->epoch.world; r++)
        if (n->epoch.rank_node[r] - p->first < p->count)
            p->ranks[n->epoch.rank_node[r] - p->first]++;
    hth_commit_places(n->commit, p->first, p->count, p->holds);
    hth_commit_owed(n->commit, p->first, p->count, p->owes);
}

/* Addresses of a transport that listens on IP; null: another kind. */
static void members_put_address(FILE *to, const struct hth_member *m)
{
    struct hth_addrs self = { .count = 1 }, all;
    char label[HTH_ADDR_LABEL];

    self.at[0].sa.sa_family = m->addr_len > 1 && m->addr[1] == 6 ? AF_INET6 : AF_INET;
    if (hth_addrs_unpack(m->addr, m->addr_len, &self, &all, NULL)) {
        fputs("null", to);
        return;
    }
    fputs("\"", to);
    for (uint32_t i = 0; i < all.count; i++) {
        hth_addr_text(&all.at[i], label);
        fprintf(to, "%s%s", i ? "," : "", label);
    }
    fputs("\"", to);
}

void members_put_domains(FILE *to, const struct hth_node *n, uint32_t node)
{
    const struct hth_member *m = &n->epoch.member[node];
    char name[QUOTED(HTH_NAME_MAX + 1)];

    fputs("{\"machine\": ", to);
    if (m->machine) {
        quoted(n->epoch.member[m->machine - 1].node, name);
        fprintf(to, "\"%s\"", name);
    } else {
        fputs("null", to);
    }
    fputs(", \"levels\": [", to);
    for (uint32_t i = 0; i < HTH_DOMAINS_MAX && m->domain[i]; i++)
        fprintf(to, "%s\"%08" PRIx32 "\"", i ? ", " : "", (uint32_t)(m->domain[i] >> 32));
    fputs("]}", to);
}

static void members_put_known(FILE *to, const struct hth_node *n, uint32_t node)
{
    static const char *const words[] = { [HTH_MEMBER_OK] = "ok",
        [HTH_MEMBER_SILENT] = "silent",
        [HTH_MEMBER_UNREACHABLE] = "unreachable",
        [HTH_MEMBER_LOST] = "lost" };
    uint64_t since_ms;
    enum hth_member_state state = hth_commit_member(n->commit, node, &since_ms);

    if (state == HTH_MEMBER_UNKNOWN)
        fputs(", \"state\": null, \"since_s\": null", to);
    else
        fprintf(to, ", \"state\": \"%s\", \"since_s\": %" PRIu64, words[state], since_ms / 1000);
}

static void members_put_one(FILE *to, const struct hth_node *n, const struct page *p, uint32_t i)
{
    const struct hth_member *m = &n->epoch.member[p->first + i];
    char name[QUOTED(sizeof(m->node))];

    quoted(m->node, name);
    fprintf(to, "{\"node\": \"%s\", \"member\": %" PRIu32 ", \"address\": ", name, p->first + i);
    members_put_address(to, m);
    fputs(", \"domains\": ", to);
    members_put_domains(to, n, p->first + i);
    members_put_known(to, n, p->first + i);
    fprintf(to, ", \"ranks\": %" PRIu32 ", \"holds\": %" PRIu32, p->ranks[i], p->holds[i]);
    if (p->owes[i] == HTH_NODE_NONE)
        fputs(", \"owes\": null}", to);
    else
        fprintf(to, ", \"owes\": %" PRIu32 "}", p->owes[i]);
}

int members_put(
        struct hth_node *n, FILE *to, uint32_t what, uint32_t skip, struct hearth_error *err)
{
    /* an epoch on record that this engine has not joined has no members yet */
    uint32_t nodes = n->ctx.epoch ? n->epoch.nodes : 0;
    struct page p = { .first = skip };
    char name[QUOTED(HTH_NAME_MAX + 1)], epoch[QUOTED_NUMBER];
    uint64_t ago_ms;

    (void)what, (void)err;
    quoted(n->env.node, name);
    fprintf(to, "{\"node\": \"%s\", \"epoch\": %s, \"skip\": %" PRIu32 ", \"members\": %" PRIu32,
            name, quoted_number(n->epoch.epoch, epoch), skip, nodes);
    if (hth_commit_as_of(n->commit, &ago_ms) || ago_ms)
        fprintf(to, ", \"as_of_ms\": %" PRIu64, ago_ms);
    else
        fputs(", \"as_of_ms\": null", to);
    fputs(", \"nodes\": [", to);
    if (skip < nodes)
        p.count = nodes - skip < HTH_NODES_PAGE ? nodes - skip : HTH_NODES_PAGE;
    if (p.count)
        members_count(n, &p);
    for (uint32_t i = 0; i < p.count; i++) {
        fputs(i ? ", " : "", to);
        members_put_one(to, n, &p, i);
    }
    fputs("]}", to);
    return HEARTH_OK;
}
