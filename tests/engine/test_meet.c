/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks come to a gather by their engine, and receive there what their meeting has found. */
#include "check.h"
#include "played_meeting.h"
#include "saving.h"

#include <stdio.h>
#include <string.h>

#define FIRST 99990u /* clients that are no ranks of the world */

static struct world w;
static struct hth_node *node;
static struct played_meeting meeting;

struct told {
    uint32_t client, type;
    uint64_t request, len;
    int code;
    char text[HEARTH_ERROR_TEXT]; /* of an error, or the bytes */
};

static struct told all[32]; /* all answers that our clients received */
static unsigned count;

static void hear(struct world *world, const struct letter *l)
{
    union {
        struct hth_local_head head;
        struct hth_local_error error;
        struct hth_local_bytes bytes;
    } a = { 0 };

    (void)world;
    if (l->client < FIRST || l->machine)
        return;
    memcpy(&a, l->bytes, l->len < sizeof(a) ? l->len : sizeof(a));
    cr_assert(lt(u32, count, 32));
    all[count] = (struct told){ .client = l->client,
        .type = a.head.type,
        .request = a.head.request,
        .len = l->attached,
        .code = a.head.type == HTH_LOCAL_ERROR ? a.error.code : 0 };
    if (a.head.type == HTH_LOCAL_ERROR)
        snprintf(all[count].text, sizeof(all[count].text), "%s", a.error.text);
    else if (l->attached < sizeof(all[count].text))
        memcpy(all[count].text, l->bytes + l->len, l->attached);
    count++;
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

static void come(uint32_t client, uint64_t request)
{
    struct hth_local_meet m = { .head = { sizeof(m), HTH_LOCAL_MEET, request, 0 },
        .deadline_ms = 5000,
        .left_ms = 4000,
        .token = { 9, 8, 7 },
        .place = { .host = "somewhere", .port = 4711 } };

    m.row[5] = (unsigned char)client;
    hth_node_request(node, client, &m, sizeof(m), NULL);
    run(1);
}

static void table_comes(uint32_t round, const char *bytes)
{
    struct hth_buf *table = hth_buf_of(bytes, strlen(bytes));

    cr_assert(ne(ptr, table, NULL));
    hth_node_table(node, round, table);
    hth_buf_put(table);
}

static void is_told_table(uint32_t client, uint64_t request, const char *bytes)
{
    struct told t = told(client, request);

    cr_assert(eq(u32, t.type, HTH_LOCAL_BYTES), "client %u, request %llu", client,
            (unsigned long long)request);
    cr_assert(eq(u64, t.len, strlen(bytes)));
    cr_assert(zero(int, strcmp(t.text, bytes)));
}

static void is_told_error(uint32_t client, uint64_t request, int code, const char *text)
{
    struct told t = told(client, request);

    cr_assert(eq(u32, t.type, HTH_LOCAL_ERROR));
    cr_assert(eq(int, t.code, code));
    cr_assert(ne(ptr, strstr(t.text, text), NULL), "%s", t.text);
}

static void attach(uint32_t client, uint32_t rank, uint32_t helper)
{
    struct hth_local_attach m = { .head = { sizeof(m), HTH_LOCAL_ATTACH, 1, 0 },
        .version = hth_version_written(HTH_FORMAT_LOCAL),
        .rank = rank,
        .world = 3,
        .helper = helper,
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
    played_meeting_begin(&meeting, &w, 0);
    hth_node_client_gone(node, w.rank[0].client); /* its place is ours */
    for (uint32_t i = 0; i < 3; i++)
        attach(FIRST + i, i, 0);
    meeting.gones = 0;
}

static void end(void)
{
    world_close(&w);
    played_meeting_end(&meeting);
}

TestSuite(meet, .init = start, .fini = end);

Test(meet, the_meeting_is_told_what_a_rank_says)
{
    come(FIRST + 2, 2);
    cr_assert(eq(u32, meeting.comes, 1));
    cr_assert(eq(int, meeting.waits[2], 1));
    cr_assert(eq(u32, meeting.world, 3));
    cr_assert(eq(u32, meeting.last.left_ms, 4000));
    cr_assert(eq(u32, meeting.last.token[2], 7));
    cr_assert(eq(u32, meeting.last.row[5], (unsigned char)(FIRST + 2)));
    cr_assert(eq(u32, meeting.last.place.port, 4711));
    cr_assert(zero(u32, told(FIRST + 2, 2).type));
}

/* The table that the engine sends to all of them is copied once. */
Test(meet, ranks_that_wait_receive_the_table_once_each_in_one_descriptor)
{
    uint64_t copied;

    come(FIRST, 2);
    come(FIRST + 1, 2);
    come(FIRST + 2, 2);
    table_comes(7, "seven's");
    run(10);
    cr_assert(zero(u32, told(FIRST, 2).type), "a rank is answered before its meeting says so");
    copied = w.attached[0] + w.attached[1];
    hth_node_met(node, 0, 7, HEARTH_OK, "");
    hth_node_met(node, 2, 7, HEARTH_OK, "");
    run(1);
    is_told_table(FIRST, 2, "seven's");
    is_told_table(FIRST + 2, 2, "seven's");
    cr_assert(eq(u64, w.attached[0] + w.attached[1] - copied, 7));
    cr_assert(zero(u32, told(FIRST + 1, 2).type),
            "a rank is answered, although its meeting did not name it");
    hth_node_met(node, 0, 7, HEARTH_OK, ""); /* it does not wait */
    hth_node_met(node, 1, 7, HEARTH_OK, "");
    run(1);
    is_told_table(FIRST, 2, "seven's");
    is_told_table(FIRST + 1, 2, "seven's");
    cr_assert(eq(u32, meeting.gones, 0));
}

Test(meet, a_rank_receives_the_table_of_its_own_gather_or_none)
{
    come(FIRST, 2);
    come(FIRST + 1, 2);
    come(FIRST + 2, 2);
    hth_node_met(node, 2, 7, HEARTH_OK, ""); /* no table has come */
    table_comes(7, "seven's");
    hth_node_met(node, 0, 7, HEARTH_OK, "");
    table_comes(8, "of eight"); /* before the first is answered */
    hth_node_met(node, 1, 7, HEARTH_OK, "");
    run(1);
    is_told_table(FIRST, 2, "seven's");
    is_told_error(FIRST + 1, 2, HEARTH_ECANCELED, "a later gather");
    is_told_error(FIRST + 2, 2, HEARTH_ECANCELED, "gather");
    come(FIRST, 3);
    hth_node_met(node, 0, 8, HEARTH_OK, "");
    run(1);
    is_told_table(FIRST, 3, "of eight");
}

Test(meet, a_gather_that_failed_is_an_error_with_its_sentence)
{
    come(FIRST, 2);
    come(FIRST + 1, 2);
    hth_node_met(node, 0, 0, HEARTH_ETIMEOUT, "rank 9 has not come in 5 s");
    hth_node_met(node, 1, 0, HEARTH_ENOENT, "nothing answers at somewhere");
    run(1);
    is_told_error(FIRST, 2, HEARTH_ETIMEOUT, "rank 9 has not come in 5 s");
    is_told_error(FIRST + 1, 2, HEARTH_ENOENT, "nothing answers at somewhere");
    come(FIRST, 3); /* and it may come again */
    cr_assert(eq(u32, meeting.comes, 3));
}

Test(meet, a_rank_that_its_meeting_does_not_take_hears_why)
{
    meeting.refuses = HEARTH_EINVAL;
    come(FIRST, 2);
    is_told_error(FIRST, 2, HEARTH_EINVAL, "does not take this rank");
    meeting.refuses = 0;
    come(FIRST, 3);
    cr_assert(zero(u32, told(FIRST, 3).type));
}

Test(meet, a_rank_that_comes_again_cancels_its_earlier_request)
{
    come(FIRST, 2);
    come(FIRST, 3);
    is_told_error(FIRST, 2, HEARTH_ECANCELED, "another gather");
    cr_assert(zero(u32, told(FIRST, 3).type));
    table_comes(7, "seven's");
    hth_node_met(node, 0, 7, HEARTH_OK, "");
    come(FIRST, 4); /* what has ended well is not cancelled */
    is_told_table(FIRST, 3, "seven's");
    cr_assert(zero(u32, told(FIRST, 4).type));
}

Test(meet, a_rank_that_has_gone_is_named_to_the_meeting_and_sent_nothing)
{
    come(FIRST, 2);
    come(FIRST + 1, 2);
    hth_node_client_gone(node, FIRST);
    cr_assert(eq(u32, meeting.gones, 1));
    cr_assert(zero(int, meeting.waits[0]));
    hth_node_client_gone(node, FIRST + 2); /* it did not come */
    cr_assert(eq(u32, meeting.gones, 1));
    table_comes(7, "seven's");
    hth_node_met(node, 0, 7, HEARTH_OK, "");
    hth_node_met(node, 1, 7, HEARTH_OK, "");
    hth_node_client_gone(node, FIRST + 1); /* its meeting has ended already */
    run(10);
    cr_assert(eq(u32, meeting.gones, 1));
    cr_assert(zero(u32, told(FIRST, 2).type));
    cr_assert(zero(u32, told(FIRST + 1, 2).type));
}

Test(meet, a_helper_does_not_meet)
{
    attach(FIRST + 9, 1, 1);
    come(FIRST + 9, 2);
    is_told_error(FIRST + 9, 2, HEARTH_ESTATE, "helper");
    cr_assert(zero(u32, meeting.comes));
}
