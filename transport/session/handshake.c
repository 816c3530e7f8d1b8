/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two engines prove to each other that they have the job key, before any other message counts:
 *
 *   HELLO      u8 low | u8 high | u16 0 | u32 from | u32 to | u32 0 | u64 store of `from` |
 *              backend[16] | job[64] | nonce[32]
 *   HELLO_ACK  the same of the acceptor (low = high = the version to speak), proof[16]
 *   AUTH       proof[16]
 *   REFUSE     i32 code | text
 *
 * While the job key is changed there are two. The acceptor takes the one whose mac the hello has.
 * No message names a key, since any value computed from a key would give an eavesdropper
 * information about it. All keys of a connection come from the job's and both hellos. A proof is a
 * mac of both hellos, so a recording of an earlier connection proves nothing. It names its side,
 * and each direction has a key of its own, so that a message sent back to its sender is not taken
 * for the peer's. Epoch and nonce stand in the head, under the same mac as the hello; outside of an
 * epoch both are zero, and from and to are HTH_NODE_NONE. A REFUSE without a valid mac means that
 * the acceptor has another job key.
 */
#include "session_parts.h"

#include <stdio.h>

enum { AT_LOW = 0, AT_HIGH = 1, AT_FROM = 4, AT_TO = 8, AT_STORE = 16, AT_BACKEND = 24 };
enum { AT_JOB = 40, AT_NONCE = 104, NONCE_LEN = 32, BACKEND_LEN = 16, JOB_LEN = 64 };

#define REFUSE_TEXT 200u

static void hello_write(struct hth_session *s, const struct link *link, uint8_t low, uint8_t high,
        unsigned char out[HTH_HELLO_BODY])
{
    const struct hth_epoch *e = s->epoch;

    memset(out, 0, HTH_HELLO_BODY);
    out[AT_LOW] = low;
    out[AT_HIGH] = high;
    hth_put32(out + AT_FROM, link->outside ? HTH_NODE_NONE : e->self);
    hth_put32(out + AT_TO, link->outside ? HTH_NODE_NONE : link->node);
    hth_put64(out + AT_STORE, link->outside ? s->opts.store : e->member[e->self].store);
    snprintf((char *)out + AT_BACKEND, BACKEND_LEN, "%s", s->transport->ops->name);
    memcpy(out + AT_JOB, s->opts.job, strnlen(s->opts.job, JOB_LEN));
    for (int i = 0; i < NONCE_LEN; i += 8)
        hth_put64(out + AT_NONCE + i, hth_random_next(&s->random));
}

/* who: "ack" the acceptor, "auth" the dialler. */
static void proof_make(const struct hth_session *s, const struct link *link, const char *who,
        unsigned char out[HTH_MAC])
{
    const unsigned char *job_key = hth_link_key(s, link);
    unsigned char key[HTH_KEY];

    hth_session_key(key, job_key, "prove", link->transcript, sizeof(link->transcript));
    hth_mac(out, key, who, strlen(who), link->transcript, sizeof(link->transcript));
    hth_wipe(key, sizeof(key));
}

static int proof_holds(const struct hth_session *s, const struct link *link, const char *who,
        const unsigned char *proof)
{
    unsigned char want[HTH_MAC];

    if (!hth_link_key(s, link))
        return 0;
    proof_make(s, link, who, want);
    return hth_mac_equal(want, proof);
}

static int link_checks(
        const struct hth_session *s, const struct link *link, const void *bytes, size_t len)
{
    const unsigned char *key = hth_link_key(s, link);

    return key && hth_frame_check(bytes, len, key);
}

/* Both sides have proved themselves. */
static void handshake_open(struct hth_session *s, struct link *link, struct peer *peer)
{
    const char *ours = link->dialled ? "dialler" : "acceptor";
    const char *theirs = link->dialled ? "acceptor" : "dialler";
    const unsigned char *key = hth_link_key(s, link);

    hth_session_key(link->key_out, key, ours, link->transcript, sizeof(link->transcript));
    hth_session_key(link->key_in, key, theirs, link->transcript, sizeof(link->transcript));
    link->state = LINK_OPEN;
    link->opened_ms = hth_session_now(s);
    hth_peer_opened(s, peer, link);
}

/* HEARTH_ESTATE is usual while an epoch begins: members join one after the other, and dial again.
 * Of HEARTH_EBUSY there is a word of its own. */
