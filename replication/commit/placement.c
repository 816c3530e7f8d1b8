/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes are sorted into groups by the widest domain that is known. A copy goes to a group a fixed
 * number of groups further on. With an even number of groups and one copy, neighbouring groups
 * exchange their copies (pairs: a loss costs the bandwidth of one other node only); otherwise the
 * shift makes a ring. Within that group the copies go round the nodes, so the numbers of copies of
 * any two of them differ by at most one. If groups differ in size, a node of a small group holds
 * more than a node of a big one. Copies for which no group is left go to the next nodes behind the
 * owner that share no narrower domain.
 */
#include "placement.h"

#include <stdio.h>
#include <stdlib.h>

#define MACHINE HTH_LEVEL_MACHINE

/* The domain of node `n` at `level`. If it names none there: its machine, or else the node. */
static uint64_t domain_of(const struct hth_epoch *e, uint32_t n, uint32_t level)
{
    const struct hth_member *m = &e->member[n];

    if (level > MACHINE && m->domain[level - MACHINE - 1])
        return m->domain[level - MACHINE - 1];
    return UINT64_C(1) << 63 | (level >= MACHINE && m->machine ? m->machine - 1 : n);
}

int hth_domain_shared(const struct hth_epoch *e, uint32_t a, uint32_t b, uint32_t level)
{
    for (uint32_t l = 0; l <= level; l++)
        if (domain_of(e, a, l) == domain_of(e, b, l))
            return 1;
    return 0;
}

struct node_group {
    uint64_t domain;
    uint32_t node;
    uint32_t group; /* in order of the group's first node */
};

static int node_group_cmp(const void *a, const void *b)
{
    const struct node_group *x = a;
    const struct node_group *y = b;

    if (x->domain != y->domain)
        return x->domain < y->domain ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Nodes sorted by group; returns the number of groups. */
static uint32_t node_groups(const struct hth_epoch *e, uint32_t level, struct node_group *sorted)
{
    uint32_t groups = 0;

    for (uint32_t n = 0; n < e->nodes; n++)
        sorted[n] = (struct node_group){ domain_of(e, n, level), n, 0 };
    qsort(sorted, e->nodes, sizeof(*sorted), node_group_cmp);
    for (uint32_t i = 0; i < e->nodes; i++) {
        groups += i == 0 || sorted[i].domain != sorted[i - 1].domain;
        sorted[i].group = groups - 1;
    }
    return groups;
}

/* The members of one group: [first, first + count) of the remap. */
static void group_span(const struct node_group *sorted, uint32_t nodes, uint32_t group,
        uint32_t *out_first, uint32_t *out_count)
{
    uint32_t lo = 0;
    uint32_t hi = nodes;

    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;

        if (sorted[mid].group < group)
            lo = mid + 1;
        else
            hi = mid;
    }
    *out_first = lo;
    for (hi = lo; hi < nodes && sorted[hi].group == group; hi++)
        ;
    *out_count = hi - lo;
}

/* The node that has copy `copy` of the objects of sorted node `at`. */
static uint32_t group_partner(const struct node_group *sorted, uint32_t nodes, uint32_t groups,
        uint32_t copies, uint32_t at, uint32_t copy)
{
    uint32_t group = sorted[at].group;
    uint32_t to = copies == 1 && groups % 2 == 0 ? group ^ 1 : (group + copy + 1) % groups;
    uint32_t first;
    uint32_t count;
    uint32_t own_first;
    uint32_t own_count;

    group_span(sorted, nodes, group, &own_first, &own_count);
    group_span(sorted, nodes, to, &first, &count);
    return count ? sorted[first + (at - own_first) % count].node : HTH_NODE_NONE;
}

/* The widest level at which a node names a domain or has a machine. */
static uint32_t domain_widest(const struct hth_epoch *e)
{
    uint32_t widest = 0;

    for (uint32_t n = 0; n < e->nodes; n++)
        for (uint32_t level = HTH_LEVELS - 1; level > widest; level--)
            if (level == MACHINE ? e->member[n].machine != 0
                                 : e->member[n].domain[level - MACHINE - 1] != 0)
                widest = level;
    return widest;
}

uint32_t hth_placement_domains(const struct hth_placement *p, const struct hth_epoch *e,
        const uint32_t *node, uint32_t nodes)
{
    uint32_t domains = 0;

    for (uint32_t i = 0; i < nodes; i++) {
        uint32_t j = 0;

        while (j < i && !hth_domain_shared(e, node[i], node[j], p->widest))
            j++;
        domains += j == i;
    }
    return domains;
}

/* A copy beyond the first `separate` ones: the next node behind the owner that shares nothing at
 * `level`. */
static uint32_t placement_rest(const struct hth_epoch *e, uint32_t owner, const uint32_t *holder,
        uint32_t have, uint32_t level)
{
    for (uint32_t i = 1; i < e->nodes; i++) {
        uint32_t node = (owner + i) % e->nodes, c = 0;

        if (hth_domain_shared(e, node, owner, level))
            continue;
        while (c < have &&
                (holder[c] == HTH_NODE_NONE || !hth_domain_shared(e, node, holder[c], level)))
            c++;
        if (c == have)
            return node;
    }
    return HTH_NODE_NONE;
}

static void placement_fill(struct hth_placement *p, const struct hth_epoch *e,
        const struct node_group *sorted, uint32_t groups, uint32_t *of_node)
{
    for (uint32_t i = 0; i < e->nodes; i++)
        of_node[sorted[i].node] = i;
    for (uint32_t r = 0; r < p->world; r++) {
        uint32_t *holder = p->holder + (size_t)r * p->copies, owner = e->rank_node[r];

        for (uint32_t c = 0; c < p->copies; c++)
            holder[c] = c < p->separate ? group_partner(sorted, e->nodes, groups, p->copies,
                                                  of_node[owner], c)
                                        : placement_rest(e, owner, holder, c, p->level);
    }
}

