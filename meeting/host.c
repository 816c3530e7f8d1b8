/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host of one gather, at rank 0's node. A guest is a connection that has not proved anything
 * yet; a node is a connection that has; a seat is a rank's place in the table.
 *
 *     GUEST   challenged (door.c)
 *       |     its greeting is whole and proved
 *     NODE    brings rows. A rank's seat is taken until its node says that the rank has gone, or
 *       |     the connection ends; then it is free for any node. Another process for a taken seat
 *       |     is refused by name; the same process (by its token) may come again.
 *       |     all ranks are seated: the table is final, and is packed
 *     PARTY   the nodes of the table. Each is answered in its turn (share.c). A party whose
 *       |     connection broke comes again with the same rows.
 *     SERVED  it says that it has the table. When all parties have it, rank 0 is answered, and the
 *             host ends. The host also ends when rank 0's time is over.
 *
 * No number of a guest's is used before the proof. One connection is the host's own, inside this
 * process, for the ranks of rank 0's node.
 */
#include "core/format/epoch.h"
#include "core/format/fabric.h"
#include "core/format/rows.h"
#include "door.h"
#include "share.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_USE_MS   5000u  /* how long an earlier host that is ending may still have the port */
#define AGAIN_MS    50u    /* between two attempts to listen */
#define REFUSING_MS 10000u /* for nodes to come and receive why the gather fails */
#define TREE_FROM   (UINT64_C(16) << 20) /* bytes of tables to all nodes */
#define NONE        UINT32_MAX

struct node {
    struct node *next;
    struct hth_host *host;
    struct hth_stream *stream;
    struct hth_greeting hello;
    uint64_t since_ms;
    int own;        /* of this host's node */
    int refused;    /* nothing more of it is read */
    uint32_t seats; /* the first rank of a list; NONE: it has none */
    uint32_t party; /* NONE: none */
};

struct seat {
    struct node *by; /* NULL: free */
    uint32_t next;   /* of the same node */
    int told;        /* HOST_REFUSES: its node was sent the reason */
    unsigned char token[HTH_MEETING_TOKEN];
};

/* The node of a final table. */
struct party {
    struct node *by; /* NULL: its connection broke */
    int served;
    uint32_t rank; /* its lowest one */
    uint64_t node;
    unsigned char token[HTH_MEETING_TOKEN];
};

enum host_state { HOST_LISTENS, HOST_GATHERS, HOST_REFUSES, HOST_SERVES, HOST_OVER };

struct hth_host {
    struct hth_meeting *m;
    enum host_state state;
    struct hth_meeting_place place;
    struct hth_door door;
    uint32_t world, len, deadline_ms;
    uint64_t tree_from;
    uint64_t until_ms, in_use_till_ms, again_ms;
    unsigned char *all; /* [world][len] */
    struct seat *seat;  /* [world] */
    uint32_t missing;
    struct node *nodes;

    /* HOST_SERVES */
    uint32_t round, parties, to_serve, broken;
    int stays; /* no engine ends for another fabric */
    struct party *party;
    uint32_t *party_of; /* [world] */
    struct hth_buf *table;
    struct hth_share *share;

    struct hearth_error cannot; /* HOST_REFUSES: sent to each node */
    uint32_t untold;
    char refused[HTH_SAID_MAX]; /* the last that was refused by name */
};

/* ---- the end --------------------------------------------------------------------------------- */

/* Ends the gather for the ranks of this node; the next tick frees the host. */
static void host_ends(struct hth_host *h, int code, const char *text)
{
    int had_table = h->state == HOST_SERVES;

    h->state = HOST_OVER;
    h->m->hosts = NULL;
    hth_visit_served(h->m, &h->place, h->world, had_table, code, text);
}

static void host_no_memory(struct hth_host *h)
{
    host_ends(h, HEARTH_ENOMEM, "the host of the ranks' meeting has no memory for them");
}

/* ---- refusing -------------------------------------------------------------------------------- */

static void node_say_no(struct node *n, uint32_t rank, int code, const char *text)
{
    struct hth_meet_frame f = {
        .type = HTH_MEET_FRAME_NO, .rank = rank, .code = code, .len = strlen(text)
    };

    (void)hth_stream_send(n->stream, &f, text); /* without memory: it comes again, or is late */
}

/* Sends a node the error. The ranks of the host's own node get it last: the host ends when rank 0
 * stops waiting. */
