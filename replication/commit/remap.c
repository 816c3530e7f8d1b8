/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A place stays with its node while that node is not lost. Then it goes to the least loaded node
 * that shares no domain with the other places of its rank. It returns home (to the node that it had
 * as the epoch began) as soon as that node is not lost, and reaches the bytes: only there is surely
 * room for its saves (core/store/need.h).
 *
 * A node has room for what it held as the epoch began, and for a copy that moves. Places beyond
 * that go to any node that has room, also one that has only just returned: if many nodes are lost
 * and return again and again, the few that never were lost would otherwise have all places.
 *
 * The last map and the next one have the same order, so both are read side by side. The nodes
 * before `from` have more than the least load, so a search begins there, and mostly ends there.
 */
#include "remap.h"

#include "core/base/fail.h"
#include "core/store/need.h"

#include <stdlib.h>

struct remap { /* while one map is made */
    const struct hth_remap *in;
    uint32_t places; /* of a rank: its copies, and the owner's */
    uint32_t *now;   /* [world][places] its node; HTH_NODE_NONE: the place does not exist */
    uint32_t *load;  /* [nodes] places that the node has */
    uint32_t *first; /* [nodes] as the epoch began */
    uint32_t *roomy; /* [roomies] nodes that had room when the list was made; none before `full` */
    uint32_t roomies, full;
    uint32_t least; /* the least load of a node that is HTH_REACHABLE */
    uint32_t from;  /* no such node before it has that load; `nodes`: there is none */
};

static uint32_t place_home(const struct remap *s, uint32_t rank, uint32_t place)
{
    const struct hth_placement *base = s->in->base;

    return place < base->copies ? base->holder[rank * base->copies + place]
                                : s->in->epoch->rank_node[rank];
}

static uint32_t *place_at(const struct remap *s, uint32_t rank, uint32_t place)
{
    return &s->now[(size_t)rank * s->places + place];
}

static int pair_cmp(const void *a, const void *b)
{
    const struct hth_pair *x = a, *y = b;

    if (x->a != y->a)
        return x->a < y->a ? -1 : 1;
    return x->b < y->b ? -1 : x->b > y->b;
}

static uint32_t pair_reach(const struct remap *s, uint32_t a, uint32_t b)
{
    struct hth_pair key = { a < b ? a : b, a < b ? b : a, 0 };
    const struct hth_pair *p =
            s->in->pairs ? bsearch(&key, s->in->pair, s->in->pairs, sizeof(key), pair_cmp) : NULL;

    return p ? p->reach : HTH_REACHABLE;
}

/* No node has the place, or a lost one. */
static int place_is_empty(const struct remap *s, uint32_t rank, uint32_t place)
{
    uint32_t node = *place_at(s, rank, place);

    return node == HTH_NODE_NONE || s->in->reach[node] == HTH_UNREACHABLE;
}

/* A bit for each of the rank's places, except `without`, that has the bytes or a source of them,
 * over pairs that are no worse than `worst`. The owner's place has the bytes; a copy has a
 * source if it reaches a place that has one. If the owner is lost, all copies count as having
 * the bytes. */
static uint32_t remap_sourced(
        const struct remap *s, uint32_t rank, uint32_t without, uint32_t worst)
{
    uint32_t owner = s->places - 1, has, before;

    has = *place_at(s, rank, owner) == place_home(s, rank, owner) && !place_is_empty(s, rank, owner)
                  ? UINT32_C(1) << owner
                  : (UINT32_C(1) << owner) - 1;
    has &= ~(UINT32_C(1) << without);
    do {
        before = has;
        for (uint32_t p = 0; p < s->places; p++)
            for (uint32_t q = 0; q < s->places && p != without && !(has >> p & 1); q++)
                if (before >> q & 1 && !place_is_empty(s, rank, p) && !place_is_empty(s, rank, q) &&
                        pair_reach(s, *place_at(s, rank, p), *place_at(s, rank, q)) <= worst)
                    has |= UINT32_C(1) << p;
    } while (has != before);
    return has;
}

/* Only if a simulator run leaves out the rule that a source must have the bytes or a source: any
 * other holder counts. */
static int place_has_any_source(const struct remap *s, uint32_t rank, uint32_t place)
{
    for (uint32_t p = 0; p < s->places; p++)
        if (p != place && !place_is_empty(s, rank, p) &&
                pair_reach(s, *place_at(s, rank, p), *place_at(s, rank, place)) != HTH_UNREACHABLE)
            return 1;
    return 0;
}

/* The place moves since its node reaches no source. An owner's place stays with the owner; if
 * the owner is lost, the place moves from the node that stands in. */
