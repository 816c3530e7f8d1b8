/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How two sockets become a connection. Both are dialled by the same side, so that either end may be
 * behind a door that only opens outwards, one after the other, before anybody pulls. Each says what
 * seal.h says; the second names the first and is bound to it.
 *
 *     dialler                              listener
 *       messages ── hello, proof ───────►    is kept: half of a connection
 *                ◄───────── hello, proof ─
 *       bulk     ── hello, proof ───────►    joins the two: on_accept()
 *     on_up()    ◄───────── hello, proof ─
 *
 * More bulk sockets may follow, one after the other, where there are bytes to pull, spread over the
 * addresses of both: each is one more of the connection that it names. A connection goes on without
 * those that do not come about. The same bytes travel without a key, and prove nothing then.
 */
#include "tcp.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define REFUSED_SAY_MS 10000u
#define PATH_MS        1000u /* for an address to answer, where there is another one */

static struct hth_seal_opts hello_opts(const struct hth_tcp *t, enum hth_purpose purpose)
{
    return (struct hth_seal_opts){ .key = t->key->bytes, .suites = t->suites, .purpose = purpose };
}

/* The first bytes of a socket: they have room. */
static int hello_send(struct hth_tcp_greeting *g, const void *bytes, size_t len)
{
    return send(g->sock.fd, bytes, len, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)len;
}

/* Receives the message of this stage. 1: whole; 0: not yet; -1: it is no such message, or the
 * socket has ended (errno, 0: closed). */
static int hello_receive(struct hth_tcp_greeting *g)
{
    uint32_t len = g->stage == HTH_TCP_LISTENS || g->stage == HTH_TCP_AWAITS ? HTH_SEAL_HELLO
                                                                             : HTH_SEAL_PROOF;
    ssize_t n = recv(g->sock.fd, g->in + g->got, len - g->got, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n == 0)
        errno = 0;
    if (n <= 0)
        return -1;
    g->got += (uint32_t)n;
    errno = EPROTO;
    if (len == HTH_SEAL_HELLO && memcmp(g->in, "HTCP", g->got < 4 ? g->got : 4) != 0)
        return -1; /* all hellos begin with "HTCP" */
    if (g->got < len)
        return 0;
    g->got = 0;
    return 1;
}

/* ---- dialled ---- */

/*
 * Of two nodes one of which has several addresses, path i goes from address i of the dialler to
 * address i of the peer, both counted anew where there are fewer. Each half of a connection tries
 * them in turn, those that failed lately last.
 */
