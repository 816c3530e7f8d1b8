/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a session: link.c is one connection, peer.c one member and its links; handshake.c,
 * pulls.c and rest.c are what goes over a link; events.c takes what the transport tells, session.c
 * is the front. Each file calls those named before it only.
 *
 *   dialled:  DIALLING ─on_up→ GREETED ─HELLO_ACK→ OPEN        any ─drop→ ENDING ─on_down→ freed
 *   accepted: ACCEPTED ─HELLO→ ANSWERED ─AUTH→ OPEN
 *             ACCEPTED ─HELLO, not for us→ REFUSED (until the dialler has read why and leaves)
 */
/* For this folder alone. */
#ifndef TRANSPORT_SESSION_PARTS_H
#define TRANSPORT_SESSION_PARTS_H

#include "core/base/bytes.h"
#include "session.h"
#include "transport/map.h"

#define HTH_HELLO_BODY 136u

enum link_state {
    LINK_DIALLING,
    LINK_GREETED,
    LINK_ACCEPTED,
    LINK_ANSWERED,
    LINK_REFUSED,
    LINK_OPEN,
    LINK_ENDING,
};

/* An OPEN link whose end is being agreed on: nothing is sent on it but the agreement. */
enum link_rest {
    REST_NONE,
    REST_ASKED,  /* by this node */
    REST_AGREED, /* this node has agreed; the peer closes it */
};

struct message; /* of peer.c */
struct peer;

struct link {
    hth_conn conn;
    enum link_state state;
    int dialled;
    int outside;       /* in no epoch */
    uint64_t store;    /* accepted, outside: the store that it claims */
    uint32_t node;     /* the node that an accepted link claims to be; proved once OPEN */
    struct peer *peer; /* NULL: not known, or no longer the peer's */
    uint8_t version;
    /* OPEN: keys of sent and of received messages */
    unsigned char key_out[HTH_KEY], key_in[HTH_KEY];
    unsigned char transcript[2 * HTH_HELLO_BODY]; /* both hellos */
    uint32_t key_id;                              /* of the job key that it proves */
    uint64_t opened_ms;                           /* OPEN since */
    int stale;                                    /* OPEN: that key is gone, or it is old */
    uint64_t renew_ms;                            /* stale: ask again */
    uint64_t cut_ms;                              /* stale: closed then at the latest */
    uint64_t seq_out, seq_in;
    uint64_t alive_ms;        /* OPEN: last received, or re-armed */
    uint64_t sent_ms;         /* OPEN */
    uint64_t deadline_ms;     /* not OPEN */
    enum link_rest rest;      /* OPEN */
    uint64_t rest_ms;         /* rest != REST_NONE: until then */
    uint64_t used_ms;         /* OPEN: last message of an owner, pull or grant */
    uint64_t pulled_ms;       /* a pull of it has ended well; 0: none has */
    uint32_t busy;            /* pulls under way, and grants that this node has given on it */
    int why;                  /* ENDING: for its pulls */
    struct link *next, *prev; /* of the session, oldest first */
    struct link *open_next;   /* of the peer */
};

struct peer {
    uint32_t node;
    struct hth_member *at; /* outside: where it is; NULL: a member of the epoch */
    int over;              /* outside: it is forgotten at the next tick */
    int left;              /* ... and its owner has no more use for it */
    int up;                /* as last reported */
    struct link *open;     /* the first to come up is sent on */
    struct link *dial;     /* under way */
    struct link *bulk;     /* the last one its messages came by */
    struct message *queue, **queue_end;
    uint32_t queued;
    uint64_t heard_ms;   /* 0: never */
    uint64_t alive_ms;   /* up: last received, or re-armed */
    uint64_t give_up_ms; /* not up: dialled until then; HTH_NEVER: it is not dialled */
    uint64_t dial_ms;    /* not before */
    uint32_t backoff_ms;
    int look; /* dialled without a message to send, after a refused hello in its name */
    uint64_t looked_ms;
    int refused;       /* the peer refused this node for good when last dialled: no further look */
    int rested;        /* its last connection was closed because it was idle */
    int elsewhere;     /* the last attempt: it answered that it is not in this epoch */
    char why[160];     /* why the last attempt failed */
    struct peer *next; /* of the session, oldest first */
};

struct hth_session {
    struct hth_session_opts opts;
    uint32_t links_asked; /* opts.links_max, as far as the transport allows it, is in force */
    struct hth_session_events events;
    struct hth_clock clock;
    struct hth_random random;
    struct hth_log log;
    struct hth_transport *transport;
    const struct hth_epoch *epoch; /* NULL: in none yet */
    uint64_t joins;
    struct hth_map conns; /* id -> struct link */
    struct link *links, *links_last;
    struct hth_map nodes; /* index + 1 -> struct peer */
    struct peer *peers, **peers_end;
    uint32_t outside;                                /* how many such indices were given */
    struct hth_map pulls;                            /* cookie -> struct hth_session_pull */
    struct hth_session_pull *pull_first, *pull_last; /* by due time: all wait equally long */
    uint64_t cookie;
    uint32_t crowded; /* dials, and connections accepted, since the last tick that found no place */
    uint64_t crowd_said_ms;         /* 0: never */
    uint64_t expect_ms;             /* nothing is due before */
    uint64_t mark_ms, mark_busy_ms; /* when the thread's CPU time was read last, and what it was */
    uint32_t late_still, late_busy; /* ticks */
    uint64_t messages;              /* handed on */
};

