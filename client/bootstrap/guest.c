/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A rank that comes to rank 0. A connection that ends before the table is here says nothing: rank 0
 * may be ending, or have dropped us for somebody who came later. So the rank comes again, with the
 * same token and row, until its time is over. What is certain ends it at once: rank 0 says so, or
 * has a key where we have none, or no address of the meeting place may be used without a key. If
 * its name has several addresses, each of them gets a share of the time.
 */
#include "guest.h"

#include "client/base/clock.h"
#include "core/format/rows.h"
#include "name.h"
#include "place.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NAP_MS      10u
#define NAP_MOST_MS 200u
#define SHARE_MS    1000u  /* for each of several addresses; each pass doubles it */
#define SHARE_LEAST 50u    /* ms: with less, what becomes of an address says nothing about it */
#define SHARE_TWICE 8u     /* doubled at most so often */
#define MATE_MS     30000u /* at most, for a table that another rank of the node receives */
#define FETCH_MS    15000u /* at most, for one that the engine receives from another node's */
#define ASK_MS      1000u  /* between two look-ups of the name */

/* ---- sockets -------------------------------------------------------------------------------- */

/* All of it by `until`: 0, or an errno. */
static int guest_move_all(int fd, void *bytes, size_t len, int out, uint64_t until)
{
    size_t done = 0;

    while (done < len) {
        struct pollfd p = { .fd = fd, .events = out ? POLLOUT : POLLIN };
        uint64_t now = hth_mono_ms();
        ssize_t n;

        if (now >= until || poll(&p, 1, (int)(until - now)) == 0)
            return ETIMEDOUT;
        n = out ? send(fd, (char *)bytes + done, len - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                : recv(fd, (char *)bytes + done, len - done, MSG_DONTWAIT);
        if (n == 0)
            return ECONNRESET;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return errno;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

/* Returns 0, or an errno. */
static int guest_dial(const struct addrinfo *a, uint64_t until, int *out_fd)
{
    struct pollfd p = { .events = POLLOUT };
    uint64_t now = hth_mono_ms();
    int e = 0, yes = 1;
    socklen_t len = sizeof(e);

    p.fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p.fd < 0)
        return errno;
    if (connect(p.fd, a->ai_addr, a->ai_addrlen) != 0)
        e = errno;
    if (e == EINPROGRESS) {
        e = ETIMEDOUT;
        if (now < until && poll(&p, 1, (int)(until - now)) > 0)
            getsockopt(p.fd, SOL_SOCKET, SO_ERROR, &e, &len);
    }
    if (e) {
        close(p.fd);
        return e;
    }
    setsockopt(p.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    *out_fd = p.fd;
    return 0;
}

/* ---- one attempt ---------------------------------------------------------------------------- */

enum outcome { HAVE_TABLE, NOT_HERE, COME_AGAIN, TOO_LATE, GIVE_UP };

struct visit {
    struct hth_tcp *t;
    const void *mine;
    void *all;
    size_t len;
    uint64_t until;
    uint64_t share;                   /* the end of this address's time */
    unsigned addresses, barred, pass; /* barred: ranks may not meet there without a key */
    char tried[256];                  /* the addresses that failed in this pass, with causes */
    int fd;
    int said; /* our greeting is there */
    struct hth_talk talk;
    struct hearth_error why; /* of all but HAVE_TABLE */
};

static enum outcome visit_broke(struct visit *v, int e, const char *doing)
{
    if (e == ETIMEDOUT)
        hth_fail(&v->why, HEARTH_ETIMEOUT, 0, "rank 0 is there, but %s", doing);
    else
        hth_fail(&v->why, HEARTH_EPEER, e, "rank 0 hung up before it %s (%s)",
                v->said ? "sent the table" : "said anything", strerror(e));
    return e == ETIMEDOUT ? TOO_LATE : COME_AGAIN;
}

static enum outcome visit_not_rank_0(struct visit *v, int code, const char *what)
{
    hth_fail(&v->why, code, 0, "what answers at %s port %s %s", v->t->host, v->t->port, what);
    return GIVE_UP;
}

/* So that rank 0 can say too why we did not come. No row goes with it. */
static enum outcome visit_take_leave(struct visit *v, struct hth_greeting *hello, const char *what)
{
    hello->len = 0;
    hth_greeting_make(&v->talk, &v->t->knows, hello, "");
    guest_move_all(v->fd, v->talk.greeting, HTH_GREETING, 1, v->until);
    return visit_not_rank_0(v, HEARTH_EAUTH, what);
}

static enum outcome visit_greet(struct visit *v)
{
    struct hth_tcp *t = v->t;
    struct hth_greeting hello = { .rank = t->rank,
        .world = t->world,
        .round = t->round,
        .len = (uint32_t)v->len,
        .node = t->mates.node };
    uint64_t until = v->addresses > 1 ? v->share : v->until;
    int e = guest_move_all(v->fd, v->talk.challenge, HTH_CHALLENGE, 0, until), keyed;

    if (e == ETIMEDOUT && v->addresses > 1)
        return NOT_HERE;
    if (e)
        return visit_broke(v, e, "says nothing");
    keyed = hth_challenge_decode(v->talk.challenge);
    if (keyed == HEARTH_EUNSUPPORTED)
        return visit_not_rank_0(v, HEARTH_EPROTO,
                "is a rank 0 with another version of Hearth: install one version on all nodes");
    if (keyed < 0)
        return visit_not_rank_0(v, HEARTH_EPROTO, "is not this job's rank 0");
    memcpy(hello.token, t->token, HTH_TOKEN);
    if (keyed && !t->knows.keyed)
        return visit_take_leave(v, &hello,
                "asks for a proof of the job key and we have none: give all ranks the same "
                "key_file");
    if (!keyed && t->knows.keyed)
        return visit_take_leave(v, &hello,
                "has no job key and we have one: give all ranks the same key_file, rank 0 too");
    hth_greeting_make(&v->talk, &t->knows, &hello, v->mine);
    e = guest_move_all(v->fd, v->talk.greeting, HTH_GREETING, 1, v->until);
    if (!e)
        e = guest_move_all(v->fd, (void *)(uintptr_t)v->mine, v->len, 1, v->until);
    if (e)
        return visit_broke(v, e, "does not take our data");
    v->said = 1;
    return HAVE_TABLE;
}

/* Rank 0 is to know that this rank does not have the table: hanging up would say that it has. */
static enum outcome visit_without(struct visit *v, const char *why)
{
    char without = 0;

    guest_move_all(v->fd, &without, 1, 1, v->until);
    v->said = 0;
    hth_fail(&v->why, HEARTH_EPEER, 0, "%s", why);
    return COME_AGAIN;
}

/* A part of the time that is left, so that there is some for another try. */
static uint64_t visit_part_ms(const struct visit *v, unsigned parts, uint64_t most_ms)
{
    uint64_t now = hth_mono_ms(), left = v->until > now ? (v->until - now) / parts : 0;

    return left < most_ms ? left : most_ms;
}

/* The table that another rank of this node receives. */
static enum outcome visit_mate(struct visit *v, const struct hth_answer *a, unsigned char *body)
{
    const struct hth_mates *m = &v->t->mates;

    if (m->node && !m->meet(m->self, a->round, visit_part_ms(v, 2, MATE_MS), body, (size_t)a->len))
        return HAVE_TABLE;
    return visit_without(v,
            "rank 0 has sent the table to another rank of this node, which did not bring it to the "
            "node's engine");
}

/* Other ranks of this node wait for what this one has received. Those that wait in vain come to
 * rank 0 again. */
static void visit_bring(const struct visit *v, const struct hth_answer *a, const void *body)
{
    const struct hth_mates *m = &v->t->mates;

    if (a->where == HTH_TABLE_FOR_NODE && m->node)
        m->bring(m->self, a->round, body, (size_t)a->len);
}

static enum outcome visit_prove(
        struct visit *v, const unsigned char head[HTH_ANSWER], const void *said, size_t len)
{
    unsigned char digest[HTH_DIGEST];

    hth_digest(digest, said, len);
    if (hth_answer_holds(head, &v->talk, &v->t->knows, digest))
        return HAVE_TABLE;
    return visit_not_rank_0(v, HEARTH_EAUTH,
            "does not prove the job key: it is not this job's rank 0, or has another key_file");
}

/* The table that another node's engine has: rank 0 proves the ticket, and the ticket the table. */
static enum outcome visit_fetch(struct visit *v, const unsigned char head[HTH_ANSWER],
        const struct hth_answer *a, unsigned char *body)
{
    const struct hth_mates *m = &v->t->mates;
    unsigned char ticket[HTH_TICKET], digest[HTH_DIGEST];
    struct hth_ticket t;
    int e = guest_move_all(v->fd, ticket, sizeof(ticket), 0, v->until);

    if (e)
        return visit_broke(v, e, "sends no whole ticket");
    if (visit_prove(v, head, ticket, sizeof(ticket)) != HAVE_TABLE)
        return GIVE_UP;
    if (hth_ticket_decode(&t, ticket) || t.len != a->len)
        return visit_not_rank_0(v, HEARTH_EPROTO, "sends a ticket that is not valid");
    if (m->node && m->fetch &&
            !m->fetch(m->self, a->round, visit_part_ms(v, 4, FETCH_MS), ticket, body,
                    (size_t)a->len)) {
        hth_digest(digest, body, (size_t)a->len);
        if (memcmp(digest, t.digest, HTH_DIGEST) == 0)
            return HAVE_TABLE;
    }
    return visit_without(v, "this node's engine has not received the table from another node's");
}

/* Takes the packed table from where the head of the answer says it is, or rank 0's sentence. */
static enum outcome visit_body(struct visit *v, const unsigned char head[HTH_ANSWER],
        const struct hth_answer *a, unsigned char *body)
{
    enum outcome is = HAVE_TABLE;
    int e = 0;

    if (a->where == HTH_TABLE_AT_OTHER)
        is = visit_fetch(v, head, a, body);
    else if (a->where == HTH_TABLE_AT_NODE)
        is = visit_mate(v, a, body);
    else
        e = guest_move_all(v->fd, body, (size_t)a->len, 0, v->until);
    if (e)
        return visit_broke(v, e, "sends no whole table");
    if (is == HAVE_TABLE && a->where != HTH_TABLE_AT_OTHER)
        is = visit_prove(v, head, body, (size_t)a->len);
    if (is != HAVE_TABLE)
        return is;
    if (a->code) {
        hth_fail(&v->why, a->code, 0, "rank 0 says: %.*s", (int)a->len, (const char *)body);
        return GIVE_UP;
    }
    if (hth_rows_unpack(v->all, v->len, v->t->world, body, (size_t)a->len))
        return visit_not_rank_0(v, HEARTH_EPROTO, "sends a table that is not valid");
    visit_bring(v, a, body);
    v->t->round = a->round;
    return HAVE_TABLE;
}

static enum outcome visit_hear(struct visit *v)
{
    unsigned char head[HTH_ANSWER], *body;
    struct hth_answer a;
    enum outcome is;
    int e = guest_move_all(v->fd, head, sizeof(head), 0, v->until);

    if (e)
        return visit_broke(v, e, "sends no table");
    if (hth_answer_decode(&a, head) || (!a.code && a.len > hth_rows_most(v->len, v->t->world)) ||
            (a.code && a.len >= HTH_SAID_MAX))
        return visit_not_rank_0(v, HEARTH_EPROTO, "is not this job's rank 0");
    body = malloc(a.len ? (size_t)a.len : 1);
    if (!body) {
        hth_fail(&v->why, HEARTH_ENOMEM, 0, "no memory for the ranks' table");
        return GIVE_UP;
    }
    is = visit_body(v, head, &a, body);
    free(body);
    return is;
}

static enum outcome visit_address(struct visit *v, const struct addrinfo *at)
{
    int e = guest_dial(at, v->share, &v->fd);
    enum outcome is;

    if (e) {
        hth_name_note(v->tried, sizeof(v->tried), at, strerror(e));
        return NOT_HERE;
    }
    if (hth_place_check(v->t, v->fd, 0, &v->why)) {
        hth_name_note(v->tried, sizeof(v->tried), at, "off loopback, and there is no key_file");
        v->barred++;
        close(v->fd);
        return NOT_HERE;
    }
    is = visit_greet(v);
    if (is == NOT_HERE)
        hth_name_note(v->tried, sizeof(v->tried), at, "says nothing");
    if (is == HAVE_TABLE)
        is = visit_hear(v);
    if (is == HAVE_TABLE && at->ai_addrlen <= sizeof(v->t->good))
        memcpy(&v->t->good, at->ai_addr, at->ai_addrlen);
    close(v->fd);
    return is;
}

static int visit_was_good(const struct visit *v, const struct addrinfo *at)
{
    return at->ai_addrlen <= sizeof(v->t->good) &&
           memcmp(&v->t->good, at->ai_addr, at->ai_addrlen) == 0;
}

/* A silent address must not keep a rank from the next one. A single address gets all the time. */
static void visit_share(struct visit *v, unsigned left)
{
    uint64_t now = hth_mono_ms(), end = v->until - HTH_GRACE_MS;
    uint64_t most = (uint64_t)SHARE_MS << v->pass, share = end > now ? end - now : 0;

    if (left > 1)
        share /= left;
    v->share = now + (share > most && v->addresses > 1 ? most : share);
}

/* One pass over all addresses, up to the first that is rank 0's. */
static enum outcome visit_once(struct visit *v, const struct addrinfo *all)
{
    enum outcome is = NOT_HERE;
    unsigned left;

    v->addresses = 0;
    for (const struct addrinfo *a = all; a; a = a->ai_next)
        v->addresses++;
    v->said = 0;
    v->barred = 0;
    v->tried[0] = '\0';
    left = v->addresses;
    for (int good = 1; good >= 0; good--)
        for (const struct addrinfo *a = all; a && is == NOT_HERE; a = a->ai_next) {
            if (visit_was_good(v, a) != good)
                continue;
            visit_share(v, left--);
            is = visit_address(v, a);
        }
    v->pass += v->pass < SHARE_TWICE;
    if (is != NOT_HERE)
        return is;
    if (v->barred && v->barred == v->addresses)
        return GIVE_UP;
    hth_fail(&v->why, HEARTH_ETIMEOUT, 0,
            "rank 0 does not listen there (%s): is it running, and can this node reach it?",
            v->tried);
    return COME_AGAIN;
}

/* ---- until the time is over ------------------------------------------------------------------- */

static void guest_nap_ms(uint32_t ms)
{
    struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000 };

    nanosleep(&t, NULL);
}

static int visit_in_vain(
        const struct visit *v, enum outcome is, uint32_t turned_away, struct hearth_error *err)
{
    const struct hth_tcp *t = v->t;
    int unproved = turned_away && t->knows.keyed;
    char away[160] = "";

    if (is == GIVE_UP)
        return hth_fail(err, v->why.code, 0, "rank %u: %s", t->rank, v->why.text);
    if (unproved)
        snprintf(away, sizeof(away),
                "; it hung up on our proof %u times: have all ranks the same key_file and job?",
                turned_away);
    return hth_fail(err, unproved ? HEARTH_EAUTH : HEARTH_ETIMEOUT, 0,
            "rank %u: no table from %s port %s in %u ms: %s%s", t->rank, t->host, t->port,
            t->deadline_ms, v->why.text, away);
}

/* Looks the name up again now and then: rank 0 may have moved. Returns 0 if it has no address. */
static int visit_ask(struct visit *v, struct addrinfo **all, uint64_t *asked)
{
    uint64_t now = hth_mono_ms();
    struct addrinfo *newer;

    if (*all && now - *asked < ASK_MS)
        return 1;
    *asked = now;
    if (hth_name_ask(v->t, *all ? now : v->until - HTH_GRACE_MS, &newer, &v->why))
        return *all != NULL;
    if (*all)
        freeaddrinfo(*all);
    *all = newer;
    return 1;
}

/* That a pass takes at least. */
static uint64_t visit_least_ms(const struct visit *v)
{
    return v->addresses > 1 ? (uint64_t)SHARE_LEAST * v->addresses : 0;
}

static enum outcome visit_until_late(struct visit *v, uint32_t *turned_away)
{
    struct addrinfo *all = NULL;
    uint64_t asked = 0;
    uint32_t wait_ms = NAP_MS;
    enum outcome is = GIVE_UP;

    while (visit_ask(v, &all, &asked) && (is = visit_once(v, all)) == COME_AGAIN &&
            hth_mono_ms() + wait_ms + visit_least_ms(v) < v->until - HTH_GRACE_MS) {
        *turned_away += (uint32_t)v->said;
        guest_nap_ms(wait_ms);
        wait_ms = wait_ms * 2 < NAP_MOST_MS ? wait_ms * 2 : NAP_MOST_MS;
    }
    if (all)
        freeaddrinfo(all);
    return is;
}

int hth_come(struct hth_tcp *t, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct visit v = { .t = t,
        .mine = mine,
        .all = all,
        .len = len,
        .until = hth_until_ms((uint64_t)t->deadline_ms + HTH_GRACE_MS) };
    uint32_t turned_away = 0;
    enum outcome is = visit_until_late(&v, &turned_away);

    return is == HAVE_TABLE ? HEARTH_OK : visit_in_vain(&v, is, turned_away, err);
}
