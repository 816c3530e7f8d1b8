/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"

#include "core/base/env.h"
#include "replication/commit/remap.h"
#include <stdio.h>
#include <stdlib.h>

static struct hth_epoch epoch_of(uint32_t nodes, uint32_t ranks_per_node, uint32_t per_rack)
{
    struct hth_epoch e = {
        .epoch = 1, .nonce = 1, .world = nodes * ranks_per_node, .nodes = nodes
    };

    e.rank_node = calloc(e.world, sizeof(*e.rank_node));
    e.member = calloc(nodes, sizeof(*e.member));
    cr_assert(e.rank_node && e.member);
    for (uint32_t r = 0; r < e.world; r++)
        e.rank_node[r] = r / ranks_per_node;
    for (uint32_t n = 0; n < nodes && per_rack; n++)
        e.member[n].domain[0] = 100 + n / per_rack;
    return e;
}

static void done(struct hth_epoch *e, struct hth_placement *p)
{
    hth_placement_fini(p);
    free(e->rank_node);
    free(e->member);
}

/* No copy lies with its owner or another copy, and no node holds more than one share above the
 * least. */
static void must_be_fair(const struct hth_epoch *e, const struct hth_placement *p, int racks)
{
    uint32_t load[64] = { 0 };
    uint32_t most = 0, least = UINT32_MAX;

    for (uint32_t r = 0; r < e->world; r++)
        for (uint32_t c = 0; c < p->copies; c++) {
            uint32_t h = p->holder[r * p->copies + c];

            cr_assert(ne(u32, h, HTH_NODE_NONE));
            cr_assert(ne(u32, h, e->rank_node[r]));
            if (racks)
                cr_assert(ne(u64, e->member[h].domain[0], e->member[e->rank_node[r]].domain[0]));
            for (uint32_t d = 0; d < c; d++) {
                uint32_t other = p->holder[r * p->copies + d];

                cr_assert(ne(u32, h, other));
                if (racks)
                    cr_assert(ne(u64, e->member[h].domain[0], e->member[other].domain[0]));
            }
            load[h]++;
        }
    for (uint32_t n = 0; n < e->nodes; n++) {
        most = load[n] > most ? load[n] : most;
        least = load[n] < least ? load[n] : least;
    }
    cr_assert(le(u32, most - least, racks ? p->copies * 2 * e->world / e->nodes : 0));
}

Test(placement, shares_nothing_and_is_even_for_any_number_of_nodes)
{
    for (uint32_t nodes = 2; nodes <= 33; nodes++)
        for (uint32_t copies = 1; copies <= 3 && copies < nodes; copies++) {
            struct hth_epoch e = epoch_of(nodes, 2, 0);
            struct hth_placement p;

            must(hth_placement_make(&p, &e, copies, copies, 0, NULL));
            must_be_fair(&e, &p, 0);
            done(&e, &p);
        }
}

Test(placement, keeps_copies_out_of_the_owners_rack)
{
    for (uint32_t racks = 2; racks <= 6; racks++) {
        struct hth_epoch e = epoch_of(racks * 2, 2, 2);
        struct hth_placement p;

        must(hth_placement_make(&p, &e, 1, 1, 0, NULL));
        cr_assert(eq(u32, p.level, HTH_LEVEL_MACHINE + 1));
        must_be_fair(&e, &p, 1);
        done(&e, &p);
    }
}

/* Every node computes it by itself, and engines of two versions must come to the same. */
Test(placement, is_this_one_where_racks_are_of_different_sizes)
{
    static const uint64_t rack[] = { 100, 101, 101, 102, 102 };
    static const uint32_t holder[] = { 1, 3, 4, 0, 0 };
    struct hth_epoch e = epoch_of(5, 1, 0);
    struct hth_placement p;

    for (uint32_t n = 0; n < 5; n++)
        e.member[n].domain[0] = rack[n];
    must(hth_placement_make(&p, &e, 1, 1, 0, NULL));
    for (uint32_t r = 0; r < 5; r++)
        cr_assert(eq(u32, p.holder[r], holder[r]), "rank %u", r);
    done(&e, &p);
}

Test(placement, makes_pairs_of_an_even_number)
{
    struct hth_epoch e = epoch_of(6, 1, 0);
    struct hth_placement p;

    must(hth_placement_make(&p, &e, 1, 1, 0, NULL));
    for (uint32_t r = 0; r < 6; r++)
        cr_assert(eq(u32, p.holder[p.holder[r]], r));
    done(&e, &p);
}

