/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions on the net inside the process: which peer is accepted, which is given up, and when. */
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

static uint32_t told, told_last;

static void members_told(struct hth_transport *t, const struct hth_member *member, uint32_t count)
{
    (void)t;
    told = count;
    memcpy(&told_last, member[count - 1].addr, sizeof(told_last));
}

Test(session, the_transport_is_told_the_members_of_each_epoch)
{
    struct net_world *w = net_world_open(3, NULL);
    struct hth_transport_ops ops = *w->node[0].transport->ops;
    const struct hth_transport_ops *own = w->node[0].transport->ops;
    struct hth_epoch later = w->node[0].epoch;

    ops.members = members_told;
    w->node[0].transport->ops = &ops;
    hth_session_join(w->node[0].session, &w->node[0].epoch);
    cr_expect(eq(u32, told, 3));
    cr_expect(zero(int, memcmp(&told_last, w->member[2].addr, sizeof(told_last))));
    later.nodes = 2;
    later.epoch++;
    hth_session_join(w->node[0].session, &later);
    cr_expect(eq(u32, told, 2));
    w->node[0].transport->ops = own;
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
    w->now_ms += 60000; /* both stood still, and neither ticked */
    net_run(w, 10000);
    cr_assert(eq(int, w->node[0].downs[1] + w->node[1].downs[0], 0));
    net_pause(w, 0, 1); /* one stands still; the other is right to give it up */
    net_run(w, 20000);
    cr_assert(eq(int, w->node[1].downs[0], 1));
    net_pause(w, 0, 0);
    net_run(w, 3000); /* it finds its connection cut, dials, and its messages arrive again */
    cr_assert(eq(int, w->node[0].downs[1], 0));
    cr_assert(eq(int, w->node[1].ups[0], 2));
    net_world_close(w);
}

/* The thread is blocked in a call again and again, for longer than a third of dead_ms each time.
 * Only the silence between the calls counts, and that is enough. */
Test(session, a_silent_peer_is_found_by_a_thread_that_is_blocked_again_and_again)
{
    struct net_world *w = net_world_open(3, NULL);
    uint32_t still, busy;
    int rounds = 0;

    must(net_send(w, 0, 1, 1));
    must(net_send(w, 0, 2, 1));
    net_run(w, 3000);
    net_pause(w, 1, 1);
    for (; !w->node[0].downs[1] && rounds < 40; rounds++) {
        w->now_ms += DEAD_MS * 3 / 5;
        net_run(w, DEAD_MS / 20);
    }
    cr_assert(eq(int, w->node[0].downs[1], 1));
    cr_assert(ge(int, rounds, 4)); /* the time that it stood still is not held against anybody */
    cr_assert(le(int, rounds, 20));
    cr_assert(eq(int, w->node[0].downs[2] + w->node[2].downs[0], 0));
    hth_session_late(w->node[0].session, &still, &busy);
    cr_assert(ge(u32, still, 4));
    net_world_close(w);
}

/* CPU time that the engines of this test have used. */
static uint64_t worked_ms;

static uint64_t busy_ms(void)
{
    return worked_ms;
}

static struct net_world *busy_world(uint32_t nodes)
{
    struct hth_session_opts o = { .busy_ms = busy_ms, .job = "job" };

    return net_world_open(nodes, &o);
}

/* Each round of its loop takes more than a third of dead_ms, all of it work. */
static void work_hard(struct net_world *w, uint64_t for_ms)
{
    for (uint64_t end = w->now_ms + for_ms; w->now_ms < end;) {
        w->now_ms += DEAD_MS * 3 / 5;
        worked_ms += DEAD_MS * 3 / 5;
        net_run(w, 20);
    }
}

Test(session, a_flooded_engine_finds_a_silent_peer_all_the_same)
{
    struct net_world *w = busy_world(3);
    uint32_t still, busy;

    must(net_send(w, 0, 1, 1));
    must(net_send(w, 0, 2, 1));
    net_run(w, 3000);
    net_pause(w, 1, 1);
    work_hard(w, 2 * DEAD_MS);
    cr_assert(eq(int, w->node[0].downs[1], 1));
    cr_assert(eq(int, w->node[0].downs[2] + w->node[2].downs[0], 0)); /* it is as flooded */
    hth_session_late(w->node[0].session, &still, &busy);
    cr_assert(eq(u32, still, 0));
    cr_assert(ge(u32, busy, 3));
    net_world_close(w);
}