static int place_has_no_source(const struct remap *s, uint32_t rank, uint32_t place)
{
    if (!s->in->pairs || (s->in->any_source && place_has_any_source(s, rank, place)))
        return 0;
    return !(remap_sourced(s, rank, s->places, HTH_RETURNED) >> place & 1);
}

/* How well the node would reach the bytes of the place: 2 x enum hth_reachability of the pair
 * for the owner's place, or from it; 1 more by way of another copy. */
static uint32_t place_reach(const struct remap *s, uint32_t rank, uint32_t place, uint32_t node)
{
    uint32_t owner = s->places - 1, best = 2 * HTH_UNREACHABLE;

    for (uint32_t worst = HTH_REACHABLE; worst < HTH_UNREACHABLE; worst++) {
        uint32_t has = remap_sourced(s, rank, place, worst);

        for (uint32_t p = 0; p < s->places; p++) {
            uint32_t is = 2 * worst + (p != owner && place != owner);

            if (has >> p & 1 && !place_is_empty(s, rank, p) && is < best &&
                    pair_reach(s, node, *place_at(s, rank, p)) <= worst)
                best = is;
        }
    }
    return best;
}

/* The node shares no domain up to `level` with the nodes of the rank's other places, nor a
 * copy's with the owner; and it reaches the bytes that well, by place_reach(). */
static int place_fits(const struct remap *s, uint32_t rank, uint32_t place, uint32_t node,
        uint32_t level, uint32_t reach)
{
    const struct hth_epoch *e = s->in->epoch;

    if (place < s->in->base->copies && hth_domain_shared(e, node, e->rank_node[rank], level))
        return 0;
    for (uint32_t p = 0; p < s->places; p++) {
        uint32_t other = *place_at(s, rank, p);

        if (p != place && other != HTH_NODE_NONE && hth_domain_shared(e, node, other, level))
            return 0;
    }
    return !s->in->pairs || place_reach(s, rank, place, node) <= reach;
}

static int node_has_least(const struct remap *s, uint32_t node)
{
    return s->in->reach[node] == HTH_REACHABLE && s->load[node] == s->least;
}

/* Finds `least` and `from` again, after loads have grown. */
static void remap_least(struct remap *s)
{
    uint32_t nodes = s->in->epoch->nodes;

    while (s->from < nodes && !node_has_least(s, s->from))
        s->from++;
    if (s->from < nodes)
        return;
    s->least = UINT32_MAX;
    for (uint32_t n = nodes; n-- > 0;)
        if (s->in->reach[n] == HTH_REACHABLE && s->load[n] <= s->least) {
            s->least = s->load[n];
            s->from = n;
        }
}

static int node_has_room(const struct remap *s, uint32_t node)
{
    return s->load[node] < s->first[node] + HTH_NEED_MOVING;
}

/* The nodes that are not lost and have room after all places that may return home have returned. */
static void remap_roomy(struct remap *s)
{
    for (uint32_t n = 0; n < s->in->epoch->nodes; n++)
        if (s->in->reach[n] != HTH_UNREACHABLE && node_has_room(s, n))
            s->roomy[s->roomies++] = n;
}

static uint32_t place_find_roomy(
        struct remap *s, uint32_t rank, uint32_t place, uint32_t level, uint32_t reach)
{
    while (s->full < s->roomies && !node_has_room(s, s->roomy[s->full]))
        s->full++;
    for (uint32_t i = s->full; i < s->roomies; i++)
        if (node_has_room(s, s->roomy[i]) && place_fits(s, rank, place, s->roomy[i], level, reach))
            return s->roomy[i];
    return HTH_NODE_NONE;
}

/* The first with the least load of all; HTH_NODE_NONE: none of these fits. */
static uint32_t place_find_least(
        const struct remap *s, uint32_t rank, uint32_t place, uint32_t level, uint32_t reach)
{
    for (uint32_t n = s->from; n < s->in->epoch->nodes; n++)
        if (node_has_least(s, n) && place_fits(s, rank, place, n, level, reach))
            return n;
    return HTH_NODE_NONE;
}

static uint32_t place_find_any(const struct remap *s, uint32_t rank, uint32_t place, uint32_t level,
        enum hth_reachability worst, uint32_t reach)
{
    uint32_t best = HTH_NODE_NONE;

    for (uint32_t n = 0; n < s->in->epoch->nodes; n++)
        if (s->in->reach[n] <= worst && (best == HTH_NODE_NONE || s->load[n] < s->load[best]) &&
                place_fits(s, rank, place, n, level, reach))
            best = n;
    return best;
}

