/* SPDX-License-Identifier: Apache-2.0 */
/* All ranks come to the same epoch from the same table, or learn which two disagree. */
#include "damaged.h"

#include "core/base/auth.h"
#include "core/format/epoch.h"

#include <stdio.h>
#include <stdlib.h>

#define WORLD 5

static unsigned char table[WORLD][HTH_GATHER];
static struct hth_gather rank[WORLD];

/* Ranks 0 and 2 on node "b", 1 and 4 on "a", 3 on "c". */
static void setup(void)
{
    static const char *const node[WORLD] = { "b", "a", "b", "c", "a" };

    must(hth_auth_init(NULL));
    for (uint32_t i = 0; i < WORLD; i++) {
        rank[i] = (struct hth_gather){
            .store = (uint64_t)node[i][0],
            .highest_epoch = 100 + i,
            .wall_ms = 50,
            .random = 1000 + i,
            .domain = { (uint64_t)node[i][0], 7 },
            .copies = 1,
            .min_copies = 1,
            .keep = 1,
            .flags = 2,
            .addr_len = 1,
            .addr = { (unsigned char)node[i][0] },
            .objects = { .bytes = { 10 * i, i > 1 ? 7 : 0 }, .count = { i > 0, i > 1 ? 3 : 0 } },
            .rank = i,
            .world = WORLD,
        };
        strcpy(rank[i].job, "job");
        strcpy(rank[i].node, node[i]);
    }
}

static int make(struct hth_epoch *e, uint64_t store, struct hearth_error *err)
{
    for (uint32_t i = 0; i < WORLD; i++)
        hth_gather_encode(&rank[i], table[i]);
    return hth_epoch_make(e, table[0], WORLD, store, err);
}

Test(epoch, nodes_are_in_order_of_their_lowest_rank, .init = setup)
{
    static const uint32_t want[WORLD] = { 0, 1, 0, 2, 1 };
    struct hth_epoch e;

    must(make(&e, 'c', NULL));
    cr_assert(eq(u32, e.nodes, 3));
    cr_assert(eq(u32, e.self, 2));
    cr_assert(eq(int, memcmp(e.rank_node, want, sizeof(want)), 0));
    must_say(e.member[0].node, "b");
    must_say(e.member[1].node, "a");
    cr_assert(eq(u64, e.member[1].store, 'a'));
    cr_assert(eq(u64, e.member[1].domain[0], 'a'));
    cr_assert(eq(uint, e.member[2].addr[0], (unsigned)'c'));
    hth_epoch_fini(&e);
}

/* Nodes "b" and "c" are on one machine; "a" names none. */
Test(epoch, nodes_of_one_machine_are_known, .init = setup)
{
    static const uint32_t want[] = { 1, 0, 1 };
    struct hth_epoch e, again;
    unsigned char *bytes;

    rank[0].machine = rank[2].machine = rank[3].machine = 9;
    rank[3].domain[0] = 'b';
    must(make(&e, 'c', NULL));
    bytes = malloc(hth_epoch_bytes(&e));
    hth_epoch_encode(&e, bytes);
    must(hth_epoch_decode(&again, bytes, hth_epoch_bytes(&e), NULL));
    free(bytes);
    for (uint32_t n = 0; n < 3; n++) {
        cr_assert(eq(u32, e.member[n].machine, want[n]), "node %u", n);
        cr_assert(eq(u32, again.member[n].machine, want[n]), "node %u", n);
    }
    hth_epoch_fini(&again);
    hth_epoch_fini(&e);
    rank[1].machine = rank[4].machine = 8; /* a machine of its own for each */
    rank[3].machine = 7;
    must(make(&e, 'c', NULL));
    for (uint32_t n = 0; n < 3; n++)
        cr_assert(zero(u32, e.member[n].machine), "node %u", n);
    hth_epoch_fini(&e);
}

