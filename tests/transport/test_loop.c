/* SPDX-License-Identifier: Apache-2.0 */
/* The net inside the process beyond the contract of conformance.c: scripts, silence, one history
 * per seed, and room for thousands. */
#include "check.h"

#include "core/base/bytes.h"
#include "core/base/crc.h"
#include "transport/loop/loop.h"
#include <stdlib.h>
#include <unistd.h>

#define LATENCY_MS 2
#define CROWD      3000

static uint64_t now;

static uint64_t now_ms(void *self)
{
    (void)self;
    return now;
}

static const struct hth_clock test_clock = { now_ms, now_ms, NULL };

struct end {
    struct hth_transport *t;
    hth_conn conn; /* the latest */
    int accepts, ups, downs, messages, writables, pulls;
    int code;       /* of the last down or pull */
    uint64_t at_ms; /* of the last event */
    unsigned char got[64];
    uint64_t hash;
};

static void note(struct end *e, int *count, uint64_t what)
{
    ++*count;
    e->at_ms = now;
    e->hash = (e->hash ^ what ^ now << 32) * 0x100000001b3u;
}

static void on_accept(void *self, hth_conn conn)
{
    struct end *e = self;

    e->conn = conn;
    note(e, &e->accepts, 1);
}

static void on_up(void *self, hth_conn conn)
{
    struct end *e = self;

    (void)conn;
    note(e, &e->ups, 2);
}

static void on_down(void *self, hth_conn conn, int code, const char *detail)
{
    struct end *e = self;

    (void)conn, (void)detail;
    e->code = code;
    note(e, &e->downs, 3);
}

static void on_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct end *e = self;

    (void)conn;
    if (len && e->messages < 64)
        e->got[e->messages] = *(const unsigned char *)bytes;
    note(e, &e->messages, len ? *(const unsigned char *)bytes : 4u);
}

static void on_writable(void *self, hth_conn conn)
{
    struct end *e = self;

    (void)conn;
    note(e, &e->writables, 5);
}

static void on_pull(void *self, uint64_t cookie, int code)
{
    struct end *e = self;

    e->code = code;
    note(e, &e->pulls, cookie);
}

static struct hth_loop_net *net;
static struct end ends[CROWD];

static void end_open(uint32_t i)
{
    struct hth_transport_events ev = { &ends[i], on_accept, on_up, on_down, on_message, on_writable,
        on_pull };

    ends[i] = (struct end){ .t = NULL };
    must(hth_loop_open(net, i, &ev, &ends[i].t, NULL));
}

static void dial(uint32_t from, uint32_t to)
{
    unsigned char addr[4];

    hth_put32(addr, to);
    must(ends[from].t->ops->connect(ends[from].t, addr, 4, &ends[from].conn, NULL));
}

/* As a simulator does it: always the one that is first. Returns the steps. */
static int run(uint64_t ms)
{
    uint64_t end = now + ms, due;
    int steps = 0;

    while ((due = hth_loop_net_due_ms(net)) <= end) {
        now = due > now ? due : now;
        hth_loop_net_first(net)->ops->progress(hth_loop_net_first(net));
        steps++;
    }
    now = end;
    return steps;
}

static void open_two(void)
{
    alarm(30);
    now = 1000;
    must(hth_loop_net_open(&test_clock, LATENCY_MS, &net, NULL));
    end_open(0);
    end_open(1);
    dial(0, 1);
    run(10);
}

static void close_all(void)
{
    for (uint32_t i = 0; i < CROWD; i++)
        if (ends[i].t)
            ends[i].t->ops->close(ends[i].t);
    hth_loop_net_close(net);
}

static void say(uint32_t from, unsigned char what)
{
    must(ends[from].t->ops->send(ends[from].t, ends[from].conn, &what, 1));
}

/* One verdict per call, in order. */
static struct hth_loop_verdict verdicts[8];
static int asked;

static struct hth_loop_verdict script(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    (void)arg, (void)kind, (void)from, (void)to, (void)bytes, (void)len;
    return verdicts[asked++];
}

TestSuite(loop, .init = open_two, .fini = close_all);