Test(placement, refuses_what_the_nodes_cannot_give_unless_told)
{
    struct hth_epoch e = epoch_of(2, 1, 0);
    struct hth_placement p;
    struct hearth_error err;

    must_fail(hth_placement_make(&p, &e, 2, 2, 0, &err), HEARTH_EINVAL);
    cr_assert(strstr(err.text, "allow_degraded") != NULL);
    must(hth_placement_make(&p, &e, 2, 2, 1, NULL));
    cr_assert(eq(u32, p.holder[0], 1));
    cr_assert(eq(u32, p.holder[1], HTH_NODE_NONE));
    done(&e, &p);
}

/* Both nodes are in one rack: the copy lies in the owner's failure domain. */
Test(placement, refuses_copies_in_the_owners_domain_unless_told)
{
    struct hth_epoch e = epoch_of(2, 1, 2);
    struct hth_placement p;
    struct hearth_error err;

    must_fail(hth_placement_make(&p, &e, 1, 1, 0, &err), HEARTH_EINVAL);
    cr_assert(strstr(err.text, "need 2 domains of level 1, the job's nodes are in 1") != NULL, "%s",
            err.text);
    cr_assert(strstr(err.text, "allow_degraded") != NULL, "%s", err.text);
    must(hth_placement_make(&p, &e, 1, 1, 1, NULL));
    cr_assert(eq(u32, p.holder[0], 1));
    cr_assert(zero(u32, p.separate));
    cr_assert(eq(u32, hth_placement_domains(&p, &e, (const uint32_t[]){ 0, 1 }, 2), 1));
    done(&e, &p);
}

static struct hth_epoch pods_of(uint32_t nodes, uint32_t per_machine)
{
    struct hth_epoch e = epoch_of(nodes, 1, 0);

    for (uint32_t n = 0; n < nodes; n++) {
        e.member[n].machine = 1 + n / per_machine * per_machine;
        snprintf(e.member[n].node, sizeof(e.member[n].node), "pod-%u", n);
    }
    return e;
}

/* Whatever the names of the two nodes, both fail with their machine. */
Test(placement, refuses_copies_on_the_owners_machine_unless_told)
{
    struct hth_epoch e = pods_of(2, 2);
    struct hth_placement p;
    struct hearth_error err;
    char text[384];

    must_fail(hth_placement_make(&p, &e, 1, 1, 0, &err), HEARTH_EINVAL);
    must_say(err.text,
            "1 copies in other failure domains need 2 machines, the job's 2 nodes are on "
            "1: add machines, set allow_degraded, or, where a machine's id is not its "
            "own, name it (HEARTH_MACHINE)");
    must(hth_placement_make(&p, &e, 1, 1, 1, NULL));
    cr_assert(eq(u32, p.holder[0], 1)); /* a pod that is lost alone is survived */
    cr_assert(zero(u32, p.separate));
    cr_assert(eq(u32, hth_placement_domains(&p, &e, (const uint32_t[]){ 0, 1 }, 2), 1));
    hth_placement_text(&p, &e, text, sizeof(text));
    must_say(text, "2 nodes on 1 machine(s) ('pod-0' and 'pod-1' are on one), 0 of 1 copies in "
                   "other machine(s): saves are DEGRADED");
    done(&e, &p);
}

Test(placement, puts_copies_on_other_machines)
{
    for (uint32_t copies = 1; copies <= 2; copies++) {
        struct hth_epoch e = pods_of(9, 3);
        struct hth_placement p;
        char text[384], want[384];

        must(hth_placement_make(&p, &e, copies, copies, 0, NULL));
        cr_assert(eq(u32, p.level, HTH_LEVEL_MACHINE));
        for (uint32_t r = 0; r < e.world; r++) {
            uint32_t all[] = { r, p.holder[r * copies], p.holder[r * copies + copies - 1] };

            cr_assert(eq(u32, hth_placement_domains(&p, &e, all, 1 + copies), 1 + copies));
        }
        hth_placement_text(&p, &e, text, sizeof(text));
        snprintf(want, sizeof(want),
                "9 nodes on 3 machine(s) ('pod-0' and 'pod-1' are on one), %u of %u copies: "
                "survives the loss of any %u machine(s)",
                copies, copies, copies);
        must_say(text, want);
        done(&e, &p);
    }
}

