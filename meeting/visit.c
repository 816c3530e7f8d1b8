/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A visit: the ranks of this node that come to one place, and their one connection to the host.
 *
 *     NAPS --time--> DIALS --connected--> GREETS --challenge--> STANDS --table--> HAS
 *      ^               |                    |                     |                |
 *      +-- no address answers, or the connection ends ------------+--- it ends ----+
 *
 * A connection that ends before the table is here is not an error: the host may be ending, or not
 * be up yet. So the visit comes again with the same rows until the ranks' time is over. A visit
 * ends at once if the host sends an error, if the host has a key and this node has none, or if no
 * address of the place may be used without a key. If the name has several addresses, each of them
 * gets a share of the time. After a pass over all of them the ranks are sent to resolve the name
 * anew.
 *
 * A node that has the table reports that and waits until the host ends the connection. If it breaks
 * instead, the visit comes once more, with the round in its greeting.
 */
#include "core/format/rows.h"
#include "parts.h"
#include "place.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define NAP_MS      10u
#define NAP_MOST_MS 200u
#define SHARE_MS    1000u  /* for each of several addresses; each pass doubles it */
#define SHARE_TWICE 8u     /* doubled at most so often */
#define FETCH_MS    15000u /* at most, for a table that is fetched from another node */
#define ASK_MS      1000u  /* between two look-ups of the name */
#define PROVES_MS   1000u  /* a proof that fails ends a connection sooner */
#define SILENT_MS   5000u  /* for the challenge; then the name is resolved anew */
#define OWES_MS     10000u /* for telling the host that the table is here */
#define REST_MS     5000u  /* a visit without ranks keeps what it has counted so long */

enum visit_state { VISIT_NAPS, VISIT_DIALS, VISIT_GREETS, VISIT_STANDS, VISIT_HAS };

struct guest_rank {
    struct guest_rank *next;
    uint32_t rank, deadline_ms;
    int has;                     /* it waits for the other nodes only */
    uint64_t until_ms, asked_ms; /* asked: the name was resolved */
    unsigned char body[];        /* of its ROW */
};

struct hth_visit {
    struct hth_watch watch; /* first; DIALS, GREETS */
    struct hth_visit *next;
    struct hth_meeting *m;
    struct hth_meeting_place place;
    uint32_t world, len;
    unsigned char token[HTH_MEETING_TOKEN];
    struct guest_rank *ranks;
    enum visit_state state;
    int is_inside; /* the connection is to this meeting's own host */
    int may_go;    /* inside: its ranks do not wait for other nodes */
    uint64_t due_ms, rest_ms;
    uint32_t nap_ms, pass, address, barred;
    struct hth_meeting_address good; /* that the last table came from */
    char tried[256];                 /* the addresses that failed in this pass, with causes */
    size_t got;                      /* of the challenge */
    struct hth_talk talk;
    struct hth_stream *stream;
    uint32_t turned_away;    /* it ended right after our greeting, so often in a row */
    uint64_t greeted_ms;     /* 0: its end says nothing about our proof */
    uint32_t fetching;       /* the round of a ticket; 0: none */
    uint64_t owes_ms;        /* until then the host is sent that the table is here; 0: not */
    uint32_t round;          /* of that table */
    struct hearth_error why; /* why there is no table yet */
};

static void visit_naps(struct hth_visit *v, uint64_t ms);
static void visit_next_address(struct hth_visit *v);

/* ---- ranks ----------------------------------------------------------------------------------- */

static void rank_done(
        struct hth_visit *v, struct guest_rank **at, uint32_t round, int code, const char *text)
{
    struct guest_rank *r = *at;
    uint32_t rank = r->rank;

    *at = r->next;
    free(r);
    v->rest_ms = v->m->now_ms + REST_MS;
    v->m->events.done(v->m->events.self, rank, round, code, text);
}

/* The host's own ranks may have to wait until all nodes have the table: what they do with it may
 * end their engine, as REFIT does, and the host with it. */
