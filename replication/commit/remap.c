/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Place by place: it stays where it is while that node is not lost, goes home when home is well, and
 * else to the least loaded node that shares no domain with the others of its rank.
 *
 * A node has room for what it held as the epoch began, and for one place more. What is beyond that goes to who
 * has room, though he is only back: with many who flap, the few who never were lost would else have it all.
 *
 * Last map and next one are in one order, so they are gone through side by side. Of the nodes, those before
 * `from` have more than the least load: a search begins there, and mostly ends there.
 */
#include "remap.h"

#include "core/base/fail.h"

#include <stdlib.h>

struct seats { /* of one making of a map */
    const struct hth_remap *in;
    uint32_t places; /* of a rank: its copies, and the owner's */
    uint32_t *now;   /* [world][places] who has it; HTH_NODE_NONE: there is none */
    uint32_t *load;  /* [nodes] places that are theirs */
    uint32_t *first; /* [nodes] as the epoch began */
    uint32_t *
            roomy; /* [roomies] who has room, or had when the list was made; those before `full` have not */
    uint32_t roomies, full;
    uint32_t least; /* of the loads of who is well */
    uint32_t from;  /* the first of these that may have it; nodes: nobody is well */
};

static uint32_t seat_home(const struct seats *s, uint32_t rank, uint32_t place)
{
    const struct hth_placement *base = s->in->base;

    return place < base->copies ? base->holder[rank * base->copies + place]
                                : s->in->epoch->rank_node[rank];
}

static uint32_t *seat_of(const struct seats *s, uint32_t rank, uint32_t place)
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

static uint32_t pair_is(const struct seats *s, uint32_t a, uint32_t b)
{
    struct hth_pair key = { a < b ? a : b, a < b ? b : a, 0 };
    const struct hth_pair *p =
            s->in->pairs ? bsearch(&key, s->in->pair, s->in->pairs, sizeof(key), pair_cmp) : NULL;

    return p ? p->is : HTH_WELL;
}

/* Nobody has the place, or a lost node. */
static int seat_is_empty(const struct seats *s, uint32_t rank, uint32_t place)
{
    uint32_t node = *seat_of(s, rank, place);

    return node == HTH_NODE_NONE || s->in->is[node] == HTH_LOST;
}

/* A bit for each of the rank's places, but `without`, that has a source by pairs that are no
 * worse: the owner's has the bytes, and so has a copy that gets them from a place that has.
 * Where the owner is lost, all copies have them. */
static uint32_t seats_sourced(
        const struct seats *s, uint32_t rank, uint32_t without, uint32_t worst)
{
    uint32_t owner = s->places - 1, has, before;

    has = *seat_of(s, rank, owner) == seat_home(s, rank, owner) && !seat_is_empty(s, rank, owner)
                  ? UINT32_C(1) << owner
                  : (UINT32_C(1) << owner) - 1;
    has &= ~(UINT32_C(1) << without);
    do {
        before = has;
        for (uint32_t p = 0; p < s->places; p++)
            for (uint32_t q = 0; q < s->places && p != without && !(has >> p & 1); q++)
                if (before >> q & 1 && !seat_is_empty(s, rank, p) && !seat_is_empty(s, rank, q) &&
                        pair_is(s, *seat_of(s, rank, p), *seat_of(s, rank, q)) <= worst)
                    has |= UINT32_C(1) << p;
    } while (has != before);
    return has;
}

/* By the rule left out any other holder is a source, though it has none itself. */
static int seat_has_any(const struct seats *s, uint32_t rank, uint32_t place)
{
    for (uint32_t p = 0; p < s->places; p++)
        if (p != place && !seat_is_empty(s, rank, p) &&
                pair_is(s, *seat_of(s, rank, p), *seat_of(s, rank, place)) != HTH_LOST)
            return 1;
    return 0;
}

/* It cannot be made whole where it is, and moves. The owner stays; where it is lost, the node
 * that stands in moves. */
static int seat_is_cut(const struct seats *s, uint32_t rank, uint32_t place)
{
    if (!s->in->pairs || (s->in->any_source && seat_has_any(s, rank, place)))
        return 0;
    return !(seats_sourced(s, rank, s->places, HTH_BACK) >> place & 1);
}

/* How well the node would have the bytes of the place: 2 x wellness where they come from the
 * owner's, or are the owner's place's; 1 more by way of another copy. */
