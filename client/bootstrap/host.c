/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rank 0's side of a gather. A guest is a connection that has not proved yet which rank it is; a
 * seat is a rank's place in the table.
 *
 *     GUEST   challenged; what it sends is kept apart, in a buffer of fixed size, for at most
 *       |     HALF_MS. Where all buffers are used the oldest guest is hung up on, once it has had
 *       |     PATIENCE_MS.
 *       |     its greeting and row are whole and proved, and its rank's seat is free
 *     SEAT    its row is in the table. The seat is taken until the connection ends, then free for
 *       |     any guest that proves the rank. Another process for a taken seat is refused by name;
 *       |     the same process (by its token) may come again.
 *       |     all ranks are seated
 *             Each is answered in its turn (share.c)
 *     SERVED  the rank has the table and has hung up, or proves that it has the table: after a
 *             broken connection it comes again, for this gather's table or to the next gather.
 *
 * No byte of a guest's reaches the table, and no number of a guest's is used, before the proof.
 * One thread and one epoll serve all connections, so a slow guest delays no other.
 */
#include "host.h"

#include "client/base/clock.h"
#include "core/format/rows.h"
#include "files.h"
#include "listen.h"
#include "place.h"
#include "share.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define GUESTS      256u  /* connections at once that have not proved anything */
#define HALF_MS     5000u /* to say and prove it */
#define PATIENCE_MS 50u   /* that a guest has even where others wait for its buffer */
#define EVENTS      64
#define REFUSING_MS 10000u               /* for ranks to come and receive why the gather fails */
#define TREE_FROM   (UINT64_C(16) << 20) /* bytes of tables to all nodes */

enum { OF_LISTENER, OF_GUEST, OF_SEAT }; /* in an event, beside the index */

struct guest {
    int fd; /* -1: unused */
    uint64_t since_ms;
    size_t got; /* of greeting and row */
    struct hth_talk talk;
};

struct seat {
    int fd; /* -1: the rank is not here, or its connection broke */
    int there;
    int served;
    int answered;
    uint64_t node;         /* as it says */
    enum hth_where where;  /* of the table that it is sent */
    unsigned char *ticket; /* [HTH_TICKET] AT_OTHER */
    unsigned char token[HTH_TOKEN];
    struct hth_talk talk;
    unsigned char head[HTH_ANSWER];
    size_t sent; /* of head and body */
};

struct party {
    struct hth_tcp *t;
    unsigned char *all; /* [world][len] */
    size_t len;
    struct guest guest[GUESTS];
    unsigned char *rows;     /* [GUESTS][len] */
    struct seat *seat;       /* [world] */
    struct hth_share *share; /* serving */
    int epoll;
    int hears;               /* epoll waits for the listeners */
    int shut[HTH_LISTENERS]; /* 1: ranks may not meet at it */
    uint64_t rest_till;      /* no accept before that */
    uint32_t guests, missing;
    int serving; /* all are here: the table is final */
    uint32_t to_serve, broken;
    unsigned char *body; /* serving: the table, packed */
    size_t body_len;
    unsigned char digest[HTH_DIGEST]; /* of it */
    uint32_t unproved;                /* guests that were not heard, and one of them */
    char unproved_from[HTH_PLACE_TEXT];
    char refused[HTH_SAID_MAX];        /* the last that was refused by name */
    const struct hearth_error *cannot; /* why rank 0 seats no rank: sent to each rank */
};

/* ---- guests --------------------------------------------------------------------------------- */

static int host_watch(
        const struct party *p, int op, int fd, uint32_t events, uint32_t of, uint32_t i)
{
    struct epoll_event e = { .events = events, .data.u64 = (uint64_t)of << 32 | i };

    return epoll_ctl(p->epoll, op, fd, &e);
}

static void guest_leaves(struct party *p, struct guest *g)
{
    close(g->fd);
    g->fd = -1;
    p->guests--;
}