static void visit_all_done(struct hth_visit *v, uint32_t round, int code, const char *text)
{
    if (v->is_inside && !code && !v->may_go) {
        for (struct guest_rank *r = v->ranks; r; r = r->next)
            r->has = 1;
        return;
    }
    while (v->ranks)
        rank_done(v, &v->ranks, round, code, text);
}

static void visit_give_up(struct hth_visit *v, int code, const char *what)
{
    struct hearth_error e;

    hth_fail(&e, code, 0, "what answers at %s port %u %s", v->place.host, v->place.port, what);
    visit_all_done(v, 0, e.code, e.text);
    visit_naps(v, NAP_MOST_MS);
}

static void rank_in_vain(struct hth_visit *v, struct guest_rank **at)
{
    const struct guest_rank *r = *at;
    int unproved = v->turned_away >= 2 && v->m->keys.keyed;
    char away[160] = "";
    struct hearth_error e;

    if (unproved)
        snprintf(away, sizeof(away),
                "; it hung up on our proof %u times: have all ranks the same key_file and job?",
                v->turned_away);
    hth_fail(&e, unproved ? HEARTH_EAUTH : HEARTH_ETIMEOUT, 0,
            "rank %u: no table from %s port %u in %u ms: %s%s", r->rank, v->place.host,
            v->place.port, r->deadline_ms,
            v->why.text[0] ? v->why.text : "rank 0 is there, but sends nothing", away);
    rank_done(v, at, 0, e.code, e.text);
}

/* That the last of them still waits. */
static uint64_t visit_until_ms(const struct hth_visit *v)
{
    uint64_t until = 0;

    for (const struct guest_rank *r = v->ranks; r; r = r->next)
        until = r->until_ms > until ? r->until_ms : until;
    return until > v->owes_ms ? until : v->owes_ms;
}

/* ---- the connection -------------------------------------------------------------------------- */

static void visit_hang_up(struct hth_visit *v)
{
    hth_watch_end(&v->watch);
    hth_stream_close(v->stream);
    v->stream = NULL;
    v->got = 0;
    v->is_inside = 0;
}

static void visit_naps(struct hth_visit *v, uint64_t ms)
{
    visit_hang_up(v);
    v->state = VISIT_NAPS;
    v->address = 0;
    if (!v->ranks)
        v->fetching = 0; /* it is not for ranks that come later */
    v->due_ms = v->ranks || v->owes_ms ? v->m->now_ms + ms : HTH_NEVER;
}

/* Longer each time. */
static void visit_comes_again(struct hth_visit *v)
{
    uint32_t ms = v->nap_ms;

    v->nap_ms = ms * 2 < NAP_MOST_MS ? ms * 2 : NAP_MOST_MS;
    visit_naps(v, ms);
}

static void visit_row(struct hth_visit *v, const struct guest_rank *r)
{
    struct hth_meet_frame f = {
        .type = HTH_MEET_FRAME_ROW, .rank = r->rank, .len = HTH_MEETING_TOKEN + (uint64_t)v->len
    };

    (void)hth_stream_send(v->stream, &f, r->body); /* without memory: its time passes */
}

static void visit_say(
        struct hth_visit *v, enum hth_meet_frame_type type, uint32_t rank, uint32_t round)
{
    struct hth_meet_frame f = { .type = type, .rank = rank, .round = round };

    if (v->stream)
        (void)hth_stream_send(v->stream, &f, "");
}

/* 1: the link is closed. */
static int visit_has(struct hth_visit *v, uint32_t round, struct hth_buf *table)
{
    struct hth_meeting *m = v->m;

    v->round = round;
    v->fetching = 0;
    v->nap_ms = NAP_MS;
    v->turned_away = 0;
    v->owes_ms = m->now_ms + OWES_MS;
    m->events.table(m->events.self, round, table);
    visit_all_done(v, round, HEARTH_OK, "");
    if (!v->stream) {
        visit_naps(v, 0);
        return 1;
    }
    v->state = VISIT_HAS;
    v->due_ms = HTH_NEVER;
    visit_say(v, HTH_MEET_FRAME_HAS, 0, round);
    return 0;
}

