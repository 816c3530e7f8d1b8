/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions whose job key is changed: what stands goes on, and what a dropped key had proved is
 * renewed. */
#include "check.h"
#include "net_world.h"

static const unsigned char old_bytes[HTH_KEY] = { 1 }, new_bytes[HTH_KEY] = { 2 };

enum step { OLD, ADDED, ROTATED, DROPPED };

static struct hth_key keys[NET_NODES];

static void key_is(uint32_t node, enum step step)
{
    uint32_t old = hth_key_id(old_bytes), new = hth_key_id(new_bytes);

    keys[node] = step < ROTATED ? (struct hth_key){ .bytes = old_bytes, .id = old }
                                : (struct hth_key){ .bytes = new_bytes, .id = new };
    if (step == ADDED)
        keys[node].other = new_bytes, keys[node].other_id = new;
    if (step == ROTATED)
        keys[node].other = old_bytes, keys[node].other_id = old;
}

static uint32_t rekey(struct net_world *w, uint32_t node, enum step step)
{
    key_is(node, step);
    return hth_session_rekeyed(w->node[node].session);
}

static struct net_world *world(enum step first, enum step second)
{
    struct hth_session_opts o = { .job = "job", .key = &keys[0] };
    struct net_world *w = net_world_open(2, &o);

    key_is(0, first);
    key_is(1, second);
    net_node_close(w, 1);
    o.key = &keys[1];
    net_node_open(w, 1, &o);
    hth_session_join(w->node[1].session, &w->node[1].epoch);
    return w;
}

/* One connection: when both dial at once there are two. */
static struct net_world *world_talks(void)
{
    struct net_world *w = world(OLD, OLD);

    must(net_send(w, 0, 1, 0));
    net_run(w, 100);
    return w;
}

/* Ten messages each way, all of which arrive. */
static void both_talk(struct net_world *w)
{
    static uint64_t number;
    int before[2] = { w->node[0].messages[1], w->node[1].messages[0] };

    for (int i = 0; i < 10; i++) {
        number++;
        must(net_send(w, 0, 1, number));
        must(net_send(w, 1, 0, number));
        net_run(w, 30);
    }
    net_run(w, 300);
    cr_assert(eq(int, w->node[0].messages[1], before[0] + 10));
    cr_assert(eq(int, w->node[1].messages[0], before[1] + 10));
    cr_assert(zero(int, w->node[0].downs[1] + w->node[1].downs[0]), "%s", w->node[0].down_text);
}

Test(rekey, engines_a_step_apart_connect_whoever_dials)
{
    for (int step = OLD; step < DROPPED; step++)
        for (int dials = 0; dials < 2; dials++) {
            struct net_world *w = world(step, step + 1);

            must(net_send(w, dials, !dials, 1));
            net_run(w, 200);
            cr_assert(eq(int, w->node[!dials].messages[dials], 1), "step %d, %d", step, dials);
            both_talk(w);
            net_world_close(w);
        }
}

Test(rekey, a_connection_of_a_dropped_key_is_renewed_and_nothing_is_lost)
{
    struct net_world *w = world_talks();

    both_talk(w);
    for (int step = ADDED; step <= ROTATED; step++)
        for (uint32_t node = 0; node < 2; node++) {
            cr_assert(zero(u32, rekey(w, node, step)), "nothing is to be renewed yet");
            both_talk(w);
        }
    cr_assert(eq(u32, rekey(w, 0, DROPPED), 1));
    both_talk(w); /* the other one still has the old key, and keeps the connection */
    cr_assert(eq(u32, rekey(w, 1, DROPPED), 1));
    both_talk(w);
    key_is(0, OLD); /* only what proves the new key is counted now */
    cr_assert(ge(u32, hth_session_rekeyed(w->node[0].session), 1), "it was not renewed");
    net_world_close(w);
}

/* It is cut where the other side does not let go: its peer is dialled again, and was never down. */
Test(rekey, a_connection_of_a_dropped_key_ends_after_a_while)
{
    struct net_world *w = world_talks();

    both_talk(w);
    rekey(w, 0, ROTATED);
    rekey(w, 1, ROTATED);
    cr_assert(eq(u32, rekey(w, 0, DROPPED), 1));
    net_run(w, 29000);
    key_is(0, OLD);
    cr_assert(zero(u32, hth_session_rekeyed(w->node[0].session)), "it was renewed too soon");
    key_is(0, DROPPED);
    net_run(w, 3000);
    both_talk(w);
    key_is(0, OLD);
    cr_assert(ge(u32, hth_session_rekeyed(w->node[0].session), 1), "it still stands");
    net_world_close(w);
}

/* It dials with a key that node 0 lacks, and is dialled with the one that both have. */
Test(rekey, one_that_is_a_step_too_far_is_not_lost)
{
    struct net_world *w = world(OLD, ROTATED);

    must(net_send(w, 1, 0, 1));
    net_run(w, 1000);
    cr_assert(eq(int, w->node[0].messages[1], 1));
    cr_assert(zero(int, w->node[1].downs[0]), "%s", w->node[1].down_text);
    net_world_close(w);
}

Test(rekey, who_has_the_dropped_key_alone_is_refused)
{
    struct net_world *w = world(DROPPED, OLD);

    must(net_send(w, 1, 0, 1));
    net_run(w, 1000);
    cr_assert(zero(int, w->node[0].messages[1] + w->node[0].ups[1]));
    cr_assert(eq(int, w->node[1].down_code, HEARTH_EAUTH));
    net_world_close(w);
}

#define HOUR 3600000u

static int dials;

static struct hth_loop_verdict count_dials(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    (void)arg, (void)from, (void)to, (void)bytes, (void)len;
    dials += kind == HTH_LOOP_CONNECT;
    return (struct hth_loop_verdict){ 0 };
}

Test(rekey, a_connection_is_made_anew_each_hour_and_nothing_is_lost)
{
    struct net_world *w = world_talks();

    hth_loop_net_script(w->net, count_dials, NULL);
    net_run(w, HOUR - 60000);
    both_talk(w);
    cr_expect(zero(int, dials), "it was made anew before its hour was over");
    for (int i = 0; i < 200 && !dials; i++)
        both_talk(w);
    cr_expect(ge(int, dials, 1), "it is the same one after an hour");
    net_run(w, 1000);
    both_talk(w);
    cr_expect(le(int, dials, 2));
    dials = 0;
    net_run(w, HOUR / 2);
    cr_expect(zero(int, dials));
    net_run(w, HOUR);
    cr_expect(ge(int, dials, 1)); /* without a message, too: it is watched */
    both_talk(w);
    net_world_close(w);
}

/* A grant on it stands for good. */
Test(rekey, a_connection_that_is_never_quiet_is_cut_in_the_end)
{
    static unsigned char bytes[64];
    struct net_world *w = world_talks();
    struct hth_region *region;
    struct hth_grant grant;

    hth_loop_net_script(w->net, count_dials, NULL);
    dials = 0;
    must(hth_session_reg(w->node[0].session, bytes, sizeof(bytes), &region, NULL));
    must(hth_session_grant(w->node[0].session, 1, region, 0, sizeof(bytes), &grant, NULL));
    net_run(w, HOUR + 9 * 60000);
    cr_expect(zero(int, dials));
    net_run(w, 9 * 60000);
    cr_expect(ge(int, dials, 1));
    both_talk(w);
    net_world_close(w);
}