static uint32_t seat_reach(const struct seats *s, uint32_t rank, uint32_t place, uint32_t node)
{
    uint32_t owner = s->places - 1, best = 2 * HTH_LOST;

    for (uint32_t worst = HTH_WELL; worst < HTH_LOST; worst++) {
        uint32_t has = seats_sourced(s, rank, place, worst);

        for (uint32_t p = 0; p < s->places; p++) {
            uint32_t is = 2 * worst + (p != owner && place != owner);

            if (has >> p & 1 && !seat_is_empty(s, rank, p) && is < best &&
                    pair_is(s, node, *seat_of(s, rank, p)) <= worst)
                best = is;
        }
    }
    return best;
}

/* Shares no domain up to `level` with who has the rank's other places, nor a copy with its
 * owner; and has the bytes that well, by seat_reach(). */
static int seat_fits(const struct seats *s, uint32_t rank, uint32_t place, uint32_t node,
        uint32_t level, uint32_t reach)
{
    const struct hth_epoch *e = s->in->epoch;

    if (place < s->in->base->copies && hth_domain_shared(e, node, e->rank_node[rank], level))
        return 0;
    for (uint32_t p = 0; p < s->places; p++) {
        uint32_t other = *seat_of(s, rank, p);

        if (p != place && other != HTH_NODE_NONE && hth_domain_shared(e, node, other, level))
            return 0;
    }
    return !s->in->pairs || seat_reach(s, rank, place, node) <= reach;
}

static int seat_is_least(const struct seats *s, uint32_t node)
{
    return s->in->is[node] == HTH_WELL && s->load[node] == s->least;
}

/* Loads have grown, or are known now. */
static void seats_least(struct seats *s)
{
    uint32_t nodes = s->in->epoch->nodes;

    while (s->from < nodes && !seat_is_least(s, s->from))
        s->from++;
    if (s->from < nodes)
        return;
    s->least = UINT32_MAX;
    for (uint32_t n = nodes; n-- > 0;)
        if (s->in->is[n] == HTH_WELL && s->load[n] <= s->least) {
            s->least = s->load[n];
            s->from = n;
        }
}

static int seat_has_room(const struct seats *s, uint32_t node)
{
    return s->load[node] <= s->first[node];
}

/* Who is not lost, and has room when all that may go home is there. */
static void seats_roomy(struct seats *s)
{
    for (uint32_t n = 0; n < s->in->epoch->nodes; n++)
        if (s->in->is[n] != HTH_LOST && seat_has_room(s, n))
            s->roomy[s->roomies++] = n;
}

static uint32_t seat_find_roomy(
        struct seats *s, uint32_t rank, uint32_t place, uint32_t level, uint32_t reach)
{
    while (s->full < s->roomies && !seat_has_room(s, s->roomy[s->full]))
        s->full++;
    for (uint32_t i = s->full; i < s->roomies; i++)
        if (seat_has_room(s, s->roomy[i]) && seat_fits(s, rank, place, s->roomy[i], level, reach))
            return s->roomy[i];
    return HTH_NODE_NONE;
}

/* The first with the least load of all; HTH_NODE_NONE: none of these fits. */
static uint32_t seat_find_least(
        const struct seats *s, uint32_t rank, uint32_t place, uint32_t level, uint32_t reach)
{
    for (uint32_t n = s->from; n < s->in->epoch->nodes; n++)
        if (seat_is_least(s, n) && seat_fits(s, rank, place, n, level, reach))
            return n;
    return HTH_NODE_NONE;
}

static uint32_t seat_find_any(const struct seats *s, uint32_t rank, uint32_t place, uint32_t level,
        enum hth_wellness worst, uint32_t reach)
{
    uint32_t best = HTH_NODE_NONE;

    for (uint32_t n = 0; n < s->in->epoch->nodes; n++)
        if (s->in->is[n] <= worst && (best == HTH_NODE_NONE || s->load[n] < s->load[best]) &&
                seat_fits(s, rank, place, n, level, reach))
            best = n;
    return best;
}