Test(loop, an_event_comes_one_latency_later_and_not_before)
{
    cr_assert(eq(int, ends[0].ups, 1));
    cr_assert(eq(int, ends[1].accepts, 1));
    say(0, 'a');
    run(LATENCY_MS - 1);
    cr_assert(eq(int, ends[1].messages, 0));
    run(1);
    cr_assert(eq(int, ends[1].messages, 1));
    cr_assert(eq(u64, hth_loop_net_due_ms(net), HTH_NEVER));
    cr_assert(zero(ptr, hth_loop_net_first(net)));
}

Test(loop, delays_keep_the_order_and_late_ones_do_not)
{
    hth_loop_net_script(net, script, NULL);
    verdicts[0].delay_ms = 10;
    say(0, 'a');
    say(0, 'b');
    run(20);
    cr_assert(zero(int, memcmp(ends[1].got, "ab", 2)));
    verdicts[2].delay_ms = 10;
    verdicts[2].late = 1;
    say(0, 'c');
    say(0, 'd');
    run(20);
    cr_assert(zero(int, memcmp(ends[1].got, "abdc", 4)));
}

Test(loop, messages_are_lost_doubled_and_bent_as_told)
{
    hth_loop_net_script(net, script, NULL);
    verdicts[0].fault = HTH_LOOP_DROP;
    verdicts[1].fault = HTH_LOOP_DUPLICATE;
    verdicts[2].fault = HTH_LOOP_FLIP;
    say(0, 'a');
    say(0, 'b');
    say(0, 'c');
    run(20);
    cr_assert(eq(int, ends[1].messages, 3));
    cr_assert(zero(int, memcmp(ends[1].got, "bb", 2)));
    cr_assert(ne(int, ends[1].got[2], 'c'));
}

Test(loop, connects_are_refused_stalled_and_doubled_as_told)
{
    hth_loop_net_script(net, script, NULL);
    verdicts[0].fault = HTH_LOOP_DROP;
    verdicts[1].fault = HTH_LOOP_STALL;
    verdicts[2].fault = HTH_LOOP_DUPLICATE;
    dial(0, 1);
    run(20);
    cr_assert(eq(int, ends[0].downs, 1));
    cr_assert(eq(int, ends[0].code, HEARTH_EPEER));
    dial(0, 1);
    run(100000);
    cr_assert(eq(int, ends[0].downs, 1));
    ends[0].t->ops->drop(ends[0].t, ends[0].conn);
    run(1);
    cr_assert(eq(int, ends[0].downs, 2));
    cr_assert(eq(int, ends[0].code, HEARTH_ECANCELED));
    dial(0, 1);
    run(20);
    cr_assert(eq(int, ends[1].accepts, 3));
    cr_assert(eq(int, ends[0].ups, 2));
    dial(0, 77); /* there is no such endpoint */
    run(20);
    cr_assert(eq(int, ends[0].downs, 3));
    cr_assert(eq(int, ends[0].code, HEARTH_EPEER));
}

static unsigned char from[4096], to[4096];

static void pull_with(enum hth_loop_fault fault)
{
    struct hth_region *src, *dst;
    unsigned char desc[HTH_DESC_MAX];
    uint32_t len;

    memset(from, 7, sizeof(from));
    memset(to, 0, sizeof(to));
    must(ends[0].t->ops->reg(ends[0].t, from, sizeof(from), &src, NULL));
    must(ends[1].t->ops->reg(ends[1].t, to, sizeof(to), &dst, NULL));
    must(ends[0].t->ops->grant(ends[0].t, src, 0, 4096, ends[0].conn, desc, &len, NULL));
    asked = 0;
    verdicts[0].fault = fault;
    hth_loop_net_script(net, script, NULL);
    must(ends[1].t->ops->pull(ends[1].t, ends[1].conn, desc, len, 0, dst, 0, 4096, 9));
    must_fail(ends[1].t->ops->dereg(ends[1].t, dst), HEARTH_EBUSY);
    run(20);
}

Test(loop, a_pull_is_cut_in_its_middle)
{
    pull_with(HTH_LOOP_CUT);
    cr_assert(eq(int, ends[1].pulls, 1));
    cr_assert(eq(int, ends[1].downs, 1));
    cr_assert(eq(int, ends[0].downs, 1));
    cr_assert(eq(int, ends[1].code, HEARTH_EPEER));
    cr_assert(eq(int, to[2047], 7));
    cr_assert(eq(int, to[2048], 0));
}

