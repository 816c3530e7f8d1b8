/* SPDX-License-Identifier: Apache-2.0 */
/* Joins that are sent packet by packet to an engine in virtual time: joins that are too late, and
 * the error that ranks get of an epoch that has failed. */
#include "check.h"
#include "content.h"
#include "saving.h"

#include <stdlib.h>
#include <string.h>

#define OURS 99999u /* a client that is no rank of the world */

static struct world w;
static struct hth_node *node;
static uint64_t request;
static struct hth_local_attached attached;
static union {
    struct hth_local_head head;
    struct hth_local_error error;
    struct hth_local_joined joined;
    unsigned char bytes[HTH_LOCAL_MAX];
} heard; /* the last answer */

static struct hth_local_head head(uint32_t length, uint32_t type)
{
    return (struct hth_local_head){ length, type, ++request, 0 };
}

/* The type of the answer; 0: none came. */
static uint32_t ask(uint32_t client, const void *bytes, size_t len, struct hth_content *content)
{
    memset(&heard, 0, sizeof(heard));
    hth_node_request(node, client, bytes, len, content);
    for (const struct letter *l = w.letters; l; l = l->next)
        if (l->client == client && l->machine == 0)
            memcpy(&heard, l->bytes, l->len);
    return heard.head.request == request ? heard.head.type : 0;
}

static uint32_t attach(uint32_t client, uint32_t helper)
{
    struct hth_local_attach m = { .head = head(sizeof(m), HTH_LOCAL_ATTACH),
        .version = hth_version_written(HTH_FORMAT_LOCAL),
        .world = 1,
        .helper = helper,
        .job = "sim" };
    uint32_t type = ask(client, &m, sizeof(m), NULL);

    if (type == HTH_LOCAL_ATTACHED)
        memcpy(&attached, &heard, sizeof(attached));
    return type;
}

static struct hth_gather row(void)
{
    struct hth_gather g = { .job = "sim",
        .node = "m0",
        .store = attached.store,
        .copies = 1,
        .min_copies = 1,
        .keep = 1,
        .flags = HTH_GATHER_ALLOW_DEGRADED,
        .addr_len = attached.addr_len };

    memcpy(g.addr, attached.addr, sizeof(g.addr));
    return g;
}

/* A job of one rank on this machine. */
static uint32_t join(uint32_t client, const struct hth_gather *g, uint32_t allow_degraded)
{
    struct hth_local_join m = { .head = head(sizeof(m), HTH_LOCAL_JOIN),
        .opts = { .copies = 1,
                .min_copies = 1,
                .keep = 1,
                .allow_degraded = allow_degraded,
                .recover_ms = 12000 },
        .world = 1 };
    unsigned char table[HTH_GATHER];

    hth_gather_encode(g, table);
    return ask(client, &m, sizeof(m), content_of(table, sizeof(table)));
}

static void must_refuse(uint32_t type, int code, const char *part)
{
    cr_assert(eq(u32, type, HTH_LOCAL_ERROR));
    cr_assert(eq(int, heard.error.code, code), "%s", heard.error.text);
    cr_assert(ne(ptr, strstr(heard.error.text, part), NULL), "%s", heard.error.text);
}

static void start(void)
{
    saving_open(&w, 1, 1);
    node = world_node(&w, 0);
    hth_node_client_gone(node, w.rank[0].client); /* its place is ours */
    cr_assert(eq(u32, attach(OURS, 0), HTH_LOCAL_ATTACHED));
}

static void end(void)
{
    world_close(&w);
}

TestSuite(join, .init = start, .fini = end);

Test(join, a_join_of_an_older_epoch_is_refused)
{
    struct hth_gather g = row();

    g.wall_ms = attached.highest_epoch - 1;
    must_refuse(join(OURS, &g, 1), HEARTH_ESTATE, "is over");
    cr_assert(eq(int, world_node(&w, 0) == node && hth_node_done(node) == 0, 1));
}