Test(session, an_engine_that_was_busy_and_then_paused_blames_nobody)
{
    struct net_world *w = busy_world(2);
    uint32_t still, busy;

    must(net_send(w, 0, 1, 1));
    net_run(w, 3000);
    worked_ms += 700;
    w->now_ms += 60000;
    net_run(w, 10000);
    cr_assert(eq(int, w->node[0].downs[1] + w->node[1].downs[0], 0));
    hth_session_late(w->node[0].session, &still, &busy);
    cr_assert(eq(u32, still, 1));
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

/* The net's faults are drawn at random. Each message that arrives was sent, and arrives once and in
 * order; in the end, when the net is well again, every node reaches every other. */
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

/* No connection was lost: no node calls another down. */
static void nobody_is_lost(struct net_world *w)
{
    for (uint32_t i = 0; i < w->nodes; i++)
        for (uint32_t j = 0; j < w->nodes; j++)
            cr_assert(eq(int, w->node[i].downs[j], 0), "%u says that %u is lost", i, j);
}

Test(session, an_idle_connection_is_closed_and_opened_again_when_needed)
{
    struct hth_session_opts o = { .idle_ms = 10000, .job = "job" };
    struct net_world *w = net_world_open(3, &o);

    w->unwatched = 1;
    for (uint64_t i = 1; i <= 4; i++) {
        must(net_send(w, 0, 1, i));
        must(net_send(w, 2, 0, i));
        net_run(w, 9000);
        cr_assert(eq(u32, hth_session_connections(w->node[0].session), 2));
        must(net_send(w, 0, 1, 100 * i)); /* in use again */
        net_run(w, 9000);
        cr_assert(eq(u32, hth_session_connections(w->node[0].session), 1));
        net_run(w, 60000);
        for (int n = 0; n < 3; n++)
            cr_assert(eq(u32, hth_session_connections(w->node[n].session), 0));
        cr_assert(eq(int, w->node[1].messages[0], 2 * (int)i));
        cr_assert(eq(int, w->node[0].messages[2], (int)i));
    }
    nobody_is_lost(w);
    net_node_close(w, 1); /* a node that has a message for it notices, as ever */
    must(net_send(w, 0, 1, 1000));
    net_run(w, 6000);
    cr_assert(eq(int, w->node[0].downs[1], 1));
    net_world_close(w);
}

Test(session, a_connection_that_is_in_use_or_watched_is_not_idle)
{
    static unsigned char bytes[4096];
    struct hth_session_opts o = { .idle_ms = 10000, .job = "job" };
    struct net_world *w = net_world_open(2, &o);
    struct hth_region *region;
    struct hth_grant grant;

    must(hth_session_reg(w->node[0].session, bytes, sizeof(bytes), &region, NULL));
    must(net_send(w, 0, 1, 1));
    net_run(w, 60000);
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 1)); /* watched */
    w->unwatched = 1;
    must(hth_session_grant(w->node[0].session, 1, region, 0, 4096, &grant, NULL));
    net_run(w, 60000);
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 1)); /* granted */
    hth_session_ungrant(w->node[0].session, &grant);
    net_run(w, 30000);
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 0));
    nobody_is_lost(w);
    net_world_close(w);
}

/* Messages that cross the agreement, one millisecond later each time: each arrives, once and in
 * order. */
Test(session, nothing_is_lost_on_a_connection_that_is_being_closed)
{
    struct hth_session_opts o = { .heartbeat_ms = 20, .idle_ms = 1000, .job = "job" };
    struct net_world *w = net_world_open(2, &o);

    w->unwatched = 1;
    for (uint64_t i = 1; i <= 60; i++) {
        must(net_send(w, 0, 1, 2 * i));
        net_run(w, 980 + i);
        must(net_send(w, i & 1, !(i & 1), 2 * i + 1));
        net_run(w, 1);
        must(net_send(w, !(i & 1), i & 1, 2 * i + 1));
        net_run(w, 5000);
    }
    cr_assert(eq(int, w->node[1].messages[0], 120));
    cr_assert(eq(int, w->node[0].messages[1], 60));
    cr_assert(eq(int, w->node[0].disorder + w->node[1].disorder, 0));
    nobody_is_lost(w);
    net_world_close(w);
}

/* Agreements that are lost on their way: the deadlines end them. */
Test(session, an_agreement_that_is_not_heard_costs_nothing)
{
    struct hth_session_opts o = { .idle_ms = 2000, .job = "job" };
    struct net_world *w = net_world_open(2, &o);
    struct net_fault lost = { HTH_LOOP_MESSAGE, HTH_LOOP_DROP, 0, HTH_FRAME_HEAD + 1, 2 };

    w->unwatched = 1;
    for (uint64_t i = 1; i <= 8; i++) {
        lost.from = i & 1;
        lost.times = 2;
        must(net_send(w, 0, 1, i));
        net_run(w, 100);
        hth_loop_net_script(w->net, net_play, &lost);
        net_run(w, 3000);
        must(net_send(w, 1, 0, i));
        net_run(w, 20000);
        cr_assert(eq(u32, hth_session_connections(w->node[0].session), 0));
    }
    cr_assert(eq(int, w->node[1].messages[0], 8));
    cr_assert(eq(int, w->node[0].messages[1], 8));
    nobody_is_lost(w);
    net_world_close(w);
}

