/* SPDX-License-Identifier: Apache-2.0 */
/* How sessions meet: which peer is accepted, which is refused, and what a lying peer can do. */
#include "check.h"
#include "net_world.h"
#include "secret.h"

#include <stdio.h>
#include <unistd.h>

#define DEAD_MS 5000u

static void limit(void)
{
    alarm(60);
}

TestSuite(handshake, .init = limit);

Test(handshake, another_key_is_refused_at_once_and_told_so)
{
    struct hth_session_opts ours = net_keyed(1), other = net_keyed(2), none = { .job = "job" };
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

Test(handshake, another_job_is_refused_at_once)
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

Test(handshake, another_version_is_refused_and_both_sides_hear_why)
{
    struct hth_session_opts o = {
        .job = "job", .version_low = HTH_VERSION_HIGH + 1, .version_high = HTH_VERSION_HIGH + 2
    };
    struct net_world *w = net_world_open(2, NULL);
    char at_1[120], at_0[120];

    net_node_close(w, 1);
    net_node_open(w, 1, &o);
    must(net_send(w, 1, 0, 5)); /* node 0 has nothing to say: it looks for itself */
    net_run(w, 200);
    cr_assert(eq(int, w->node[1].down_code, HEARTH_EPROTO));
    snprintf(at_1, sizeof(at_1),
            "node 0 (host0): host0 speaks protocol %u to %u, host1 %u to %u; install one version "
            "everywhere",
            HTH_VERSION_LOW, HTH_VERSION_HIGH, o.version_low, o.version_high);
    snprintf(at_0, sizeof(at_0),
            "node 1 (host1): host1 speaks protocol %u to %u, host0 %u to %u; install one version "
            "everywhere",
            o.version_low, o.version_high, HTH_VERSION_LOW, HTH_VERSION_HIGH);
    must_say(w->node[1].down_text, at_1);
    cr_assert(eq(int, w->node[0].down_code, HEARTH_EPROTO));
    must_say(w->node[0].down_text, at_0);
    cr_assert(eq(int, w->node[0].ups[1] + w->node[1].ups[0], 0));
    net_world_close(w);
}

/* By its type, the version in the head of the last message that was sent. */
static struct hth_loop_verdict note_version(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    uint8_t *version = arg;
    struct hth_frame frame;

    (void)from, (void)to;
    if (kind == HTH_LOOP_MESSAGE && !hth_frame_decode(&frame, bytes, len, NULL) &&
            frame.type <= UINT8_MAX)
        version[frame.type] = frame.version;
    return (struct hth_loop_verdict){ HTH_LOOP_NONE, 0, 0 };
}

Test(handshake, speaks_the_lowest_version_and_then_the_highest_of_both)
{
    struct hth_session_opts o = { .job = "job", .version_low = 1, .version_high = 5 };
    struct net_world *w = net_world_open(2, &o);
    uint8_t version[UINT8_MAX + 1] = { 0 };

    o.version_high = 9;
    net_node_close(w, 1);
    net_node_open(w, 1, &o);
    hth_loop_net_script(w->net, note_version, version);
    must(net_send(w, 1, 0, 5));
    net_run(w, 200);
    cr_assert(eq(u64, w->node[0].number[1], 5));
    cr_assert(eq(u8, version[HTH_MSG_HELLO], HTH_VERSION_LOW));
    cr_assert(eq(u8, version[HTH_MSG_HELLO_ACK], HTH_VERSION_LOW));
    cr_assert(eq(u8, version[HTH_MSG_AUTH], HTH_VERSION_LOW));
    cr_assert(eq(u8, version[HTH_MSG_WANT], 5));
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
    struct hth_frame f = { .version = HTH_VERSION_LOW,
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

Test(handshake, a_stranger_who_claims_to_be_a_member_costs_a_look_and_nothing_else)
{
    struct net_world *w = net_world_open(3, NULL);
    struct raw *r = raw_open(w, 2);
    unsigned char body[136];

    raw_dial(w, r, 0);
    raw_hello(r, HTH_VERSION_HIGH + 1, HTH_VERSION_HIGH + 2,
            body); /* as node 1, which is well and was never talked to */
    raw_run(w, r, 200);
    cr_assert(eq(int, w->node[0].ups[1], 1));
    cr_assert(eq(int, w->node[0].downs[1], 0));
    net_node_close(w, 1); /* and as one that is not there */
    net_run(w, 30000);
    cr_assert(eq(int, w->node[0].downs[1], 1)); /* it was up */
    raw_dial(w, r, 0);
    raw_hello(r, HTH_VERSION_HIGH + 1, HTH_VERSION_HIGH + 2, body);
    raw_run(w, r, 10000);
    cr_assert(eq(int, w->node[0].downs[1], 1));
    r->t->ops->close(r->t);
    net_world_close(w);
}

Test(handshake, nothing_happens_before_the_proof)
{
    struct hth_session_opts o = net_keyed(1);
    struct net_world *w = net_world_open(2, &o);
    static const unsigned char zeros[HTH_KEY];
    struct raw *r = raw_open(w, 1);
    unsigned char body[136] = { 0 };
    static const uint16_t types[] = { HTH_MSG_WANT, HTH_MSG_AUTH, HTH_MSG_PING, HTH_MSG_HELLO_ACK };

    for (size_t i = 0; i < 4; i++) {
        struct hth_frame f = { .version = HTH_VERSION_LOW,
            .type = types[i],
            .body_len = 16,
            .epoch = NET_EPOCH,
            .nonce = NET_NONCE,
            .seq = 1,
            .body = body };

        raw_dial(w, r, 0);
        raw_send(r, f, i & 1 ? o.key->bytes : zeros);
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

Test(handshake, a_recorded_handshake_proves_nothing)
{
    struct hth_session_opts o = net_keyed(1);
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

/* ---- an acceptor whose every byte the test writes, at node 1's address
 * ------------------------- */

#define HELLO 136u

/* Node 0 has something to say to node 1, and dials: its hello is in r->frame. */
static struct raw *raw_await(struct net_world *w)
{
    struct raw *r = raw_open(w, 1);

    must(net_send(w, 0, 1, 5));
    raw_run(w, r, 10);
    cr_assert(eq(int, r->frame.type, HTH_MSG_HELLO));
    cr_assert(eq(u32, r->frame.body_len, HELLO));
    return r;
}

/* The answer of node 1 to the hello in r->frame, with this job key; both hellos to transcript. */
static void raw_answer(struct raw *r, const unsigned char *job_key, const char *who,
        unsigned char transcript[2 * HELLO])
{
    unsigned char body[HELLO + HTH_MAC] = { HTH_VERSION_LOW, HTH_VERSION_LOW }, key[HTH_KEY];
    struct hth_frame f = r->frame;

    memcpy(transcript, r->frame.body, HELLO);
    body[4] = 1;
    body[16] = 101;
    memcpy(body + 24, "loop", 4);
    memcpy(body + 40, "job", 3);
    memset(body + 104, 0x77, 32);
    memcpy(transcript + HELLO, body, HELLO);
    hth_session_key(key, job_key, "prove", transcript, 2 * HELLO);
    hth_mac(body + HELLO, key, who, strlen(who), transcript, 2 * HELLO);
    f.type = HTH_MSG_HELLO_ACK;
    f.body_len = sizeof(body);
    f.body = body;
    raw_send(r, f, job_key);
}

static void must_not_believe(struct net_world *w, struct raw *r)
{
    uint16_t type;

    r->frame.type = 0;
    raw_run(w, r, 10);
    type = r->frame.type;
    cr_assert(ne(int, type, HTH_MSG_AUTH), "it proved itself to a stranger");
    cr_assert(zero(int, w->node[0].ups[1]));
    cr_assert(zero(int, w->node[0].messages[1]));
}

Test(handshake, an_acceptor_without_the_key_is_not_believed)
{
    static const unsigned char zeros[HTH_KEY];
    struct hth_session_opts o = net_keyed(1), other = net_keyed(2);
    unsigned char transcript[2 * HELLO];
    const unsigned char *keys[] = { zeros, other.key->bytes };

    for (size_t i = 0; i < 2; i++) {
        struct net_world *w = net_world_open(2, &o);
        struct raw *r = raw_await(w);

        raw_answer(r, keys[i], "ack", transcript);
        must_not_believe(w, r);
        r->t->ops->close(r->t);
        net_world_close(w);
    }
}

Test(handshake, who_is_given_up_is_told_of_with_what_was_wrong_with_its_answers)
{
    struct hth_session_opts o = net_keyed(1), other = net_keyed(2);
    struct net_world *w = net_world_open(2, &o);
    struct raw *r = raw_await(w);
    unsigned char transcript[2 * HELLO];

    while (!w->node[0].downs[1]) {
        if (r->frame.type == HTH_MSG_HELLO)
            raw_answer(r, other.key->bytes, "ack", transcript);
        r->frame.type = 0;
        raw_run(w, r, 1);
    }
    must_say(w->node[0].down_text,
            "node 1 (host1): not reached in 5000 ms (an answer that our job key did not seal); is "
            "its engine running, and its address open to us?");
    r->t->ops->close(r->t);
    net_world_close(w);
}

/* Sealed with the key, but the proof is missing, or is the one that a dialler gives. */
Test(handshake, an_acceptor_proves_itself_as_acceptor)
{
    static const char *const wrong[] = { "auth", "", "ack" };
    struct hth_session_opts o = net_keyed(1);
    unsigned char transcript[2 * HELLO];

    for (size_t i = 0; i < 3; i++) {
        struct net_world *w = net_world_open(2, &o);
        struct raw *r = raw_await(w);

        raw_answer(r, o.key->bytes, wrong[i], transcript);
        if (i < 2) {
            must_not_believe(w, r);
        } else { /* the right proof is accepted: the others are refused for their proof alone */
            raw_run(w, r, 10);
            cr_assert(eq(int, w->node[0].ups[1], 1));
        }
        r->t->ops->close(r->t);
        net_world_close(w);
    }
}

/* The answer that node 1 gave to an earlier hello; it is sealed with the key, and its proof is
 * old. */
Test(handshake, a_recorded_answer_proves_nothing_to_a_new_hello)
{
    struct hth_session_opts o = net_keyed(1);
    struct net_world *w = net_world_open(2, &o);
    static struct tape tape;
    struct raw *r;

    hth_loop_net_script(w->net, record, &tape);
    must(net_send(w, 0, 1, 1));
    net_run(w, 50);
    cr_assert(eq(int, w->node[0].ups[1], 1));
    hth_loop_net_script(w->net, NULL, NULL);
    net_node_close(w, 0);
    net_node_open(w, 0, &o);
    w->node[0].ups[1] = w->node[0].messages[1] = 0;
    r = raw_await(w);
    must(r->t->ops->send(r->t, r->conn, tape.bytes[0], tape.len[0]));
    must_not_believe(w, r);
    r->t->ops->close(r->t);
    net_world_close(w);
}

/* In the handshake, and when the connection stands: the middle man needs no key for that. */
Test(handshake, ones_own_words_sent_back_are_nobodys)
{
    struct hth_session_opts o = net_keyed(1);
    struct net_world *w = net_world_open(2, &o);
    unsigned char transcript[2 * HELLO], own[HTH_MESSAGE_MAX];
    struct raw *r = raw_await(w);
    size_t len = r->len;

    memcpy(own, r->bytes, len);
    must(r->t->ops->send(r->t, r->conn, own, len)); /* where the answer is due */
    must_not_believe(w, r);
    raw_dial(w, r, 0);
    must(r->t->ops->send(r->t, r->conn, own, len)); /* as if node 1 had dialled */
    must_not_believe(w, r);
    r->t->ops->close(r->t);
    net_world_close(w);

    w = net_world_open(2, &o);
    r = raw_await(w);
    raw_answer(r, o.key->bytes, "ack", transcript); /* as node 1 itself does */
    raw_run(w, r, 10);
    cr_assert(eq(int, w->node[0].ups[1], 1));
    cr_assert(eq(int, r->frame.type, HTH_MSG_WANT));
    memcpy(own, r->bytes, r->len);
    must(r->t->ops->send(r->t, r->conn, own, r->len));
    raw_run(w, r, 10);
    cr_assert(zero(int, w->node[0].messages[1]), "it has heard itself");
    r->t->ops->close(r->t);
    net_world_close(w);
}

Test(handshake, sessions_that_talk_leave_no_copy_of_the_key)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("a sanitizer's own memory cannot be searched");
#endif
    char path[] = "/tmp/hearth-secret-XXXXXX";
    struct hth_session_opts o = { .job = "job" };
    struct net_world *w;
    struct hth_key key;

    close(mkstemp(path));
    must(secret_write(path));
    must(hth_key_open(path, &key, NULL));
    o.key = &key;
    w = net_world_open(2, &o);
    must(net_send(w, 0, 1, 5));
    must(net_send(w, 1, 0, 5));
    net_run(w, 3000);
    cr_assert(eq(int, w->node[1].messages[0], 1));
    cr_assert(eq(int, secret_copies(), 1));
    net_world_close(w);
    hth_key_close(&key);
    cr_assert(zero(int, secret_copies()));
    unlink(path);
}

Test(handshake, half_open_connections_are_bounded_and_end)
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

Test(handshake, any_byte_of_a_handshake_may_be_flipped)
{
    for (int which = 1; which <= 3; which++) { /* hello, its answer, the proof */
        struct hth_session_opts o = net_keyed(3);
        struct net_world *w = net_world_open(2, &o);
        struct net_fault flip = { HTH_LOOP_MESSAGE, HTH_LOOP_FLIP, which == 2, 0, 1 };

        flip.len = which == 3 ? HTH_FRAME_HEAD + HTH_MAC : 0;
        hth_loop_net_script(w->net, net_play, &flip);
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

Test(handshake, who_is_not_in_the_epoch_is_asked_again_until_connect_ms)
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
    cr_assert(eq(int, w->node[0].down_code, HEARTH_ESTATE), "it is there");
    must_say(w->node[0].down_text,
            "node 1 (host1): not reached in 5000 ms (not in epoch 7 here); is its engine running, "
            "and its address open to us?");
    cr_assert(eq(int, w->node[1].messages[0], 1));
    net_world_close(w);
}

Test(handshake, a_connect_that_arrives_twice_is_one)
{
    struct net_world *w = net_world_open(2, NULL);
    struct net_fault twice = { HTH_LOOP_CONNECT, HTH_LOOP_DUPLICATE, 0, 0, -1 };

    hth_loop_net_script(w->net, net_play, &twice);
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

Test(handshake, a_connect_without_an_answer_is_tried_again)
{
    struct net_world *w = net_world_open(2, NULL);
    struct net_fault stall = { HTH_LOOP_CONNECT, HTH_LOOP_STALL, 0, 0, 1 };

    hth_loop_net_script(w->net, net_play, &stall);
    must(net_send(w, 0, 1, 1));
    net_run(w, 4000);
    cr_assert(eq(int, w->node[1].messages[0], 1));
    net_world_close(w);
}

static int replayed(struct net_world *w, struct raw *r, const struct tape *tape)
{
    static hth_conn conn[50];

    for (int k = 0; k < 22; k++) {
        for (int i = 0; i < 50; i++)
            must(r->t->ops->connect(r->t, w->member[0].addr, 4, &conn[i], NULL));
        raw_run(w, r, 5);
        for (int i = 0; i < 50; i++)
            r->t->ops->send(r->t, conn[i], tape->bytes[0], tape->len[0]);
        raw_run(w, r, 5);
    }
    must(net_send(w, 2, 0, 6));
    raw_run(w, r, 100);
    return w->node[0].messages[2];
}

static struct net_world *recorded(int outside, struct raw **r, struct tape *tape)
{
    struct hth_session_opts o = net_keyed(1);
    struct net_world *w;
    uint32_t node;

    o.hello_ms = 2000;
    w = net_world_open(3, &o);
    *tape = (struct tape){ .count = 0 };
    hth_loop_net_script(w->net, record, tape);
    if (outside)
        must(hth_session_visit(w->node[1].session, &w->member[2], &node));
    else
        must(net_send(w, 1, 2, 1));
    net_run(w, 50);
    cr_assert(ge(int, tape->count, 1));
    hth_loop_net_script(w->net, NULL, NULL);
    *r = raw_open(w, 1);
    for (int i = 0; i < 3; i += 2) {
        w->node[i].epoch.epoch += 100; /* later, another epoch */
        hth_session_join(w->node[i].session, &w->node[i].epoch);
    }
    raw_run(w, *r, 50);
    return w;
}

Test(handshake, a_recorded_hello_takes_no_place_in_another_epoch)
{
    static struct tape tape;
    struct raw *r;
    struct net_world *w = recorded(0, &r, &tape);

    cr_expect(eq(int, replayed(w, r, &tape), 1));
}

Test(handshake, a_recorded_hello_outside_of_an_epoch_takes_no_place_either)
{
    static struct tape tape;
    struct raw *r;
    struct net_world *w = recorded(1, &r, &tape);

    cr_expect(eq(int, replayed(w, r, &tape), 1));
}
