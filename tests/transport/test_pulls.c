/* SPDX-License-Identifier: Apache-2.0 */
/* Pulls of a session: each ends once, whatever happens to its connection. */
#include "check.h"
#include "net_world.h"

#include <unistd.h>

static void limit(void)
{
    alarm(60);
}

TestSuite(pulls, .init = limit);

/* A pull of 4096 bytes from node 0 to node 1. */
struct tried {
    struct hth_session_pull pull; /* first */
    int done, code;
};

static void tried_done(struct hth_session_pull *pull, int code)
{
    struct tried *t = (struct tried *)pull;

    t->done++;
    t->code = code;
}

struct wire {
    struct net_world *w;
    unsigned char from[4096], to[4096];
    struct hth_region *src, *dst;
    struct hth_grant grant;
};

static void wire_up(struct wire *x)
{
    struct net_world *w = x->w;

    must(net_send(w, 0, 1, w->now_ms));
    net_run(w, 50);
    must(hth_session_grant(w->node[0].session, 1, x->src, 0, 4096, &x->grant, NULL));
}

static void wire_open(struct wire *x)
{
    x->w = net_world_open(2, NULL);
    memset(x->from, 7, sizeof(x->from));
    must(hth_session_reg(x->w->node[0].session, x->from, 4096, &x->src, NULL));
    must(hth_session_reg(x->w->node[1].session, x->to, 4096, &x->dst, NULL));
    must_fail(hth_session_grant(x->w->node[0].session, 1, x->src, 0, 4096, &x->grant, NULL),
            HEARTH_EPEER);
    wire_up(x);
}

static int wire_pull(struct wire *x, struct tried *t)
{
    *t = (struct tried){ .pull = { .done = tried_done } };
    return hth_session_pull(x->w->node[1].session, 0, &x->grant, 0, x->dst, 0, 4096, &t->pull);
}

Test(pulls, a_pull_brings_bytes_and_a_revoked_grant_none)
{
    static struct wire x;
    struct tried t;

    wire_open(&x);
    must(wire_pull(&x, &t));
    cr_assert(eq(int, t.done, 0));
    net_run(x.w, 10);
    cr_assert(eq(int, t.done, 1));
    must(t.code);
    cr_assert(zero(int, memcmp(x.from, x.to, 4096)));
    cr_assert(eq(u64, x.w->node[1].pulled, 4096), "the owner of the session is told");
    hth_session_revoke(x.w->node[0].session, &x.grant);
    must(wire_pull(&x, &t));
    net_run(x.w, 10);
    cr_assert(eq(int, t.code, HEARTH_EDENIED));
    net_world_close(x.w);
}

Test(pulls, a_stalled_pull_is_cut_once_and_the_peer_stays)
{
    static struct wire x;
    struct net_fault stall = { HTH_LOOP_PULL, HTH_LOOP_STALL, 1, 0, 1 };
    struct tried t, second;

    wire_open(&x);
    hth_loop_net_script(x.w->net, net_play, &stall);
    must(wire_pull(&x, &t));
    net_run(x.w, 4900);
    cr_assert(eq(int, t.done, 0));
    net_run(x.w, 200);
    cr_assert(eq(int, t.done, 1));
    cr_assert(eq(int, t.code, HEARTH_ETIMEOUT));
    net_run(x.w, 20000);
    cr_assert(eq(int, t.done, 1));
    cr_assert(eq(int, x.w->node[1].downs[0], 0));
    cr_assert(eq(u32, x.w->node[1].stalled, 1), "the peer is not down, and its owner is told");
    wire_up(&x); /* a new connection, a new grant */
    must(wire_pull(&x, &second));
    net_run(x.w, 10);
    must(second.code);
    cr_assert(eq(int, second.done, 1));
    net_world_close(x.w);
}

#define SLOW  4
#define EACH  3000u /* ms that the path takes for one of them */
#define STALL 5000u /* a session's stall_ms by default */

static uint32_t slowly_asked;

static struct hth_loop_verdict slowly(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    (void)arg, (void)from, (void)to, (void)bytes, (void)len;
    return (struct hth_loop_verdict){ .delay_ms =
                                              kind == HTH_LOOP_PULL ? ++slowly_asked * EACH : 0 };
}

/* The last one ends long after stall_ms; until then others do. */
Test(pulls, one_that_waits_for_others_on_a_slow_path_is_not_stalled)
{
    static struct wire x;
    struct tried t[SLOW];

    wire_open(&x);
    hth_loop_net_script(x.w->net, slowly, NULL);
    for (int i = 0; i < SLOW; i++)
        must(wire_pull(&x, &t[i]));
    net_run(x.w, SLOW * EACH + 100);
    for (int i = 0; i < SLOW; i++) {
        cr_expect(eq(int, t[i].done, 1));
        must(t[i].code);
    }
    net_world_close(x.w);
}