/* It knows its epoch by the record alone: the ranks have to join it again. */
static void restart_with_another_address(void)
{
    machine_stop(&w, 0);
    w.machine[0].port = 77;
    machine_start(&w, 0);
    node = world_node(&w, 0);
    cr_assert(eq(u32, attach(OURS, 0), HTH_LOCAL_ATTACHED));
    cr_assert(eq(u64, attached.epoch, 0)); /* it is in none */
}

Test(join, a_join_of_an_older_epoch_is_refused_by_an_engine_that_was_started_again)
{
    struct hth_gather g = row();

    restart_with_another_address();
    g = row();
    g.wall_ms = attached.highest_epoch - 1;
    must_refuse(join(OURS, &g, 1), HEARTH_ESTATE, "is over");
    g.wall_ms = attached.highest_epoch;
    g.random = 0; /* two launches came to one number: the greater nonce goes on */
    must_refuse(join(OURS, &g, 1), HEARTH_ESTATE, "is over");
    g.wall_ms = attached.highest_epoch + 1;
    cr_assert(eq(u32, join(OURS, &g, 1), HTH_LOCAL_JOINED), "%s", heard.error.text);
    cr_assert(eq(u64, heard.joined.epoch, attached.highest_epoch + 1));
}

Test(join, all_that_asks_for_an_epoch_that_failed_hears_why)
{
    struct hth_gather g = row();
    struct hth_local_recover recover = { .deadline_ms = 1000 };
    struct hth_local_begin begin = { .step = 1, .bytes = 3 * HTH_BLOCK, .name = "x" };
    struct hth_local_find find = { .step = 1 };
    char first[HEARTH_ERROR_TEXT];

    g.wall_ms = attached.highest_epoch + 1;
    g.flags = 0;
    must_refuse(join(OURS, &g, 0), HEARTH_EINVAL, "allow_degraded");
    memcpy(first, heard.error.text, sizeof(first));
    hth_node_client_gone(node, OURS); /* to try again: why not */
    cr_assert(eq(u32, attach(OURS + 1, 0), HTH_LOCAL_ATTACHED));
    must_refuse(join(OURS + 1, &g, 0), HEARTH_EINVAL, first);
    hth_node_client_gone(node, OURS + 1);
    cr_assert(eq(u32, attach(OURS, 0), HTH_LOCAL_ATTACHED));
    must_refuse(attach(OURS + 2, 1), HEARTH_EINVAL, first);
    recover.head = head(sizeof(recover), HTH_LOCAL_RECOVER);
    must_refuse(ask(OURS, &recover, sizeof(recover), NULL), HEARTH_EINVAL, first);
    begin.head = head(sizeof(begin), HTH_LOCAL_BEGIN);
    must_refuse(ask(OURS, &begin, sizeof(begin), NULL), HEARTH_EINVAL, first);
    find.head = head(sizeof(find), HTH_LOCAL_FIND);
    must_refuse(ask(OURS, &find, sizeof(find), NULL), HEARTH_EINVAL, first);
    g.wall_ms++;
    g.flags = HTH_GATHER_ALLOW_DEGRADED;
    cr_assert(eq(u32, join(OURS, &g, 1), HTH_LOCAL_JOINED), "%s", heard.error.text);
    cr_assert(eq(u32, attach(OURS + 2, 1), HTH_LOCAL_ATTACHED));
}

/* ---- More ranks of one node
 * -------------------------------------------------------------------- */

struct counted {            /* a table of two rows */
    struct hth_content pub; /* first */
    unsigned char table[2 * HTH_GATHER];
};

static uint64_t bytes_read; /* of all tables */

static int counted_read(struct hth_content *c, uint64_t off, void *out, size_t len)
{
    memcpy(out, ((struct counted *)c)->table + off, len);
    bytes_read += len;
    return 0;
}

static void counted_end(struct hth_content *c)
{
    free(c);
}