static int visit_ticket(struct hth_visit *v, uint32_t round, const struct hth_buf *body)
{
    struct hth_meeting *m = v->m;
    struct hth_ticket t;
    uint64_t left = visit_until_ms(v);

    if (body->len != HTH_TICKET || hth_ticket_decode(&t, body->at)) {
        visit_give_up(v, HEARTH_EPROTO, "sends a ticket that is not valid");
        return 1;
    }
    left = left > m->now_ms ? (left - m->now_ms) / 4 : 0;
    v->fetching = round;
    if (m->events.ticket)
        m->events.ticket(m->events.self, round, left < FETCH_MS ? (uint32_t)left : FETCH_MS, &t);
    else
        hth_visit_fetched(m, round, NULL);
    return v->stream == NULL;
}

static int visit_no(struct hth_visit *v, const struct hth_meet_frame *f, const struct hth_buf *body)
{
    char text[HTH_SAID_MAX] = "";

    if (body)
        memcpy(text, body->at, body->len);
    if (!f->code) { /* the host may be another one next time */
        hth_fail(&v->why, HEARTH_EPEER, 0, "%s", text);
        v->turned_away = 0;
        visit_comes_again(v);
        return 1;
    }
    for (struct guest_rank **at = &v->ranks; *at;)
        if (f->rank == HTH_ALL || (*at)->rank == f->rank)
            rank_done(v, at, 0, f->code, text);
        else
            at = &(*at)->next;
    if (v->ranks)
        return 0;
    visit_naps(v, NAP_MS);
    return 1;
}

static uint64_t visit_most(const struct hth_stream *s, const struct hth_meet_frame *f)
{
    const struct hth_visit *v = s->self;

    switch ((int)f->type) {
    case HTH_MEET_FRAME_TABLE:
        return hth_rows_most(v->len, v->world);
    case HTH_MEET_FRAME_TICKET:
        return HTH_TICKET;
    case HTH_MEET_FRAME_NO:
        return HTH_SAID_MAX - 1;
    default:
        return 0;
    }
}

static int visit_frame(struct hth_stream *s, const struct hth_meet_frame *f, struct hth_buf *body)
{
    struct hth_visit *v = s->self;

    if (v->state == VISIT_HAS)
        return 0;
    if (f->type == HTH_MEET_FRAME_NO)
        return visit_no(v, f, body);
    if (f->type == HTH_MEET_FRAME_TABLE && body && f->round)
        return visit_has(v, f->round, body);
    if (f->type == HTH_MEET_FRAME_TICKET && body && f->round)
        return visit_ticket(v, f->round, body);
    visit_give_up(v, HEARTH_EPROTO, "is not this job's rank 0");
    return 1;
}

static void visit_end(struct hth_stream *s, int e)
{
    struct hth_visit *v = s->self;

    if (v->state == VISIT_HAS && !e) {
        v->owes_ms = 0;
        visit_naps(v, 0);
        return;
    }
    if (e == EPROTO) {
        visit_give_up(v, HEARTH_EPROTO, "is not this job's rank 0");
        return;
    }
    if (e == EKEYREJECTED) {
        visit_give_up(v, HEARTH_EAUTH,
                "does not prove the job key: it is not this job's rank 0, or has another "
                "key_file");
        return;
    }
    if (v->state == VISIT_STANDS && v->greeted_ms && v->m->now_ms < v->greeted_ms + PROVES_MS)
        v->turned_away++;
    else
        v->turned_away = 0;
    hth_fail(&v->why, HEARTH_EPEER, e, "rank 0 hung up before it sent the table (%s)",
            e ? strerror(e) : "the connection ended");
    visit_comes_again(v);
}

static const struct hth_stream_owner visit_owner = { visit_most, visit_frame, visit_end };

/* ---- the greeting ---------------------------------------------------------------------------- */