static uint64_t came_ms; /* what the transport of node 1 says */

static uint64_t says_came(struct hth_transport *t, hth_conn conn)
{
    (void)t, (void)conn;
    return came_ms;
}

Test(pulls, one_is_cut_when_no_byte_has_come_for_stall_ms_and_not_before)
{
    static struct wire x;
    struct net_fault stall = { HTH_LOOP_PULL, HTH_LOOP_STALL, 1, 0, 1 };
    struct hth_transport_ops ops;
    const struct hth_transport_ops *own;
    struct tried t;

    wire_open(&x);
    own = x.w->node[1].transport->ops;
    ops = *own;
    ops.pulled_ms = says_came;
    x.w->node[1].transport->ops = &ops;
    hth_loop_net_script(x.w->net, net_play, &stall);
    must(wire_pull(&x, &t));
    for (int i = 0; i < 12; i++) { /* a byte each second */
        net_run(x.w, 1000);
        came_ms = x.w->now_ms;
        cr_assert(zero(int, t.done), "after %d s", i + 1);
    }
    net_run(x.w, STALL - 100);
    cr_assert(zero(int, t.done));
    net_run(x.w, 200);
    cr_assert(eq(int, t.done, 1));
    cr_assert(eq(int, t.code, HEARTH_ETIMEOUT));
    x.w->node[1].transport->ops = own;
    net_world_close(x.w);
}

Test(pulls, one_that_is_forgotten_while_bytes_come_is_cut_in_the_end)
{
    static struct wire x;
    struct net_fault stall = { HTH_LOOP_PULL, HTH_LOOP_STALL, 1, 0, 1 };
    struct tried t, other;
    int seconds = 0;

    wire_open(&x);
    hth_loop_net_script(x.w->net, net_play, &stall);
    must(wire_pull(&x, &t));
    for (; !t.done && seconds < 100; seconds++) {
        (void)wire_pull(&x, &other);
        net_run(x.w, 1000);
    }
    cr_expect(ge(int, seconds, 58));
    cr_expect(le(int, seconds, 61));
    cr_expect(eq(int, t.code, HEARTH_ETIMEOUT));
    net_world_close(x.w);
}

Test(pulls, pulls_end_with_the_connection_the_epoch_and_the_owner)
{
    static struct wire x;
    struct tried t;

    wire_open(&x);
    must(wire_pull(&x, &t));
    hth_session_drop(x.w->node[1].session, 0);
    cr_assert(eq(int, t.done, 0)); /* never inside the call */
    net_run(x.w, 100);
    cr_assert(eq(int, t.done, 1));
    cr_assert(eq(int, t.code, HEARTH_ECANCELED));
    wire_up(&x);
    must(wire_pull(&x, &t));
    hth_session_join(x.w->node[1].session, &x.w->node[1].epoch);
    must_fail(wire_pull(&x, &(struct tried){ .done = 0 }), HEARTH_EPEER);
    net_run(x.w, 100);
    cr_assert(eq(int, t.done, 1));
    wire_up(&x);
    must(wire_pull(&x, &t));
    net_node_close(x.w, 0);
    net_run(x.w, 100);
    cr_assert(eq(int, t.done, 1));
    cr_assert(eq(int, t.code, HEARTH_EPEER));
    net_world_close(x.w);
}

/* Node 0 says nothing more, and its memory is still read. */
static struct hth_loop_verdict mute(void *arg, enum hth_loop_kind kind, uint32_t from, uint32_t to,
        const void *bytes, size_t len)
{
    (void)to, (void)bytes, (void)len;
    return (struct hth_loop_verdict){ .fault = kind == HTH_LOOP_MESSAGE && from == *(uint32_t *)arg
                                                       ? HTH_LOOP_DROP
                                                       : HTH_LOOP_NONE };
}

static uint32_t caps; /* of node 1's transport */

static uint32_t says_caps(struct hth_transport *t)
{
    (void)t;
    return caps;
}

Test(pulls, one_that_ends_shows_that_its_owner_runs_unless_the_hardware_serves_it)
{
    static struct wire x;
    struct hth_transport_ops ops;
    const struct hth_transport_ops *own;
    uint32_t node = 0;
    struct tried t;

    for (int hardware = 0; hardware < 2; hardware++) {
        wire_open(&x);
        own = x.w->node[1].transport->ops;
        ops = *own;
        ops.caps = says_caps;
        caps = hardware ? HTH_CAP_ONE_SIDED : 0;
        x.w->node[1].transport->ops = &ops;
        hth_loop_net_script(x.w->net, mute, &node);
        for (int i = 0; i < 20; i++) {
            (void)wire_pull(&x, &t);
            net_run(x.w, 500);
        }
        cr_expect(eq(int, x.w->node[1].downs[0], hardware));
        x.w->node[1].transport->ops = own;
        net_world_close(x.w);
    }
}