static void node_say_cannot(struct node *n)
{
    struct hth_host *h = n->host;

    if (!n->own)
        node_say_no(n, HTH_ALL, h->cannot.code, h->cannot.text);
}

/* Nodes have taken all descriptors: no further node can connect, and waiting does not help. */
static void host_is_full(void *self, int e)
{
    struct hth_host *h = self;

    if (h->state != HOST_GATHERS)
        return;
    hth_fail(&h->cannot, HEARTH_EINVAL, e,
            "the node of rank 0 has no file descriptor left for more nodes while the ranks meet: "
            "raise the hard limit where rank 0 runs (ulimit -Hn, LimitNOFILE=), or use PMIx or an "
            "all-gather of your own");
    h->state = HOST_REFUSES;
    for (uint32_t r = 0; r < h->world; r++)
        h->seat[r].told = h->seat[r].by != NULL;
    h->untold = h->missing;
    h->until_ms += HTH_GRACE_MS;
    if (h->until_ms > h->m->now_ms + REFUSING_MS)
        h->until_ms = h->m->now_ms + REFUSING_MS;
    for (struct node *n = h->nodes; n; n = n->next)
        node_say_cannot(n);
}

/* ---- parties --------------------------------------------------------------------------------- */

/* Errors: HEARTH_ENOMEM, or that of the row. */
static int party_send_ticket(struct hth_host *h, const struct party *p, uint32_t source)
{
    struct hth_meet_frame f = {
        .type = HTH_MEET_FRAME_TICKET, .round = h->round, .len = HTH_TICKET
    };
    unsigned char bytes[HTH_TICKET];
    struct hth_ticket t = { .len = h->table->len };
    struct hth_gather g;

    if (hth_gather_decode(&g, h->all + (size_t)h->party[source].rank * h->len, NULL) ||
            (g.flags & HTH_GATHER_ABSENT) || !g.addr_len)
        return HEARTH_EINVAL;
    t.at = (struct hth_member){ .store = g.store, .addr_len = g.addr_len };
    memcpy(t.at.node, g.node, sizeof(t.at.node));
    memcpy(t.at.addr, g.addr, sizeof(t.at.addr));
    memcpy(t.digest, h->table->digest, HTH_DIGEST);
    hth_ticket_encode(&t, bytes);
    return hth_stream_send(p->by->stream, &f, bytes);
}

static void party_is_served(struct hth_host *h, uint32_t i)
{
    struct party *p = &h->party[i];

    if (p->served)
        return;
    p->served = 1;
    h->to_serve--;
    h->broken -= !p->by;
    hth_share_has(h->share, i);
}

/* To each node whose turn it is. */
static void host_hand_on(struct hth_host *h)
{
    struct hth_handing to;

    while (h->state == HOST_SERVES && hth_share_next(h->share, &to)) {
        struct hth_meet_frame f = {
            .type = HTH_MEET_FRAME_TABLE, .round = h->round, .len = h->table->len
        };
        struct party *p = &h->party[to.node];

        if ((to.source == HTH_SHARE_HOST || party_send_ticket(h, p, to.source)) &&
                hth_stream_send_buf(p->by->stream, &f, h->table))
            host_no_memory(h);
    }
    if (h->state == HOST_SERVES && !h->to_serve)
        host_ends(h, HEARTH_OK, "");
}

/* Engines reach each other on one fabric only. Where not all have it yet, or all are to take a
 * better one, an engine ends as soon as a rank of its node has the table, and ranks meet again.
 * 1: all have it, and stay on it. */
static int host_rows_are_alike(const struct hth_host *h)
{
    struct hth_gather first = { 0 }, g;
    struct hth_fabric_choice choice;

    for (uint32_t r = 0; r < h->world; r++) {
        if (hth_gather_decode(&g, h->all + (size_t)r * h->len, NULL))
            return 0;
        if (g.flags & HTH_GATHER_ABSENT)
            continue;
        if (!first.world)
            first = g;
        if (strcmp(g.transport, first.transport) != 0 || strcmp(g.provider, first.provider) != 0)
            return 0;
    }
    return !hth_fabric_choose(h->all, h->world, &choice, NULL) && choice.settled;
}

/* Engines fetch the table from each other where the host would send much. */
static int host_is_tree(const struct hth_host *h)
{
    return h->stays && h->table->len <= HTH_TABLE_MOST &&
           (uint64_t)h->parties * h->table->len > h->tree_from;
}