/* So that the host can say too why these ranks did not come. */
static void visit_take_leave(struct hth_visit *v, const char *what)
{
    struct hth_greeting hello = { .world = v->world };
    struct hth_proving unused;

    hth_greeting_make(&v->talk, &v->m->keys, &hello, &unused);
    (void)send(v->watch.fd, v->talk.greeting, HTH_GREETING, MSG_NOSIGNAL | MSG_DONTWAIT);
    visit_give_up(v, HEARTH_EAUTH, what);
}

static void visit_greet(struct hth_visit *v)
{
    struct hth_greeting hello = {
        .world = v->world, .len = v->len, .round = v->round, .node = v->m->node
    };
    struct hth_proving proving;
    int fd = v->watch.fd;

    memcpy(hello.token, v->token, HTH_MEETING_TOKEN);
    hth_greeting_make(&v->talk, &v->m->keys, &hello, &proving);
    v->watch.fd = -1;
    v->stream = hth_stream_new(v->m->epoll, fd, 1, &visit_owner, v, &proving);
    hth_wipe(&proving, sizeof(proving));
    if (!v->stream || hth_stream_bytes(v->stream, v->talk.greeting, HTH_GREETING)) {
        visit_comes_again(v);
        return;
    }
    if (!v->is_inside)
        v->good = v->place.at[v->address];
    v->state = VISIT_STANDS;
    v->greeted_ms = v->m->now_ms;
    v->due_ms = v->ranks ? HTH_NEVER : v->owes_ms;
    v->why.text[0] = '\0';
    for (const struct guest_rank *r = v->ranks; r; r = r->next)
        visit_row(v, r);
    if (!v->ranks)
        v->state = VISIT_HAS; /* the greeting has the round */
}

/* A whole challenge is here. */
static void visit_judge(struct hth_visit *v)
{
    int keyed = hth_challenge_decode(v->talk.challenge);

    if (keyed == HEARTH_EUNSUPPORTED)
        visit_give_up(v, HEARTH_EPROTO,
                "is a rank 0 with another version of Hearth: install one version on all nodes");
    else if (keyed < 0)
        visit_give_up(v, HEARTH_EPROTO, "is not this job's rank 0");
    else if (keyed && !v->m->keys.keyed)
        visit_take_leave(v,
                "asks for a proof of the job key and we have none: give all ranks the same "
                "key_file");
    else if (!keyed && v->m->keys.keyed)
        visit_take_leave(
                v, "has no job key and we have one: give all ranks the same key_file, rank 0 too");
    else
        visit_greet(v);
}

/* ---- dialling -------------------------------------------------------------------------------- */

static void visit_not_here(struct hth_visit *v, const char *what)
{
    hth_place_note(v->tried, sizeof(v->tried), &v->place.at[v->address], what);
    hth_watch_end(&v->watch);
    v->got = 0;
    v->address++;
    visit_next_address(v);
}

/* Connected: may ranks meet there? */
static void visit_is_up(struct hth_visit *v)
{
    struct hearth_error why;
    int yes = 1;

    if (hth_place_is_itself(v->watch.fd)) {
        visit_not_here(v, strerror(ECONNREFUSED));
        return;
    }
    if (hth_place_check(&v->m->keys, v->place.host, v->watch.fd, 0, &why)) {
        v->why = why;
        v->barred++;
        visit_not_here(v, "off loopback, and there is no key_file");
        return;
    }
    setsockopt(v->watch.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    hth_place_keep_alive(v->watch.fd);
    v->state = VISIT_GREETS;
    if (v->place.addresses == 1)
        v->due_ms = v->m->now_ms + SILENT_MS;
    hth_watch_change(v->m->epoll, &v->watch, EPOLLIN);
}

static void visit_hear(struct hth_visit *v)
{
    ssize_t n = recv(v->watch.fd, v->talk.challenge + v->got, HTH_CHALLENGE - v->got, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        hth_fail(&v->why, HEARTH_EPEER, n ? errno : 0,
                "rank 0 closed the connection before it sent anything");
        visit_comes_again(v);
        return;
    }
    v->got += (size_t)n;
    if (v->got == HTH_CHALLENGE)
        visit_judge(v);
}

static void visit_stir(struct hth_watch *w, uint32_t events)
{
    struct hth_visit *v = (struct hth_visit *)w;
    socklen_t len = sizeof(int);
    int e = 0;

    (void)events;
    if (v->state == VISIT_GREETS) {
        visit_hear(v);
        return;
    }
    getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &e, &len);
    if (e)
        visit_not_here(v, strerror(e));
    else
        visit_is_up(v);
}