static int placement_refuse(const struct hth_placement *p, uint32_t min_copies, uint32_t nodes,
        uint32_t groups, struct hearth_error *err)
{
    const char *lower = min_copies > 1 ? ", lower min_copies" : "";

    if (!p->widest)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%" PRIu32 " copies in other failure domains need %" PRIu32
                " nodes, the job has %" PRIu32 ": add nodes%s, or set allow_degraded",
                min_copies, min_copies + 1, groups, lower);
    if (p->widest == MACHINE)
        return hth_fail(err, HEARTH_EINVAL, 0,
                "%" PRIu32 " copies in other failure domains need %" PRIu32
                " machines, the job's %" PRIu32 " nodes are on %" PRIu32
                ": add machines%s, set allow_degraded, or, where a machine's id is not its own, "
                "name it (HEARTH_MACHINE)",
                min_copies, min_copies + 1, nodes, groups, lower);
    return hth_fail(err, HEARTH_EINVAL, 0,
            "%" PRIu32 " copies in other failure domains need %" PRIu32 " domains of level %" PRIu32
            ", the job's nodes are in %" PRIu32
            ": add nodes in other domains, name no level that all share (HEARTH_DOMAINS)%s, or set "
            "allow_degraded",
            min_copies, min_copies + 1, p->widest - MACHINE, groups, lower);
}

int hth_placement_make(struct hth_placement *out, const struct hth_epoch *epoch, uint32_t copies,
        uint32_t min_copies, int degraded, struct hearth_error *err)
{
    struct node_group *sorted = calloc(epoch->nodes ? epoch->nodes : 1, sizeof(*sorted));
    uint32_t *of_node = malloc(sizeof(*of_node) * (epoch->nodes ? epoch->nodes : 1));
    struct hth_placement p = { .world = epoch->world, .copies = copies };
    uint32_t groups;
    int rc = HEARTH_OK;

    p.holder = malloc(sizeof(*p.holder) * (epoch->world ? epoch->world : 1) * copies);
    if (!sorted || !of_node || !p.holder) {
        rc = hth_fail(err, HEARTH_ENOMEM, 0, "placement of %" PRIu32 " ranks", epoch->world);
    } else {
        p.level = p.widest = domain_widest(epoch);
        while (node_groups(epoch, p.level, sorted) < copies + 1 && p.level > 0)
            p.level--;
        groups = node_groups(epoch, p.widest, sorted);
        p.separate = groups > copies ? copies : groups - (groups > 0);
        if (p.separate < min_copies && !degraded)
            rc = placement_refuse(&p, min_copies, epoch->nodes, groups, err);
        else
            placement_fill(&p, epoch, sorted, groups, of_node);
    }
    free(sorted);
    free(of_node);
    if (rc)
        free(p.holder);
    else
        *out = p;
    return rc;
}

/* "node(s)", "machine(s)", "domain(s) of level 2" */
static const char *level_text(uint32_t level, char *out, size_t len)
{
    if (level > MACHINE)
        snprintf(out, len, "domain(s) of level %" PRIu32, level - MACHINE);
    else
        snprintf(out, len, "%s", level == MACHINE ? "machine(s)" : "node(s)");
    return out;
}

/* "4 nodes", or "4 nodes on 2 machines ('a' and 'b' are on one)" */
static void nodes_text(const struct hth_epoch *e, char *out, size_t len)
{
    uint32_t machines = 0, mate = HTH_NODE_NONE;

    for (uint32_t n = 0; n < e->nodes; n++) {
        int is_mate = e->member[n].machine && e->member[n].machine != n + 1;

        machines += !is_mate;
        mate = is_mate && mate == HTH_NODE_NONE ? n : mate;
    }
    if (mate == HTH_NODE_NONE)
        snprintf(out, len, "%" PRIu32 " node(s)", e->nodes);
    else
        snprintf(out, len, "%" PRIu32 " nodes on %" PRIu32 " machine(s) ('%s' and '%s' are on one)",
                e->nodes, machines, e->member[e->member[mate].machine - 1].node,
                e->member[mate].node);
}

void hth_placement_text(
        const struct hth_placement *p, const struct hth_epoch *epoch, char *out, size_t len)
{
    int none = p->world == 0 || p->holder[0] == HTH_NODE_NONE;
    char nodes[2 * HTH_NAME_MAX + 80], level[40];
    uint32_t have = 0;

    nodes_text(epoch, nodes, sizeof(nodes));
    for (uint32_t c = 0; !none && c < p->copies; c++)
        have += p->holder[c] != HTH_NODE_NONE;
    if (none)
        snprintf(out, len, "%s, no copies: survives processes, not nodes", nodes);
    else if (p->separate < p->copies && p->widest)
        snprintf(out, len, "%s, %" PRIu32 " of %" PRIu32 " copies in other %s: saves are DEGRADED",
                nodes, p->separate, p->copies, level_text(p->widest, level, sizeof(level)));
    else
        snprintf(out, len,
                "%s, %" PRIu32 " of %" PRIu32 " copies: survives the loss of any %" PRIu32 " %s",
                nodes, have, p->copies, have, level_text(p->level, level, sizeof(level)));
}

void hth_placement_fini(struct hth_placement *p)
{
    free(p->holder);
    *p = (struct hth_placement){ 0 };
}