static int host_pack(struct hth_host *h)
{
    uint64_t most = hth_rows_most(h->len, h->world);
    unsigned char *packed = most > SIZE_MAX ? NULL : malloc((size_t)most);

    if (packed)
        h->table = hth_buf_of(packed, hth_rows_pack(packed, h->all, h->len, h->world));
    free(packed);
    return h->table ? HEARTH_OK : HEARTH_ENOMEM;
}

/* Each connection that has seats is a party; the host's own is the first. */
static void host_make_parties(struct hth_host *h, unsigned char *fetches)
{
    for (uint32_t r = 0; r < h->world; r++) {
        struct node *n = h->seat[r].by;

        if (n->party == NONE) {
            struct party *p = &h->party[h->parties];

            *p = (struct party){ .by = n, .rank = r, .node = n->hello.node };
            memcpy(p->token, n->hello.token, HTH_MEETING_TOKEN);
            fetches[h->parties] = n->hello.node != 0;
            n->party = h->parties++;
        }
        h->party_of[r] = n->party;
    }
    h->to_serve = h->parties;
}

/* All ranks are here. */
static void host_serves(struct hth_host *h)
{
    unsigned char *fetches = calloc(h->world, 1);

    h->party = calloc(h->world, sizeof(*h->party));
    h->party_of = calloc(h->world, sizeof(*h->party_of));
    if (fetches && h->party && h->party_of && !host_pack(h)) {
        host_make_parties(h, fetches);
        h->stays = h->m->node && h->len == HTH_GATHER && host_rows_are_alike(h);
        h->share = hth_share_open(h->parties, fetches, host_is_tree(h));
    }
    free(fetches);
    if (!h->share) {
        host_no_memory(h);
        return;
    }
    h->state = HOST_SERVES;
    h->until_ms = h->m->now_ms + h->deadline_ms;
    for (uint32_t i = 0; i < h->parties; i++)
        hth_share_waits(h->share, i);
    hth_visit_may_go(h->m, &h->place, h->world, h->stays);
    host_hand_on(h);
}

/* ---- seats ----------------------------------------------------------------------------------- */

static void seat_is_free(struct hth_host *h, uint32_t rank)
{
    struct node *n = h->seat[rank].by;

    if (!n)
        return;
    for (uint32_t *at = &n->seats; *at != NONE; at = &h->seat[*at].next)
        if (*at == rank) {
            *at = h->seat[rank].next;
            break;
        }
    h->seat[rank].by = NULL;
    h->missing++;
}

static void seat_take(struct hth_host *h, struct node *n, uint32_t rank, const unsigned char *body)
{
    struct seat *s = &h->seat[rank];

    seat_is_free(h, rank);
    *s = (struct seat){ .by = n, .next = n->seats };
    n->seats = rank;
    h->missing--;
    memcpy(s->token, body, HTH_MEETING_TOKEN);
    memcpy(h->all + (size_t)rank * h->len, body + HTH_MEETING_TOKEN, h->len);
    if (!h->missing)
        host_serves(h);
}

