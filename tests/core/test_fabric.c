/* SPDX-License-Identifier: Apache-2.0 */
/* `transport = auto`: the choice over made-up tables, and over many that are drawn. */
#include "damaged.h"

#include "core/base/auth.h"
#include "core/format/fabric.h"

#include <stdio.h>

#define WORLD 4
#define MOST  32

static unsigned char table[MOST][HTH_GATHER];
static struct hth_gather rank[MOST];
static uint32_t world;

static uint32_t number(const char *transport, const char *provider)
{
    const struct hth_fabric *f = hth_fabric_find(transport, provider);

    cr_assert(ne(ptr, (void *)(uintptr_t)f, NULL), "%s %s", transport, provider);
    return f->number;
}

#define BIT(transport, provider) HTH_FABRIC_BIT(number(transport, provider))

static void listen_on(uint32_t r, uint32_t fabric)
{
    const struct hth_fabric *f = hth_fabric_of(fabric);

    snprintf(rank[r].transport, sizeof(rank[r].transport), "%s", f ? f->transport : "ofi");
    snprintf(rank[r].provider, sizeof(rank[r].provider), "%s", f ? f->provider : "shm");
}

/* Node "n0" has ranks 0 and 1, "n1" 2 and 3; all have both TCPs and listen on the better one. */
static void setup(void)
{
    world = WORLD;
    must(hth_auth_init(NULL));
    memset(rank, 0, sizeof(rank));
    for (uint32_t i = 0; i < MOST; i++) {
        rank[i].fabrics = BIT("ofi", "tcp") | BIT("ucx", "tcp");
        rank[i].rank = i;
        snprintf(rank[i].job, sizeof(rank[i].job), "job");
        snprintf(rank[i].node, sizeof(rank[i].node), "n%u", i / 2);
        listen_on(i, number("ofi", "tcp"));
    }
}

static int choose(struct hth_fabric_choice *c, struct hearth_error *err)
{
    for (uint32_t i = 0; i < world; i++) {
        rank[i].world = world;
        hth_gather_encode(&rank[i], table[i]);
    }
    return hth_fabric_choose(table[0], world, c, err);
}

static struct hth_fabric_choice chosen(const char *says)
{
    char text[HTH_FABRIC_TEXT];
    struct hearth_error err = { 0 };
    struct hth_fabric_choice c;

    cr_assert(zero(int, choose(&c, &err)), "%s", err.text);
    hth_fabric_say(&c, table[0], text);
    must_say(text, says);
    return c;
}

static void refused(const char *words)
{
    struct hearth_error err = { 0 };
    struct hth_fabric_choice c;

    must_fail(choose(&c, &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, words), NULL), "%s", err.text);
}

TestSuite(fabric, .init = setup);

Test(fabric, the_best_that_all_have_is_chosen)
{
    struct hth_fabric_choice c = chosen("ofi tcp is the best that any node has, and all have it");

    cr_assert(eq(u32, c.fabric, number("ofi", "tcp")));
    cr_assert(eq(int, c.settled, 1));
    for (uint32_t i = 0; i < world; i++)
        rank[i].fabrics |= BIT("ofi", "verbs") | BIT("ucx", "rc_mlx5");
    c = chosen("ofi verbs is the best that any node has, and all have it");
    cr_assert(eq(int, c.settled, 0), "they listen on tcp");
}

Test(fabric, who_lacks_a_better_one_is_named)
{
    struct hth_fabric_choice c;

    rank[0].fabrics |= BIT("ofi", "verbs");
    rank[1].fabrics |= BIT("ofi", "verbs");
    c = chosen(
            "ofi tcp is the best that all nodes have: ofi verbs is better, and rank 2 (node 'n1') "
            "does not have it");
    cr_assert(eq(int, c.settled, 1));
    listen_on(0, number("ofi", "verbs"));
    cr_assert(zero(int, choose(&c, NULL)));
    cr_assert(eq(int, c.settled, 0), "rank 0 has to come down");
}

Test(fabric, nothing_in_common_is_an_error_by_name)
{
    rank[2].fabrics = rank[3].fabrics = BIT("ofi", "efa");
    refused("no fabric is on all nodes: rank 2 (node 'n1') has ofi efa, and the ranks before it share "
            "ofi tcp, ucx tcp");
}

Test(fabric, a_transport_set_by_hand_is_all_that_its_node_has)
{
    struct hth_fabric_choice c;

    for (uint32_t i = 0; i < world; i++)
        rank[i].fabrics = 0;
    listen_on(3, number("ucx", "tcp"));
    cr_assert(zero(int, choose(&c, NULL)), "all by hand: not ours to compare");
    cr_assert(eq(u32, c.fabric, 0));
    cr_assert(eq(int, c.settled, 1));
    setup();
    rank[2].fabrics = rank[3].fabrics = 0;
    listen_on(2, number("ucx", "tcp"));
    listen_on(3, number("ucx", "tcp"));
    c = chosen("ucx tcp is the best that all nodes have: ofi tcp is better, and rank 2 (node 'n1') "
               "does not have it");
    cr_assert(eq(int, c.settled, 0));
    listen_on(3, 0);
    refused("rank 3 (node 'n1') has transport ofi with provider 'shm' set by hand");
}