static inline uint64_t hth_session_now(const struct hth_session *s)
{
    return hth_now_ms(&s->clock);
}

/* The next tick is due at `ms` at the latest. A time in the past counts as now, so that expect_ms
 * is in the past only when the tick itself is late. */
static inline void hth_session_expect(struct hth_session *s, uint64_t ms)
{
    if (ms < hth_session_now(s))
        ms = hth_session_now(s);
    if (ms < s->expect_ms)
        s->expect_ms = ms;
}

/* An ANSWERED one has sent a hello with a mac of the job key. Outside of an epoch that proves
 * nothing yet: the same hello is good for each engine of the job, for as long as the key is. */
static inline int hth_link_is_stranger(const struct link *link)
{
    return link->state == LINK_ACCEPTED || link->state == LINK_REFUSED ||
           (link->state == LINK_ANSWERED && link->outside);
}

/* link.c */
struct link *hth_link_new(struct hth_session *s, hth_conn conn, enum link_state state);
/* One message, authenticated with the link's key (OPEN) or the job's. Codes of transport send(). */
int hth_link_send(
        struct hth_session *s, struct link *link, uint16_t type, const void *body, size_t len);
void hth_link_free(struct hth_session *s, struct link *link);
/* The job key that the link proves; NULL: it is gone. */
const unsigned char *hth_link_key(const struct hth_session *s, const struct link *link);
/* 1: no more may stand. Those of strangers have a bound of their own. */
int hth_links_are_full(const struct hth_session *s);

/* peer.c */
struct peer *hth_peer_get(struct hth_session *s, uint32_t node); /* NULL: no memory */
struct peer *hth_peer_find(const struct hth_session *s, uint32_t node);
/* Outside of the epoch. NULL: no memory. */
struct peer *hth_peer_outside(struct hth_session *s, const struct hth_member *at);
void hth_peer_leave(struct hth_session *s, struct peer *peer);
void hth_peers_sweep(struct hth_session *s); /* those that are over */
const struct hth_member *hth_peer_member(const struct hth_session *s, const struct peer *peer);
int hth_peer_queue(
        struct hth_session *s, struct peer *peer, uint16_t type, const void *body, size_t len);
void hth_peer_flush(struct hth_session *s, struct peer *peer);
/* The link that is sent on; NULL: none stands, or those that do are about to be closed. */
struct link *hth_peer_out(const struct peer *peer);
int hth_peer_is_watched(const struct hth_session *s, const struct peer *peer);
/* There is no place for its connection, here or there: that is not its loss, and it is tried
 * again. */
void hth_peer_crowded_out(struct hth_session *s, struct peer *peer, const char *text);
void hth_peer_opened(struct hth_session *s, struct peer *peer, struct link *link);
/* Cut a connection, whether its peer is known or not. */
void hth_peer_drop_link(struct hth_session *s, struct link *link, int why);
/* The link is no longer its peer's, if it had one. `text` is the reason, for on_peer_down() if the
 * peer is given up. */
void hth_peer_lost(struct hth_session *s, struct link *link, const char *text);
/* A connection in the peer's name was refused: dials the peer. The outcome is reported only if the
 * peer answers or refuses. */
void hth_peer_look(struct hth_session *s, struct peer *peer);
/* The peer refuses this node: it is given up at once, unless another link stands. */
void hth_peer_refused(struct hth_session *s, struct peer *peer, int code, const char *text);
void hth_peer_tick(struct hth_session *s, struct peer *peer, uint64_t now);
uint64_t hth_peer_due_ms(const struct hth_session *s, const struct peer *peer);
void hth_peers_leave_epoch(struct hth_session *s); /* members are forgotten */
void hth_peers_free(struct hth_session *s);

/* handshake.c */
void hth_handshake_greet(struct hth_session *s, struct link *link); /* on_up */
/* A message of a link that is not OPEN. */
void hth_handshake_message(struct hth_session *s, struct link *link, const struct hth_frame *frame,
        const void *bytes, size_t len);

/* rest.c */
void hth_rest_message(struct hth_session *s, struct link *link, const struct hth_frame *frame);
void hth_rest_heard(struct hth_session *s, struct link *link); /* it is used */
void hth_rest_tick(struct hth_session *s, uint64_t now);

/* pulls.c */
void hth_pulls_on_pull(void *self, uint64_t cookie, int code);
void hth_pulls_tick(struct hth_session *s, uint64_t now);
void hth_pulls_move(struct hth_session *s, uint64_t late_ms); /* their deadlines */
uint64_t hth_pulls_due_ms(const struct hth_session *s);       /* HTH_NEVER: none waits */

#endif