static void node_refuse_second(struct hth_host *h, struct node *n, uint32_t rank)
{
    char here[HTH_PLACE_TEXT], there[HTH_PLACE_TEXT];

    hth_place_text(h->seat[rank].by->stream->watch.fd, 0, here);
    hth_place_text(n->stream->watch.fd, 0, there);
    snprintf(h->refused, sizeof(h->refused),
            "rank %u has come from %s, and another process comes as rank %u from %s: was it "
            "started twice?",
            rank, here, rank, there);
    node_say_no(n, rank, HEARTH_EINVAL, h->refused);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void node_leaves(struct node *n)
{
    struct hth_host *h = n->host;
    struct node **at = &h->nodes;

    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    if (h->state == HOST_SERVES && n->party != NONE) {
        struct party *p = &h->party[n->party];

        p->by = NULL;
        if (!p->served) {
            h->broken++;
            hth_share_gone(h->share, n->party);
        }
    }
    while (h->state != HOST_SERVES && n->seats != NONE)
        seat_is_free(h, n->seats);
    hth_stream_close(n->stream);
    free(n);
}

/* 1: the node has left. While the table is served, a row is for the next gather. A party keeps its
 * connection: its rank receives a table without this row, and comes again. Any other node is
 * disconnected, and must come again. */
static int node_row(struct hth_host *h, struct node *n, uint32_t rank, struct hth_buf *body)
{
    struct seat *s = rank < h->world ? &h->seat[rank] : NULL;

    if (!s || !body || body->len != HTH_MEETING_TOKEN + h->len ||
            (h->state == HOST_SERVES && n->party == NONE)) {
        node_leaves(n);
        return 1;
    }
    if (h->state == HOST_SERVES)
        return 0;
    if (s->by && s->by != n && memcmp(s->token, body->at, HTH_MEETING_TOKEN) != 0)
        node_refuse_second(h, n, rank);
    else
        seat_take(h, n, rank, body->at);
    return 0;
}

static int node_has(struct hth_host *h, struct node *n, uint32_t round)
{
    if (h->state == HOST_SERVES && n->party != NONE && round == h->round)
        party_is_served(h, n->party);
    node_leaves(n);
    return 1;
}

static uint64_t node_most(const struct hth_stream *s, const struct hth_meet_frame *f)
{
    const struct node *n = s->self;

    return f->type == HTH_MEET_FRAME_ROW ? HTH_MEETING_TOKEN + (uint64_t)n->host->len : 0;
}

static void host_has_told(struct hth_host *h, uint32_t rank)
{
    if (rank >= h->world || h->seat[rank].told)
        return;
    h->seat[rank].told = 1;
    if (!--h->untold)
        host_ends(h, h->cannot.code, h->cannot.text);
}

static int node_frame(struct hth_stream *s, const struct hth_meet_frame *f, struct hth_buf *body)
{
    struct node *n = s->self;
    struct hth_host *h = n->host;
    int gone = 0;

    if (n->refused)
        return 0;
    if (h->state == HOST_REFUSES && f->type == HTH_MEET_FRAME_ROW)
        host_has_told(h, f->rank);
    if (h->state == HOST_OVER || h->state == HOST_REFUSES)
        return 0;
    switch ((int)f->type) {
    case HTH_MEET_FRAME_ROW:
        gone = node_row(h, n, f->rank, body);
        break;
    case HTH_MEET_FRAME_GONE:
        if (h->state == HOST_GATHERS && f->rank < h->world && h->seat[f->rank].by == n)
            seat_is_free(h, f->rank);
        break;
    case HTH_MEET_FRAME_HAS:
        gone = node_has(h, n, f->round);
        break;
    case HTH_MEET_FRAME_LACKS:
        if (h->state == HOST_SERVES && n->party != NONE && f->round == h->round)
            hth_share_waits(h->share, n->party);
        break;
    default:
        node_leaves(n);
        gone = 1;
    }
    if (h->state == HOST_SERVES)
        host_hand_on(h);
    return gone;
}

static void node_end(struct hth_stream *s, int e)
{
    struct node *n = s->self;
    struct hth_host *h = n->host;

    (void)e;
    node_leaves(n);
    if (h->state == HOST_SERVES)
        host_hand_on(h);
}

static const struct hth_stream_owner node_owner = { node_most, node_frame, node_end };

static int same_visit(const struct hth_greeting *hello, uint64_t node, const unsigned char *token)
{
    return hello->node == node && memcmp(hello->token, token, HTH_MEETING_TOKEN) == 0;
}

/* A connection takes the place of the one that this visit had before: it brings all rows anew. */
static void node_replaces(struct hth_host *h, const struct hth_greeting *hello)
{
    for (struct node *n = h->nodes, *next; n; n = next) {
        next = n->next;
        if (same_visit(hello, n->hello.node, n->hello.token))
            node_leaves(n);
    }
}

/* The party whose node sent `hello`, if it still waits for the table; else NONE. */
static uint32_t node_find_party(const struct hth_host *h, const struct hth_greeting *hello)
{
    uint32_t i = 0;

    while (i < h->parties &&
            (h->party[i].served || !same_visit(hello, h->party[i].node, h->party[i].token)))
        i++;
    return h->state == HOST_SERVES && i < h->parties ? i : NONE;
}

/* Refuses a node that counts another world. The node may be of another launch of the job: it hangs
 * up, and comes again until its time is over. */
static void node_counts_otherwise(struct node *n)
{
    struct hth_host *h = n->host;
    char place[HTH_PLACE_TEXT];

    hth_place_text(n->stream->watch.fd, 0, place);
    snprintf(h->refused, sizeof(h->refused), "from %s comes a rank of %u, and rank 0 counts %u",
            place, n->hello.world, h->world);
    n->refused = 1;
    node_say_no(n, HTH_ALL, 0, h->refused);
}

/* NULL: no memory, and fd is closed. */
static struct node *node_new(struct hth_host *h, int fd, const struct hth_greeting *hello,
        const struct hth_proving *proving)
{
    struct node *n = calloc(1, sizeof(*n));

    if (!n) {
        close(fd);
        return NULL;
    }
    *n = (struct node){
        .host = h, .hello = *hello, .since_ms = h->m->now_ms, .seats = NONE, .party = NONE
    };
    n->stream = hth_stream_new(h->m->epoll, fd, 1, &node_owner, n, proving);
    if (!n->stream) {
        free(n);
        return NULL;
    }
    n->next = h->nodes;
    h->nodes = n;
    return n;
}

static void node_is_party(struct hth_host *h, struct node *n, uint32_t party)
{
    n->party = party;
    h->party[party].by = n;
    h->broken--;
    hth_share_waits(h->share, party);
}

/* A guest's connection becomes a node's. */
static void host_admit(void *self, int fd, int own, const struct hth_greeting *hello,
        const struct hth_proving *proving)
{
    struct hth_host *h = self;
    struct node *n = NULL;
    uint32_t party;

    node_replaces(h, hello);
    party = node_find_party(h, hello);
    if (party != NONE && hello->round == h->round) { /* it could not say so before */
        party_is_served(h, party);
        close(fd);
    } else {
        n = node_new(h, fd, hello, proving);
    }
    if (n) {
        n->own = own;
        if (h->state == HOST_REFUSES)
            node_say_cannot(n);
        if (hello->world != h->world || hello->len != h->len)
            node_counts_otherwise(n);
        if (party != NONE)
            node_is_party(h, n, party);
    }
    host_hand_on(h);
}

/* ---- time ------------------------------------------------------------------------------------ */

/* The connection of the host's own node. */
static int host_come_in(struct hth_host *h)
{
    int fd[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fd))
        return HEARTH_ENOMEM;
    rc = hth_visit_inside(h->m, &h->place, h->world, fd[1]);
    if (rc)
        close(fd[0]);
    else
        hth_door_let_in(&h->door, fd[0]);
    return rc;
}