/* A silent address must not keep ranks from the next one. A single address gets all the time. */
static uint64_t visit_share_ms(const struct hth_visit *v)
{
    uint64_t end = visit_until_ms(v), now = v->m->now_ms, most = (uint64_t)SHARE_MS << v->pass;
    uint64_t left = end > now + HTH_GRACE_MS ? end - HTH_GRACE_MS - now : 0;
    uint64_t share = left / (v->place.addresses - v->address);

    return share > most && v->place.addresses > 1 ? most : share;
}

/* 0, or an errno. */
static int visit_dial(struct hth_visit *v)
{
    struct sockaddr_storage at;
    socklen_t len = hth_place_socket(&v->place.at[v->address], v->place.port, &at);
    int fd = len ? socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0) : -1;

    if (fd < 0)
        return len ? errno : EAFNOSUPPORT;
    v->watch.fd = fd;
    if ((connect(fd, (struct sockaddr *)&at, len) && errno != EINPROGRESS) ||
            hth_watch_add(v->m->epoll, &v->watch, EPOLLOUT))
        return errno;
    v->state = VISIT_DIALS;
    v->due_ms = v->m->now_ms + visit_share_ms(v);
    return 0;
}

/* All addresses have failed. */
static void visit_pass_ends(struct hth_visit *v)
{
    int all_barred = v->barred && v->barred == v->place.addresses;

    v->pass += v->pass < SHARE_TWICE;
    if (all_barred) {
        struct hearth_error why = v->why;

        visit_all_done(v, 0, why.code, why.text);
        visit_naps(v, NAP_MOST_MS);
        return;
    }
    hth_fail(&v->why, HEARTH_ETIMEOUT, 0,
            "rank 0 does not listen there (%s): is it running, and can this node reach it?",
            v->tried);
    for (struct guest_rank **at = &v->ranks; *at;)
        if (v->m->now_ms >= (*at)->asked_ms + ASK_MS &&
                v->m->now_ms + ASK_MS + HTH_GRACE_MS < (*at)->until_ms)
            rank_done(v, at, 0, HEARTH_ENOENT, v->why.text);
        else
            at = &(*at)->next;
    visit_comes_again(v);
}

static void visit_next_address(struct hth_visit *v)
{
    int e = 0;

    while (v->address < v->place.addresses && (e = visit_dial(v))) {
        hth_place_note(v->tried, sizeof(v->tried), &v->place.at[v->address], strerror(e));
        hth_watch_end(&v->watch);
        v->address++;
    }
    if (v->address >= v->place.addresses)
        visit_pass_ends(v);
}

static int visit_is_at(
        const struct hth_visit *v, const struct hth_meeting_place *place, uint32_t world)
{
    return v->world == world && v->place.port == place->port &&
           strcmp(v->place.host, place->host) == 0;
}

static struct hth_visit *visit_at(
        struct hth_meeting *m, const struct hth_meeting_place *place, uint32_t world)
{
    struct hth_visit *v = m->visits;

    while (v && !visit_is_at(v, place, world))
        v = v->next;
    return v;
}

static void visit_begins(struct hth_visit *v)
{
    if (v->m->hosts && visit_is_at(v, v->m->hosts, v->m->hosts_world)) {
        v->due_ms = v->m->now_ms + NAP_MOST_MS; /* the host lets it in */
        return;
    }
    for (struct guest_rank *r = v->ranks; r; r = r->next)
        r->has = 0; /* the host of its table has gone */
    v->tried[0] = '\0';
    v->barred = 0;
    v->address = 0;
    visit_next_address(v);
}

