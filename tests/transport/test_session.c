/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions on the net inside the process: who is believed, who is given up, and when. */
#include "check.h"
#include "net_world.h"

#include <unistd.h>

#define DEAD_MS 5000u

static void limit(void)
{
    alarm(60);
}

TestSuite(session, .init = limit);

Test(session, both_sides_prove_the_key_and_talk)
{
    struct hth_session_opts o = net_keyed(1);
    struct net_world *w = net_world_open(2, &o);

    must(net_send(w, 0, 1, 5));
    net_run(w, 20);
    cr_assert(eq(int, w->node[1].messages[0], 1));
    cr_assert(eq(int, w->node[1].type, HTH_MSG_WANT));
    cr_assert(eq(u64, w->node[1].number[0], 5));
    cr_assert(eq(int, w->node[0].ups[1], 1));
    cr_assert(eq(int, w->node[1].ups[0], 1));
    must(net_send(w, 1, 0, 6)); /* back on the same connection */
    net_run(w, 20);
    cr_assert(eq(u64, w->node[0].number[1], 6));
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 1));
    net_run(w, 60000); /* pings keep it */
    cr_assert(eq(int, w->node[0].downs[1] + w->node[1].downs[0], 0));
    cr_assert(hth_session_is_up(w->node[0].session, 1));
    cr_assert(ge(u64, hth_session_heard_ms(w->node[0].session, 1), w->now_ms - 2000));
    net_world_close(w);
}

Test(session, a_message_is_heard_once_however_often_it_comes)
{
    struct net_world *w = net_world_open(2, NULL);
    struct net_fault twice = { HTH_LOOP_MESSAGE, HTH_LOOP_DUPLICATE, 0, HTH_FRAME_HEAD + 8, -1 };

    hth_loop_net_script(w->net, net_play, &twice);
    for (uint64_t i = 1; i <= 10; i++)
        must(net_send(w, 0, 1, i));
    net_run(w, 100);
    cr_assert(eq(int, w->node[1].messages[0], 10));
    cr_assert(eq(int, w->node[1].disorder, 0));
    net_world_close(w);
}

Test(session, a_flipped_byte_costs_the_connection_and_nothing_else)
{
    struct net_world *w = net_world_open(2, NULL);
    struct net_fault flip = { HTH_LOOP_MESSAGE, HTH_LOOP_FLIP, 0, HTH_FRAME_HEAD + 8, 1 };

    must(net_send(w, 0, 1, 1));
    net_run(w, 100);
    hth_loop_net_script(w->net, net_play, &flip);
    must(net_send(w, 0, 1, 2));
    net_run(w, 100);
    must(net_send(w, 0, 1, 3));
    net_run(w, 100);
    cr_assert(eq(int, flip.times, 0));
    cr_assert(eq(int, w->node[1].messages[0], 2));
    cr_assert(eq(u64, w->node[1].number[0], 3));
    cr_assert(eq(int, w->node[0].downs[1] + w->node[1].downs[0], 0));
    cr_assert(eq(int, w->node[0].ups[1], 1));
    net_world_close(w);
}

Test(session, silence_is_down_once_and_in_time_and_comes_back)
{
    struct net_world *w = net_world_open(3, NULL);

    must(net_send(w, 0, 1, 1));
    must(net_send(w, 0, 2, 1));
    net_run(w, 3000);
    net_pause(w, 1, 1);
    net_run(w, DEAD_MS - 1100);
    cr_assert(eq(int, w->node[0].downs[1], 0));
    net_run(w, 2300);
    cr_assert(eq(int, w->node[0].downs[1], 1));
    cr_assert(eq(int, w->node[0].down_code, HEARTH_ETIMEOUT));
    must_say(w->node[0].down_text, "node 1 (host1): no sign of life for 5000 ms");
    cr_assert(not(hth_session_is_up(w->node[0].session, 1)));
    net_run(w, 60000);
    cr_assert(eq(int, w->node[0].downs[1], 1)); /* once */
    cr_assert(eq(int, w->node[0].downs[2], 0)); /* the others are well */
    net_pause(w, 1, 0);
    must(net_send(w, 0, 1, 2));
    net_run(w, 1000);
    cr_assert(eq(int, w->node[0].ups[1], 2));
    cr_assert(eq(u64, w->node[1].number[0], 2));
    net_world_close(w);
}