static uint32_t seat_find(struct seats *s, uint32_t rank, uint32_t place, enum hth_wellness worst)
{
    uint32_t best = HTH_NODE_NONE, roomy = HTH_NODE_NONE, ways = s->in->pairs ? 2 : 1;

    /* Domains before ways: from the owner's place first, then by way of another copy. */
    for (uint32_t i = (s->in->base->level + 1) * ways; i-- > 0 && best == HTH_NODE_NONE;) {
        uint32_t level = i / ways, reach = 2 * (uint32_t)worst + (ways - 1 - i % ways);

        if (worst == HTH_WELL)
            best = seat_find_least(s, rank, place, level, reach);
        if (best == HTH_NODE_NONE)
            best = seat_find_any(s, rank, place, level, worst, reach);
        if (best != HTH_NODE_NONE && !seat_has_room(s, best))
            roomy = seat_find_roomy(s, rank, place, level, reach);
    }
    return roomy == HTH_NODE_NONE ? best : roomy;
}

/* Places of the rank that are with somebody who is not lost, and can be made whole there. */
static uint32_t seats_living(const struct seats *s, uint32_t rank)
{
    uint32_t living = 0;

    for (uint32_t p = 0; p < s->places; p++) {
        uint32_t node = *seat_of(s, rank, p);

        living += node != HTH_NODE_NONE && s->in->is[node] != HTH_LOST && !seat_is_cut(s, rank, p);
    }
    return living;
}

static void seat_go(struct seats *s, uint32_t *at, uint32_t to)
{
    s->load[*at]--;
    s->load[to]++;
    if (s->in->is[*at] == HTH_WELL && s->load[*at] <= s->least)
        s->from = s->in->epoch->nodes; /* it has the least load now */
    *at = to;
    seats_least(s);
}

/* 1: it is with somebody who can have it now; 0: nobody can take it, and it stays. */
static int seat_move(struct seats *s, uint32_t rank, uint32_t place)
{
    uint32_t *at = seat_of(s, rank, place);
    uint32_t to = seat_find(s, rank, place, HTH_WELL);

    if (to == HTH_NODE_NONE && seats_living(s, rank) < 1 + s->in->min_copies)
        to = seat_find(s, rank, place, HTH_BACK);
    if (to == HTH_NODE_NONE)
        return 0;
    seat_go(s, at, to);
    return 1;
}

/* Who has the place, and it is not his as the epoch began, has more than there is room for. */
static int seat_is_too_much(const struct seats *s, uint32_t rank, uint32_t place)
{
    uint32_t at = *seat_of(s, rank, place);

    return at != seat_home(s, rank, place) && s->load[at] > s->first[at] + 1;
}

/* Home, if that is there and has room, else to anybody who has; or it stays. */
static void seat_relieve(struct seats *s, uint32_t rank, uint32_t place)
{
    uint32_t to = seat_home(s, rank, place), level = s->in->base->level;

    if (s->in->is[to] == HTH_LOST || !seat_has_room(s, to) ||
            !seat_fits(s, rank, place, to, level, HTH_WELL))
        to = seat_find_roomy(s, rank, place, level, HTH_WELL);
    if (to != HTH_NODE_NONE)
        seat_go(s, seat_of(s, rank, place), to);
}

static void seat_go_home(struct seats *s, uint32_t rank, uint32_t place)
{
    uint32_t home = seat_home(s, rank, place);
    uint32_t *at = seat_of(s, rank, place);

    s->load[*at]--;
    s->load[home]++;
    *at = home;
}

/* An owner has its place while it is not lost. */
static void seats_home(struct seats *s, uint32_t rank)
{
    for (uint32_t p = 0; p < s->places; p++) {
        uint32_t home = seat_home(s, rank, p), at = *seat_of(s, rank, p);
        int owner = p == s->places - 1;

        if (at == home || at == HTH_NODE_NONE || s->in->is[home] == HTH_LOST ||
                (s->in->stay && !owner))
            continue;
        if (owner || (s->in->is[home] == HTH_WELL &&
                             seat_fits(s, rank, p, home, s->in->base->level, HTH_WELL)))
            seat_go_home(s, rank, p);
    }
}