static uint32_t place_find(
        struct remap *s, uint32_t rank, uint32_t place, enum hth_reachability worst)
{
    uint32_t best = HTH_NODE_NONE, roomy = HTH_NODE_NONE, ways = s->in->pairs ? 2 : 1;

    /* For each level of domains: from the owner's place first, then by way of another copy. */
    for (uint32_t i = (s->in->base->level + 1) * ways; i-- > 0 && best == HTH_NODE_NONE;) {
        uint32_t level = i / ways, reach = 2 * (uint32_t)worst + (ways - 1 - i % ways);

        if (worst == HTH_REACHABLE)
            best = place_find_least(s, rank, place, level, reach);
        if (best == HTH_NODE_NONE)
            best = place_find_any(s, rank, place, level, worst, reach);
        if (best != HTH_NODE_NONE && !node_has_room(s, best))
            roomy = place_find_roomy(s, rank, place, level, reach);
    }
    return roomy == HTH_NODE_NONE ? best : roomy;
}

/* Places of the rank whose node is not lost and has a source. */
static uint32_t remap_living(const struct remap *s, uint32_t rank)
{
    uint32_t living = 0;

    for (uint32_t p = 0; p < s->places; p++) {
        uint32_t node = *place_at(s, rank, p);

        living += node != HTH_NODE_NONE && s->in->reach[node] != HTH_UNREACHABLE &&
                  !place_has_no_source(s, rank, p);
    }
    return living;
}

static void place_go(struct remap *s, uint32_t *at, uint32_t to)
{
    s->load[*at]--;
    s->load[to]++;
    if (s->in->reach[*at] == HTH_REACHABLE && s->load[*at] <= s->least)
        s->from = s->in->epoch->nodes; /* that node has the least load now */
    *at = to;
    remap_least(s);
}

/* 1: another node has the place now; 0: no node can have it, and it stays. */
static int place_move(struct remap *s, uint32_t rank, uint32_t place)
{
    uint32_t *at = place_at(s, rank, place);
    uint32_t to = place_find(s, rank, place, HTH_REACHABLE);

    if (to == HTH_NODE_NONE && remap_living(s, rank) < 1 + s->in->min_copies)
        to = place_find(s, rank, place, HTH_RETURNED);
    if (to == HTH_NODE_NONE)
        return 0;
    place_go(s, at, to);
    return 1;
}

/* The place is not at home, and its node has more places than it has room for. */
static int place_is_too_much(const struct remap *s, uint32_t rank, uint32_t place)
{
    uint32_t at = *place_at(s, rank, place);

    return at != place_home(s, rank, place) && s->load[at] > s->first[at] + HTH_NEED_MOVING;
}

/* To any node that has room; or it stays. */
static void place_relieve(struct remap *s, uint32_t rank, uint32_t place)
{
    uint32_t to = place_find_roomy(s, rank, place, s->in->base->level, HTH_REACHABLE);

    if (to != HTH_NODE_NONE)
        place_go(s, place_at(s, rank, place), to);
}

static void place_go_home(struct remap *s, uint32_t rank, uint32_t place)
{
    uint32_t home = place_home(s, rank, place);
    uint32_t *at = place_at(s, rank, place);

    s->load[*at]--;
    s->load[home]++;
    *at = home;
}

/* 1: all places of the rank can go home, where they share no domain, and reach the owner. Meanwhile
 * one may be in the way of another, or reach the bytes only once the owner has its place again. */
static int remap_is_whole(const struct remap *s, uint32_t rank)
{
    uint32_t owner = place_home(s, rank, s->places - 1);
    int whole = !s->in->stay;

    for (uint32_t p = 0; p < s->places && whole; p++) {
        uint32_t home = place_home(s, rank, p);

        whole = home == HTH_NODE_NONE || (s->in->reach[home] != HTH_UNREACHABLE &&
                                                 pair_reach(s, owner, home) != HTH_UNREACHABLE);
    }
    return whole;
}

/* An owner has its place while it is not lost. */
static void remap_home(struct remap *s, uint32_t rank)
{
    int whole = remap_is_whole(s, rank);

    for (uint32_t p = 0; p < s->places; p++) {
        uint32_t home = place_home(s, rank, p), at = *place_at(s, rank, p);
        int owner = p == s->places - 1;

        if (at == home || at == HTH_NODE_NONE || s->in->reach[home] == HTH_UNREACHABLE ||
                (s->in->stay && !owner))
            continue;
        if (owner || whole || place_fits(s, rank, p, home, s->in->base->level, 2 * HTH_RETURNED))
            place_go_home(s, rank, p);
    }
}