/* Of the messages of two nodes that would close their connection, one question arrives, late. */
static struct hth_loop_verdict answers_are_lost(void *self, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    int *questions = self;

    (void)to, (void)bytes;
    if (kind != HTH_LOOP_MESSAGE || len != HTH_FRAME_HEAD + 1)
        return (struct hth_loop_verdict){ HTH_LOOP_NONE, 0, 0 };
    if (from == 1 && !(*questions)++)
        return (struct hth_loop_verdict){ HTH_LOOP_NONE, 500, 0 };
    return (struct hth_loop_verdict){ HTH_LOOP_DROP, 0, 0 };
}

/* A node that has agreed keeps its messages back until the other node closes; here the other node
 * goes on instead. */
Test(session, a_yes_that_is_lost_keeps_words_back_until_the_other_goes_on)
{
    struct hth_session_opts o = { .idle_ms = 2000, .job = "job" };
    struct net_world *w = net_world_open(2, &o);
    int questions = 0;

    w->unwatched = 1;
    must(net_send(w, 0, 1, 1));
    net_run(w, 100);
    hth_loop_net_script(w->net, answers_are_lost, &questions);
    net_run(w, 3000);
    cr_assert(eq(int, questions, 1));
    must(net_send(w, 0, 1, 2));
    net_run(w, 500);
    cr_assert(eq(int, w->node[1].messages[0], 1)); /* it has agreed */
    for (int n = 1; n <= 30; n++) {
        must(net_send(w, 1, 0, (uint64_t)n));
        net_run(w, 100);
    }
    cr_assert(eq(int, w->node[0].messages[1], 30));
    cr_assert(eq(int, w->node[1].messages[0], 2));
    nobody_is_lost(w);
    net_world_close(w);
}

Test(session, the_least_recently_used_connection_makes_way_in_a_full_table)
{
    struct hth_session_opts o = { .links_max = 2, .job = "job" };
    struct net_world *w = net_world_open(6, &o);

    w->unwatched = 1;
    for (uint32_t i = 1; i < 6; i++) {
        must(net_send(w, 0, i, i));
        must(net_send(w, i, 0, i));
        net_run(w, 3000);
        cr_assert(le(u32, hth_session_connections(w->node[0].session), 2));
    }
    for (uint32_t i = 1; i < 6; i++) {
        cr_assert(eq(int, w->node[i].messages[0], 1));
        cr_assert(eq(int, w->node[0].messages[i], 1));
    }
    must(net_send(w, 0, 5, 6)); /* the last two stand */
    must(net_send(w, 0, 4, 6));
    net_run(w, 20);
    cr_assert(eq(u64, w->node[4].number[0] + w->node[5].number[0], 12));
    for (uint32_t i = 1; i < 6; i++) /* all at once, all in use */
        must(net_send(w, i, 0, 10 + i));
    net_run(w, 20000);
    for (uint32_t i = 1; i < 6; i++)
        cr_assert(eq(u64, w->node[0].number[i], 10 + i));
    nobody_is_lost(w);
    net_world_close(w);
}

/* Both sides dialled at once, and both connections are used. */
Test(session, the_second_connection_with_a_peer_makes_way_in_a_full_table)
{
    struct hth_session_opts o = { .links_max = 4, .job = "job" };
    struct net_world *w = net_world_open(4, &o);

    for (uint32_t i = 1; i < 3; i++) {
        must(net_send(w, 0, i, 1));
        must(net_send(w, i, 0, 1));
    }
    net_run(w, 100);
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 4));
    must(net_send(w, 3, 0, 1));
    for (uint64_t n = 2; n <= 30; n++) {
        for (uint32_t i = 1; i < 3; i++) {
            must(net_send(w, 0, i, n));
            must(net_send(w, i, 0, n));
        }
        net_run(w, 100);
    }
    cr_assert(eq(u64, w->node[0].number[3], 1));
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 4)); /* two, one, one */
    for (uint32_t i = 1; i < 3; i++) {
        cr_assert(eq(int, w->node[0].messages[i], 30));
        cr_assert(eq(int, w->node[i].messages[0], 30));
    }
    nobody_is_lost(w);
    net_world_close(w);
}

Test(session, a_table_that_stays_full_is_no_loss_and_is_tried_again)
{
    struct net_world *w = net_world_open(2, NULL);
    struct net_fault full = { HTH_LOOP_CONNECT, HTH_LOOP_FULL, 0, 0, -1 };

    hth_loop_net_script(w->net, net_play, &full);
    must(net_send(w, 0, 1, 1));
    net_run(w, 60000);
    cr_assert(eq(int, w->node[1].messages[0], 0));
    nobody_is_lost(w);
    full.times = 0;
    net_run(w, 2000);
    cr_assert(eq(int, w->node[1].messages[0], 1));
    full.times = -1; /* one that was there, and whose connection broke */
    hth_session_drop(w->node[0].session, 1);
    net_run(w, 60000);
    nobody_is_lost(w);
    full.times = 0;
    must(net_send(w, 0, 1, 2));
    net_run(w, 2000);
    cr_assert(eq(u64, w->node[1].number[0], 2));
    net_world_close(w);
}