static struct guest *guest_oldest(struct party *p)
{
    struct guest *oldest = NULL;

    for (struct guest *g = p->guest; g < p->guest + GUESTS; g++)
        if (g->fd >= 0 && (!oldest || g->since_ms < oldest->since_ms))
            oldest = g;
    return oldest;
}

static int guest_makes_way(struct party *p, uint64_t now)
{
    struct guest *oldest = guest_oldest(p);

    if (!oldest || now - oldest->since_ms < PATIENCE_MS)
        return 0;
    guest_leaves(p, oldest);
    return 1;
}

static void guest_place(struct party *p, int fd, uint64_t now)
{
    struct guest *g = p->guest;
    int yes = 1;

    while (g->fd >= 0)
        g++;
    *g = (struct guest){ .fd = fd, .since_ms = now };
    p->guests++;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    hth_challenge_make(g->talk.challenge, &p->t->knows);
    if (send(fd, g->talk.challenge, HTH_CHALLENGE, MSG_NOSIGNAL | MSG_DONTWAIT) != HTH_CHALLENGE ||
            host_watch(p, EPOLL_CTL_ADD, fd, EPOLLIN, OF_GUEST, (uint32_t)(g - p->guest)))
        guest_leaves(p, g);
}

/* 1: accepted, try the next; 0: no connection waits; -1: one waits and there is no buffer
 * for it. */
static int host_let_one_in(struct party *p, int listener, uint64_t now)
{
    int fd;

    if (p->guests == GUESTS && !guest_makes_way(p, now))
        return -1;
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        guest_place(p, fd, now);
        return 1;
    }
    if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
        return errno != EAGAIN;
    snprintf(p->refused, sizeof(p->refused), "rank 0 cannot accept: %s", strerror(errno));
    return guest_makes_way(p, now) ? 1 : -1;
}

static void host_let_in(struct party *p, int listener)
{
    uint64_t now = hth_mono_ms();
    const struct guest *oldest;
    int more = 1;

    for (uint32_t i = 0; i < GUESTS && more > 0; i++) /* then those inside have their turn */
        more = host_let_one_in(p, listener, now);
    if (more >= 0)
        return;
    oldest = guest_oldest(p);
    p->rest_till = (oldest ? oldest->since_ms : now) + PATIENCE_MS;
}

/* ---- seats ---------------------------------------------------------------------------------- */

static void seat_breaks(struct party *p, struct seat *s)
{
    if (s->fd < 0)
        return;
    close(s->fd);
    s->fd = -1;
    if (p->serving) {
        p->broken++;
        hth_share_gone(p->share, (uint32_t)(s - p->seat));
        return;
    }
    s->there = 0;
    p->missing++;
}

static size_t seat_whole(const struct party *p, const struct seat *s)
{
    if (s->where == HTH_TABLE_AT_OTHER)
        return HTH_ANSWER + HTH_TICKET;
    return HTH_ANSWER + (s->where == HTH_TABLE_AT_NODE ? 0 : p->body_len);
}

/* As much of the answer as goes now. */
static void seat_serve_more(struct party *p, uint32_t rank)
{
    struct seat *s = &p->seat[rank];
    const size_t whole = seat_whole(p, s);
    const unsigned char *body = s->where == HTH_TABLE_AT_OTHER ? s->ticket : p->body;

    while (s->fd >= 0 && s->sent < whole) {
        size_t at = s->sent < HTH_ANSWER ? 0 : s->sent - HTH_ANSWER;
        const unsigned char *from = s->sent < HTH_ANSWER ? s->head + s->sent : body + at;
        size_t want = s->sent < HTH_ANSWER ? HTH_ANSWER - s->sent : whole - s->sent;
        ssize_t n = send(s->fd, from, want,
                MSG_NOSIGNAL | MSG_DONTWAIT |
                        (s->sent < HTH_ANSWER && whole > HTH_ANSWER ? MSG_MORE : 0));

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            break;
        if (n < 0)
            seat_breaks(p, s);
        else
            s->sent += (size_t)n;
    }
    if (s->fd >= 0)
        host_watch(p, EPOLL_CTL_MOD, s->fd, EPOLLIN | (s->sent < whole ? EPOLLOUT : 0u), OF_SEAT,
                rank);
}

