/* SPDX-License-Identifier: Apache-2.0 */
/* Engines of a job that meet in no epoch, on the net inside the process. */
#include "check.h"
#include "net_world.h"

#include "core/base/bytes.h"
#include <unistd.h>

static struct net_world *w;

static void start(void)
{
    alarm(60);
    w = net_world_open(3, NULL);
}

static void end(void)
{
    net_world_close(w);
}

TestSuite(outside, .init = start, .fini = end);

static int say(uint32_t from, uint32_t to, uint64_t number)
{
    unsigned char body[8];

    hth_put64(body, number);
    return hth_session_send(w->node[from].session, to, HTH_MSG_TABLE_GET, body, sizeof(body));
}

static uint32_t visit(uint32_t from, uint32_t to)
{
    uint32_t node = 0;

    must(hth_session_visit(w->node[from].session, &w->member[to], &node));
    cr_assert(ge(u32, node, HTH_OUTSIDE));
    return node;
}

static void other_epoch(uint32_t node, uint64_t epoch)
{
    w->node[node].epoch.epoch = epoch;
    hth_session_join(w->node[node].session, &w->node[node].epoch);
}

Test(outside, engines_of_different_epochs_talk_and_their_epochs_go_on)
{
    uint32_t to;

    must(net_send(w, 0, 2, 1));
    other_epoch(1, NET_EPOCH + 5);
    to = visit(0, 1);
    must(say(0, to, 9));
    net_run(w, 50);
    cr_assert(eq(int, w->node[1].visits, 1));
    cr_assert(eq(u64, hth_get64(w->node[1].body), 9));
    must(say(1, w->node[1].outside, 10)); /* back on the same connection */
    net_run(w, 50);
    cr_assert(eq(int, w->node[0].visits, 1));
    cr_assert(eq(u32, w->node[0].outside, to));
    must(net_send(w, 0, 2, 2));
    net_run(w, 50);
    cr_assert(eq(u64, w->node[2].number[0], 2));
    cr_assert(zero(int, w->node[0].ends + w->node[1].ends + w->node[0].downs[2]));
}

Test(outside, the_connection_goes_on_when_a_side_joins_an_epoch_and_ends_when_it_is_left)
{
    uint32_t to = visit(0, 1);

    must(say(0, to, 1));
    net_run(w, 50);
    other_epoch(0, NET_EPOCH + 1);
    other_epoch(1, NET_EPOCH + 2);
    must(say(0, to, 2));
    net_run(w, 50);
    cr_assert(eq(int, w->node[1].visits, 2));
    hth_session_leave(w->node[0].session, to);
    net_run(w, 50);
    cr_assert(zero(int, w->node[0].ends));
    cr_assert(eq(int, w->node[1].ends, 1));
    must_fail(say(0, to, 3), HEARTH_EINVAL);
    must_fail(say(1, w->node[1].outside, 3), HEARTH_EINVAL);
    cr_assert(zero(u32, hth_session_connections(w->node[0].session)));
}

Test(outside, an_engine_that_is_not_there_is_given_up_and_one_that_goes_has_ended)
{
    uint32_t to = visit(0, 1);

    net_node_close(w, 2);
    must(say(0, visit(0, 2), 1));
    must(say(0, to, 1));
    net_run(w, 4000);
    cr_assert(zero(int, w->node[0].ends));
    net_run(w, 2000);
    cr_assert(eq(int, w->node[0].ends, 1)); /* connect_ms is 5000 */
    net_node_close(w, 1);
    net_run(w, 50);
    cr_assert(eq(int, w->node[0].ends, 2));
    must_fail(say(0, to, 2), HEARTH_EINVAL);
    net_run(w, 20000); /* it is not dialled again */
    cr_assert(eq(int, w->node[0].ends, 2));
}

Test(outside, a_silent_engine_has_ended_after_dead_ms)
{
    must(say(0, visit(0, 1), 1));
    net_run(w, 50);
    net_pause(w, 1, 1);
    net_run(w, 4000);
    cr_assert(zero(int, w->node[0].ends));
    net_run(w, 3000);
    cr_assert(eq(int, w->node[0].ends, 1));
}

Test(outside, an_engine_with_another_store_is_not_the_one_that_was_meant)
{
    struct hth_member other = w->member[1];
    uint32_t to;

    other.store++;
    must(hth_session_visit(w->node[0].session, &other, &to));
    must(say(0, to, 1));
    net_run(w, 7000);
    cr_assert(zero(int, w->node[1].visits));
    cr_assert(eq(int, w->node[0].ends, 1));
}

Test(outside, an_engine_without_the_job_key_is_not_heard)
{
    struct hth_session_opts keyed = net_keyed(1);

    keyed.store = w->member[1].store;
    net_node_close(w, 1);
    net_node_open(w, 1, &keyed);
    must(say(0, visit(0, 1), 1));
    net_run(w, 7000);
    cr_assert(zero(int, w->node[1].visits));
    cr_assert(eq(int, w->node[0].ends, 1));
}

Test(outside, two_visits_at_once_are_two_conversations)
{
    uint32_t a = visit(0, 1), b = visit(0, 1), c = visit(1, 0);

    cr_assert(ne(u32, a, b));
    must(say(0, a, 1));
    must(say(0, b, 2));
    must(say(1, c, 3));
    net_run(w, 50);
    cr_assert(eq(int, w->node[1].visits, 2));
    cr_assert(eq(int, w->node[0].visits, 1));
    hth_session_leave(w->node[0].session, a);
    net_run(w, 50);
    cr_assert(eq(int, w->node[1].ends, 1));
    must(say(0, b, 4));
    net_run(w, 50);
    cr_assert(eq(int, w->node[1].visits, 3));
}