static enum hearth_log_level refusal_level(int code)
{
    return code == HEARTH_ESTATE || code == HEARTH_EBUSY ? HEARTH_LOG_DEBUG : HEARTH_LOG_WARN;
}

/* The peer's owner gets `text` if the peer is given up before another attempt fails. */
static void handshake_cut(struct hth_session *s, struct link *link, int code, const char *text)
{
    struct peer *peer = link->peer;

    hth_say(&s->log, refusal_level(code), "handshake-failed", "node %" PRIu32 ": %s", link->node,
            text);
    hth_peer_drop_link(s, link, code);
    if (peer)
        snprintf(peer->why, sizeof(peer->why), "%.150s", text);
}

void hth_handshake_greet(struct hth_session *s, struct link *link)
{
    link->key_id = s->opts.key->id;
    hello_write(s, link, s->opts.version_low, s->opts.version_high, link->transcript);
    link->deadline_ms = hth_session_now(s) + s->opts.hello_ms;
    hth_session_expect(s, link->deadline_ms);
    link->state = LINK_GREETED;
    if (hth_link_send(s, link, HTH_MSG_HELLO, link->transcript, HTH_HELLO_BODY))
        hth_peer_drop_link(s, link, HEARTH_EPEER);
}

/* ---- the acceptor ---- */

/* The dialler reads the reason and closes; a drop from this side could overtake the message. */
static void hello_refuse(struct hth_session *s, struct link *link, const struct hearth_error *err)
{
    unsigned char body[4 + REFUSE_TEXT];
    size_t len = strnlen(err->text, REFUSE_TEXT);

    hth_say(&s->log, refusal_level(err->code), "peer-refused", "%s", err->text);
    hth_put32(body, (uint32_t)err->code);
    memcpy(body + 4, err->text, len);
    link->state = LINK_REFUSED;
    if (hth_link_send(s, link, HTH_MSG_REFUSE, body, 4 + len))
        hth_peer_drop_link(s, link, HEARTH_EPEER);
}

/* 1: a job key of this node sealed it, which the link proves from here on. */
static int hello_key(const struct hth_session *s, struct link *link, const void *bytes, size_t len)
{
    const struct hth_key *key = s->opts.key;
    int first = hth_frame_check(bytes, len, key->bytes);

    if (!first && (!key->other || !hth_frame_check(bytes, len, key->other)))
        return 0;
    link->key_id = first ? key->id : key->other_id;
    return 1;
}

static const char *hello_name(const struct hth_epoch *e, uint32_t node, const char *otherwise)
{
    return e && node < e->nodes ? e->member[node].node : otherwise;
}

/* 1: the hello is of an engine outside of all epochs. */
static int hello_is_outside(const struct hth_frame *frame)
{
    return !frame->epoch && !frame->nonce && hth_get32(frame->body + AT_FROM) == HTH_NODE_NONE &&
           hth_get32(frame->body + AT_TO) == HTH_NODE_NONE;
}

/* 0: the hello is of a member, and for this node. Errors: HEARTH_EAUTH, HEARTH_EPROTO for good,
 * HEARTH_ESTATE and HEARTH_EBUSY not yet. */