Test(session, a_paused_machine_blames_nobody)
{
    struct net_world *w = net_world_open(2, NULL);

    must(net_send(w, 0, 1, 1));
    net_run(w, 3000);
    w->now_ms += 60000; /* both stood still; nobody ticked */
    net_run(w, 10000);
    cr_assert(eq(int, w->node[0].downs[1] + w->node[1].downs[0], 0));
    net_pause(w, 0, 1); /* one stands still; the other is right to give it up */
    net_run(w, 20000);
    cr_assert(eq(int, w->node[1].downs[0], 1));
    net_pause(w, 0, 0);
    net_run(w, 3000); /* it finds its connection cut, dials, and is heard again */
    cr_assert(eq(int, w->node[0].downs[1], 0));
    cr_assert(eq(int, w->node[1].ups[0], 2));
    net_world_close(w);
}

Test(session, nobody_there_is_down_after_connect_ms)
{
    struct net_world *w = net_world_open(2, NULL);

    net_node_close(w, 1);
    must(net_send(w, 0, 1, 1));
    net_run(w, 4900);
    cr_assert(eq(int, w->node[0].downs[1], 0));
    net_run(w, 200);
    cr_assert(eq(int, w->node[0].downs[1], 1));
    cr_assert(eq(int, w->node[0].down_code, HEARTH_EPEER));
    net_run(w, 20000);
    cr_assert(eq(int, w->node[0].downs[1], 1));
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 0));
    net_world_close(w);
}

Test(session, a_broken_connection_is_dialled_again_before_anybody_is_lost)
{
    struct net_world *w = net_world_open(2, NULL);

    must(net_send(w, 1, 0, 1)); /* dialled by 1; dialled again by 0, the lower */
    net_run(w, 100);
    for (int i = 0; i < 5; i++) {
        hth_session_drop(w->node[i & 1].session, !(i & 1));
        net_run(w, 100);
        cr_assert(eq(u32, hth_session_connections(w->node[0].session), 1));
    }
    must(net_send(w, 1, 0, 2));
    net_run(w, 100);
    cr_assert(eq(u64, w->node[0].number[1], 2));
    cr_assert(eq(int, w->node[0].ups[1], 1));
    cr_assert(eq(int, w->node[0].downs[1] + w->node[1].downs[0], 0));
    net_node_close(w, 1); /* gone for good */
    net_run(w, DEAD_MS + 1100);
    cr_assert(eq(int, w->node[0].downs[1], 1));
    cr_assert(eq(int, w->node[0].down_code, HEARTH_EPEER));
    net_world_close(w);
}

Test(session, both_may_dial_at_once)
{
    struct net_world *w = net_world_open(2, NULL);

    for (uint64_t i = 1; i <= 50; i++) {
        must(net_send(w, 0, 1, i));
        must(net_send(w, 1, 0, i));
        if (i % 10 == 0)
            net_run(w, 1);
    }
    net_run(w, 100);
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 2));
    for (int i = 0; i < 2; i++) {
        cr_assert(eq(int, w->node[i].messages[!i], 50));
        cr_assert(eq(int, w->node[i].disorder, 0));
        cr_assert(eq(int, w->node[i].ups[!i], 1));
    }
    net_run(w, 30000);
    cr_assert(eq(int, w->node[0].downs[1] + w->node[1].downs[0], 0));
    net_world_close(w);
}