/* Errors: HEARTH_ENOMEM, or that of the row. */
static int seat_ticket(struct party *p, struct seat *s, uint32_t source)
{
    const struct hth_mates *m = &p->t->mates;
    struct hth_ticket t = { .len = p->body_len };
    int rc = m->place(m->self, p->all + (size_t)source * p->len, &t.at);

    if (rc || (!s->ticket && !(s->ticket = malloc(HTH_TICKET))))
        return rc ? rc : HEARTH_ENOMEM;
    memcpy(t.digest, p->digest, HTH_DIGEST);
    hth_ticket_encode(&t, s->ticket);
    return HEARTH_OK;
}

static void seat_serve(struct party *p, const struct hth_handing *h)
{
    struct seat *s = &p->seat[h->rank];
    struct hth_answer a = { .round = p->t->round, .len = p->body_len };
    unsigned char digest[HTH_DIGEST];

    s->where = h->where;
    memcpy(digest, p->digest, HTH_DIGEST);
    if (h->where == HTH_TABLE_AT_OTHER && seat_ticket(p, s, h->source))
        s->where = HTH_TABLE_FOR_NODE;
    if (s->where == HTH_TABLE_AT_OTHER)
        hth_digest(digest, s->ticket, HTH_TICKET);
    a.where = s->where;
    hth_answer_make(s->head, &s->talk, &p->t->knows, &a, digest);
    s->sent = 0;
    s->answered = 1;
    seat_serve_more(p, h->rank);
}

/* To each rank whose turn it is. */
static void host_hand_on(struct party *p)
{
    struct hth_handing h;

    while (hth_share_next(p->share, &h))
        seat_serve(p, &h);
}

static void seat_is_served(struct party *p, struct seat *s)
{
    if (s->fd >= 0)
        close(s->fd);
    else
        p->broken--;
    s->fd = -1;
    s->served = 1;
    p->to_serve--;
    hth_share_has(p->share, (uint32_t)(s - p->seat));
}

/* A rank in its seat says nothing more; it hangs up when it has the table. */
static void seat_stirs(struct party *p, uint32_t rank, uint32_t events)
{
    struct seat *s = &p->seat[rank];
    unsigned char byte;
    ssize_t n;

    if (s->fd >= 0 && s->answered && (events & EPOLLOUT))
        seat_serve_more(p, rank);
    if (s->fd < 0 || !(events & ~(uint32_t)EPOLLOUT))
        return;
    n = recv(s->fd, &byte, 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 0 && s->answered && s->sent == seat_whole(p, s))
        seat_is_served(p, s);
    else
        seat_breaks(p, s);
}

/* The guest's connection becomes its seat's. */
static void seat_take(struct party *p, struct guest *g, const struct hth_greeting *hello)
{
    struct seat *s = &p->seat[hello->rank];
    int yes = 1, idle_s = 5, count = 3;

    if (p->serving && s->fd >= 0)
        seat_breaks(p, s);
    if (s->fd >= 0)
        close(s->fd);
    else if (s->there)
        p->broken--;
    if (!s->there)
        p->missing--;
    free(s->ticket);
    *s = (struct seat){ .fd = g->fd, .there = 1, .node = hello->node, .talk = g->talk };
    memcpy(s->token, hello->token, HTH_TOKEN);
    memcpy(p->all + (size_t)hello->rank * p->len, p->rows + (size_t)(g - p->guest) * p->len,
            p->len);
    g->fd = -1;
    p->guests--;
    setsockopt(s->fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes)); /* its node may go */
    setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPINTVL, &yes, sizeof(yes));
    setsockopt(s->fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    if (host_watch(p, EPOLL_CTL_MOD, s->fd, EPOLLIN, OF_SEAT, hello->rank))
        seat_breaks(p, s);
    else if (p->serving)
        hth_share_waits(p->share, hello->rank);
}