Test(fabric, a_later_epoch_comes_down_only_where_it_may)
{
    for (uint32_t i = 0; i < world; i++)
        rank[i].first_fabric = number("ofi", "verbs");
    rank[0].fabrics |= BIT("ofi", "verbs");
    rank[1].fabrics |= BIT("ofi", "verbs");
    rank[2].first_fabric = rank[3].first_fabric = 0; /* a node that came in another's place */
    refused("this job began on ofi verbs, which rank 2 (node 'n1') does not have");
    for (uint32_t i = 0; i < world; i++)
        rank[i].flags = HTH_GATHER_ALLOW_SLOWER;
    chosen("ofi tcp is the best that all nodes have: ofi verbs is better, and rank 2 (node 'n1') does "
           "not have it");
    setup();
    rank[1].first_fabric = number("ucx", "tcp");
    chosen("ofi tcp is the best that any node has, and all have it"); /* what is better is welcome */
    rank[1].first_fabric = 31; /* that no table of ours has */
    chosen("ofi tcp is the best that any node has, and all have it");
}

/* A job that began before our own sockets were taken goes on over them, and not back without
 * leave. */
Test(fabric, own_sockets_are_better_than_either_librarys_tcp)
{
    struct hth_fabric_choice c;

    for (uint32_t i = 0; i < world; i++) {
        rank[i].fabrics |= BIT("tcp", "tcp");
        rank[i].first_fabric = number("ofi", "tcp");
    }
    c = chosen("tcp is the best that any node has, and all have it");
    cr_assert(eq(u32, c.fabric, number("tcp", "tcp")));
    cr_assert(zero(int, c.settled), "they listen on libfabric's");
    rank[2].fabrics = rank[3].fabrics = BIT("ofi", "tcp") | BIT("ucx", "tcp");
    c = chosen(
            "ofi tcp is the best that all nodes have: tcp is better, and rank 2 (node 'n1') does "
            "not have it");
    cr_assert(eq(int, c.settled, 1));
    rank[0].first_fabric = number("tcp", "tcp");
    refused("this job began on tcp, which rank 2 (node 'n1') does not have");
    setup();
    for (uint32_t i = 0; i < world; i++)
        rank[i].fabrics |= BIT("tcp", "tcp") | BIT("ofi", "psm2");
    chosen("ofi psm2 is the best that any node has, and all have it");
}

/* The row of an engine that has been in an epoch names only the fabric that it is on. */
Test(fabric, the_first_epochs_fabric_is_named_also_where_nothing_is_common)
{
    for (uint32_t i = 0; i < 2; i++) {
        rank[i].fabrics = BIT("ofi", "verbs");
        rank[i].first_fabric = number("ofi", "verbs");
    }
    refused("this job began on ofi verbs, which rank 2 (node 'n1') does not have");
}

/* ---- drawn tables ---------------------------------------------------------------------------- */

static uint64_t state;

static uint32_t draw(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(state >> 33) % below;
}

static void table_draw(void)
{
    uint32_t common = 0;

    setup();
    world = 1 + draw(MOST);
    for (const struct hth_fabric *f = hth_fabrics; f->number; f++)
        common |= draw(4) ? 0 : HTH_FABRIC_BIT(f->number);
    for (uint32_t i = 0; i < world; i++) {
        rank[i].fabrics = common | (draw(1u << 12) & draw(1u << 12) & ~1u);
        if (!draw(8))
            rank[i].fabrics = 0;
        if (!draw(4))
            rank[i].first_fabric = draw(13);
        rank[i].flags = state & 0x100000 ? HTH_GATHER_ALLOW_SLOWER : 0;
        listen_on(i, draw(20) ? 1 + draw(11) : 0);
        if (i % 2 && draw(16)) { /* mostly what the other rank of the node says */
            rank[i].fabrics = rank[i - 1].fabrics;
            rank[i].first_fabric = rank[i - 1].first_fabric;
            memcpy(rank[i].transport, rank[i - 1].transport, sizeof(rank[i].transport));
            memcpy(rank[i].provider, rank[i - 1].provider, sizeof(rank[i].provider));
        }
    }
    if (!draw(3))
        for (uint32_t i = 0, f = 1 + draw(11); i < world; i++)
            listen_on(i, f);
}

static int has(uint32_t r, const struct hth_fabric *f)
{
    return rank[r].fabrics ? (rank[r].fabrics & HTH_FABRIC_BIT(f->number)) != 0
                           : !strcmp(rank[r].transport, f->transport) &&
                                     !strcmp(rank[r].provider, f->provider);
}