Test(session, what_cannot_be_sent_is_refused)
{
    static unsigned char body[HTH_BODY_MAX + 1];
    struct hth_session_opts o = { .queue_max = 3, .job = "job" };
    struct net_world *w = net_world_open(2, &o);
    struct hth_session *s = w->node[0].session;

    must_fail(hth_session_send(s, 2, HTH_MSG_WANT, NULL, 0), HEARTH_EINVAL);
    must_fail(hth_session_send(s, UINT32_MAX, HTH_MSG_WANT, NULL, 0), HEARTH_EINVAL);
    must_fail(hth_session_send(s, 0, HTH_MSG_WANT, NULL, 0), HEARTH_EINVAL);
    must_fail(hth_session_send(s, 1, HTH_MSG_AUTH, NULL, 0), HEARTH_EINVAL);
    must_fail(hth_session_send(s, 1, HTH_MSG_WANT, body, sizeof(body)), HEARTH_EINVAL);
    must(hth_session_send(s, 1, HTH_MSG_WANT, body, HTH_BODY_MAX));
    must(hth_session_send(s, 1, HTH_MSG_WANT, NULL, 0));
    must(net_send(w, 0, 1, 1));
    must_fail(net_send(w, 0, 1, 2), HEARTH_EBUSY);
    net_run(w, 100);
    cr_assert(eq(int, w->node[1].messages[0], 3));
    must(net_send(w, 0, 1, 2));
    net_world_close(w);
}

Test(session, a_peer_that_reads_nothing_fills_the_queue_and_then_gets_all_in_order)
{
    struct net_world *w = net_world_open(2, NULL);
    uint64_t sent = 0;
    int rc;

    must(net_send(w, 0, 1, ++sent));
    net_run(w, 100);
    net_pause(w, 1, 1);
    while (!(rc = net_send(w, 0, 1, sent + 1)))
        sent++;
    cr_assert(eq(int, rc, HEARTH_EBUSY));
    cr_assert(ge(u64, sent, 1024));
    net_pause(w, 1, 0);
    net_run(w, 1000);
    cr_assert(eq(u64, w->node[1].number[0], sent));
    cr_assert(eq(int, w->node[1].messages[0], (int)sent));
    cr_assert(eq(int, w->node[1].disorder, 0));
    net_world_close(w);
}

/* Everything goes wrong at random; whatever is heard was said, once, in order, and in the end,
 * when the net is well again, everybody reaches everybody. */
static struct hth_loop_verdict storm(void *arg, enum hth_loop_kind kind, uint32_t from, uint32_t to,
        const void *bytes, size_t len)
{
    uint64_t r = hth_splitmix64(arg);
    struct hth_loop_verdict v = { HTH_LOOP_NONE, (uint32_t)(r >> 32) % 20, (r >> 16) % 8 == 0 };

    (void)kind, (void)from, (void)to, (void)bytes, (void)len;
    if (r % 5 == 0)
        v.fault = (enum hth_loop_fault)((r >> 8) % 6);
    return v;
}

Test(session, in_a_storm_nothing_is_heard_that_was_not_said, .init = limit)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct hth_session_opts o = net_keyed(9);
        struct net_world *w = net_world_open(4, &o);
        uint64_t dice = seed, number = 0;

        hth_loop_net_script(w->net, storm, &dice);
        for (int step = 0; step < 200; step++) {
            uint32_t from = (uint32_t)hth_splitmix64(&dice) % 4;

            (void)net_send(w, from, (from + 1 + (uint32_t)hth_splitmix64(&dice) % 3) % 4, ++number);
            net_run(w, hth_splitmix64(&dice) % 100);
        }
        hth_loop_net_script(w->net, NULL, NULL);
        net_run(w, 15000);
        for (uint32_t i = 0; i < 4; i++) {
            cr_assert(eq(int, w->node[i].disorder, 0), "seed %d", (int)seed);
            for (uint32_t j = 0; j < 4; j++)
                cr_assert(le(u64, w->node[i].number[j], number));
        }
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t j = 0; j < 4; j++)
                if (i != j)
                    must(net_send(w, i, j, 100000 + i));
        net_run(w, 1000);
        for (uint32_t i = 0; i < 4; i++)
            for (uint32_t j = 0; j < 4; j++)
                cr_assert(i == j || w->node[i].number[j] == 100000 + j, "seed %d", (int)seed);
        net_world_close(w);
    }
}