static void makes(uint64_t number, uint64_t nonce)
{
    struct hth_epoch e;

    must(make(&e, 'a', NULL));
    cr_assert(eq(u64, e.epoch, number));
    cr_assert(eq(u64, e.nonce, nonce));
    hth_epoch_fini(&e);
}

Test(epoch, is_above_all_seen_and_not_below_the_clock_of_rank_0, .init = setup)
{
    makes(105, 1000); /* one more than rank 4 has seen */
    rank[0].wall_ms = 7000;
    rank[1].wall_ms = 9000; /* only rank 0's counts */
    makes(7000, 1000);
}

#define NOW   UINT64_C(1790000000000)
#define DAY   UINT64_C(86400000)
#define Y2200 UINT64_C(7258118400000)

Test(epoch, a_clock_counts_only_as_far_as_the_median_and_a_day, .init = setup)
{
    for (int i = 0; i < WORLD; i++)
        rank[i].wall_ms = NOW + (uint64_t)i;
    makes(NOW, 1000);
    rank[0].wall_ms = Y2200;
    makes(NOW + 3 + DAY, 1000);
    rank[0].wall_ms = UINT64_MAX;
    makes(NOW + 3 + DAY, 1000);
    rank[0].wall_ms = 5; /* it only makes the number lower, and what was seen is below it still */
    makes(105, 1000);
    rank[2].highest_epoch =
            Y2200; /* a session under a wrong clock has been: it goes on from there */
    makes(Y2200 + 1, 1000);
    for (int i = 0; i < WORLD; i++)
        rank[i].wall_ms = UINT64_MAX;
    rank[2].highest_epoch = 0;
    makes(HTH_EPOCH_BELIEVED, 1000);
}

static void refused(const char *words);

Test(epoch, a_number_that_no_job_reaches_is_its_rows_fault_by_name, .init = setup)
{
    rank[3].highest_epoch = HTH_EPOCH_BELIEVED + 1;
    refused("rank 3 (node 'c') reports epoch 4611686018427387905");
    rank[3].highest_epoch = UINT64_MAX;
    refused("rank 3 (node 'c') reports epoch");
}

/* All nodes have a number on record that was believed once, so the next joining finds it at all of
 * them. */
Test(epoch, numbers_are_not_used_up_by_the_highest_that_is_believed, .init = setup)
{
    uint64_t nonce = UINT64_C(1) << 40;

    rank[3].highest_epoch = HTH_EPOCH_BELIEVED;
    rank[3].random = nonce;
    makes(HTH_EPOCH_MOST, nonce);
    for (int round = 0; round < 100; round++) {
        struct hth_epoch e;

        for (uint32_t i = 0; i < WORLD; i++) {
            rank[i].random = (uint64_t)round * i << 32 | 7u;
            rank[i].highest_epoch = 12; /* a fresh node */
            if (i != (uint32_t)round % WORLD)
                rank[i].highest_epoch = hth_epoch_seen(HTH_EPOCH_MOST, nonce, &rank[i].random);
        }
        must(make(&e, 'a', NULL));
        cr_assert(eq(u64, e.epoch, HTH_EPOCH_MOST));
        cr_assert(gt(u64, e.nonce, nonce)); /* so its saves are newer */
        nonce = e.nonce;
        hth_epoch_fini(&e);
    }
}

static void refused(const char *words)
{
    struct hearth_error err;
    struct hth_epoch e;

    must_fail(make(&e, 'a', &err), HEARTH_EINVAL);
    cr_assert(ne(ptr, strstr(err.text, words), NULL), "%s", err.text);
}

