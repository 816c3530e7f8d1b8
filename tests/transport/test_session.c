/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions on the net inside the process: who is believed, who is given up, and when. */
#include "check.h"
#include "net_world.h"

#include <unistd.h>

#define DEAD_MS 5000u

static struct hth_session_opts keyed(unsigned char byte)
{
    struct hth_session_opts o = { .has_key = 1, .job = "job" };

    memset(o.key, byte, sizeof(o.key));
    return o;
}

static void limit(void)
{
    alarm(60);
}

/* What goes wrong next on the net; once, or as long as `times` lasts. */
struct script {
    enum hth_loop_kind kind;
    enum hth_loop_fault fault;
    uint32_t from;
    size_t len; /* of the message; 0: any */
    int times;
};

static struct hth_loop_verdict play(void *arg, enum hth_loop_kind kind, uint32_t from, uint32_t to,
        const void *bytes, size_t len)
{
    struct script *s = arg;
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };

    (void)to, (void)bytes;
    if (kind != s->kind || from != s->from || (s->len && s->len != len) || !s->times)
        return v;
    s->times--;
    v.fault = s->fault;
    return v;
}

TestSuite(session, .init = limit);

Test(session, both_sides_prove_the_key_and_talk)
{
    struct hth_session_opts o = keyed(1);
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

Test(session, another_key_is_refused_at_once_and_told_so)
{
    struct hth_session_opts ours = keyed(1), other = keyed(2), none = { .job = "job" };
    const struct hth_session_opts *theirs[] = { &other, &none };

    for (int i = 0; i < 2; i++) {
        struct net_world *w = net_world_open(2, &ours);

        net_node_close(w, 1);
        net_node_open(w, 1, theirs[i]);
        must(net_send(w, 0, 1, 5));
        net_run(w, 100);
        cr_assert(eq(int, w->node[0].downs[1], 1));
        cr_assert(eq(int, w->node[0].down_code, HEARTH_EAUTH));
        must_say(w->node[0].down_text,
                "node 1 (host1): another job key there; give all nodes the same key file");
        cr_assert(eq(int, w->node[1].ups[0], 0));
        cr_assert(eq(int, w->node[1].messages[0], 0));
        net_world_close(w);
    }
}

Test(session, another_job_is_refused_at_once)
{
    struct hth_session_opts o = { .job = "other" };
    struct net_world *w = net_world_open(2, NULL);

    net_node_close(w, 1);
    net_node_open(w, 1, &o);
    must(net_send(w, 0, 1, 5));
    net_run(w, 100);
    cr_assert(eq(int, w->node[0].down_code, HEARTH_EPROTO));
    must_say(w->node[0].down_text,
            "node 1 (host1): here is job other, not job; check the addresses "
            "the ranks have exchanged");
    cr_assert(eq(int, w->node[1].ups[0], 0));
    net_world_close(w);
}

/* A peer whose every byte the test writes itself. */
struct raw {
    struct hth_transport *t;
    hth_conn conn;
    int accepts, downs;
    size_t len;
    unsigned char bytes[HTH_MESSAGE_MAX];
    struct hth_frame frame;
    unsigned char key[HTH_KEY];
    int answer_versions; /* accept a hello, and answer with this version */
};

static void raw_accept(void *self, hth_conn conn)
{
    struct raw *r = self;

    r->conn = conn;
    r->accepts++;
}

static void raw_up(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void raw_down(void *self, hth_conn conn, int code, const char *detail)
{
    (void)conn, (void)code, (void)detail;
    ((struct raw *)self)->downs++;
}

static void raw_message(void *self, hth_conn conn, const void *bytes, size_t len)
{
    struct raw *r = self;

    (void)conn;
    r->len = len;
    memcpy(r->bytes, bytes, len);
    must(hth_frame_decode(&r->frame, r->bytes, len, NULL));
}

static void raw_writable(void *self, hth_conn conn)
{
    (void)self, (void)conn;
}

static void raw_pull(void *self, uint64_t cookie, int code)
{
    (void)self, (void)cookie, (void)code;
}

static struct raw *raw_open(struct net_world *w, uint32_t node)
{
    static struct raw r;
    struct hth_transport_events e = { &r, raw_accept, raw_up, raw_down, raw_message, raw_writable,
        raw_pull };

    r = (struct raw){ .t = NULL };
    net_node_close(w, node);
    must(hth_loop_open(w->net, node, &e, &r.t, NULL));
    return &r;
}

static void raw_run(struct net_world *w, struct raw *r, uint64_t ms)
{
    while (ms--) {
        net_run(w, 1);
        r->t->ops->progress(r->t);
    }
}

static void raw_dial(struct net_world *w, struct raw *r, uint32_t node)
{
    must(r->t->ops->connect(r->t, w->member[node].addr, 4, &r->conn, NULL));
    raw_run(w, r, 10);
}

static void raw_send(struct raw *r, struct hth_frame f, const unsigned char *key)
{
    unsigned char out[HTH_MESSAGE_MAX];

    must(r->t->ops->send(r->t, r->conn, out, hth_frame_encode(&f, key, out)));
}

/* A hello as node 1 would send it to node 0. */
static void raw_hello(struct raw *r, unsigned char low, unsigned char high, unsigned char body[136])
{
    static const unsigned char zeros[HTH_KEY];
    struct hth_frame f = { .version = 1,
        .type = HTH_MSG_HELLO,
        .body_len = 136,
        .epoch = NET_EPOCH,
        .nonce = NET_NONCE,
        .seq = 1,
        .body = body };

    memset(body, 0, 136);
    body[0] = low;
    body[1] = high;
    body[4] = 1;
    body[16] = 101;
    memcpy(body + 24, "loop", 4);
    memcpy(body + 40, "job", 3);
    raw_send(r, f, zeros);
}

Test(session, versions_that_do_not_meet_are_refused_in_words)
{
    struct net_world *w = net_world_open(2, NULL);
    struct raw *r = raw_open(w, 1);
    unsigned char body[136];

    raw_dial(w, r, 0);
    raw_hello(r, 7, 9, body);
    raw_run(w, r, 10);
    cr_assert(eq(int, r->frame.type, HTH_MSG_REFUSE));
    cr_assert(not(
            zero(ptr, memmem(r->bytes, r->len, "protocol 1 to 1 is spoken, there 7 to 9", 39))));
    raw_dial(w, r, 0); /* one that knows ours as well is welcome */
    raw_hello(r, 1, 9, body);
    raw_run(w, r, 10);
    cr_assert(eq(int, r->frame.type, HTH_MSG_HELLO_ACK));
    cr_assert(eq(int, r->frame.body[1], 1));
    r->t->ops->close(r->t);
    net_world_close(w);
}

Test(session, nothing_happens_before_the_proof)
{
    struct hth_session_opts o = keyed(1);
    struct net_world *w = net_world_open(2, &o);
    static const unsigned char zeros[HTH_KEY];
    struct raw *r = raw_open(w, 1);
    unsigned char body[136] = { 0 };
    static const uint16_t types[] = { HTH_MSG_WANT, HTH_MSG_AUTH, HTH_MSG_PING, HTH_MSG_HELLO_ACK };

    for (size_t i = 0; i < 4; i++) {
        struct hth_frame f = { .version = 1,
            .type = types[i],
            .body_len = 16,
            .epoch = NET_EPOCH,
            .nonce = NET_NONCE,
            .seq = 1,
            .body = body };

        raw_dial(w, r, 0);
        raw_send(r, f, i & 1 ? o.key : zeros);
        raw_run(w, r, 10);
        cr_assert(eq(int, r->frame.type, HTH_MSG_REFUSE));
        cr_assert(eq(int, w->node[0].ups[1], 0));
        cr_assert(eq(int, w->node[0].messages[1], 0));
    }
    r->t->ops->close(r->t);
    net_world_close(w);
}

/* Keeps the first hello and the first proof that node 1 says, for another day. */
struct tape {
    size_t len[2];
    unsigned char bytes[2][HTH_MESSAGE_MAX];
    int count;
};

static struct hth_loop_verdict record(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    struct tape *tape = arg;

    (void)to;
    if (kind == HTH_LOOP_MESSAGE && from == 1 && tape->count < 2) {
        memcpy(tape->bytes[tape->count], bytes, len);
        tape->len[tape->count++] = len;
    }
    return (struct hth_loop_verdict){ HTH_LOOP_NONE, 0, 0 };
}

Test(session, a_recorded_handshake_proves_nothing)
{
    struct hth_session_opts o = keyed(1);
    struct net_world *w = net_world_open(2, &o);
    static struct tape tape;
    struct raw *r;

    hth_loop_net_script(w->net, record, &tape);
    must(net_send(w, 1, 0, 1));
    net_run(w, 50);
    cr_assert(eq(int, w->node[0].ups[1], 1));
    cr_assert(eq(int, tape.count, 2));
    hth_loop_net_script(w->net, NULL, NULL);
    net_node_close(w, 0);
    net_node_open(w, 0, &o);
    r = raw_open(w, 1);
    raw_dial(w, r, 0);
    must(r->t->ops->send(r->t, r->conn, tape.bytes[0], tape.len[0]));
    raw_run(w, r, 10);
    cr_assert(eq(int, r->frame.type, HTH_MSG_HELLO_ACK));
    must(r->t->ops->send(r->t, r->conn, tape.bytes[1], tape.len[1]));
    raw_run(w, r, 10);
    cr_assert(eq(int, w->node[0].ups[1], 0));
    cr_assert(eq(int, r->downs, 1));
    r->t->ops->close(r->t);
    net_world_close(w);
}

Test(session, half_open_connections_are_bounded_and_end)
{
    struct net_world *w = net_world_open(2, NULL);
    struct raw *r = raw_open(w, 1);

    for (int i = 0; i < 200; i++)
        must(r->t->ops->connect(r->t, w->member[0].addr, 4, &r->conn, NULL));
    raw_run(w, r, 20);
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 64));
    raw_run(w, r, 2100);
    cr_assert(eq(u32, hth_session_connections(w->node[0].session), 0));
    cr_assert(eq(int, r->downs, 200));
    r->t->ops->close(r->t);
    net_world_close(w);
}