/* ---- for the meeting ------------------------------------------------------------------------- */

int hth_visit_inside(
        struct hth_meeting *m, const struct hth_meeting_place *place, uint32_t world, int fd)
{
    struct hth_visit *v = visit_at(m, place, world);

    if (!v) {
        close(fd);
        return HEARTH_ENOMEM;
    }
    visit_hang_up(v);
    v->is_inside = 1;
    v->state = VISIT_GREETS;
    v->due_ms = HTH_NEVER;
    v->watch.fd = fd;
    if (!hth_watch_add(m->epoll, &v->watch, EPOLLIN))
        return HEARTH_OK;
    visit_naps(v, NAP_MS);
    return HEARTH_ENOMEM;
}

void hth_visit_may_go(
        struct hth_meeting *m, const struct hth_meeting_place *place, uint32_t world, int stays)
{
    struct hth_visit *v = visit_at(m, place, world);

    if (v)
        v->may_go = stays;
}

void hth_visit_served(struct hth_meeting *m, const struct hth_meeting_place *place, uint32_t world,
        int had_table, int code, const char *text)
{
    struct hth_visit *v = visit_at(m, place, world);
    struct guest_rank **at = v ? &v->ranks : NULL;

    while (at && *at)
        if (!had_table || (*at)->has)
            rank_done(v, at, code ? 0 : v->round, code, text);
        else
            at = &(*at)->next; /* of the next gather */
}

static void visit_drop_rank(struct hth_visit *v, struct guest_rank **at)
{
    struct guest_rank *r = *at;

    *at = r->next;
    if (v->state == VISIT_STANDS)
        visit_say(v, HTH_MEET_FRAME_GONE, r->rank, 0);
    free(r);
    v->rest_ms = v->m->now_ms + REST_MS;
    if (!v->ranks && v->state != VISIT_HAS)
        visit_naps(v, NAP_MS);
}

void hth_visit_gone(struct hth_meeting *m, uint32_t rank)
{
    for (struct hth_visit *v = m->visits; v; v = v->next)
        for (struct guest_rank **at = &v->ranks; *at; at = &(*at)->next)
            if ((*at)->rank == rank) {
                visit_drop_rank(v, at);
                return;
            }
}

/* A table that is fetched after the host has ended the connection counts as well. */
void hth_visit_fetched(struct hth_meeting *m, uint32_t round, struct hth_buf *packed)
{
    struct hth_visit *v = m->visits;

    while (v && v->fetching != round)
        v = v->next;
    if (!v || !round)
        return;
    v->fetching = 0;
    if (packed)
        visit_has(v, round, packed);
    else
        visit_say(v, HTH_MEET_FRAME_LACKS, 0, round);
}

static struct hth_visit *visit_new(struct hth_meeting *m, const struct hth_meeting_rank *rank)
{
    struct hth_visit *v = calloc(1, sizeof(*v));

    if (!v)
        return NULL;
    v->watch = (struct hth_watch){ .fd = -1, .stir = visit_stir };
    v->m = m;
    v->world = rank->world;
    v->len = rank->len;
    v->nap_ms = NAP_MS;
    v->due_ms = HTH_NEVER;
    hth_random_bytes(v->token, sizeof(v->token));
    v->next = m->visits;
    m->visits = v;
    return v;
}

/* The address that the last table came from is tried first. */
static void visit_set_place(struct hth_visit *v, const struct hth_meeting_place *place)
{
    v->place = *place;
    for (uint32_t i = 1; i < place->addresses; i++)
        if (memcmp(&place->at[i], &v->good, sizeof(v->good)) == 0) {
            v->place.at[i] = v->place.at[0];
            v->place.at[0] = v->good;
        }
}

/* A rank of the next gather. The greeting of the next connection has the round. */
static void visit_stands_again(struct hth_visit *v)
{
    v->state = VISIT_STANDS;
    v->greeted_ms = 0;
}