static void host_listens(struct hth_host *h)
{
    struct hearth_error why = { 0 };
    char tried[256];
    int e = hth_listen_once(&h->door.listening, tried, sizeof(tried));

    if (e == EADDRINUSE && h->m->now_ms < h->in_use_till_ms) {
        h->again_ms = h->m->now_ms + AGAIN_MS;
        return;
    }
    if (e)
        hth_fail(&why, HEARTH_EINVAL, e,
                "rank 0 cannot listen at %s port %u (%s): give an address of rank 0's node and a "
                "free port",
                h->place.host, h->place.port, tried);
    if (e || hth_door_open(&h->door, &why)) {
        host_ends(h, why.code, why.text);
        return;
    }
    h->state = HOST_GATHERS;
    if (host_come_in(h))
        host_no_memory(h);
}

static void host_tells_all(struct hth_host *h, const struct hearth_error *why)
{
    for (struct node *n = h->nodes; n; n = n->next)
        node_say_no(n, HTH_ALL, why->code, why->text);
    host_ends(h, why->code, why->text);
}

static void host_missed(struct hth_host *h)
{
    unsigned char *there = calloc(h->world, 1);
    char who[160], unproved[200] = "", where[200];
    struct hearth_error why;

    if (!there) {
        host_no_memory(h);
        return;
    }
    for (uint32_t r = 0; r < h->world; r++)
        there[r] = h->seat[r].by != NULL;
    hth_ranks_text(who, sizeof(who), there, h->world);
    free(there);
    if (h->door.unproved)
        snprintf(unproved, sizeof(unproved),
                h->m->keys.keyed ? "; %u came without proof of our key for this job, one from %s: "
                                   "have all ranks the same key_file?"
                                 : "; %u came with a job key and we have none, one from %s: have "
                                   "all ranks the same key_file?",
                h->door.unproved, h->door.unproved_from);
    hth_listen_text(&h->door.listening, where, sizeof(where));
    hth_fail(&why, h->door.unproved ? HEARTH_EAUTH : HEARTH_ETIMEOUT, 0,
            "%u of %u ranks did not come to %s port %u%s in %u ms: %s: look at their output%s%s%s",
            h->missing, h->world, h->place.host, h->place.port, where, h->deadline_ms, who,
            unproved, h->refused[0] ? "; " : "", h->refused);
    host_tells_all(h, &why);
}