static int hello_check(struct hth_session *s, struct link *link, const struct hth_frame *frame,
        const void *bytes, size_t len, struct hearth_error *err)
{
    const unsigned char *b = frame->body;
    const struct hth_epoch *e = s->epoch;
    const char *job = (const char *)b + AT_JOB, *backend = (const char *)b + AT_BACKEND;
    const char *ours = s->transport->ops->name;
    uint32_t from;
    int outside;

    if (!hello_key(s, link, bytes, len))
        return hth_fail(err, HEARTH_EAUTH, 0,
                "a hello that our job key did not seal; give all nodes the same key file");
    if (frame->type != HTH_MSG_HELLO || frame->body_len != HTH_HELLO_BODY)
        return hth_fail(err, HEARTH_EPROTO, 0, "a first message that is not a known hello");
    if (strncmp(job, s->opts.job, JOB_LEN) != 0)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "here is job %.64s, not %.*s; check the addresses the ranks have exchanged",
                s->opts.job, JOB_LEN, job);
    if (b[AT_LOW] > s->opts.version_high || b[AT_HIGH] < s->opts.version_low)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "%.64s speaks protocol %u to %u, %.64s %u to %u; install one version everywhere",
                hello_name(e, e ? e->self : HTH_NODE_NONE, "this node"), s->opts.version_low,
                s->opts.version_high, hello_name(e, hth_get32(b + AT_FROM), "the other"), b[AT_LOW],
                b[AT_HIGH]);
    if (strncmp(backend, ours, BACKEND_LEN) != 0)
        return hth_fail(err, HEARTH_EPROTO, 0,
                "here transport %s is used, there %.*s; choose one for all nodes", ours,
                BACKEND_LEN, backend);
    outside = hello_is_outside(frame);
    if (!outside &&
            (!e || (!s->opts.no_fence && (frame->epoch != e->epoch || frame->nonce != e->nonce))))
        return hth_fail(err, HEARTH_ESTATE, 0, "not in epoch %" PRIu64 " here", frame->epoch);
    if (hth_links_are_full(s))
        return hth_fail(err, HEARTH_EBUSY, 0, "%u connections stand at %.64s, and no more may",
                s->opts.links_max, hello_name(e, e ? e->self : HTH_NODE_NONE, "this node"));
    if (outside)
        return HEARTH_OK;
    from = hth_get32(b + AT_FROM);
    if (hth_get32(b + AT_TO) != e->self || from >= e->nodes || from == e->self ||
            (!s->opts.no_fence && hth_get64(b + AT_STORE) != e->member[from].store))
        return hth_fail(err, HEARTH_EPROTO, 0,
                "a hello from node %" PRIu32 " to %" PRIu32 " came to node %" PRIu32
                ", or that node has another store now; start the job's engines anew",
                from, hth_get32(b + AT_TO), e->self);
    return HEARTH_OK;
}

static void hello_answer(
        struct hth_session *s, struct link *link, const unsigned char *hello, int outside)
{
    unsigned char ack[HTH_HELLO_BODY + HTH_MAC];
    uint8_t version = hello[AT_HIGH] < s->opts.version_high ? hello[AT_HIGH] : s->opts.version_high;

    link->outside = outside;
    link->store = hth_get64(hello + AT_STORE);
    link->node = hth_get32(hello + AT_FROM);
    link->version = version;
    hello_write(s, link, version, version, ack);
    memcpy(link->transcript, hello, HTH_HELLO_BODY);
    memcpy(link->transcript + HTH_HELLO_BODY, ack, HTH_HELLO_BODY);
    proof_make(s, link, "ack", ack + HTH_HELLO_BODY);
    link->state = LINK_ANSWERED;
    if (hth_link_send(s, link, HTH_MSG_HELLO_ACK, ack, sizeof(ack)))
        hth_peer_drop_link(s, link, HEARTH_EPEER);
}

/* The refused hello names a member, but any program could have sent it. So this node dials that
 * member itself, and relies on the answer. */
static void hello_look(struct hth_session *s, const struct hth_frame *frame)
{
    const struct hth_epoch *e = s->epoch;
    uint32_t from = HTH_NODE_NONE;
    struct peer *peer;

    if (frame->type == HTH_MSG_HELLO && frame->body_len == HTH_HELLO_BODY)
        from = hth_get32(frame->body + AT_FROM);
    if (!e || from >= e->nodes || from == e->self || frame->epoch != e->epoch ||
            frame->nonce != e->nonce)
        return;
    peer = hth_peer_get(s, from);
    if (peer)
        hth_peer_look(s, peer);
}

static void handshake_on_hello(struct hth_session *s, struct link *link,
        const struct hth_frame *frame, const void *bytes, size_t len)
{
    struct hearth_error err;

    if (!hello_check(s, link, frame, bytes, len, &err)) {
        hello_answer(s, link, frame->body, hello_is_outside(frame));
        return;
    }
    hello_refuse(s, link, &err);
    if (err.code != HEARTH_ESTATE && err.code != HEARTH_EBUSY)
        hello_look(s, frame);
}

static void handshake_on_auth(struct hth_session *s, struct link *link,
        const struct hth_frame *frame, const void *bytes, size_t len)
{
    struct peer *peer;

    if (frame->type != HTH_MSG_AUTH || frame->body_len != HTH_MAC ||
            !link_checks(s, link, bytes, len) || !proof_holds(s, link, "auth", frame->body)) {
        handshake_cut(s, link, HEARTH_EAUTH, "it does not prove the job key");
        return;
    }
    peer = link->outside ? hth_peer_outside(s, &(struct hth_member){ .store = link->store })
                         : hth_peer_get(s, link->node);
    if (!peer) {
        hth_peer_drop_link(s, link, HEARTH_ENOMEM);
        return;
    }
    link->node = peer->node;
    handshake_open(s, link, peer);
}