/* Two racks and two copies: each object has one in the other rack, whichever the second is. */
Test(placement, puts_as_many_copies_apart_as_there_are_domains)
{
    struct hth_epoch e = epoch_of(6, 2, 3);
    struct hth_placement p;
    struct hearth_error err;

    must_fail(hth_placement_make(&p, &e, 2, 2, 0, &err), HEARTH_EINVAL);
    must(hth_placement_make(&p, &e, 2, 1, 0, NULL));
    cr_assert(eq(u32, p.separate, 1));
    for (uint32_t r = 0; r < e.world; r++) {
        uint32_t all[] = { e.rank_node[r], p.holder[2 * r], p.holder[2 * r + 1] };

        cr_assert(eq(u32, hth_placement_domains(&p, &e, all, 3), 2), "rank %u", r);
        cr_assert(ne(u32, all[1], all[2]));
        cr_assert(ne(u32, all[0], all[2]));
        cr_assert(ne(u64, e.member[all[0]].domain[0], e.member[all[1]].domain[0]));
    }
    done(&e, &p);
}

/* One copy cannot be made fewer. */
Test(placement, advises_only_what_can_be_done)
{
    struct hth_epoch one = epoch_of(1, 1, 0), two = epoch_of(2, 1, 0);
    struct hth_placement p = { 0 };
    struct hearth_error err;

    must_fail(hth_placement_make(&p, &one, 1, 1, 0, &err), HEARTH_EINVAL);
    cr_assert(strstr(err.text, "add nodes, or set allow_degraded") != NULL, "%s", err.text);
    must_fail(hth_placement_make(&p, &two, 2, 2, 0, &err), HEARTH_EINVAL);
    cr_assert(strstr(err.text, "lower min_copies") != NULL, "%s", err.text);
    done(&one, &p);
    free(two.rank_node);
    free(two.member);
}

Test(placement, moves_a_lost_copy_to_somebody_who_shares_nothing)
{
    struct hth_epoch e = epoch_of(5, 1, 0);
    struct hth_placement p;
    uint8_t is[5] = { 0 };
    struct hth_places none = { 0 };
    struct hth_remap in = { .epoch = &e, .base = &p, .last = &none, .reach = is, .min_copies = 2 };
    struct hth_move *move;
    uint32_t gone, to = HTH_NODE_NONE, moves, moved, stuck;

    must(hth_placement_make(&p, &e, 2, 2, 0, NULL));
    gone = p.holder[0];
    is[gone] = HTH_UNREACHABLE;
    must(hth_remap(&in, &move, &moves, &moved, &stuck));
    cr_assert(eq(u32, stuck, 0));
    for (uint32_t i = 0; i < moves; i++)
        to = move[i].rank == 0 && move[i].place == 0 ? move[i].node : to;
    free(move);
    cr_assert(ne(u32, to, HTH_NODE_NONE));
    cr_assert(ne(u32, to, gone));
    cr_assert(ne(u32, to, 0));
    cr_assert(ne(u32, to, p.holder[1]));
    done(&e, &p);
}

Test(placement, who_shares_a_narrow_domain_shares_all_wider_ones)
{
    struct hth_epoch e = epoch_of(4, 1, 2); /* two racks */

    e.member[0].domain[1] = 7;
    e.member[1].domain[1] = 8; /* it says another row than the rest of its rack */
    cr_assert(zero(int, hth_domain_shared(&e, 0, 1, 0)));
    cr_assert(zero(int, hth_domain_shared(&e, 0, 1, HTH_LEVEL_MACHINE)));
    cr_assert(eq(int, hth_domain_shared(&e, 0, 1, HTH_LEVEL_MACHINE + 1), 1));
    cr_assert(eq(int, hth_domain_shared(&e, 0, 1, HTH_LEVEL_MACHINE + 2), 1));
    cr_assert(zero(int, hth_domain_shared(&e, 0, 2, HTH_LEVEL_MACHINE + 2)));
    free(e.rank_node);
    free(e.member);
}

/* ---- Maps ------------------------------------------------------------------------------------ */

struct maps { /* one map after the other */
    struct hth_epoch e;
    struct hth_placement p;
    struct hth_places last;
    uint8_t is[8];
    int settled;
    uint32_t stuck;
};

static struct maps maps_of(uint32_t nodes, uint32_t copies)
{
    struct maps m = { .e = epoch_of(nodes, 2, 0) };

    must(hth_placement_make(&m.p, &m.e, copies, copies, 0, NULL));
    return m;
}