static void host_left(struct hth_host *h)
{
    unsigned char *served = calloc(h->world, 1);
    char who[160] = "", text[240];

    for (uint32_t r = 0; served && r < h->world; r++)
        served[r] = (unsigned char)h->party[h->party_of[r]].served;
    if (served)
        hth_ranks_text(who, sizeof(who), served, h->world);
    free(served);
    snprintf(text, sizeof(text), "rank %s left before it had the table", who);
    host_ends(h, HEARTH_EPEER, text);
}

static void host_sweep(struct hth_host *h)
{
    for (struct node *n = h->nodes, *next; n; n = next) {
        next = n->next;
        if (n->seats == NONE && n->party == NONE && h->m->now_ms - n->since_ms >= HTH_HALF_MS)
            node_leaves(n);
    }
}

void hth_host_tick(struct hth_meeting *m)
{
    struct hth_host *h = m->host;

    if (!h)
        return;
    if (h->state == HOST_LISTENS && m->now_ms >= h->again_ms)
        host_listens(h);
    if (h->state == HOST_GATHERS && m->now_ms >= h->until_ms)
        host_missed(h);
    if (h->state == HOST_SERVES && m->now_ms >= h->until_ms)
        host_left(h);
    if (h->state == HOST_REFUSES && m->now_ms >= h->until_ms)
        host_ends(h, h->cannot.code, h->cannot.text);
    if (h->state == HOST_OVER) {
        hth_host_close(m);
        return;
    }
    host_sweep(h);
    /* While the table is served, connections are accepted only if a party has to come again: those
     * of the next gather wait in the listener's queue. */
    hth_door_tick(&h->door, h->state != HOST_SERVES || h->broken);
}

uint64_t hth_host_due_ms(const struct hth_meeting *m)
{
    const struct hth_host *h = m->host;
    uint64_t due = HTH_NEVER;

    if (!h)
        return HTH_NEVER;
    if (h->state == HOST_OVER)
        return 0;
    if (h->state == HOST_LISTENS)
        return h->again_ms;
    due = hth_door_due_ms(&h->door);
    due = h->until_ms < due ? h->until_ms : due;
    for (const struct node *n = h->nodes; n; n = n->next)
        if (n->seats == NONE && n->party == NONE && n->since_ms + HTH_HALF_MS < due)
            due = n->since_ms + HTH_HALF_MS;
    return due;
}

/* ---- open and close -------------------------------------------------------------------------- */

int hth_host_open(struct hth_meeting *m, const struct hth_meeting_rank *rank)
{
    struct hth_host *h = calloc(1, sizeof(*h));
    const struct hth_door_owner owner = { .admit = host_admit, .full = host_is_full, .self = h };
    uint32_t in_use_ms = rank->left_ms < IN_USE_MS ? rank->left_ms : IN_USE_MS;

    if (!h)
        return HEARTH_ENOMEM;
    h->m = m;
    h->place = *rank->place;
    hth_door_init(&h->door, m, &owner, &h->place);
    h->world = h->missing = rank->world;
    h->len = rank->len;
    h->deadline_ms = rank->deadline_ms;
    h->tree_from = rank->tree_from ? rank->tree_from : TREE_FROM;
    h->until_ms = m->now_ms + rank->left_ms;
    h->in_use_till_ms = m->now_ms + in_use_ms;
    hth_random_bytes(&h->round, sizeof(h->round));
    h->round |= !h->round;
    h->all = calloc(h->world, h->len);
    h->seat = calloc(h->world, sizeof(*h->seat));
    m->host = h;
    m->hosts = &h->place;
    m->hosts_world = h->world;
    if (h->all && h->seat)
        return HEARTH_OK;
    hth_host_close(m);
    return HEARTH_ENOMEM;
}

void hth_host_gone(struct hth_meeting *m)
{
    struct hth_host *h = m->host;

    if (!h || h->state != HOST_SERVES) {
        hth_host_close(m);
        return;
    }
    hth_door_shut(&h->door);
    m->hosts = NULL;
    if (h->until_ms > m->now_ms + HTH_HALF_MS)
        h->until_ms = m->now_ms + HTH_HALF_MS;
}

void hth_host_close(struct hth_meeting *m)
{
    struct hth_host *h = m->host;

    if (!h)
        return;
    m->host = NULL;
    m->hosts = NULL;
    h->state = HOST_OVER;
    hth_door_close(&h->door);
    while (h->nodes)
        node_leaves(h->nodes);
    hth_share_close(h->share);
    hth_buf_put(h->table);
    free(h->party);
    free(h->party_of);
    free(h->seat);
    free(h->all);
    free(h);
}