/* ---- the dialler ---- */

/* 1: the answer comes from the node that this node has dialled. */
static int ack_names_peer(
        const struct hth_session *s, const struct link *link, const struct hth_frame *frame)
{
    const unsigned char *b = frame->body;
    const struct hth_epoch *e = s->epoch;

    if (link->outside)
        return hello_is_outside(frame) && hth_get64(b + AT_STORE) == link->peer->at->store;
    return (s->opts.no_fence || (frame->epoch == e->epoch && frame->nonce == e->nonce)) &&
           hth_get32(b + AT_FROM) == link->node && hth_get32(b + AT_TO) == e->self &&
           (s->opts.no_fence || hth_get64(b + AT_STORE) == e->member[link->node].store);
}

static int ack_check(struct hth_session *s, const struct link *link, const struct hth_frame *frame)
{
    const unsigned char *b = frame->body;

    return frame->type == HTH_MSG_HELLO_ACK && frame->body_len == HTH_HELLO_BODY + HTH_MAC &&
           b[AT_LOW] == b[AT_HIGH] && b[AT_LOW] >= s->opts.version_low &&
           b[AT_LOW] <= s->opts.version_high && ack_names_peer(s, link, frame);
}

static void handshake_on_ack(
        struct hth_session *s, struct link *link, const struct hth_frame *frame)
{
    unsigned char proof[HTH_MAC];

    if (!ack_check(s, link, frame)) {
        handshake_cut(s, link, HEARTH_EPROTO, "its answer to our hello is not what it should be");
        return;
    }
    memcpy(link->transcript + HTH_HELLO_BODY, frame->body, HTH_HELLO_BODY);
    if (!proof_holds(s, link, "ack", frame->body + HTH_HELLO_BODY)) {
        handshake_cut(s, link, HEARTH_EAUTH, "it does not prove the job key");
        return;
    }
    link->version = frame->body[AT_LOW];
    proof_make(s, link, "auth", proof);
    if (hth_link_send(s, link, HTH_MSG_AUTH, proof, sizeof(proof))) {
        hth_peer_drop_link(s, link, HEARTH_EPEER);
        return;
    }
    handshake_open(s, link, link->peer);
}

/* The peer's text; what is not printable ASCII becomes '?'. */
static void refusal_readable(char out[REFUSE_TEXT + 1], const unsigned char *text, size_t len)
{
    if (len > REFUSE_TEXT)
        len = REFUSE_TEXT;
    for (size_t i = 0; i < len; i++)
        out[i] = text[i] >= ' ' && text[i] < 0x7f ? (char)text[i] : '?';
    out[len] = '\0';
}

static void handshake_on_refuse(
        struct hth_session *s, struct link *link, const struct hth_frame *frame, int sealed)
{
    char text[REFUSE_TEXT + 1] = "another job key there; give all nodes the same key file";
    struct peer *peer = link->peer;
    int code = HEARTH_EAUTH;

    if (sealed && frame->body_len >= 4) {
        code = (int)hth_get32(frame->body);
        refusal_readable(text, frame->body + 4, frame->body_len - 4);
    }
    handshake_cut(s, link, code, text);
    peer->elsewhere = sealed && code == HEARTH_ESTATE;
    if (sealed && code == HEARTH_EBUSY)
        hth_peer_crowded_out(s, peer, text);
    /* EAUTH under a mac of this node's own key: the acceptor has the same key, so the hello was
     * damaged on its way. Dial again. The same while keys are changed: this node may have the next
     * key in a moment. */
    if ((code == HEARTH_EAUTH && !sealed && !s->opts.key->other) || code == HEARTH_EPROTO)
        hth_peer_refused(s, peer, code, text);
}

void hth_handshake_message(struct hth_session *s, struct link *link, const struct hth_frame *frame,
        const void *bytes, size_t len)
{
    int sealed;

    if (link->state == LINK_ACCEPTED) {
        handshake_on_hello(s, link, frame, bytes, len);
    } else if (link->state == LINK_ANSWERED) {
        handshake_on_auth(s, link, frame, bytes, len);
    } else if (link->state == LINK_GREETED) {
        sealed = link_checks(s, link, bytes, len);
        if (frame->type == HTH_MSG_REFUSE)
            handshake_on_refuse(s, link, frame, sealed);
        else if (sealed)
            handshake_on_ack(s, link, frame);
        else
            handshake_cut(s, link, HEARTH_EAUTH, "an answer that our job key did not seal");
    }
}