static void remap_fill(struct remap *s)
{
    const struct hth_places *last = s->in->last;

    for (uint32_t r = 0; r < s->in->epoch->world; r++)
        for (uint32_t p = 0; p < s->places; p++)
            *place_at(s, r, p) = place_home(s, r, p);
    for (size_t i = 0; i < (size_t)s->in->epoch->world * s->places; i++)
        if (s->now[i] != HTH_NODE_NONE)
            s->first[s->now[i]]++;
    for (uint32_t i = 0; i < last->moves; i++)
        if (last->move[i].rank < s->in->epoch->world && last->move[i].place < s->places &&
                last->move[i].node < s->in->epoch->nodes)
            *place_at(s, last->move[i].rank, last->move[i].place) = last->move[i].node;
    for (size_t i = 0; i < (size_t)s->in->epoch->world * s->places; i++)
        if (s->now[i] != HTH_NODE_NONE)
            s->load[s->now[i]]++;
}

/* The node that has the bytes: it had the place when a map was settled last. *at: position in
 * the last map. */
static uint32_t place_was(const struct remap *s, uint32_t rank, uint32_t place, uint32_t *at)
{
    const struct hth_places *last = s->in->last;
    const struct hth_move *m = last->move; /* NULL without any */
    uint32_t i = *at;

    while (i < last->moves && (m[i].rank < rank || (m[i].rank == rank && m[i].place < place)))
        i++;
    *at = i;
    if (i == last->moves || m[i].rank != rank || m[i].place != place)
        return place_home(s, rank, place);
    return s->in->settled ? m[i].node : m[i].was;
}

/* The places that are or were not at home; returns how many. out: NULL: only counted. */
static uint32_t remap_put(const struct remap *s, struct hth_move *out)
{
    uint32_t moves = 0, at = 0;

    for (uint32_t r = 0; r < s->in->epoch->world; r++)
        for (uint32_t p = 0; p < s->places; p++) {
            uint32_t home = place_home(s, r, p), node = *place_at(s, r, p);
            uint32_t was = home == HTH_NODE_NONE ? home : place_was(s, r, p, &at);

            if (node == home && was == home)
                continue;
            if (out)
                out[moves] = (struct hth_move){ r, p, node, was };
            moves++;
        }
    return moves;
}

static int remap_write(const struct remap *s, struct hth_move **out, uint32_t *out_moves)
{
    uint32_t moves = remap_put(s, NULL);

    *out = calloc(moves ? moves : 1, sizeof(**out));
    if (!*out)
        return HEARTH_ENOMEM;
    *out_moves = remap_put(s, *out);
    return HEARTH_OK;
}

/* 0: the place should move, and no node can have it. */
static int place_next(struct remap *s, uint32_t rank, uint32_t place)
{
    uint32_t at = *place_at(s, rank, place);

    if (at == HTH_NODE_NONE)
        return 1;
    if (s->in->reach[at] == HTH_UNREACHABLE || place_has_no_source(s, rank, place))
        return place_move(s, rank, place);
    if (place_is_too_much(s, rank, place))
        place_relieve(s, rank, place);
    return 1;
}

static void remap_next(struct remap *s, uint32_t *out_moved, uint32_t *out_stuck)
{
    *out_moved = *out_stuck = 0;
    for (uint32_t r = 0; r < s->in->epoch->world; r++)
        for (uint32_t p = 0; p < s->places; p++) {
            uint32_t at = *place_at(s, r, p);

            *out_stuck += (uint32_t)!place_next(s, r, p);
            *out_moved += *place_at(s, r, p) != at;
        }
}

int hth_remap(const struct hth_remap *in, struct hth_move **out, uint32_t *out_moves,
        uint32_t *out_moved, uint32_t *out_stuck)
{
    struct remap s = { .in = in, .places = in->base->copies + 1, .from = in->epoch->nodes };
    uint32_t nodes = in->epoch->nodes;
    int rc = HEARTH_ENOMEM;

    s.now = calloc((size_t)in->epoch->world * s.places, sizeof(*s.now));
    s.load = calloc((size_t)3 * nodes, sizeof(*s.load));
    if (s.now && s.load) {
        s.first = s.load + nodes;
        s.roomy = s.first + nodes;
        remap_fill(&s);
        for (uint32_t r = 0; r < in->epoch->world; r++)
            remap_home(&s, r);
        remap_roomy(&s);
        remap_least(&s);
        remap_next(&s, out_moved, out_stuck);
        rc = remap_write(&s, out, out_moves);
    }
    free(s.now);
    free(s.load);
    return rc;
}