Test(loop, a_pull_brings_one_wrong_byte)
{
    int wrong = 0;

    pull_with(HTH_LOOP_FLIP);
    must(ends[1].code);
    for (size_t i = 0; i < sizeof(to); i++)
        wrong += to[i] != 7;
    cr_assert(eq(int, wrong, 1));
}

Test(loop, a_pull_brings_wrong_bytes_with_the_same_crc)
{
    pull_with(HTH_LOOP_FORGE);
    must(ends[1].code);
    cr_assert(ne(int, memcmp(from, to, sizeof(to)), 0));
    cr_assert(eq(u32, hth_crc32c(to, sizeof(to)), hth_crc32c(from, sizeof(from))));
}

Test(loop, a_pull_breaks_the_connection)
{
    pull_with(HTH_LOOP_DROP);
    cr_assert(eq(int, ends[1].pulls, 1));
    cr_assert(eq(int, ends[1].code, HEARTH_EPEER));
    cr_assert(eq(int, ends[0].downs, 1));
    cr_assert(eq(int, to[0], 0));
}

Test(loop, a_stalled_pull_ends_by_the_drop)
{
    pull_with(HTH_LOOP_STALL);
    run(100000);
    cr_assert(eq(int, ends[1].pulls, 0));
    ends[1].t->ops->drop(ends[1].t, ends[1].conn);
    run(0);
    cr_assert(eq(int, ends[1].pulls, 1));
    cr_assert(eq(int, ends[1].code, HEARTH_ECANCELED));
}

Test(loop, silence_keeps_everything_until_it_ends)
{
    say(0, 'a');
    hth_loop_net_silence(net, 1, 1);
    say(0, 'b');
    cr_assert(eq(u64, hth_loop_net_due_ms(net), HTH_NEVER)); /* a stopped one asks for no step */
    say(1, 'z');
    run(100000);
    cr_assert(eq(int, ends[0].messages + ends[1].messages, 0));
    cr_assert(eq(u64, hth_loop_net_due_ms(net), HTH_NEVER)); /* no side waits in vain */
    ends[0].t->ops->drop(ends[0].t, ends[0].conn);
    run(10);
    cr_assert(eq(int, ends[0].downs, 1));
    cr_assert(eq(int, ends[1].downs, 0)); /* it does not learn of that either */
    hth_loop_net_silence(net, 1, 0);
    run(10);
    cr_assert(eq(int, ends[1].messages, 2));
    cr_assert(zero(int, memcmp(ends[1].got, "ab", 2)));
    cr_assert(eq(int, ends[1].downs, 1));
    cr_assert(eq(int, ends[0].messages, 0)); /* its connection was gone */
}

Test(loop, who_speaks_again_is_heard_in_order)
{
    hth_loop_net_silence(net, 1, 1);
    for (unsigned char c = 'a'; c < 'k'; c++)
        say(1, c);
    run(50);
    hth_loop_net_silence(net, 1, 0);
    say(1, 'k');
    run(50);
    cr_assert(zero(int, memcmp(ends[0].got, "abcdefghijk", 11)));
    cr_assert(eq(int, ends[0].messages, 11));
}

Test(loop, who_is_not_heard_by_one_hears_it_all_the_same)
{
    cr_assert(zero(int, hth_loop_net_mute(net, 1, 0, 1)));
    for (unsigned char c = 'a'; c < 'k'; c++)
        say(1, c);
    say(0, 'z');
    run(50);
    cr_assert(eq(int, ends[0].messages, 0));
    cr_assert(eq(int, ends[1].messages, 1));
    say(1, 'k'); /* on its way when the silence ends, and behind what has waited */
    cr_assert(zero(int, hth_loop_net_mute(net, 1, 0, 0)));
    run(50);
    cr_assert(zero(int, memcmp(ends[0].got, "abcdefghijk", 11)));
    cr_assert(eq(int, ends[0].messages, 11));
}

Test(loop, a_silent_node_that_is_not_heard_either_speaks_when_both_have_ended)
{
    hth_loop_net_silence(net, 1, 1);
    cr_assert(zero(int, hth_loop_net_mute(net, 1, 0, 1)));
    say(1, 'a');
    run(50);
    hth_loop_net_silence(net, 1, 0);
    run(50);
    cr_assert(eq(int, ends[0].messages, 0));
    cr_assert(zero(int, hth_loop_net_mute(net, 1, 0, 0)));
    run(50);
    cr_assert(eq(int, ends[0].messages, 1));
}