/* ---- from guest to seat ----------------------------------------------------------------------- */

static void guest_say_why(struct party *p, struct guest *g, int code, const char *text)
{
    struct hth_answer a = { .code = code, .round = p->t->round, .len = strlen(text) };
    unsigned char out[HTH_ANSWER + HTH_SAID_MAX], digest[HTH_DIGEST];

    hth_digest(digest, text, a.len);
    hth_answer_make(out, &g->talk, &p->t->knows, &a, digest);
    memcpy(out + HTH_ANSWER, text, a.len);
    if (send(g->fd, out, HTH_ANSWER + a.len, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        return; /* the guest sees the connection end */
}

static void guest_refuse_second(struct party *p, struct guest *g, uint32_t rank)
{
    char here[HTH_PLACE_TEXT], there[HTH_PLACE_TEXT];

    hth_place_text(p->seat[rank].fd, 0, here);
    hth_place_text(g->fd, 0, there);
    snprintf(p->refused, sizeof(p->refused),
            "rank %u has come from %s, and somebody else says from %s that he is rank %u: was it "
            "started twice?",
            rank, here, there, rank);
    guest_say_why(p, g, HEARTH_EINVAL, p->refused);
    guest_leaves(p, g);
}

/* Greeting and row of a guest are here. A rank whose connection ended comes again, maybe in
 * the next gather: by the round in its greeting rank 0 sees if it has this gather's table. So ranks
 * can meet whatever gathers each of them was in before. */
static void guest_admit(struct party *p, struct guest *g)
{
    const unsigned char *row = p->rows + (size_t)(g - p->guest) * p->len;
    struct hth_greeting hello;
    struct seat *s;
    int himself, again;

    if (hth_greeting_decode(&hello, g->talk.greeting) ||
            !hth_greeting_holds(&g->talk, &p->t->knows, row, p->len)) {
        p->unproved++;
        hth_place_text(g->fd, 0, p->unproved_from);
        guest_leaves(p, g);
        return;
    }
    s = &p->seat[hello.rank];
    if (p->cannot) {
        guest_say_why(p, g, p->cannot->code, p->cannot->text);
        guest_leaves(p, g);
        p->missing -= !s->there;
        s->there = 1;
        return;
    }
    himself = s->there && memcmp(s->token, hello.token, HTH_TOKEN) == 0;
    if (himself && p->serving && !s->served && hello.round == p->t->round)
        seat_is_served(p, s);
    again = himself && !s->served && hello.round != p->t->round &&
            memcmp(p->all + (size_t)hello.rank * p->len, row, p->len) == 0;
    if (again || !s->there)
        seat_take(p, g, &hello);
    else if (himself || p->serving || !s->there)
        guest_leaves(p, g);
    else
        guest_refuse_second(p, g, hello.rank);
}

/* World and row length have to fit before a byte of the row is read. The rest of the greeting is
 * unproved and used only in the sentence of a gather that failed. */
static int guest_claim_fits(struct party *p, const struct guest *g)
{
    struct hth_greeting hello;
    char place[HTH_PLACE_TEXT];

    if (hth_greeting_decode(&hello, g->talk.greeting))
        return 0;
    hth_place_text(g->fd, 0, place);
    if (hello.len == 0) { /* it takes leave: one of us has a key, and the other none */
        p->unproved++;
        memcpy(p->unproved_from, place, sizeof(place));
    } else if (hello.world != p->t->world) {
        snprintf(p->refused, sizeof(p->refused),
                "from %s somebody says he is rank %u of %u, and we count %u", place, hello.rank,
                hello.world, p->t->world);
    }
    return hello.world == p->t->world && hello.len == p->len && p->len;
}

static void guest_listen(struct party *p, struct guest *g)
{
    size_t row = g->got > HTH_GREETING ? g->got - HTH_GREETING : 0;
    unsigned char *at = g->got < HTH_GREETING ? g->talk.greeting + g->got
                                              : p->rows + (size_t)(g - p->guest) * p->len + row;
    size_t want = g->got < HTH_GREETING ? HTH_GREETING - g->got : p->len - row;
    ssize_t n = g->fd < 0 ? -1 : recv(g->fd, at, want, MSG_DONTWAIT);

    if (g->fd < 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    g->got += n > 0 ? (size_t)n : 0;
    if (n <= 0 || (g->got == HTH_GREETING && !guest_claim_fits(p, g)))
        guest_leaves(p, g);
    else if (g->got == HTH_GREETING + p->len)
        guest_admit(p, g);
}

/* ---- the loop ------------------------------------------------------------------------------- */

/* While the table is served, connections are accepted only if a rank has to come again: those of
 * the next gather wait in the listener's queue. */
static void host_hear_door(struct party *p, uint64_t now)
{
    int hears = now >= p->rest_till && (!p->serving || p->broken);

    if (hears == p->hears)
        return;
    for (uint32_t i = 0; i < p->t->listeners; i++)
        if (!p->shut[i])
            host_watch(p, EPOLL_CTL_MOD, p->t->listener[i], hears ? EPOLLIN : 0u, OF_LISTENER, i);
    p->hears = hears;
}

/* What is due, and when the next is. */
static uint64_t host_tidy(struct party *p, uint64_t now, uint64_t until)
{
    struct guest *oldest;

    while ((oldest = guest_oldest(p)) && now - oldest->since_ms >= HALF_MS)
        guest_leaves(p, oldest);
    host_hear_door(p, now);
    if (oldest && oldest->since_ms + HALF_MS < until)
        until = oldest->since_ms + HALF_MS;
    return now < p->rest_till && p->rest_till < until ? p->rest_till : until;
}

static void host_turn(struct party *p, uint64_t until)
{
    struct epoll_event event[EVENTS];
    uint64_t now = hth_mono_ms(), due = host_tidy(p, now, until);
    int count = epoll_wait(p->epoll, event, EVENTS, due > now ? (int)(due - now) : 0);

    for (int i = 0; i < count; i++) {
        uint32_t index = (uint32_t)event[i].data.u64;

        switch (event[i].data.u64 >> 32) {
        case OF_LISTENER:
            host_let_in(p, p->t->listener[index]);
            break;
        case OF_GUEST:
            guest_listen(p, &p->guest[index]);
            break;
        default:
            seat_stirs(p, index, event[i].events);
        }
    }
    if (p->serving)
        host_hand_on(p);
}

static int host_pack(struct party *p)
{
    uint64_t most = hth_rows_most(p->len, p->t->world);
    unsigned char *less;

    if (most > SIZE_MAX || !(p->body = malloc((size_t)most)))
        return HEARTH_ENOMEM;
    p->body_len = hth_rows_pack(p->body, p->all, p->len, p->t->world);
    less = realloc(p->body, p->body_len);
    p->body = less ? less : p->body;
    hth_digest(p->digest, p->body, p->body_len);
    return HEARTH_OK;
}

/* ---- who receives it from where ------------------------------------------------------------ */

static int host_opens_share(struct party *p)
{
    uint64_t *node = calloc(p->t->world, sizeof(*node));

    for (uint32_t r = 0; node && r < p->t->world; r++)
        node[r] = r ? p->seat[r].node : p->t->mates.node;
    p->share = node ? hth_share_open(node, p->t->world) : NULL;
    free(node);
    return p->share ? HEARTH_OK : HEARTH_ENOMEM;
}

/* Engines fetch the table from each other where rank 0 would send much. */
static int host_is_tree(const struct party *p)
{
    const struct hth_mates *m = &p->t->mates;
    uint64_t most = p->t->tree_from ? p->t->tree_from : TREE_FROM;

    return m->place && p->body_len <= HTH_TABLE_MOST &&
           (uint64_t)hth_share_houses(p->share) * p->body_len > most &&
           !m->alike(m->self, p->all, p->t->world);
}

/* Rank 0 itself brings the table to its node, for ranks there and engines that fetch. */
static void host_share(struct party *p)
{
    const struct hth_mates *m = &p->t->mates;
    int tree = host_is_tree(p);
    int wanted = m->node && (tree || hth_share_mates(p->share, 0));

    hth_share_begin(
            p->share, wanted && !m->bring(m->self, p->t->round, p->body, p->body_len), tree);
    for (uint32_t r = 1; r < p->t->world; r++)
        if (p->seat[r].fd >= 0)
            hth_share_waits(p->share, r);
    host_hand_on(p);
}

/* ---- the end of a gather ------------------------------------------------------------------- */

/* The table to all ranks; those that leave without it are named. */
static int host_serve_all(struct party *p, struct hearth_error *err)
{
    uint64_t until = hth_until_ms(p->t->deadline_ms);
    unsigned char *served = calloc(p->t->world, 1);
    char who[200];

    if (!served || host_pack(p) || host_opens_share(p)) {
        free(served);
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %u ranks", p->t->world);
    }
    p->serving = 1;
    p->to_serve = p->t->world - 1;
    host_share(p);
    while (p->to_serve && hth_mono_ms() < until)
        host_turn(p, until);
    for (uint32_t r = 0; r < p->t->world; r++)
        served[r] = !r || p->seat[r].served;
    hth_ranks_text(who, sizeof(who), served, p->t->world);
    free(served);
    return p->to_serve ? hth_fail(err, HEARTH_EPEER, 0, "rank %s left before it had the table", who)
                       : HEARTH_OK;
}

static void host_tell_all(struct party *p, int code, const char *text)
{
    for (uint32_t r = 1; r < p->t->world; r++) {
        struct guest g = { .fd = p->seat[r].fd, .talk = p->seat[r].talk };

        if (g.fd >= 0)
            guest_say_why(p, &g, code, text);
    }
}

static int host_missed(struct party *p, struct hearth_error *err)
{
    unsigned char *there = calloc(p->t->world, 1);
    char who[160], unproved[200] = "", where[200];
    struct hearth_error why;

    if (!there)
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory for %u ranks", p->t->world);
    for (uint32_t r = 0; r < p->t->world; r++)
        there[r] = !r || p->seat[r].there;
    hth_ranks_text(who, sizeof(who), there, p->t->world);
    free(there);
    if (p->unproved)
        snprintf(unproved, sizeof(unproved),
                p->t->knows.keyed ? "; %u came without proof of our key for this job, one from %s: "
                                    "have all ranks the same key_file?"
                                  : "; %u came with a job key and we have none, one from %s: have "
                                    "all ranks the same key_file?",
                p->unproved, p->unproved_from);
    hth_listen_text(p->t, where, sizeof(where));
    hth_fail(&why, p->unproved ? HEARTH_EAUTH : HEARTH_ETIMEOUT, 0,
            "%u of %u ranks did not come to %s port %s%s in %u ms: %s: look at their output%s%s%s",
            p->missing, p->t->world, p->t->host, p->t->port, where, p->t->deadline_ms, who,
            unproved, p->refused[0] ? "; " : "", p->refused);
    host_tell_all(p, why.code, why.text);
    if (err)
        *err = why;
    return why.code;
}

/* Rank 0 cannot seat all ranks, and sends each of them the reason. */
static int host_refuse_all(struct party *p, const struct hearth_error *why)
{
    uint32_t ms = p->t->deadline_ms < REFUSING_MS ? p->t->deadline_ms : REFUSING_MS;
    uint64_t until = hth_until_ms(ms);

    p->cannot = why;
    while (p->missing && hth_mono_ms() < until)
        host_turn(p, until);
    return why->code;
}

static int host_all(struct party *p, struct hearth_error *err)
{
    uint64_t until = hth_until_ms(p->t->deadline_ms);

    while (p->missing && hth_mono_ms() < until)
        host_turn(p, until);
    return p->missing ? host_missed(p, err) : host_serve_all(p, err);
}

/* ---- one gather ----------------------------------------------------------------------------- */

static int party_init(struct party *p)
{
    p->rows = calloc(GUESTS, p->len);
    p->seat = calloc(p->t->world, sizeof(*p->seat));
    p->epoll = epoll_create1(EPOLL_CLOEXEC);
    for (uint32_t i = 0; i < GUESTS; i++)
        p->guest[i].fd = -1;
    for (uint32_t r = 0; p->seat && r < p->t->world; r++)
        p->seat[r].fd = -1;
    p->hears = 1;
    if (!p->rows || !p->seat || p->epoll < 0)
        return 1;
    for (uint32_t i = 0; i < p->t->listeners; i++)
        if (!p->shut[i] && host_watch(p, EPOLL_CTL_ADD, p->t->listener[i], EPOLLIN, OF_LISTENER, i))
            return 1;
    return 0;
}

static int host_gather(struct party *p, struct hearth_error *err)
{
    struct hearth_error why;
    struct hth_files files;
    int rc = hth_files_raise(&files, p->t->world - 1, &why);

    rc = rc ? host_refuse_all(p, &why) : host_all(p, err);
    if (p->cannot && err)
        *err = why;
    hth_files_restore(&files);
    return rc;
}

/* Ranks may meet if at least one listener allows it. */
static int party_may_meet(struct party *p, struct hearth_error *err)
{
    struct hearth_error why = { 0 };
    unsigned open = 0;

    if (p->t->knows.keyed || p->t->knows.trusted)
        hth_listen_wider(p->t);
    for (uint32_t i = 0; i < p->t->listeners; i++) {
        p->shut[i] = hth_place_check(p->t, p->t->listener[i], 1, &why) != 0;
        open += !p->shut[i];
    }
    if (!open && err)
        *err = why;
    return open ? HEARTH_OK : why.code;
}

static void party_fini(struct party *p)
{
    for (uint32_t i = 0; i < GUESTS; i++)
        if (p->guest[i].fd >= 0)
            guest_leaves(p, &p->guest[i]);
    for (uint32_t r = 0; p->seat && r < p->t->world; r++) {
        if (p->seat[r].fd >= 0)
            close(p->seat[r].fd);
        free(p->seat[r].ticket);
    }
    hth_share_close(p->share);
    if (p->epoll >= 0)
        close(p->epoll);
    free(p->body);
    free(p->rows);
    free(p->seat);
    free(p);
}

int hth_host(struct hth_tcp *t, const void *mine, size_t len, void *all, struct hearth_error *err)
{
    struct party *p;
    int rc;

    memcpy(all, mine, len);
    if (t->world == 1)
        return HEARTH_OK;
    if (!(p = calloc(1, sizeof(*p))))
        return hth_fail(err, HEARTH_ENOMEM, 0, "no memory to receive %u ranks", t->world);
    p->t = t;
    p->all = all;
    p->len = len;
    p->missing = t->world - 1;
    hth_random_bytes(&t->round, sizeof(t->round));
    if ((rc = party_may_meet(p, err))) {
        free(p);
        return rc;
    }
    if (party_init(p))
        rc = hth_fail(err, HEARTH_ENOMEM, errno, "cannot receive %u ranks: %s", t->world,
                strerror(errno));
    else
        rc = host_gather(p, err);
    party_fini(p);
    return rc;
}