/* A job of two ranks, both on this machine. */
static uint32_t join_of_two(uint32_t client, uint32_t rank, const struct hth_gather *first)
{
    struct hth_local_join m = { .head = head(sizeof(m), HTH_LOCAL_JOIN),
        .opts = { .copies = 1,
                .min_copies = 1,
                .keep = 1,
                .allow_degraded = 1,
                .recover_ms = 12000 },
        .world = 2,
        .rank = rank };
    struct counted *c = malloc(sizeof(*c));
    struct hth_gather g = *first;

    cr_assert(ne(ptr, c, NULL));
    c->pub = (struct hth_content){ sizeof(c->table), counted_read, counted_end };
    g.world = 2;
    hth_gather_encode(&g, c->table);
    g.rank = 1;
    g.random++;
    hth_gather_encode(&g, c->table + HTH_GATHER);
    bytes_read = 0;
    return ask(client, &m, sizeof(m), &c->pub);
}

static uint32_t attach_of_two(uint32_t client, uint32_t rank)
{
    struct hth_local_attach m = { .head = head(sizeof(m), HTH_LOCAL_ATTACH),
        .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = rank,
        .world = 2,
        .job = "sim" };

    return ask(client, &m, sizeof(m), NULL);
}

Test(join, of_the_table_that_was_joined_by_the_next_rank_of_the_node_brings_only_a_row)
{
    struct hth_gather g = row();

    g.wall_ms = attached.highest_epoch + 1;
    hth_node_client_gone(node, OURS);
    cr_assert(eq(u32, attach_of_two(OURS, 0), HTH_LOCAL_ATTACHED), "%s", heard.error.text);
    cr_assert(eq(u32, attach_of_two(OURS + 1, 1), HTH_LOCAL_ATTACHED), "%s", heard.error.text);
    cr_assert(eq(u32, join_of_two(OURS, 0, &g), HTH_LOCAL_JOINED), "%s", heard.error.text);
    cr_assert(gt(u64, bytes_read, 2 * HTH_GATHER - 1));
    cr_assert(eq(u32, join_of_two(OURS + 1, 1, &g), HTH_LOCAL_JOINED), "%s", heard.error.text);
    cr_assert(eq(u64, heard.joined.epoch, attached.highest_epoch + 1));
    cr_assert(eq(u64, bytes_read, HTH_GATHER));
    g.wall_ms++; /* another gathering: all of it counts */
    cr_assert(eq(u32, join_of_two(OURS + 1, 1, &g), HTH_LOCAL_JOINED), "%s", heard.error.text);
    cr_assert(eq(u64, heard.joined.epoch, attached.highest_epoch + 2));
}

Test(join, nothing_is_begun_before_it)
{
    struct hth_local_begin begin = { .step = 1, .bytes = 3 * HTH_BLOCK, .name = "x" };
    struct hth_local_find find = { .step = 1 };

    restart_with_another_address();
    begin.head = head(sizeof(begin), HTH_LOCAL_BEGIN);
    must_refuse(ask(OURS, &begin, sizeof(begin), NULL), HEARTH_ESTATE, "before");
    find.head = head(sizeof(find), HTH_LOCAL_FIND);
    must_refuse(ask(OURS, &find, sizeof(find), NULL), HEARTH_ESTATE, "hearth_recover");
}

Test(join, a_table_of_other_ranks_than_it_says_is_refused)
{
    struct hth_local_join m = { .head = head(sizeof(m), HTH_LOCAL_JOIN), .world = 1 };
    unsigned char table[2 * HTH_GATHER] = { 0 };

    must_refuse(ask(OURS, &m, sizeof(m), NULL), HEARTH_EINVAL, "table of 1 ranks");
    m.head = head(sizeof(m), HTH_LOCAL_JOIN);
    must_refuse(ask(OURS, &m, sizeof(m), content_of(table, sizeof(table))), HEARTH_EINVAL,
            "table of 1 ranks");
}