static uint32_t how_many_have(const struct hth_fabric *f)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < world; i++)
        count += has(i, f);
    return count;
}

/* The definition, word by word: the first row of the list that everybody has. */
static const struct hth_fabric *oracle_best(void)
{
    const struct hth_fabric *f = hth_fabrics;

    while (f->number && how_many_have(f) < world)
        f++;
    return f;
}

/* The first row that some node began on; the end of the list: none. */
static const struct hth_fabric *oracle_first(void)
{
    const struct hth_fabric *f = hth_fabrics;

    for (; f->number; f++)
        for (uint32_t i = 0; i < world; i++)
            if (rank[i].first_fabric == f->number)
                return f;
    return f;
}

static void is_as_defined(int rc, const struct hth_fabric_choice *c, unsigned round)
{
    const struct hth_fabric *best = oracle_best(), *first = oracle_first(), *better = hth_fabrics;
    int is_auto = 0, settled = 1, slower = 0;

    for (uint32_t i = 0; i < world; i++) {
        is_auto |= rank[i].fabrics != 0;
        slower |= rank[i].flags != 0;
        settled &= !strcmp(rank[i].transport, best->number ? best->transport : "") &&
                   !strcmp(rank[i].provider, best->number ? best->provider : "");
    }
    if (!is_auto) {
        cr_assert(eq(int, !rc && !c->fabric && c->settled, 1), "round %u", round);
        return;
    }
    if (!best->number || (first->number && first < best && !slower)) {
        cr_assert(ne(int, rc, 0), "round %u", round);
        return;
    }
    while (better < best && !how_many_have(better))
        better++;
    cr_assert(eq(int, rc, 0), "round %u", round);
    cr_assert(eq(u32, c->fabric, best->number), "round %u", round);
    cr_assert(eq(int, c->settled, settled), "round %u", round);
    cr_assert(eq(u32, c->better, better < best ? better->number : 0), "round %u", round);
    cr_assert(eq(int, !c->better || !has(c->lacks, better), 1), "round %u", round);
}

/* Every rank chooses by itself, of the same bytes wherever they lie. */
static void all_agree(int rc, const struct hth_fabric_choice *c, unsigned round)
{
    static unsigned char elsewhere[MOST][HTH_GATHER];
    struct hth_fabric_choice other;

    memcpy(elsewhere, table, sizeof(table));
    cr_assert(eq(int, hth_fabric_choose(elsewhere[0], world, &other, NULL), rc), "round %u", round);
    cr_assert(eq(int, rc || !memcmp(&other, c, sizeof(other)), 1), "round %u", round);
}

Test(fabric, drawn_tables_come_to_what_the_definition_says)
{
    unsigned fine = 0, unsettled = 0;

    for (unsigned round = 0; round < 3000; round++) {
        struct hth_fabric_choice c;
        int rc;

        state = round;
        draw(2);
        table_draw();
        rc = choose(&c, NULL);
        is_as_defined(rc, &c, round);
        all_agree(rc, &c, round);
        fine += !rc && c.fabric;
        unsettled += !rc && !c.settled;
    }
    cr_assert(gt(uint, fine, 300u), "%u", fine);
    cr_assert(gt(uint, unsettled, 100u), "%u", unsettled);
}

/* Each round ends settled, or takes a fabric from a node that says it cannot: ranks do not meet for
 * ever. */
Test(fabric, meeting_again_comes_to_an_end)
{
    for (unsigned round = 0; round < 500; round++) {
        struct hth_fabric_choice c = { 0 };
        unsigned meetings = 0;
        int rc;

        state = round;
        draw(2);
        table_draw();
        for (uint32_t i = 0; i < world; i++) {
            rank[i].fabrics |= rank[i].fabrics ? 0 : BIT("ofi", "tcp"); /* none by hand */
            rank[i].first_fabric = 0;
        }
        while (!(rc = choose(&c, NULL)) && !c.settled) {
            cr_assert(lt(uint, ++meetings, 12u * MOST), "round %u", round);
            for (uint32_t i = 0; i < world; i++) {
                if (draw(8))
                    listen_on(i, c.fabric);
                else
                    rank[i].fabrics &= ~HTH_FABRIC_BIT(c.fabric);
                rank[i].fabrics |= BIT("ucx", "tcp"); /* that always opens */
            }
        }
    }
}

Test(fabric, every_number_is_a_bit_of_its_own)
{
    uint32_t bits = 0;

    for (const struct hth_fabric *f = hth_fabrics; f->number; f++) {
        cr_assert(lt(u32, f->number, 32));
        cr_assert(zero(u32, bits & HTH_FABRIC_BIT(f->number)), "%s", f->provider);
        bits |= HTH_FABRIC_BIT(f->number);
        cr_assert(eq(ptr, (void *)(uintptr_t)hth_fabric_of(f->number), (void *)(uintptr_t)f));
    }
    cr_assert(eq(ptr, (void *)(uintptr_t)hth_fabric_of(0), NULL));
}