Test(epoch, ranks_that_disagree_are_named, .init = setup)
{
    strcpy(rank[3].job, "other");
    refused("rank 0 and rank 3");
    setup();
    rank[2].copies = 2;
    refused("rank 0 and rank 2");
    setup();
    rank[1].min_copies = 0;
    refused("rank 0 and rank 1");
    setup();
    rank[1].keep = 2;
    refused("rank 0 and rank 1 disagree about keep: 1 and 2");
    setup();
    rank[3].flags = 3;
    refused("rank 0 and rank 3 disagree about allow_degraded: 0 and 1");
    setup();
    rank[3].flags = 0;
    refused("rank 0 and rank 3 disagree about network: trusted and hostile");
    setup();
    rank[3].flags |= HTH_GATHER_STRONG;
    refused("rank 0 and rank 3 disagree about integrity: crc32c and strong");
    setup();
    rank[2].dead_ms = 9000;
    refused("rank 0 and rank 2 disagree about dead_ms: 0 and 9000");
    setup();
    rank[2].heartbeat_ms = 900;
    refused("rank 0 and rank 2 disagree about heartbeat_ms: 0 and 900");
    setup();
    strcpy(rank[1].transport, "ucx");
    refused("rank 0 (node 'b') and rank 1 (node 'a') disagree about the transport: '' and 'ucx'");
    setup();
    strcpy(rank[0].provider, "tcp");
    strcpy(rank[3].provider, "verbs");
    refused("rank 0 (node 'b') and rank 3 (node 'c') disagree about the provider: 'tcp' and 'verbs'");
    setup();
    rank[4].store = 'x';
    refused("rank 1 and rank 4");
    setup();
    rank[4].domain[1] = 8;
    refused("rank 1 and rank 4");
    setup();
    rank[4].addr[0] = 'x';
    refused("rank 1 and rank 4");
    setup();
    rank[4].machine = 9;
    refused("rank 1 and rank 4 disagree about the machine of the node that they share");
    setup();
    rank[0].machine = rank[2].machine = rank[3].machine = 9;
    refused("rank 0 (node 'b') and rank 3 (node 'c') are on one machine and disagree about its "
            "failure domains");
    setup();
    rank[3].store = 'b';
    refused("rank 0 (node 'b') and rank 3 (node 'c')");
}

