/* SPDX-License-Identifier: Apache-2.0 */
/* A rank brings the ranks' table to its engine, and the node's other ranks receive it there. */
#include "check.h"
#include "content.h"
#include "saving.h"

#include <string.h>

#define FIRST 99990u /* clients that are no ranks of the world */

static struct world w;
static struct hth_node *node;

struct told {
    uint32_t client, type;
    uint64_t request, len;
    int code;
};

static struct told all[32]; /* all that our clients were told */
static unsigned count;

static void hear(struct world *world, const struct letter *l)
{
    union {
        struct hth_local_head head;
        struct hth_local_error error;
        struct hth_local_bytes bytes;
    } a = { 0 };

    (void)world;
    memcpy(&a, l->bytes, l->len < sizeof(a) ? l->len : sizeof(a));
    cr_assert(lt(u32, count, 32));
    all[count++] = (struct told){ .client = l->client,
        .type = a.head.type,
        .request = a.head.request,
        .len = a.head.type == HTH_LOCAL_BYTES ? a.bytes.len : 0,
        .code = a.head.type == HTH_LOCAL_ERROR ? a.error.code : 0 };
}

/* The answer to a client's request; its type is 0: none yet. */
static struct told told(uint32_t client, uint64_t request)
{
    struct told t = { 0 };

    for (unsigned i = 0; i < count; i++)
        if (all[i].client == client && all[i].request == request) {
            cr_assert(zero(u32, t.type), "a request was answered twice");
            t = all[i];
        }
    return t;
}

static void run(uint64_t ms)
{
    machine_touch(&w, 0);
    for (uint64_t end_ms = w.now_ms + ms; w.now_ms < end_ms;)
        world_advance(&w, w.now_ms + 1);
}

static void say(uint32_t client, uint64_t request, uint32_t type, uint32_t round, const char *bytes)
{
    struct hth_local_meet m = {
        .head = { sizeof(m), type, request, 0 }, .round = round, .wait_ms = 1000
    };

    hth_node_request(node, client, &m, sizeof(m), bytes ? content_of(bytes, strlen(bytes)) : NULL);
    run(1);
}

static void attach(uint32_t client, uint32_t rank)
{
    struct hth_local_attach m = { .head = { sizeof(m), HTH_LOCAL_ATTACH, 1, 0 },
        .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = rank,
        .world = 3,
        .job = "sim" };

    hth_node_request(node, client, &m, sizeof(m), NULL);
    run(1);
    cr_assert(eq(u32, told(client, 1).type, HTH_LOCAL_ATTACHED));
}

static void start(void)
{
    saving_open(&w, 1, 1);
    node = world_node(&w, 0);
    w.stranger = hear;
    hth_node_client_gone(node, w.rank[0].client); /* its place is ours */
    for (uint32_t i = 0; i < 3; i++)
        attach(FIRST + i, i);
}

static void end(void)
{
    world_close(&w);
}

TestSuite(meet, .init = start, .fini = end);

Test(meet, ranks_that_come_before_and_after_receive_the_table_of_their_gather)
{
    say(FIRST, 2, HTH_LOCAL_MEET, 7, NULL);
    say(FIRST + 1, 2, HTH_LOCAL_MEET, 8, NULL);
    cr_assert(zero(u32, told(FIRST, 2).type));
    say(FIRST + 2, 2, HTH_LOCAL_BRING, 7, "seven's");
    cr_assert(eq(u32, told(FIRST + 2, 2).type, HTH_LOCAL_OK));
    cr_assert(eq(u32, told(FIRST, 2).type, HTH_LOCAL_BYTES));
    cr_assert(eq(u64, told(FIRST, 2).len, 7));
    cr_assert(zero(u32, told(FIRST + 1, 2).type), "a rank received the table of another gather");
    say(FIRST, 3, HTH_LOCAL_MEET, 7, NULL);
    cr_assert(eq(u32, told(FIRST, 3).type, HTH_LOCAL_BYTES));
    say(FIRST + 2, 3, HTH_LOCAL_BRING, 8, "of eight");
    cr_assert(eq(u64, told(FIRST + 1, 2).len, 8));
    say(FIRST, 4, HTH_LOCAL_MEET, 7, NULL); /* that one is gone */
    cr_assert(zero(u32, told(FIRST, 4).type));
}

Test(meet, a_rank_to_which_no_rank_brings_the_table_is_told_so_in_time)
{
    say(FIRST, 2, HTH_LOCAL_MEET, 7, NULL);
    run(900);
    cr_assert(zero(u32, told(FIRST, 2).type));
    run(200);
    cr_assert(eq(u32, told(FIRST, 2).type, HTH_LOCAL_ERROR));
    cr_assert(eq(int, told(FIRST, 2).code, HEARTH_ETIMEOUT));
}

Test(meet, a_rank_that_has_gone_is_sent_nothing_and_a_table_without_bytes_is_refused)
{
    say(FIRST, 2, HTH_LOCAL_MEET, 7, NULL);
    hth_node_client_gone(node, FIRST);
    say(FIRST + 1, 2, HTH_LOCAL_BRING, 7, NULL);
    cr_assert(eq(int, told(FIRST + 1, 2).code, HEARTH_EPROTO));
    say(FIRST + 1, 3, HTH_LOCAL_BRING, 7, "");
    cr_assert(eq(int, told(FIRST + 1, 3).code, HEARTH_EPROTO));
    say(FIRST + 1, 4, HTH_LOCAL_BRING, 7, "seven's");
    cr_assert(eq(u32, told(FIRST + 1, 4).type, HTH_LOCAL_OK));
    cr_assert(zero(u32, told(FIRST, 2).type));
}