int hth_visit_come(struct hth_meeting *m, const struct hth_meeting_rank *rank)
{
    struct hth_visit *v = m->visits;
    struct guest_rank *r = malloc(sizeof(*r) + HTH_MEETING_TOKEN + rank->len);

    while (v && (!visit_is_at(v, rank->place, rank->world) || v->len != rank->len))
        v = v->next;
    if (!r || (!v && !(v = visit_new(m, rank)))) {
        free(r);
        return HEARTH_ENOMEM;
    }
    *r = (struct guest_rank){ .next = v->ranks,
        .rank = rank->rank,
        .deadline_ms = rank->deadline_ms,
        .until_ms = m->now_ms + rank->left_ms + HTH_GRACE_MS,
        .asked_ms = m->now_ms };
    memcpy(r->body, rank->token, HTH_MEETING_TOKEN);
    memcpy(r->body + HTH_MEETING_TOKEN, rank->row, rank->len);
    v->ranks = r;
    if (v->state == VISIT_HAS)
        visit_stands_again(v);
    if (v->state == VISIT_STANDS)
        visit_row(v, r);
    if (v->state != VISIT_NAPS)
        return HEARTH_OK;
    visit_set_place(v, rank->place);
    if (v->due_ms == HTH_NEVER)
        v->due_ms = m->now_ms;
    return HEARTH_OK;
}

/* 1: the host of this meeting ends its waiting. */
static int rank_is_hosts(const struct hth_visit *v, const struct guest_rank *r)
{
    return v->is_inside || (r->has && v->m->host);
}

static void visit_tick(struct hth_visit *v)
{
    uint64_t now = v->m->now_ms;

    for (struct guest_rank **at = &v->ranks; *at;)
        if (now >= (*at)->until_ms && !rank_is_hosts(v, *at))
            rank_in_vain(v, at);
        else
            at = &(*at)->next;
    if (v->owes_ms && now >= v->owes_ms)
        v->owes_ms = 0;
    if (!v->ranks && !v->owes_ms && v->state != VISIT_NAPS)
        visit_naps(v, 0);
    if (now < v->due_ms)
        return;
    if (v->state == VISIT_NAPS)
        visit_begins(v);
    else if (v->state == VISIT_DIALS)
        visit_not_here(v, strerror(ETIMEDOUT));
    else if (v->state == VISIT_GREETS)
        visit_not_here(v, "says nothing");
    else
        v->due_ms = HTH_NEVER;
}

static void visit_free(struct hth_visit *v)
{
    visit_hang_up(v);
    while (v->ranks) {
        struct guest_rank *r = v->ranks;

        v->ranks = r->next;
        free(r);
    }
    free(v);
}

static int visit_is_over(const struct hth_visit *v)
{
    return !v->ranks && !v->owes_ms && v->state == VISIT_NAPS && v->m->now_ms >= v->rest_ms;
}

void hth_visits_tick(struct hth_meeting *m)
{
    for (struct hth_visit **at = &m->visits; *at;) {
        struct hth_visit *v = *at;

        visit_tick(v);
        if (!visit_is_over(v)) {
            at = &v->next;
            continue;
        }
        *at = v->next;
        visit_free(v);
    }
}

uint64_t hth_visits_due_ms(const struct hth_meeting *m)
{
    uint64_t due = HTH_NEVER;

    for (const struct hth_visit *v = m->visits; v; v = v->next) {
        uint64_t last = v->owes_ms ? v->owes_ms : HTH_NEVER;

        for (const struct guest_rank *r = v->ranks; r; r = r->next)
            if (!rank_is_hosts(v, r))
                last = r->until_ms < last ? r->until_ms : last;
        if (!v->ranks && !v->owes_ms)
            last = v->rest_ms;
        due = last < due ? last : due;
        due = v->due_ms < due ? v->due_ms : due;
    }
    return due;
}

void hth_visits_close(struct hth_meeting *m)
{
    while (m->visits) {
        struct hth_visit *v = m->visits;

        m->visits = v->next;
        visit_free(v);
    }
}
