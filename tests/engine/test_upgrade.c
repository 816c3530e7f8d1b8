/* SPDX-License-Identifier: Apache-2.0 */
/* UPGRADE: which engine hands over, and when, in virtual time. */
#include "check.h"
#include "world_parts.h"

#include "engine/state/node_state.h"

#include <string.h>
#include <unistd.h>

#define COMMAND 0xfffe0001u

static struct world w;
static struct hth_local_error answer; /* the last; head.type 0: none came */

static void hear(struct world *of, const struct letter *l)
{
    (void)of;
    if (l->client == COMMAND)
        memcpy(&answer, l->bytes, l->len < sizeof(answer) ? l->len : sizeof(answer));
}

static void start(uint32_t ranks)
{
    struct world_opts o = { .seed = 1,
        .nodes = 3,
        .ranks_per_node = ranks,
        .copies = 1,
        .keep = 1,
        .run_ms = 600000,
        .data_max = 100 };

    alarm(60);
    world_open(&w, &o);
    w.stranger = hear;
}

static void until_saved(void)
{
    while (!w.why[0] && hth_save_none(w.newest.id))
        world_advance(&w, w.now_ms + 1);
}

static struct machine *first(void)
{
    return &w.machine[w.member[0]];
}

static void ask(void)
{
    struct hth_local_head m = { sizeof(m), HTH_LOCAL_UPGRADE, 7, 0 };

    memset(&answer, 0, sizeof(answer));
    machine_ask(first(), COMMAND, &m, sizeof(m), NULL, 0);
}

static void wait_ms(uint64_t ms)
{
    for (uint64_t end = w.now_ms + ms; !w.why[0] && w.now_ms < end && !answer.head.type;)
        world_advance(&w, w.now_ms + 1);
}

Test(upgrade, engine_hands_over_between_two_saves)
{
    start(2);
    until_saved();
    ask();
    wait_ms(1000);
    cr_assert(eq(u32, answer.head.type, HTH_LOCAL_OK), "%s", answer.text);
    cr_assert(eq(int, hth_node_hands_over(first()->node), 1));
    cr_assert(eq(int, hth_node_ends(first()->node), 1));
    world_close(&w);
}

Test(upgrade, engine_inside_a_rank_refuses_by_name)
{
    start(1);
    until_saved();
    first()->node->env.successor = NULL;
    ask();
    wait_ms(1000);
    cr_assert(eq(u32, answer.head.type, HTH_LOCAL_ERROR));
    cr_assert(eq(int, answer.code, HEARTH_EUNSUPPORTED));
    cr_assert(ne(ptr, strstr(answer.text, "in_process"), NULL), "%s", answer.text);
    cr_assert(eq(int, hth_node_ends(first()->node), 0));
    world_close(&w);
}

Test(upgrade, second_one_is_refused_while_the_first_waits)
{
    start(1);
    until_saved();
    first()->node->recovering = 1;
    ask();
    wait_ms(100);
    cr_assert(eq(u32, answer.head.type, 0));
    ask();
    wait_ms(100);
    cr_assert(eq(int, answer.code, HEARTH_EBUSY), "%s", answer.text);
    world_close(&w);
}

Test(upgrade, recovery_is_awaited_and_then_named)
{
    uint64_t since_ms;

    start(1);
    until_saved();
    first()->node->recovering = 1;
    since_ms = w.now_ms;
    ask();
    wait_ms(60000);
    cr_assert(eq(int, answer.code, HEARTH_EBUSY), "%s", answer.text);
    cr_assert(ne(ptr, strstr(answer.text, "recover"), NULL), "%s", answer.text);
    cr_assert(ge(u64, w.now_ms - since_ms, 29000));
    cr_assert(eq(int, hth_node_ends(first()->node), 0));
    world_close(&w);
}

Test(upgrade, command_that_is_gone_is_not_waited_for)
{
    start(1);
    until_saved();
    first()->node->recovering = 1;
    ask();
    wait_ms(100);
    machine_ask(first(), COMMAND, NULL, 0, NULL, 0);
    first()->node->recovering = 0;
    world_advance(&w, w.now_ms + 500);
    cr_assert(eq(int, hth_node_ends(first()->node), 0));
    cr_assert(eq(ptr, first()->node->upgrade, NULL));
    world_close(&w);
}