Test(loop, a_blocked_node_receives_when_its_thread_goes_on_and_what_it_has_sent_arrives)
{
    say(1, 'z');
    for (unsigned char c = 'a'; c < 'd'; c++)
        say(0, c);
    hth_loop_net_block(net, 1, 1);
    say(0, 'd');
    run(100000);
    cr_assert(eq(int, ends[0].messages, 1));
    cr_assert(eq(int, ends[1].messages, 0));
    cr_assert(eq(u64, hth_loop_net_due_ms(net), HTH_NEVER)); /* a blocked thread asks for no step */
    hth_loop_net_block(net, 1, 0);
    run(0);
    cr_assert(eq(int, ends[1].messages, 4));
    cr_assert(zero(int, memcmp(ends[1].got, "abcd", 4)));
}

static void pull_of_a_blocked_node(int arrives)
{
    hth_loop_net_block(net, 0, 1);
    pull_with(HTH_LOOP_NONE);
    cr_assert(eq(int, ends[1].pulls, arrives));
    hth_loop_net_block(net, 0, 0);
    run(20);
    cr_assert(eq(int, ends[1].pulls, 1));
    must(ends[1].code);
    cr_assert(zero(int, memcmp(from, to, sizeof(from))));
}

Test(loop, a_pull_of_a_blocked_nodes_memory_waits_for_its_thread)
{
    pull_of_a_blocked_node(0);
}

Test(loop, a_pull_that_a_network_card_serves_does_not_wait_for_a_blocked_thread)
{
    hth_loop_net_no_revoke(net);
    pull_of_a_blocked_node(1);
}

Test(loop, a_node_that_left_while_silent_is_missed_only_later)
{
    hth_loop_net_silence(net, 1, 1);
    ends[1].t->ops->close(ends[1].t);
    ends[1].t = NULL;
    run(1000);
    cr_assert(eq(int, ends[0].downs, 0));
    dial(0, 1);
    run(1000);
    cr_assert(eq(int, ends[0].downs, 0));
    hth_loop_net_silence(net, 1, 0);
    run(1000);
    cr_assert(eq(int, ends[0].downs, 2));
    end_open(1); /* another under its number */
    dial(0, 1);
    run(10);
    cr_assert(eq(int, ends[1].accepts, 1));
}

Test(loop, one_number_is_one_node)
{
    struct hth_transport_events ev = { .self = NULL };
    struct hth_transport *t;

    must_fail(hth_loop_open(net, 1, &ev, &t, NULL), HEARTH_EEXIST);
    must_fail(ends[0].t->ops->connect(ends[0].t, from, 5, &ends[0].conn, NULL), HEARTH_EINVAL);
}

static uint64_t history(uint64_t seed)
{
    uint64_t hash = 0;

    for (int i = 0; i < 400; i++) {
        uint64_t r = hth_splitmix64(&seed);

        (void)ends[r & 1].t->ops->send(ends[r & 1].t, ends[r & 1].conn, &r, 1 + r % 8);
        if (r % 50 == 0)
            hth_loop_net_silence(net, 1, (int)(r >> 8 & 1));
        run(r >> 16 & 3);
    }
    hth_loop_net_silence(net, 1, 0);
    run(100);
    for (int i = 0; i < 2; i++)
        hash = hash * 31 + ends[i].hash;
    return hash;
}

Test(loop, one_seed_is_one_history)
{
    uint64_t first[2];

    for (int i = 0; i < 2; i++) {
        close_all();
        memset(ends, 0, sizeof(ends));
        open_two();
        first[i] = history(42);
        cr_assert(gt(int, ends[0].messages, 100));
    }
    cr_assert(eq(u64, first[0], first[1]));
}

Test(loop, a_step_does_not_cost_the_crowd)
{
    int steps;

    for (uint32_t i = 2; i < CROWD; i++)
        end_open(i);
    for (uint32_t i = 2; i < CROWD; i++)
        dial(i, i - 1);
    run(20);
    for (int round = 0; round < 20; round++) {
        for (uint32_t i = 2; i < CROWD; i++)
            say(i, 'x');
        run(10);
    }
    for (uint32_t i = 3; i < CROWD; i++) /* each has the one before it */
        cr_assert(ends[i].messages >= 20);
    say(CROWD - 1, 'y');
    steps = run(10);
    cr_assert(le(int, steps, 2)); /* the rest is not even looked at */
}