static void next(struct maps *m)
{
    struct hth_remap in = { .epoch = &m->e,
        .base = &m->p,
        .last = &m->last,
        .settled = m->settled,
        .reach = m->is,
        .min_copies = m->p.copies };
    struct hth_move *move;
    uint32_t moves, moved;

    must(hth_remap(&in, &move, &moves, &moved, &m->stuck));
    free(m->last.move);
    m->last.move = move;
    m->last.moves = moves;
    m->settled = 0;
}

/* The node that has the place now. */
static uint32_t at(const struct maps *m, uint32_t rank, uint32_t place)
{
    const struct hth_move *v = hth_places_move(&m->last, rank, place);

    if (v)
        return v->node;
    return place < m->p.copies ? m->p.holder[rank * m->p.copies + place] : m->e.rank_node[rank];
}

static uint32_t places_of(const struct maps *m, uint32_t node)
{
    uint32_t n = 0;

    for (uint32_t r = 0; r < m->e.world; r++)
        for (uint32_t place = 0; place <= m->p.copies; place++)
            n += at(m, r, place) == node;
    return n;
}

static void maps_end(struct maps *m)
{
    free(m->last.move);
    done(&m->e, &m->p);
}

Test(placement, a_lost_node_has_no_place_and_its_own_ranks_objects_have_one)
{
    struct maps m = maps_of(6, 1);

    m.is[4] = HTH_UNREACHABLE;
    next(&m);
    cr_assert(eq(u32, places_of(&m, 4), 0));
    for (uint32_t r = 0; r < m.e.world; r++)
        cr_assert(ne(u32, at(&m, r, 0), at(&m, r, 1)), "rank %u", r);
    cr_assert(eq(u32, m.stuck, 0));
    maps_end(&m);
}

Test(placement, a_node_that_returns_has_all_its_places_at_once)
{
    struct maps m = maps_of(6, 1);
    uint32_t all = places_of(&m, 4);

    m.is[4] = HTH_UNREACHABLE;
    next(&m);
    m.is[4] = HTH_RETURNED;
    next(&m);
    cr_assert(eq(u32, places_of(&m, 4), all));
    m.settled = 1;
    next(&m);
    cr_assert(eq(u32, m.last.moves, 0));
    maps_end(&m);
}

Test(placement, who_had_a_place_when_a_map_was_settled_is_remembered)
{
    struct maps m = maps_of(6, 1);
    uint32_t home = m.p.holder[0];
    const struct hth_move *v;

    for (int i = 0; i < 3; i++) { /* whoever it goes to is lost before the map is settled */
        m.is[at(&m, 0, 0)] = HTH_UNREACHABLE;
        next(&m);
        v = hth_places_move(&m.last, 0, 0);
        cr_assert(v != NULL);
        cr_assert(eq(u32, v->was, home));
    }
    m.settled = 1;
    next(&m);
    v = hth_places_move(&m.last, 0, 0);
    cr_assert(v != NULL);
    cr_assert(eq(u32, v->was, v->node));
    maps_end(&m);
}

Test(placement, who_is_only_back_is_given_copies_where_nobody_else_could_take_them)
{
    struct maps m = maps_of(3, 1);

    for (uint32_t n = 1; n < 3; n++)
        m.is[n] = HTH_RETURNED;
    m.is[1] = HTH_UNREACHABLE;
    next(&m);
    for (uint32_t r = 0; r < m.e.world; r++)
        cr_assert(ne(u32, at(&m, r, 0), 1), "rank %u", r);
    cr_assert(eq(u32, m.stuck, 0));
    maps_end(&m);
}

Test(placement, those_who_are_only_back_share_what_they_are_given)
{
    struct maps m = maps_of(6, 1);

    memset(m.is, HTH_RETURNED, sizeof(m.is));
    m.is[4] = HTH_UNREACHABLE; /* two copies, and two of its own */
    next(&m);
    for (uint32_t n = 0; n < 6; n++)
        cr_assert(le(u32, places_of(&m, n), 5), "node %u", n);
    maps_end(&m);
}

Test(placement, what_nobody_can_take_stays_and_is_counted)
{
    struct maps m = maps_of(2, 1);

    m.is[1] = HTH_UNREACHABLE;
    next(&m);
    cr_assert(eq(u32, m.stuck, 4), "two copies, and two of its own");
    cr_assert(eq(u32, m.last.moves, 0));
    maps_end(&m);
}