Test(epoch, each_number_that_must_be_alike_is_named, .init = setup)
{
#define OPTION(field, kind, hearthd, running, joining, ranks, ...) SPOIL_##ranks(field)
#define SPOIL_NO(field)
#define SPOIL_CHECKED(field)
#define SPOIL_ALIKE(field) \
    setup();               \
    rank[2].field += 3;    \
    refused("rank 0 and rank 2 disagree about " #field ": ");
#include "core/base/options.def"
}

Test(epoch, engines_that_have_no_protocol_in_common_are_named, .init = setup)
{
    struct hearth_error err;
    struct hth_epoch e;

    for (int i = 0; i < WORLD; i++)
        rank[i].version_low = 1, rank[i].version_high = 2;
    rank[3].version_low = 2, rank[3].version_high = 4;
    must(make(&e, 'a', NULL));
    hth_epoch_fini(&e);
    rank[3].version_low = 3;
    must_fail(make(&e, 'a', &err), HEARTH_EPROTO);
    must_say(err.text,
            "the engines of rank 0 (node 'b') and rank 3 (node 'c') speak protocol 1 to 2 and 3 to 4: "
            "install one version everywhere");
}

Test(epoch, several_addresses_beside_an_engine_that_reads_one_are_refused_by_name, .init = setup)
{
    static const unsigned char two[] = { 2, 4, 1, 2, 10, 0, 0, 1, 10, 1, 0, 1 };
    struct hearth_error err;
    struct hth_epoch e;

    for (int i = 0; i < WORLD; i++) {
        snprintf(rank[i].transport, sizeof(rank[i].transport), "tcp");
        rank[i].version_low = 6, rank[i].version_high = 8;
    }
    rank[3].version_high = 7;
    must(make(&e, 'a', NULL)); /* one address each: old and new are one job */
    hth_epoch_fini(&e);
    for (int i = 0; i < WORLD; i++)
        if (!strcmp(rank[i].node, rank[0].node)) {
            rank[i].addr_len = sizeof(two);
            memcpy(rank[i].addr, two, sizeof(two));
        }
    must_fail(make(&e, 'a', &err), HEARTH_EPROTO);
    must_say(err.text,
            "node 'b' (rank 0) has several addresses, and the engine of node 'c' (rank 3) speaks "
            "protocol 7, in which a node has one (8 has several): install one version everywhere, "
            "or set bind (HEARTH_BIND) to one address");
    rank[3].version_high = 8;
    must(make(&e, 'a', NULL));
    hth_epoch_fini(&e);
}

Test(epoch, a_store_that_no_rank_brought_is_refused, .init = setup)
{
    struct hth_epoch e;

    must_fail(make(&e, 'z', NULL), HEARTH_EINVAL);
}

Test(epoch, a_greeting_comes_back_and_nonsense_is_refused, .init = setup)
{
    unsigned char bytes[HTH_GATHER], again[HTH_GATHER];
    struct hth_gather g;

    rank[4].machine = 77;
    hth_gather_encode(&rank[4], bytes);
    must(hth_gather_decode(&g, bytes, NULL));
    hth_gather_encode(&g, again);
    cr_assert(eq(int, memcmp(bytes, again, sizeof(bytes)), 0));
    cr_assert(eq(u64, g.machine, 77));
    cr_assert(eq(u64, g.objects.bytes[0], 40));
    cr_assert(eq(u32, g.objects.count[0], 1));
    cr_assert(eq(u64, g.objects.bytes[1], 7));
    cr_assert(eq(u32, g.objects.count[1], 3));
    bytes[16] = '/';
    must_fail(hth_gather_decode(&g, bytes, NULL), HEARTH_ECORRUPT);
    hth_gather_encode(&rank[4], bytes);
    bytes[79] = 1; /* behind the job's name, in front of other fields */
    must_fail(hth_gather_decode(&g, bytes, NULL), HEARTH_ECORRUPT);
    hth_gather_encode(&rank[4], bytes);
    bytes[423] = 1;
    must_fail(hth_gather_decode(&g, bytes, NULL), HEARTH_ECORRUPT);
}

static const unsigned char job_key[HTH_KEY] = "the job's", other_key[HTH_KEY] = "another's";

static void checked(const unsigned char *with, int code, const char *words)
{
    struct hearth_error err = { 0 };
    unsigned char key[1][HTH_KEY] = { { 0 } };

    if (with)
        memcpy(key[0], with, HTH_KEY);
    cr_assert(eq(int,
                      hth_gather_check(table[0], WORLD, (const unsigned char(*)[HTH_KEY])key,
                              with != NULL, &err),
                      code),
            "%s", err.text);
    if (code)
        cr_assert(ne(ptr, strstr(err.text, words), NULL), "%s", err.text);
}

static void fill_table(const unsigned char *with)
{
    for (uint32_t i = 0; i < WORLD; i++) {
        hth_gather_encode(&rank[i], table[i]);
        if (with)
            hth_gather_prove(table[i], with);
    }
}

Test(epoch, a_row_counts_in_its_place_and_of_this_world_only, .init = setup)
{
    fill_table(NULL);
    checked(NULL, HEARTH_OK, "");
    memcpy(table[3], table[2], HTH_GATHER);
    checked(NULL, HEARTH_EINVAL, "place 3 of the table has what rank 2 (node 'b') brought");
    rank[3].world = 6;
    fill_table(NULL);
    checked(NULL, HEARTH_EINVAL, "rank 3 (node 'c') counts 6 ranks and we count 5");
    table[3][0] = 'x';
    checked(NULL, HEARTH_ECORRUPT, "rank 3: ");
}

Test(epoch, where_there_is_a_key_a_row_without_its_proof_is_not_heard, .init = setup)
{
    fill_table(job_key);
    checked(job_key, HEARTH_OK, "");
    checked(NULL, HEARTH_EAUTH, "rank 0 (node 'b') has a job key and we have none");
    checked(other_key, HEARTH_EAUTH, "rank 0 (node 'b') proves another job key");
    hth_gather_encode(&rank[3], table[3]);
    checked(job_key, HEARTH_EAUTH, "rank 3 (node 'c') brings no proof");
    for (size_t at = 152; at < HTH_GATHER; at += 7) { /* from the highest epoch on */
        fill_table(job_key);
        table[3][at] ^= 1;
        cr_assert(ne(int, hth_gather_check(table[0], WORLD, &job_key, 1, NULL), 0), "byte %zu", at);
    }
}

Test(epoch, a_rank_that_cannot_take_part_says_why_in_its_row, .init = setup)
{
    struct hth_gather g, out;
    struct hth_epoch e;

    fill_table(job_key);
    g = (struct hth_gather){
        .flags = HTH_GATHER_ABSENT, .code = HEARTH_EENGINE, .rank = 3, .world = WORLD
    };
    strcpy(g.job, rank[3].job);
    strcpy(g.node, "c");
    strcpy(g.why, "hearthd ended\n\033[1m: no memory");
    hth_gather_encode(&g, table[3]);
    checked(job_key, HEARTH_EAUTH, "rank 3 (node 'c') brings no proof");
    hth_gather_prove(table[3], job_key);
    checked(job_key, HEARTH_EENGINE,
            "rank 3 (node 'c') cannot take part: hearthd ended  [1m: no memory");
    must(hth_gather_decode(&out, table[3], NULL));
    cr_assert(eq(int, out.code, HEARTH_EENGINE));
    must_fail(hth_epoch_make(&e, table[0], WORLD, rank[0].store, NULL), HEARTH_EENGINE);
    memset(g.why, 'w', HTH_WHY_MAX);
    hth_gather_encode(&g, table[3]);
    must(hth_gather_decode(&out, table[3], NULL));
    cr_assert(eq(str, out.why, g.why));
    table[3][144 + 3] = 0; /* an error that is none */
    must_fail(hth_gather_decode(&out, table[3], NULL), HEARTH_ECORRUPT);
    hth_gather_encode(&g, table[3]);
    table[3][8] = 2; /* the version that did not know of it */
    must_fail(hth_gather_decode(&out, table[3], NULL), HEARTH_ECORRUPT);
}

Test(epoch, the_record_comes_back, .init = setup)
{
    struct hth_epoch e, back;
    unsigned char *bytes;

    must(make(&e, 'a', NULL));
    bytes = malloc(hth_epoch_bytes(&e));
    hth_epoch_encode(&e, bytes);
    must(hth_epoch_decode(&back, bytes, hth_epoch_bytes(&e), NULL));
    cr_assert(eq(u64, back.epoch, e.epoch));
    cr_assert(eq(u64, back.nonce, e.nonce));
    cr_assert(eq(u32, back.self, e.self));
    cr_assert(eq(int, memcmp(back.rank_node, e.rank_node, WORLD * 4), 0));
    cr_assert(eq(int, memcmp(back.member, e.member, 3 * sizeof(*e.member)), 0));
    hth_epoch_fini(&back);
    hth_epoch_fini(&e);
    free(bytes);
}

static int takes_record(const unsigned char *bytes, size_t len)
{
    struct hth_epoch e;
    int rc = hth_epoch_decode(&e, bytes, len, NULL);

    if (!rc)
        hth_epoch_fini(&e);
    return rc;
}

Test(epoch, a_damaged_record_is_refused, .init = setup, .timeout = 60)
{
    struct hth_epoch e;
    unsigned char *bytes;

    must(make(&e, 'a', NULL));
    bytes = malloc(hth_epoch_bytes(&e));
    hth_epoch_encode(&e, bytes);
    refuses_all_damage(takes_record, bytes, hth_epoch_bytes(&e));
    hth_epoch_fini(&e);
    free(bytes);
}

/* A record whose digest holds, by a program that does not keep the rules. */
static void bend(size_t at, uint32_t v)
{
    struct hth_epoch e, out;
    unsigned char *bytes;
    size_t len;

    must(make(&e, 'a', NULL));
    len = hth_epoch_bytes(&e);
    bytes = malloc(len);
    hth_epoch_encode(&e, bytes);
    memcpy(bytes + at, &v, sizeof(v));
    hth_digest(bytes + len - HTH_DIGEST, bytes, len - HTH_DIGEST);
    cr_assert(eq(int, hth_epoch_decode(&out, bytes, len, NULL), HEARTH_ECORRUPT), "byte %zu", at);
    hth_epoch_fini(&e);
    free(bytes);
}

Test(epoch, a_record_that_lies_is_refused_even_with_its_digest, .init = setup)
{
    size_t member = 48 + 4 * WORLD;

    bend(20, 1u << 31);   /* an epoch that no job reaches */
    bend(32, UINT32_MAX); /* ranks */
    bend(36, 0);          /* nodes */
    bend(36, WORLD + 1);
    bend(40, 3);             /* self */
    bend(44, 1);             /* spare */
    bend(48, 1);             /* the first rank is on the first node */
    bend(48 + 4 * 3, 3);     /* a node that is none */
    bend(48 + 4 * 3, 0);     /* node 2 has no rank */
    bend(member, 0x2f);      /* "/" */
    bend(member + 104, 129); /* address too long */
    bend(member + 104, 0);   /* an address of no bytes is zeros */
    bend(member + 236, 2);   /* on the machine of a later member */
}

Test(epoch, of_131072_ranks_is_made_in_seconds, .timeout = 60)
{
    enum { RANKS = 131072, PER_NODE = 8 };
    unsigned char *all = malloc((size_t)RANKS * HTH_GATHER);
    struct hth_epoch e;

    setup();
    for (uint32_t i = 0; i < RANKS; i++) {
        struct hth_gather g = rank[0];

        snprintf(g.node, sizeof(g.node), "node%u", i / PER_NODE);
        g.store = 1 + i / PER_NODE;
        hth_gather_encode(&g, all + (size_t)i * HTH_GATHER);
    }
    must(hth_epoch_make(&e, all, RANKS, 17, NULL));
    cr_assert(eq(u32, e.nodes, RANKS / PER_NODE));
    cr_assert(eq(u32, e.self, 16));
    cr_assert(eq(u32, e.rank_node[RANKS - 1], RANKS / PER_NODE - 1));
    hth_epoch_fini(&e);
    free(all);
}

static int check_loopbacks(const uint32_t loopback[WORLD], struct hearth_error *err)
{
    for (uint32_t i = 0; i < WORLD; i++) {
        rank[i].loopback = loopback[i];
        hth_gather_encode(&rank[i], table[i]);
    }
    must(hth_gather_check(table[0], WORLD, NULL, 0, err));
    return hth_loopback_check(table[0], WORLD, err);
}

/* Node "c" is rank 3. Ids of loopbacks are even; one more means that the node listens there. */
Test(epoch, a_node_that_listens_on_loopback_has_to_be_where_all_nodes_are, .init = setup)
{
    static const uint32_t fine[][WORLD] = { { 5, 5, 5, 5, 5 }, { 0 }, { 4, 8, 4, 16, 8 },
        { 5, 5, 5, 0, 5 }, { 5, 4, 5, 4, 4 }, { 5, 5, 9, 5, 5 } };
    static const uint32_t wrong[][WORLD] = { { 5, 5, 5, 9, 5 }, { 4, 4, 4, 9, 4 },
        { 5, 5, 5, 8, 5 }, { 0, 5, 0, 8, 5 } };
    struct hearth_error err;

    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++)
        cr_expect(zero(int, check_loopbacks(fine[i], &err)), "%zu: %s", i, err.text);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        must_fail(check_loopbacks(wrong[i], &err), HEARTH_EINVAL);
        cr_expect(ne(ptr, strstr(err.text, "node 'c' (rank 3)"), NULL), "%s", err.text);
        cr_expect(ne(ptr, strstr(err.text, "HEARTH_BIND"), NULL), "%s", err.text);
    }
}