static void seats_fill(struct seats *s)
{
    const struct hth_holders *last = s->in->last;

    for (uint32_t r = 0; r < s->in->epoch->world; r++)
        for (uint32_t p = 0; p < s->places; p++)
            *seat_of(s, r, p) = seat_home(s, r, p);
    for (size_t i = 0; i < (size_t)s->in->epoch->world * s->places; i++)
        if (s->now[i] != HTH_NODE_NONE)
            s->first[s->now[i]]++;
    for (uint32_t i = 0; i < last->moves; i++)
        if (last->move[i].rank < s->in->epoch->world && last->move[i].place < s->places &&
                last->move[i].node < s->in->epoch->nodes)
            *seat_of(s, last->move[i].rank, last->move[i].place) = last->move[i].node;
    for (size_t i = 0; i < (size_t)s->in->epoch->world * s->places; i++)
        if (s->now[i] != HTH_NODE_NONE)
            s->load[s->now[i]]++;
}

/* Who has the bytes of a place: whoever had it when a map was settled last. *at: how far the last map is gone
 * through. */
static uint32_t seat_was(const struct seats *s, uint32_t rank, uint32_t place, uint32_t *at)
{
    const struct hth_holders *last = s->in->last;
    const struct hth_move *m = last->move; /* NULL without any */
    uint32_t i = *at;

    while (i < last->moves && (m[i].rank < rank || (m[i].rank == rank && m[i].place < place)))
        i++;
    *at = i;
    if (i == last->moves || m[i].rank != rank || m[i].place != place)
        return seat_home(s, rank, place);
    return s->in->settled ? m[i].node : m[i].was;
}

/* What is not as the epoch began, or was not; returns how many. out: NULL: only counted. */
static uint32_t seats_put(const struct seats *s, struct hth_move *out)
{
    uint32_t moves = 0, at = 0;

    for (uint32_t r = 0; r < s->in->epoch->world; r++)
        for (uint32_t p = 0; p < s->places; p++) {
            uint32_t home = seat_home(s, r, p), node = *seat_of(s, r, p);
            uint32_t was = home == HTH_NODE_NONE ? home : seat_was(s, r, p, &at);

            if (node == home && was == home)
                continue;
            if (out)
                out[moves] = (struct hth_move){ r, p, node, was };
            moves++;
        }
    return moves;
}

static int seats_write(const struct seats *s, struct hth_move **out, uint32_t *out_moves)
{
    uint32_t moves = seats_put(s, NULL);

    *out = calloc(moves ? moves : 1, sizeof(**out));
    if (!*out)
        return HEARTH_ENOMEM;
    *out_moves = seats_put(s, *out);
    return HEARTH_OK;
}

/* 0: it should be elsewhere, and nobody can take it. */
static int seat_next(struct seats *s, uint32_t rank, uint32_t place)
{
    uint32_t at = *seat_of(s, rank, place);

    if (at == HTH_NODE_NONE)
        return 1;
    if (s->in->is[at] == HTH_LOST || seat_is_cut(s, rank, place))
        return seat_move(s, rank, place);
    if (seat_is_too_much(s, rank, place))
        seat_relieve(s, rank, place);
    return 1;
}

static void seats_next(struct seats *s, uint32_t *out_moved, uint32_t *out_stuck)
{
    *out_moved = *out_stuck = 0;
    for (uint32_t r = 0; r < s->in->epoch->world; r++)
        for (uint32_t p = 0; p < s->places; p++) {
            uint32_t at = *seat_of(s, r, p);

            *out_stuck += (uint32_t)!seat_next(s, r, p);
            *out_moved += *seat_of(s, r, p) != at;
        }
}

int hth_remap(const struct hth_remap *in, struct hth_move **out, uint32_t *out_moves,
        uint32_t *out_moved, uint32_t *out_stuck)
{
    struct seats s = { .in = in, .places = in->base->copies + 1, .from = in->epoch->nodes };
    uint32_t nodes = in->epoch->nodes;
    int rc = HEARTH_ENOMEM;

    s.now = calloc((size_t)in->epoch->world * s.places, sizeof(*s.now));
    s.load = calloc((size_t)3 * nodes, sizeof(*s.load));
    if (s.now && s.load) {
        s.first = s.load + nodes;
        s.roomy = s.first + nodes;
        seats_fill(&s);
        for (uint32_t r = 0; r < in->epoch->world; r++)
            seats_home(&s, r);
        seats_roomy(&s);
        seats_least(&s);
        seats_next(&s, out_moved, out_stuck);
        rc = seats_write(&s, out, out_moves);
    }
    free(s.now);
    free(s.load);
    return rc;
}