/* ---- Any topology ---------------------------------------------------------------------------- */

enum { NODES = 24, RANKS = 2 /* of each node */ };

/* Racks of 1 to 4 nodes, pods of 1 to 3 racks; one node in ten has named no rack. */
static struct hth_epoch epoch_rolled(uint64_t *seed)
{
    struct hth_epoch e = epoch_of(2 + (uint32_t)(hth_splitmix64(seed) % (NODES - 1)), RANKS, 0);
    uint64_t rack = 1, pod = 1001;
    uint32_t machine = 0; /* the first node of the latest machine with several nodes */

    for (uint32_t n = 0; n < e.nodes; n++) {
        int next_rack = hth_splitmix64(seed) % 3 == 0;

        rack += (uint64_t)next_rack;
        pod += (uint64_t)(next_rack && hth_splitmix64(seed) % 2);
        e.member[n].domain[0] = hth_splitmix64(seed) % 10 ? rack : 0;
        e.member[n].domain[1] = pod;
        if (n && !next_rack && hth_splitmix64(seed) % 3 == 0) {
            machine = e.member[n - 1].machine ? machine : n;
            e.member[n].domain[0] = e.member[n - 1].domain[0];
            e.member[n].machine = e.member[n - 1].machine = machine;
        }
    }
    return e;
}

static int is_apart(const struct hth_epoch *e, uint32_t a, uint32_t b, uint32_t level)
{
    if (level && e->member[a].machine && e->member[a].machine == e->member[b].machine)
        return 0;
    for (uint32_t l = 0; l + HTH_LEVEL_MACHINE < level; l++)
        if (e->member[a].domain[l] && e->member[a].domain[l] == e->member[b].domain[l])
            return 0;
    return a != b;
}

/* The number of domains at a level; level 0: of nodes. A node that names no domain counts by its
 * machine. */
static uint32_t domains_of(const struct hth_epoch *e, uint32_t level)
{
    uint32_t domains = 0;

    for (uint32_t n = 0, first; n < e->nodes; n++) {
        for (first = 0; first < n; first++)
            if (level > 1 && e->member[n].domain[level - 2]
                            ? e->member[n].domain[level - 2] == e->member[first].domain[level - 2]
                            : !is_apart(e, n, first, level < 1 ? level : 1))
                break;
        domains += first == n;
    }
    return domains;
}

static void must_be_apart(const struct hth_epoch *e, const struct hth_placement *p)
{
    for (uint32_t r = 0; r < e->world; r++)
        for (uint32_t c = 0; c < p->copies; c++) {
            uint32_t holder = p->holder[r * p->copies + c];

            cr_assert(lt(u32, holder, e->nodes));
            cr_assert(is_apart(e, holder, e->rank_node[r], p->level));
            for (uint32_t d = 0; d < c; d++)
                cr_assert(is_apart(e, holder, p->holder[r * p->copies + d], p->level));
        }
}

/* For each copy: of two nodes of one domain, one holds it of at most one owner more. */
static void must_be_even(const struct hth_epoch *e, const struct hth_placement *p)
{
    for (uint32_t c = 0; c < p->copies; c++) {
        uint32_t load[NODES] = { 0 };

        for (uint32_t r = 0; r < e->world; r++)
            load[p->holder[r * p->copies + c]]++;
        for (uint32_t a = 0; a < e->nodes; a++)
            for (uint32_t b = 0; b < e->nodes; b++)
                if (!is_apart(e, a, b, p->level))
                    cr_assert(le(u32, load[a], load[b] + RANKS));
    }
}

Test(placement, keeps_copies_apart_at_the_widest_level_that_has_the_domains_for_it)
{
    uint64_t seed = 1;

    for (int i = 0; i < 2000; i++) {
        struct hth_epoch e = epoch_rolled(&seed);
        uint32_t copies = 1 + (uint32_t)(hth_splitmix64(&seed) % (e.nodes > 3 ? 3 : e.nodes - 1));
        uint32_t level = HTH_LEVEL_MACHINE + 2;
        struct hth_placement p;

        while (domains_of(&e, level) <= copies)
            level--;
        must(hth_placement_make(&p, &e, copies, copies, 1, NULL));
        cr_assert(eq(u32, p.level, level), "%u copies, %u nodes, roll %d", copies, e.nodes, i);
        must_be_apart(&e, &p);
        if (p.separate == copies)
            must_be_even(&e, &p);
        done(&e, &p);
    }
}