Test(session, a_message_is_heard_once_however_often_it_comes)
{
    struct net_world *w = net_world_open(2, NULL);
    struct script twice = { HTH_LOOP_MESSAGE, HTH_LOOP_DUPLICATE, 0, HTH_FRAME_HEAD + 8, -1 };

    hth_loop_net_script(w->net, play, &twice);
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
    struct script flip = { HTH_LOOP_MESSAGE, HTH_LOOP_FLIP, 0, HTH_FRAME_HEAD + 8, 1 };

    must(net_send(w, 0, 1, 1));
    net_run(w, 100);
    hth_loop_net_script(w->net, play, &flip);
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

Test(session, any_byte_of_a_handshake_may_be_flipped)
{
    for (int which = 1; which <= 3; which++) { /* hello, its answer, the proof */
        struct hth_session_opts o = keyed(3);
        struct net_world *w = net_world_open(2, &o);
        struct script flip = { HTH_LOOP_MESSAGE, HTH_LOOP_FLIP, which == 2, 0, 1 };

        flip.len = which == 3 ? HTH_FRAME_HEAD + HTH_MAC : 0;
        hth_loop_net_script(w->net, play, &flip);
        must(net_send(w, 0, 1, 1));
        net_run(w, 1000);
        cr_assert(eq(int, flip.times, 0));
        if (which ==
                3) { /* the dialler believed it stood: what it sent is lost, and it dials again */
            must(net_send(w, 0, 1, 2));
            net_run(w, 1000);
        }
        cr_assert(eq(int, w->node[1].messages[0], 1));
        cr_assert(eq(int, w->node[0].downs[1], 0));
        net_world_close(w);
    }
}

Test(session, who_is_not_in_the_epoch_is_asked_again_until_connect_ms)
{
    struct net_world *w = net_world_open(2, NULL);
    struct hth_epoch later = w->node[1].epoch;

    w->node[1].epoch.epoch = NET_EPOCH - 1;
    must(net_send(w, 0, 1, 1));
    net_run(w, 3000);
    cr_assert(eq(int, w->node[0].downs[1] + w->node[1].messages[0], 0));
    hth_session_join(w->node[1].session, &later); /* there it comes */
    net_run(w, 1500);
    cr_assert(eq(int, w->node[1].messages[0], 1));
    w->node[1].epoch.nonce = 5;
    hth_session_join(w->node[1].session, &w->node[1].epoch);
    net_run(w, DEAD_MS + 1500); /* it left: the lower index tries for dead_ms */
    cr_assert(eq(int, w->node[0].downs[1], 1));
    must(net_send(w, 0, 1, 2));
    net_run(w, 4900);
    cr_assert(eq(int, w->node[0].downs[1], 1));
    net_run(w, 1200);
    cr_assert(eq(int, w->node[0].downs[1], 2));
    cr_assert(eq(int, w->node[0].down_code, HEARTH_EPEER));
    must_say(w->node[0].down_text,
            "node 1 (host1): not reached in 5000 ms (not in epoch 7 here); is its engine running, "
            "and its address open to us?");
    cr_assert(eq(int, w->node[1].messages[0], 1));
    net_world_close(w);
}

Test(session, a_connect_that_arrives_twice_is_one)
{
    struct net_world *w = net_world_open(2, NULL);
    struct script twice = { HTH_LOOP_CONNECT, HTH_LOOP_DUPLICATE, 0, 0, -1 };

    hth_loop_net_script(w->net, play, &twice);
    must(net_send(w, 0, 1, 1));
    net_run(w, 100);
    cr_assert(eq(int, w->node[1].messages[0], 1));
    cr_assert(eq(u32, hth_session_connections(w->node[1].session), 2));
    net_run(w, 2500);
    cr_assert(eq(u32, hth_session_connections(w->node[1].session), 1));
    cr_assert(eq(int, w->node[0].ups[1], 1));
    cr_assert(eq(int, w->node[0].downs[1] + w->node[1].downs[0], 0));
    net_world_close(w);
}

Test(session, a_connect_without_an_answer_is_tried_again)
{
    struct net_world *w = net_world_open(2, NULL);
    struct script stall = { HTH_LOOP_CONNECT, HTH_LOOP_STALL, 0, 0, 1 };

    hth_loop_net_script(w->net, play, &stall);
    must(net_send(w, 0, 1, 1));
    net_run(w, 4000);
    cr_assert(eq(int, w->node[1].messages[0], 1));
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

Test(session, a_pull_brings_bytes_and_a_revoked_grant_none)
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
    hth_session_revoke(x.w->node[0].session, &x.grant);
    must(wire_pull(&x, &t));
    net_run(x.w, 10);
    cr_assert(eq(int, t.code, HEARTH_EDENIED));
    net_world_close(x.w);
}

Test(session, a_stalled_pull_is_cut_once_and_the_peer_stays)
{
    static struct wire x;
    struct script stall = { HTH_LOOP_PULL, HTH_LOOP_STALL, 1, 0, 1 };
    struct tried t, second;

    wire_open(&x);
    hth_loop_net_script(x.w->net, play, &stall);
    must(wire_pull(&x, &t));
    net_run(x.w, 4900);
    cr_assert(eq(int, t.done, 0));
    net_run(x.w, 200);
    cr_assert(eq(int, t.done, 1));
    cr_assert(eq(int, t.code, HEARTH_ETIMEOUT));
    net_run(x.w, 20000);
    cr_assert(eq(int, t.done, 1));
    cr_assert(eq(int, x.w->node[1].downs[0], 0));
    wire_up(&x); /* a new connection, a new grant */
    must(wire_pull(&x, &second));
    net_run(x.w, 10);
    must(second.code);
    cr_assert(eq(int, second.done, 1));
    net_world_close(x.w);
}

Test(session, pulls_end_with_the_connection_the_epoch_and_the_owner)
{
    static struct wire x;
    struct tried t;

    wire_open(&x);
    must(wire_pull(&x, &t));
    hth_session_drop(x.w->node[1].session, 0);
    must_fail(t.done, 0); /* never inside the call */
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
        struct hth_session_opts o = keyed(9);
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