static int dial_socket(struct hth_tcp *t, uint32_t path, const union hth_addr *peer, int *out_fd)
{
    union hth_addr from = t->self.at[path % t->self.count];
    int fd = socket(peer->sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1;

    if (fd < 0)
        return errno;
    *out_fd = fd;
    from.in.sin_port = 0; /* from this node's address, but not from its listening port */
    setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (bind(fd, &from.sa, hth_addr_len(&from)))
        return errno == EADDRNOTAVAIL ? ENXIO : errno; /* from connect() it means a lack of ports */
    if (connect(fd, &peer->sa, hth_addr_len(peer)) && errno != EINPROGRESS)
        return errno;
    return 0;
}

/* Dials one half of the connection. 0 or an errno. */
static int greeting_dial(struct hth_tcp_conn *c, enum hth_purpose purpose, uint32_t path)
{
    struct hth_tcp_greeting *g = calloc(1, sizeof(*g));
    const union hth_addr *peer = &c->addrs.at[path % c->addrs.count];
    int fd = -1, rc = g ? dial_socket(c->t, path, peer, &fd) : ENOMEM;

    if (!g)
        return rc;
    g->sock = (struct hth_tcp_sock){ .t = c->t, .fd = fd };
    g->stage = HTH_TCP_DIALS;
    g->purpose = purpose;
    g->conn = c;
    g->path = path;
    c->greeting = g;
    if (!rc)
        rc = hth_tcp_sock_open(c->t, &g->sock, fd, HTH_TCP_GREETS, g, EPOLLOUT);
    if (rc)
        hth_tcp_greeting_end(g);
    return rc;
}

/* The path of which no failure is known, or the oldest one, of those not tried yet; c->paths: all
 * were. */
static uint32_t path_next(const struct hth_tcp_conn *c)
{
    uint32_t best = c->paths;

    for (uint32_t i = 0; i < c->paths; i++)
        if (!(c->tried & 1u << i) &&
                (best == c->paths || c->t->path_failed_ms[i] < c->t->path_failed_ms[best]))
            best = i;
    return best;
}

/* A dead path is found after half of dead_ms: the one behind it must answer in what is left. */
static uint32_t path_ms(const struct hth_tcp *t)
{
    uint32_t quarter = t->base.dead_ms / 4;

    return quarter && quarter < PATH_MS ? quarter : PATH_MS;
}

/* A path that is not the last has its part of connect_ms, and path_ms() at most. */
static void conn_due(struct hth_tcp_conn *c)
{
    uint32_t wait = c->t->connect_ms / c->paths, most = path_ms(c->t);

    if (c->paths > 1 && wait > most && path_next(c) < c->paths)
        wait = most;
    c->due_ms = hth_now_ms(&c->t->clock) + wait;
    if (c->due_ms < c->t->due_ms)
        c->t->due_ms = c->due_ms;
}

/* Dials this half of a connection that does not stand yet over the next path. After the last one
 * the connection ends as the caller says. */
static void conn_dial(struct hth_tcp_conn *c, enum hth_purpose purpose, int code, const char *why)
{
    uint32_t path;
    int rc;

    while ((path = path_next(c)) < c->paths) {
        if (c->tried)
            hth_tcp_conn_note(c, c->peer, why);
        c->tried |= 1u << path;
        hth_addr_text(&c->addrs.at[path % c->addrs.count], c->peer);
        conn_due(c);
        rc = greeting_dial(c, purpose, path);
        if (!rc)
            return;
        hth_tcp_path_failed(c, path);
        why = hth_tcp_errno_why(rc, &code);
    }
    hth_tcp_conn_end(c, code, why);
}

/* A bulk socket of a connection that stands does not come about. Where there is one path, and no
 * socket of it has failed, the connection goes on with fewer. */
static void path_lacks(struct hth_tcp_conn *c, uint32_t path, const char *why)
{
    char address[HTH_ADDR_LABEL];

    if (c->paths == 1 && !c->lacks)
        return;
    hth_addr_text(&c->addrs.at[path % c->addrs.count], address);
    if (!(c->lacks & 1u << path))
        hth_tcp_conn_note(c, address, why);
    c->lacks |= 1u << path;
}

static void conn_widen(struct hth_tcp_conn *c);

/* A connection that stands goes on with the sockets that it has, and dials the path again later. */
static void dialled_fails(struct hth_tcp_greeting *g, int code, const char *why)
{
    struct hth_tcp_conn *c = g->conn;
    enum hth_purpose purpose = g->purpose;
    uint32_t path = g->path;

    hth_tcp_path_failed(c, path);
    hth_tcp_greeting_end(g);
    if (c->state != HTH_TCP_UP) {
        conn_dial(c, purpose, code, why);
        return;
    }
    path_lacks(c, path, why);
    conn_widen(c);
}

static void dialled_errno(struct hth_tcp_greeting *g, int error)
{
    int code;
    const char *why = hth_tcp_errno_why(error, &code);

    dialled_fails(g, code, why);
}

void hth_tcp_greeting_late(struct hth_tcp_greeting *g)
{
    dialled_fails(g, HEARTH_ETIMEOUT, "no connection in time");
}

static void dialled_says(struct hth_tcp_greeting *g)
{
    struct hth_seal_opts opts = hello_opts(g->sock.t, g->purpose);
    unsigned char hello[HTH_SEAL_HELLO];
    struct hearth_error err = { 0 };
    struct hth_seal_bond bond;
    socklen_t len = sizeof(int);
    int error = 0, rc;

    getsockopt(g->sock.fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error) {
        dialled_errno(g, error);
        return;
    }
    if (g->purpose == HTH_PURPOSE_BULK) {
        hth_seal_bond(g->conn->messages_seal, &bond);
        opts.bond = &bond;
    }
    rc = hth_seal_dial(&g->hand, &opts, hello, &err);
    hth_wipe(&bond, sizeof(bond));
    if (rc || !hello_send(g, hello, sizeof(hello))) {
        dialled_fails(g, HEARTH_EPEER, rc ? err.text : "it closed before any word");
        return;
    }
    g->stage = HTH_TCP_AWAITS;
    hth_tcp_sock_watch(&g->sock, EPOLLIN);
}

static void dialled_proves(struct hth_tcp_greeting *g)
{
    unsigned char proof[HTH_SEAL_PROOF];
    struct hearth_error err = { 0 };

    if (hth_seal_answer(&g->hand, g->in, proof, &err))
        dialled_fails(g, HEARTH_EPROTO, err.text);
    else if (!hello_send(g, proof, sizeof(proof)))
        dialled_fails(g, HEARTH_EPEER, "it closed before our proof");
    else
        g->stage = HTH_TCP_FINISHES;
}

/* The path with the fewest of its bulk sockets, from that of its messages on, of those not tried in
 * vain since the last wait. One that has none keeps a place of the connection's, and none takes
 * more than its part. c->paths: no path is to have one more. */
static uint32_t path_widest(const struct hth_tcp_conn *c)
{
    uint32_t most = c->t->lanes > c->paths ? c->t->lanes : c->paths;
    uint32_t on[HTH_ADDRS] = { 0 }, taken = 0, best = c->paths;

    for (uint32_t i = 0; i < c->bulks; i++)
        on[c->bulk[i]->path]++;
    for (uint32_t i = 0; i < c->paths; i++)
        taken += on[i] ? on[i] : 1;
    for (uint32_t i = 0; i < c->paths; i++) {
        uint32_t at = (c->path + i) % c->paths;
        int has_room = !on[at] || (taken < most && on[at] * c->paths < most);

        if (!(c->tried & 1u << at) && has_room && (best == c->paths || on[at] < on[best]))
            best = at;
    }
    return best;
}

/* Dials the next bulk socket, if there is to be one: each lane has one, and so has each path. */
static void conn_widen(struct hth_tcp_conn *c)
{
    struct hth_tcp *t = c->t;
    uint32_t path;
    int rc, code;

    while (t->extras < t->base.conns_max && (path = path_widest(c)) < c->paths) {
        c->tried |= 1u << path;
        conn_due(c);
        rc = greeting_dial(c, HTH_PURPOSE_BULK, path);
        if (!rc) {
            c->greeting->is_extra = 1;
            t->extras++;
            return;
        }
        hth_tcp_path_failed(c, path);
        path_lacks(c, path, hth_tcp_errno_why(rc, &code));
    }
    if (!c->tried)
        c->lacks = 0;
    else if (c->lacks)
        hth_tcp_redial_later(c);
}

/* The failure is logged here: of a peer that has ended all sockets have by now, and its connection
 * with them. */
void hth_tcp_redial(struct hth_tcp_conn *c)
{
    c->redial_ms = HTH_NEVER;
    if (c->detail[0])
        hth_say(&c->t->log, HEARTH_LOG_WARN, "path-failed", "%s; pulls go on over %u other sockets",
                c->detail, c->bulks);
    c->detail[0] = '\0';
    if (!c->dialled || c->greeting)
        return;
    c->tried = 0;
    conn_widen(c);
}

void hth_tcp_widen(struct hth_tcp_conn *c)
{
    hth_tcp_lanes_start(c->t);
    if (c->is_wide || !c->dialled)
        return;
    c->is_wide = 1;
    c->tried = 0;
    conn_widen(c);
}

static void path_is_back(const struct hth_tcp_bulk *b)
{
    char address[HTH_ADDR_LABEL];

    hth_addr_text(&b->peer, address);
    hth_say(&b->t->log, HEARTH_LOG_INFO, "path-back", "%s carries bulk data again", address);
}

static void dialled_bulk(struct hth_tcp_greeting *g, struct hth_seal *seal)
{
    struct hth_tcp_conn *c = g->conn;
    uint32_t path = g->path;
    int was_up = c->state == HTH_TCP_UP;
    int rc = hth_tcp_bulk_add(c, hth_tcp_sock_take(&g->sock), seal);

    if (!rc) {
        c->bulk[c->bulks - 1]->path = path;
        g->is_extra = 0; /* the bulk socket is counted instead */
    }
    hth_tcp_greeting_end(g);
    if (rc && !was_up) {
        hth_tcp_conn_errno(c, rc);
    } else if (!was_up) {
        hth_tcp_conn_up(c);
    } else if (!rc) {
        if (c->lacks & 1u << path)
            path_is_back(c->bulk[c->bulks - 1]);
        c->lacks &= ~(1u << path);
        c->tried &= ~(1u << path);
        hth_tcp_bulk_start(c->bulk[c->bulks - 1]);
        conn_widen(c);
    }
}

/* The listener's proof has come: the other half is next, or the connection stands. */
static void dialled_finishes(struct hth_tcp_greeting *g)
{
    struct hth_tcp_conn *c = g->conn;
    struct hearth_error err = { 0 };
    struct hth_seal *seal;
    int rc;

    if (hth_seal_finish(&g->hand, g->in, &seal, &err)) {
        dialled_fails(g, HEARTH_EPROTO, err.text);
        return;
    }
    if (g->purpose == HTH_PURPOSE_BULK) {
        dialled_bulk(g, seal);
        return;
    }
    c->messages_seal = seal;
    c->path = g->path;
    rc = hth_tcp_sock_move(&g->sock, &c->messages, HTH_TCP_MESSAGES, c);
    hth_tcp_greeting_end(g);
    if (rc) {
        hth_tcp_conn_errno(c, rc);
        return;
    }
    hth_tcp_sock_watch(&c->messages, EPOLLRDHUP); /* its bytes are for when the other stands */
    c->tried = 1u << c->path;
    conn_due(c);
    rc = greeting_dial(c, HTH_PURPOSE_BULK, c->path);
    if (rc) {
        int code;
        const char *why = hth_tcp_errno_why(rc, &code);

        hth_tcp_path_failed(c, c->path);
        conn_dial(c, HTH_PURPOSE_BULK, code, why);
    }
}

static void dialled_event(struct hth_tcp_greeting *g)
{
    int whole;

    if (g->stage == HTH_TCP_DIALS) {
        dialled_says(g);
        return;
    }
    whole = hello_receive(g);
    if (whole < 0)
        dialled_fails(g, HEARTH_EPEER,
                errno ? strerrordesc_np(errno)
                : g->stage == HTH_TCP_AWAITS
                        ? "it closed at our hello: it may have another key, or another version"
                        : "it closed at our proof: it may have another key");
    else if (whole && g->stage == HTH_TCP_AWAITS)
        dialled_proves(g);
    else if (whole)
        dialled_finishes(g);
}

int hth_tcp_connect(struct hth_transport *transport, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err)
{
    struct hth_tcp *t = hth_tcp_of(transport);
    struct hth_addrs peer;
    struct hth_tcp_conn *c;
    int rc = hth_addrs_unpack(addr, len, &t->self, &peer, err);

    if (rc)
        return rc;
    if (t->closing)
        return hth_fail(err, HEARTH_ECANCELED, 0, "the transport is being closed");
    c = hth_tcp_conn_new(t, &peer.at[0]);
    if (!c)
        return hth_fail(err, HEARTH_EBUSY, 0,
                "no memory for a connection, or %u connections stand already", t->base.conns_max);
    c->dialled = 1;
    c->addrs = peer;
    c->paths = t->self.count > peer.count ? t->self.count : peer.count;
    *out_conn = c->id;
    conn_dial(c, HTH_PURPOSE_MESSAGES, HEARTH_EPEER, "");
    return HEARTH_OK;
}

/* ---- accepted ---- */

static struct hth_tcp_greeting *accepted_half(const struct hth_tcp *t, const unsigned char id[16])
{
    for (struct hth_tcp_greeting *g = t->oldest; g; g = g->next)
        if (g->stage == HTH_TCP_HALF && memcmp(g->id, id, sizeof(g->id)) == 0)
            return g;
    return NULL;
}

/* The connection to which one more bulk socket with that id belongs; NULL: there is none, or it has
 * enough. */
static struct hth_tcp_conn *accepted_conn(const struct hth_tcp *t, const unsigned char id[16])
{
    struct hth_seal_bond bond;
    int found = 0;

    for (uint32_t i = 0; i < t->conns.cap && t->extras < t->base.conns_max; i++) {
        struct hth_tcp_conn *c = hth_ids_at(&t->conns, i);

        if (!c || c->state != HTH_TCP_UP || c->dialled || c->bulks == HTH_TCP_BULKS)
            continue;
        hth_seal_bond(c->messages_seal, &bond);
        found = memcmp(bond.id, id, sizeof(bond.id)) == 0;
        hth_wipe(&bond, sizeof(bond));
        if (found)
            return c;
    }
    return NULL;
}

/* The bond of a bulk socket with that id; 0: its connection is not here. */
static int accepted_bond(
        const struct hth_tcp *t, const unsigned char id[16], struct hth_seal_bond *out)
{
    const struct hth_tcp_greeting *half = accepted_half(t, id);
    const struct hth_tcp_conn *c = half ? NULL : accepted_conn(t, id);

    if (half || c)
        hth_seal_bond(half ? half->seal : c->messages_seal, out);
    return half || c;
}

/* The refused peer gets no answer. The reason goes into this node's log, for an operator. */
static void accepted_refuse(struct hth_tcp_greeting *g, const struct hearth_error *why)
{
    struct hth_tcp *t = g->sock.t;
    uint64_t now = hth_now_ms(&t->clock);
    char from[HTH_ADDR_LABEL];

    t->refused++;
    if (t->refused_said_ms && now < t->refused_said_ms + REFUSED_SAY_MS)
        return;
    hth_addr_text(&g->peer, from);
    hth_say(&t->log, HEARTH_LOG_WARN, "stranger-refused",
            "%s: %s; %u in all since the last such line", from, why->text, t->refused);
    t->refused_said_ms = now ? now : 1;
    t->refused = 0;
}

/* The job key that has made this hello; checked before any computation that takes longer than a
 * hash. NULL: none of this job's keys, and the peer gets no answer. */
static const unsigned char *accepted_key(const struct hth_tcp_greeting *g, struct hearth_error *err)
{
    const struct hth_key *key = g->sock.t->key;

    if (hth_seal_knows(key->bytes, g->in))
        return key->bytes;
    if (key->other && hth_seal_knows(key->other, g->in))
        return key->other;
    hth_fail(err, HEARTH_EAUTH, 0, "its hello does not prove the job key: %s",
            hth_seal_is_older(g->in) ? "it is of an older version; install one version everywhere"
                                     : "if it is a node of this job, give all nodes the same key "
                                       "file");
    return NULL;
}

/* Answers the hello of a peer that has the key, or replays a recording: nothing more is sent before
 * its proof. 0: close. */
static int accepted_says(struct hth_tcp_greeting *g)
{
    struct hth_seal_opts opts = hello_opts(g->sock.t, HTH_PURPOSE_MESSAGES);
    unsigned char hello[HTH_SEAL_HELLO];
    struct hearth_error err = { 0 };
    struct hth_seal_asked asked;
    struct hth_seal_bond bond;
    int rc;

    opts.key = accepted_key(g, &err);
    if (!opts.key || hth_seal_asks(g->in, &asked, &err)) {
        accepted_refuse(g, &err);
        return 0;
    }
    g->purpose = asked.purpose;
    memcpy(g->id, asked.id, sizeof(g->id));
    if (asked.purpose == HTH_PURPOSE_BULK && accepted_bond(g->sock.t, asked.id, &bond))
        opts.bond = &bond;
    g->is_unbound = asked.purpose == HTH_PURPOSE_BULK && !opts.bond;
    rc = hth_seal_accept(&g->hand, &opts, g->in, hello, &err);
    hth_wipe(&bond, sizeof(bond));
    if (rc)
        accepted_refuse(g, &err);
    if (rc && rc != HEARTH_EUNSUPPORTED)
        return 0;
    if (!hello_send(g, hello, sizeof(hello)) || rc)
        return 0;
    g->stage = HTH_TCP_ADMITS;
    return 1;
}

/* Keeps the half until its other half comes. */
static void accepted_keep(struct hth_tcp_greeting *g)
{
    struct hth_seal_bond bond;

    hth_seal_bond(g->seal, &bond);
    memcpy(g->id, bond.id, sizeof(g->id));
    hth_wipe(&bond, sizeof(bond));
    g->stage = HTH_TCP_HALF;
    hth_tcp_sock_watch(&g->sock, EPOLLRDHUP);
}

/* One more bulk socket of a connection that stands. */
static int accepted_add(struct hth_tcp_greeting *g, struct hth_tcp_conn *c)
{
    int rc = hth_tcp_bulk_add(c, hth_tcp_sock_take(&g->sock), g->seal);

    g->seal = NULL;
    hth_tcp_greeting_end(g);
    if (!rc) {
        c->t->extras++;
        hth_tcp_bulk_start(c->bulk[c->bulks - 1]);
    }
    return 1;
}

/* Both halves are here. */
static int accepted_join(struct hth_tcp_greeting *g)
{
    struct hth_tcp_greeting *half = accepted_half(g->sock.t, g->id);
    struct hth_tcp_conn *c = half ? NULL : accepted_conn(g->sock.t, g->id);
    int rc;

    if (c)
        return accepted_add(g, c);
    c = half ? hth_tcp_conn_new(g->sock.t, &half->peer) : NULL;
    if (!c)
        return 0;
    c->messages_seal = half->seal;
    half->seal = NULL;
    rc = hth_tcp_sock_move(&half->sock, &c->messages, HTH_TCP_MESSAGES, c);
    hth_tcp_greeting_end(half);
    if (!rc) {
        rc = hth_tcp_bulk_add(c, hth_tcp_sock_take(&g->sock), g->seal);
        g->seal = NULL;
    }
    hth_tcp_greeting_end(g);
    hth_tcp_conn_up(c);
    if (rc)
        hth_tcp_conn_errno(c, rc);
    return 1;
}

/* The dialler's proof has come. 0: close. */
static int accepted_admits(struct hth_tcp_greeting *g)
{
    unsigned char proof[HTH_SEAL_PROOF];
    struct hearth_error err = { 0 };

    if (hth_seal_admit(&g->hand, g->in, proof, &g->seal, &err)) {
        if (g->is_unbound)
            hth_fail(&err, HEARTH_EBUSY, 0,
                    "one more socket of a connection that is not here, or has enough; the peer "
                    "goes on without it");
        accepted_refuse(g, &err);
        return 0;
    }
    /* Before our proof: after it the peer counts on the socket. */
    if (g->purpose == HTH_PURPOSE_BULK && !accepted_half(g->sock.t, g->id) &&
            !accepted_conn(g->sock.t, g->id))
        return 0;
    if (!hello_send(g, proof, sizeof(proof)))
        return 0;
    if (g->purpose == HTH_PURPOSE_BULK)
        return accepted_join(g);
    accepted_keep(g);
    return 1;
}

static void accepted_event(struct hth_tcp_greeting *g)
{
    int whole = -1;

    errno = 0;
    if (g->stage != HTH_TCP_HALF) /* whose bytes are for when the other half is here */
        whole = hello_receive(g);
    if (!whole)
        return;
    if (whole < 0 && errno == EPROTO) {
        struct hearth_error err;

        hth_fail(&err, HEARTH_EPROTO, 0, "its first bytes are not a hello of ours");
        accepted_refuse(g, &err);
    }
    if (whole > 0 && (g->stage == HTH_TCP_LISTENS ? accepted_says(g) : accepted_admits(g)))
        return;
    hth_tcp_greeting_end(g); /* closed without an answer */
}

void hth_tcp_greeting_event(struct hth_tcp_greeting *g)
{
    if (g->conn)
        dialled_event(g);
    else
        accepted_event(g);
}
