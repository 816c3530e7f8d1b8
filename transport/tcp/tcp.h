/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs and functions that the files of this backend share. One struct hth_tcp is one
 * transport: one listener, and the caller's thread for messages, timers and decisions. A connection
 * is one socket for messages and one or more for bulk, to the same peer, so that no message waits
 * behind a megabyte. Bulk sockets belong to lanes: threads that copy, check and encrypt.
 */
/* For this folder alone. */
#ifndef HEARTH_TRANSPORT_TCP_H
#define HEARTH_TRANSPORT_TCP_H

#include "core/base/bytes.h"
#include "seal.h"
#include "transport/address.h"
#include "transport/ids.h"
#include "transport/transport.h"
#include "transport/wake.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define HTH_TCP_CONNS     4096u /* at once, both directions; less where descriptors are few */
#define HTH_TCP_STRANGERS 256u  /* accepted, not yet a connection, with no place of their own */
#define HTH_TCP_KEPT      4u    /* places of their own for each member at an address */
#define HTH_TCP_KEPT_ALL  1024u /* of all of them, that are taken at once */
#define HTH_TCP_PATIENCE  2000u /* ms until a stranger's hello is over */
#define HTH_TCP_GRANTS    (1u << 20)
#define HTH_TCP_PULLS     64u          /* at once, a connection and direction */
#define HTH_TCP_PART      (512u << 10) /* bytes that one request asks for */
#define HTH_TCP_PIECE     (1u << 20)   /* bytes of an answer before the next one has its turn */
#define HTH_TCP_TURN      (1u << 20)   /* bytes read or written of one socket before the next */
#define HTH_TCP_SIP       (256u << 10) /* bytes read at once: the cache has them for their checksum */
#define HTH_TCP_QUEUE     (256u << 10) /* bytes of messages that wait, a connection */
#define HTH_TCP_READ      (128u << 10) /* bytes of messages read at once */
#define HTH_TCP_DETAIL    256u
#define HTH_TCP_LANES     8u /* of a transport */
#define HTH_TCP_BULKS     8u /* bulk sockets of a connection */

/* In the epoll set, where no socket has such an id: */
#define HTH_TCP_DOOR      1u /* the set of strangers */
#define HTH_TCP_LANE      2u /* the set of the lane that has no thread */

enum hth_tcp_role {
    HTH_TCP_GREETS = 1, /* dialled; owner: its greeting */
    HTH_TCP_STRANGER,   /* accepted; owner: its greeting */
    HTH_TCP_MESSAGES,   /* owner: its connection */
};

/* A descriptor that epoll watches. The event has its id, not its address: a late event finds
 * nothing. */
struct hth_tcp_sock {
    struct hth_tcp *t;
    uint64_t id; /* 0: none */
    int fd;
    uint32_t events; /* that it is watched for */
    enum hth_tcp_role role;
    void *owner;
};

/* ---- hello.c: the first bytes ---- */

enum hth_tcp_stage {
    HTH_TCP_DIALS,    /* dialled: the kernel connects */
    HTH_TCP_AWAITS,   /* the listener's hello is to come */
    HTH_TCP_FINISHES, /* its proof */
    HTH_TCP_LISTENS,  /* accepted: the dialler's hello is to come */
    HTH_TCP_ADMITS,   /* the dialler's proof */
    HTH_TCP_HALF,     /* proved, for messages: its bulk half is to come */
};

/* A socket that is no connection's yet: all that a stranger costs. */
struct hth_tcp_greeting {
    struct hth_tcp_sock sock;
    enum hth_tcp_stage stage;
    enum hth_purpose purpose;
    struct hth_tcp_conn *conn; /* dialled: whose socket it is */
    uint32_t path;             /* dialled: over which of its paths */
    union hth_addr peer;
    uint64_t due_ms;
    struct hth_tcp_greeting *prev, *next; /* accepted: the strangers, the oldest first */
    struct hth_tcp_place *place;          /* of its address; NULL: it has none of its own */
    int is_extra;                         /* dialled: counted in extras until it is a bulk socket */
    int is_unbound;       /* accepted: a bulk socket of no connection that is known here */
    unsigned char id[16]; /* of the connection: half's own, or that bulk names */
    struct hth_seal_hand hand;
    struct hth_seal *seal; /* proved */
    unsigned char in[HTH_SEAL_HELLO];
    uint32_t got;
};

int hth_tcp_connect(struct hth_transport *t, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err);
/* Bytes are to be pulled on this connection: lanes start, and if it was dialled it is given a bulk
 * socket for each of them. Without those it goes on with one. */
void hth_tcp_widen(struct hth_tcp_conn *c);
void hth_tcp_redial(struct hth_tcp_conn *c); /* it is time for one that it lacks */
void hth_tcp_greeting_event(struct hth_tcp_greeting *g);
void hth_tcp_greeting_late(struct hth_tcp_greeting *g); /* dialled: its time is over */

/* ---- greeting.c ---- */

void hth_tcp_stranger_list(struct hth_tcp_greeting *g);
void hth_tcp_greeting_end(struct hth_tcp_greeting *g); /* its socket too, if it still has it */

/* ---- places.c: which stranger is dropped ---- */

void hth_tcp_members(struct hth_transport *t, const struct hth_member *member, uint32_t count);
void hth_tcp_place_take(struct hth_tcp_greeting *g);
void hth_tcp_place_leave(struct hth_tcp_greeting *g);
int hth_tcp_places_are_full(const struct hth_tcp *t);
struct hth_tcp_greeting *hth_tcp_place_least(const struct hth_tcp *t); /* NULL: there is none */

/* ---- listen.c: strangers ---- */

int hth_tcp_listen_open(struct hth_tcp *t, struct hearth_error *err);
void hth_tcp_strangers_turn(struct hth_tcp *t);
int hth_tcp_strangers_expire(struct hth_tcp *t, uint64_t now);
/* When the next turn of strangers, or of a listener at rest, is due. */
uint64_t hth_tcp_strangers_due(const struct hth_tcp *t);
void hth_tcp_listen_close(struct hth_tcp *t);

/* ---- sock.c: what epoll watches ---- */

/* 0 or an errno; the descriptor is the socket's from here on. */
int hth_tcp_sock_open(struct hth_tcp *t, struct hth_tcp_sock *s, int fd, enum hth_tcp_role role,
        void *owner, uint32_t events);
void hth_tcp_sock_watch(struct hth_tcp_sock *s, uint32_t events);
/* The same descriptor under another owner; `from` has none then. 0 or an errno. */
int hth_tcp_sock_move(
        struct hth_tcp_sock *from, struct hth_tcp_sock *to, enum hth_tcp_role role, void *owner);
void hth_tcp_sock_close(struct hth_tcp_sock *s);
int hth_tcp_sock_take(struct hth_tcp_sock *s); /* the descriptor, which epoll watches no more */

/* ---- region.c: memory and grants ---- */

struct hth_region {
    unsigned char *base;
    uint64_t len;
    uint32_t busy; /* this node's pulls into it that have not been reported */
    struct hth_region *prev, *next;
    struct hth_tcp_grant *grants;
};

struct hth_tcp_grant {
    uint64_t id;
    unsigned char secret[16];
    struct hth_region *region;
    struct hth_tcp_conn *conn;
    uint64_t off, len;
    uint32_t readers; /* lanes that read its memory now; under grants_lock */
    struct hth_tcp_grant *region_prev, *region_next, *conn_prev, *conn_next;
};

#define HTH_TCP_DESC 32u

int hth_tcp_reg(struct hth_transport *t, void *base, uint64_t len, struct hth_region **out,
        struct hearth_error *err);
int hth_tcp_dereg(struct hth_transport *t, struct hth_region *region);
int hth_tcp_grant_make(struct hth_tcp_conn *c, struct hth_region *region, uint64_t off,
        uint64_t len, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err);
void hth_tcp_revoke(struct hth_transport *t, const unsigned char *desc, uint32_t len);
/* 1: it is a descriptor; its id and secret. */
int hth_tcp_desc_read(
        const unsigned char *desc, uint32_t len, uint64_t *out_id, unsigned char out_secret[16]);
/* A lane's: 1: there is a grant of this connection that has the secret and holds
 * [off, off + len). */
int hth_tcp_grant_check(const struct hth_tcp_conn *c, uint64_t id, const unsigned char secret[16],
        uint64_t off, uint64_t len);
/* A lane's: the grant, whose memory may be read until hth_tcp_grant_unpin(): its end waits for
 * that. NULL: it has ended. */
struct hth_tcp_grant *hth_tcp_grant_pin(struct hth_tcp *t, uint64_t id);
void hth_tcp_grant_unpin(struct hth_tcp *t, struct hth_tcp_grant *g); /* NULL: nothing */
int hth_tcp_grant_stands(struct hth_tcp *t, uint64_t id);
void hth_tcp_grants_end(struct hth_tcp_conn *c);
void hth_tcp_regions_end(struct hth_tcp *t);

/* ---- conn.c: a connection ---- */

enum hth_tcp_state {
    HTH_TCP_CONNECTING, /* dialled: its greetings are under way */
    HTH_TCP_UP,
    HTH_TCP_DOOMED, /* sockets closed; on_pull() of what is left, on_down(), gone */
};

/* A pull of this node. The caller's thread has it while it is free or done, its lane in between. */
struct hth_tcp_pull {
    struct hth_tcp_bulk *bulk; /* the socket that it goes through; NULL: the place is free */
    struct hth_tcp_pull *next; /* of those that a lane is to begin, or that are done */
    int code;                  /* done */
    int waits;                 /* some of it is to be asked for */
    int denied;                /* it is over when what was asked for has ended */
    uint32_t turn;             /* of this place: an answer to the one before is none of its */
    uint32_t requests;         /* whose end has not come */
    uint64_t cookie;
    struct hth_region *region;
    unsigned char *into;         /* the next byte's place */
    uint32_t crc, ended_crc;     /* CRC32C of those that have come; of `ended` bytes */
    uint64_t asked, came, ended; /* of len; ended: by the ends of their requests */
    uint64_t roff, len, grant;
    unsigned char secret[16];
};

/* A request of the peer that waits for its turn. */
struct hth_tcp_answer {
    uint64_t pull; /* the peer's name for it */
    uint64_t grant;
    uint64_t off, left; /* in the grant */
    uint8_t denied;
};

/*
 * Bulk is frames both ways, the same header before each; each request is answered by its data and
 * one end:
 *
 *     0 u8 type   1 u8 code   2 u16 0   4 u32 bytes that follow   8 u64 pull
 *
 *     1 request   40 bytes: u64 grant, secret[16], u64 offset in it, u64 length; a pull has one or more
 *     2 data      the next bytes of the pull, at most HTH_TCP_PIECE
 *     3 end       of its request; nothing follows; code 0: the data was right, 1: denied, the data is nothing
 */
#define HTH_TCP_HEAD    16u
#define HTH_TCP_REQUEST 40u
enum hth_tcp_frame { HTH_TCP_ASK = 1, HTH_TCP_DATA, HTH_TCP_END };

static inline void hth_tcp_head_put(
        unsigned char *at, enum hth_tcp_frame type, unsigned code, uint32_t len, uint64_t pull)
{
    hth_put32(at, (uint32_t)type | code << 8);
    hth_put32(at + 4, len);
    hth_put64(at + 8, pull);
}

#define HTH_TCP_ASKS 8u /* requests sent at once */

/* The incoming side of a bulk socket. */
struct hth_tcp_in {
    unsigned char head[HTH_TCP_HEAD]; /* of the body that comes */
    unsigned char next[HTH_TCP_HEAD]; /* the one behind it */
    uint32_t got;                     /* bytes of `next` */
    unsigned char request[HTH_TCP_REQUEST];
    unsigned char *into;       /* the body's next byte */
    uint64_t left;             /* bytes of the body to come */
    struct hth_tcp_pull *pull; /* the pull whose data it is; NULL: it is a request */
};

/* The outgoing side: headers, bytes of one piece, and the end of its pull. */
struct hth_tcp_out {
    unsigned char head[HTH_TCP_ASKS * (HTH_TCP_HEAD + HTH_TCP_REQUEST)];
    uint32_t head_len, head_put;
    uint64_t pull;  /* whose piece it is */
    uint64_t grant; /* of the piece */
    uint64_t off;   /* in it */
    uint64_t left;  /* bytes of the piece */
    /* the grant or its memory has ended: zeros are sent instead, and the end reports it */
    int dead;
    unsigned char tail[HTH_TCP_HEAD];
    uint32_t tail_len, tail_put;
};

#define HTH_TCP_SMALL (HTH_TCP_HEAD + HTH_TCP_REQUEST) /* the longest record that is no piece's */
#define HTH_TCP_BATCH 8u /* records of a piece that are received at once */

/* Records that come: some of a piece, or a small one. */
struct hth_tcp_sealed_in {
    unsigned records, opened; /* 0 records: a small one comes */
    int is_last;              /* of their piece: a small one is next */
    uint64_t bytes;           /* plain, of them all */
    uint64_t came;            /* heads and tags with them */
    unsigned char *at;        /* where they come, one behind the other */
    struct {
        unsigned char tag[HTH_SEAL_TAG], head[HTH_SEAL_HEAD];
    } between[HTH_TCP_BATCH + 1]; /* the tag of the one before, the head of the one behind */
    unsigned char small[HTH_SEAL_MORE + HTH_TCP_SMALL];
    uint32_t small_came;
};

/* One bulk socket, as its lane has it. */
struct hth_tcp_bulk {
    struct hth_tcp *t;
    struct hth_tcp_conn *conn; /* there for as long as the socket is */
    struct hth_tcp_lane *lane;
    int fd;
    struct hth_seal *seal;
    int is_sealed; /* else both have proved the key, if there is one, and do no more */

    /* The caller's thread's. */
    int is_started;
    int is_retiring; /* it has failed alone: its pulls move when the lane has closed it */
    uint32_t path;   /* over which it goes; of an accepted one: number of our address */
    union hth_addr peer;
    uint64_t since_ms;
    uint64_t load; /* bytes of pulls that go through it */

    /* Orders for the lane; under the lane's lock. */
    struct hth_tcp_bulk *next;
    int is_listed, starts, stops;
    struct hth_tcp_pull *begins, **begins_end;

    /* Reports of the lane; under back_lock. */
    struct hth_tcp_bulk *back_next;
    int is_back, broke, stopped;
    int error; /* why it broke: an errno, 0: the peer has closed it */

    atomic_uint_fast64_t pulled_ms; /* bytes of a pull came last; 0: never */

    /* The lane's own. */
    uint32_t events; /* that it is watched for; 0: it is over */
    struct hth_tcp_pull *open[HTH_TCP_PULLS];
    uint32_t waiting;                            /* pulls of which some is to be asked for */
    uint32_t requests;                           /* whose end has not come */
    uint32_t turn;                               /* the place that may ask next */
    uint64_t asked, ahead;                       /* bytes of requests, and how many there may be */
    struct hth_tcp_answer answer[HTH_TCP_PULLS]; /* a ring */
    uint32_t answer_at, answers;
    struct hth_tcp_in in;
    struct hth_tcp_out out;
    struct hth_tcp_sealed_in sealed_in;
    unsigned char *sealed; /* records that leave; NULL: none ever did */
    uint32_t sealed_put, sealed_len;
};

struct hth_tcp_conn {
    struct hth_tcp *t;
    hth_conn id;
    enum hth_tcp_state state;
    int dialled;
    int code; /* why it is doomed */
    uint64_t due_ms;
    struct hth_addrs addrs; /* dialled: where to */
    uint32_t paths;         /* dialled: as many as the node with more has addresses */
    uint32_t path;          /* of the message socket, as in struct hth_tcp_bulk */
    uint32_t tried;         /* dialled: bits of those that were tried for what is to come */
    struct hth_tcp_greeting *greeting; /* dialled: the socket that is under way */
    struct hth_tcp_sock messages;
    struct hth_seal *messages_seal;
    struct hth_tcp_bulk *bulk[HTH_TCP_BULKS];
    uint32_t bulks, running; /* all; those that a lane has */
    uint32_t retiring;       /* of these */
    int is_wide;             /* it has been given its bulk sockets, or will not be */
    uint32_t lacks;          /* bits of paths one of whose bulk sockets has failed */
    uint64_t redial_ms;      /* HTH_NEVER: not at all */
    uint32_t redial_wait_ms; /* the last wait */
    uint64_t pulled_ms;      /* of bulk sockets that are no more */
    int is_sealed; /* messages are; else the key is proved, if there is one, and no more */
    struct hth_tcp_conn *next; /* doomed */
    struct hth_tcp_grant *grants;

    unsigned char *part; /* a message that has come in part; NULL: none ever did */
    uint32_t part_len;
    unsigned char *queue; /* [HTH_TCP_QUEUE] messages that wait; NULL: none ever did */
    uint32_t queue_at, queue_end;
    int blocked; /* send() said EBUSY */

    struct hth_tcp_pull pull[HTH_TCP_PULLS];
    uint32_t pulls;

    char peer[HTH_ADDR_LABEL];
    char detail[HTH_TCP_DETAIL];
};

struct hth_tcp_conn *hth_tcp_conn_new(struct hth_tcp *t, const union hth_addr *peer);
void hth_tcp_conn_up(struct hth_tcp_conn *c);
/* Its sockets are closed, and no memory of a grant is read any more. Callbacks come in progress(),
 * once the lanes have let go of its bulk sockets. */
void hth_tcp_conn_end(struct hth_tcp_conn *c, int code, const char *why);
void hth_tcp_conn_errno(struct hth_tcp_conn *c, int error); /* 0: the peer has closed */
const char *hth_tcp_errno_why(int error, int *out_code);
/* For its end, or for the log: behind what was noted before, which address failed, and why. */
void hth_tcp_conn_note(struct hth_tcp_conn *c, const char *address, const char *why);
void hth_tcp_conn_stopped(struct hth_tcp_conn *c); /* a lane has let go of one of its sockets */

/* ---- path.c: paths of a connection ---- */

/* The kernel notices that a path is dead, in 3 s, where a node has several addresses. A path that
 * is the only one is the session's to judge. */
void hth_tcp_path_watch(const struct hth_tcp_conn *c, int fd, unsigned silent_ms);
uint32_t hth_tcp_path_here(const struct hth_tcp *t, int fd);           /* number of our address */
void hth_tcp_path_failed(const struct hth_tcp_conn *c, uint32_t path); /* it is dialled last */
void hth_tcp_messages_failed(const struct hth_tcp_conn *c, const char *why);
void hth_tcp_redial_later(struct hth_tcp_conn *c);
/* Of the message socket: half of dead_ms, so that another path is up before the peer is lost, and
 * 2 s at most. */
unsigned hth_tcp_silent_messages_ms(const struct hth_tcp *t);
#define HTH_TCP_SILENT_BULK 2500u  /* if nothing is sent, the kernel probes at 1, 2 and 3 s */
#define HTH_TCP_REDIAL_LAST 60000u /* ms between dials of a path that has failed */

/* ---- retire.c: bulk sockets that fail alone ---- */

/* 1: it retires: others of its connection stand, and take over its pulls. 0: it is the last. */
int hth_tcp_bulk_retire(struct hth_tcp_bulk *b, int error);
void hth_tcp_bulk_retired(struct hth_tcp_bulk *b); /* its lane has let go of it */

/* ---- end.c: connections that are over ---- */

void hth_tcp_drop(struct hth_transport *t, hth_conn conn);
int hth_tcp_conns_expire(struct hth_tcp *t, uint64_t now);
int hth_tcp_finish(struct hth_tcp *t); /* doomed -> callbacks, gone */

/* ---- message.c ---- */

int hth_tcp_send(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len);
void hth_tcp_messages_event(struct hth_tcp_conn *c, uint32_t events);
void hth_tcp_messages_read(struct hth_tcp_conn *c); /* what has come, within a turn's bound */
void hth_tcp_messages_fini(struct hth_tcp_conn *c);

/* ---- frame.c: frames of bulk as such ---- */

/* b->in.next is whole, and no body is open. 0, or -1: nonsense. */
int hth_tcp_frame_begin(struct hth_tcp_bulk *b);
/* n bytes of the body have come, where they belong. 0, or -1: nonsense. */
int hth_tcp_frame_body(struct hth_tcp_bulk *b, uint64_t n);
/* b->out anew; 0: nothing is to be sent. */
int hth_tcp_frames_fill(struct hth_tcp_bulk *b);
int hth_tcp_frames_are_out(const struct hth_tcp_out *out);
/* The next bytes of the piece: from the region while the grant stands, else zeros, which the end of
 * the pull then reports as void. The grant is pinned, and NULL with zeros. */
struct iovec hth_tcp_frame_source(struct hth_tcp_bulk *b, struct hth_tcp_grant **out_grant);

/* ---- records_in.c: the same, sealed, as it comes ---- */

/* Bytes that came, of those there was room for; 0: the peer has closed; -1: errno, EPROTO is
 * nonsense. */
ssize_t hth_tcp_sealed_read(struct hth_tcp_bulk *b, uint64_t *out_room);
void hth_tcp_sealed_in_end(struct hth_tcp_bulk *b); /* nothing comes any more */

/* ---- records.c: and as it leaves ---- */

int hth_tcp_sealed_write(struct hth_tcp_bulk *b); /* 1: there is more to send; -1: errno */
void hth_tcp_sealed_fini(struct hth_tcp_bulk *b);

/* ---- bulk.c: a bulk socket, on its lane ---- */

void hth_tcp_bulk_event(struct hth_tcp_bulk *b, uint32_t events);
void hth_tcp_bulk_write(struct hth_tcp_bulk *b); /* what can be */

/* ---- lane.c: threads that serve bulk sockets ---- */

/* Without a thread it takes its turns in progress(). */
struct hth_tcp_lane {
    struct hth_tcp *t;
    int epoll_fd, wake_fd;
    atomic_int woken, closing;
    int wants_thread, has_thread; /* the caller's thread reads and writes both */
    pthread_t thread;
    pthread_mutex_t lock;
    struct hth_tcp_bulk *todo, **todo_end;
};

/* `threads` lanes; 0: one, that runs within progress(). */
int hth_tcp_lanes_open(struct hth_tcp *t, unsigned threads, struct hearth_error *err);
void hth_tcp_lanes_close(struct hth_tcp *t); /* when all sockets are stopped: waits for that */
void hth_tcp_lanes_start(struct hth_tcp *t); /* bytes are to be pulled, by this node or from it */
void hth_tcp_lane_turn(struct hth_tcp_lane *lane, int timeout_ms);

/* The caller's thread. A socket of the connection, for the next lane in turn; descriptor and seal
 * are its own from here on, or closed. 0 or an errno. */
int hth_tcp_bulk_add(struct hth_tcp_conn *c, int fd, struct hth_seal *seal);
void hth_tcp_bulk_start(struct hth_tcp_bulk *b);
void hth_tcp_bulk_begin(struct hth_tcp_bulk *b, struct hth_tcp_pull *p);
void hth_tcp_bulk_stop(struct hth_tcp_bulk *b); /* it is closed, and `stopped` is reported */
void hth_tcp_bulk_free(struct hth_tcp_bulk *b);

void hth_tcp_bulk_watch(struct hth_tcp_bulk *b, uint32_t events); /* sock.c's */

/* ---- report.c: what a lane reports ---- */

void hth_tcp_back_pull(struct hth_tcp *t, struct hth_tcp_pull *p, int code);
/* The socket has ended (an errno, or 0: the peer has closed it) or sent nonsense (EPROTO). */
void hth_tcp_bulk_broke(struct hth_tcp_bulk *b, int error);
void hth_tcp_back_stopped(struct hth_tcp_bulk *b);
int hth_tcp_back_waits(struct hth_tcp *t); /* the caller's thread: 1: there are reports */

/* ---- back.c: reports are taken, on the caller's thread ---- */

int hth_tcp_back_take(struct hth_tcp *t); /* callbacks; returns how many reports there were */

/* ---- pull.c: our pulls, and grants for the peer's ---- */

int hth_tcp_grant(struct hth_transport *t, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err);
int hth_tcp_pull(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie);
void hth_tcp_pull_report(struct hth_tcp_pull *p, int code); /* on_pull(), and the place is free */
/* Its socket is closed: what no end has come for is pulled again, over another one. */
void hth_tcp_pull_move(struct hth_tcp_pull *p);
void hth_tcp_pulls_end(struct hth_tcp_conn *c); /* the connection is gone */
int hth_tcp_pulled_crc(struct hth_transport *t, uint32_t *out);
uint64_t hth_tcp_pulled_ms(struct hth_transport *t, hth_conn conn);

/* ---- pulls.c: our pulls of one socket, on its lane ---- */

void hth_tcp_pulls_begin(struct hth_tcp_bulk *b); /* its connection is up */
void hth_tcp_pulls_add(struct hth_tcp_bulk *b, struct hth_tcp_pull *p);
int hth_tcp_pulls_may_ask(const struct hth_tcp_bulk *b);
/* As many requests as there is room for; returns how many bytes. */
uint32_t hth_tcp_pulls_ask(struct hth_tcp_bulk *b, unsigned char *out, uint32_t room);
/* The pull to which the data belongs; NULL: there is no such pull, or it is too much. */
struct hth_tcp_pull *hth_tcp_pull_find(struct hth_tcp_bulk *b, uint64_t name, uint32_t len);
/* 0, or -1: there is no such pull, or it cannot be over. */
int hth_tcp_pull_ended(struct hth_tcp_bulk *b, uint64_t name, unsigned code);

/* ---- serve.c: the peer's pulls ---- */

/* 0, or -1: it asks for more at once than it may. */
int hth_tcp_request_take(
        struct hth_tcp_bulk *b, uint64_t pull, const unsigned char request[HTH_TCP_REQUEST]);
/* The next piece into b->out; 0: there is none. */
int hth_tcp_answer_next(struct hth_tcp_bulk *b);
/* Memory of the piece that has left is gone: the rest of its pull is denied. */
void hth_tcp_answer_deny(struct hth_tcp_bulk *b, uint64_t pull);

/* ---- progress.c ---- */

int hth_tcp_progress(struct hth_transport *t);
int hth_tcp_arm(struct hth_transport *t, int *out_fd, uint64_t *out_due_ms);
void hth_tcp_wake(struct hth_transport *t);

/* ---- the transport ---- */

struct hth_tcp {
    struct hth_transport base;
    struct hth_transport_events events;
    struct hth_clock clock;
    struct hth_log log;
    struct hth_addrs self; /* where this node listens */
    /* A path to a peer: from one of our addresses to one of its. When its socket failed last, with
     * any peer that has several; 0: never. */
    uint64_t path_failed_ms[HTH_ADDRS];
    uint64_t refused_said_ms; /* 0: never */
    uint32_t refused;         /* strangers since */
    uint32_t connect_ms;
    int closing;
    int epoll_fd, wake_fd, listen_fd[HTH_ADDRS];
    int strangers_fd; /* an epoll set in the other one: the listener, and sockets that it accepted */
    atomic_int woken;
    uint64_t due_ms; /* of sockets that are being dialled, or will be; HTH_NEVER: none is */
    int has_paths;   /* a member of the epoch has several addresses */

    int listens;            /* epoll watches the listener */
    uint64_t listen_due_ms; /* it rests until then */
    struct hth_tcp_greeting *oldest, *newest;
    uint32_t strangers, sharing;  /* all; those with no place of their own */
    struct hth_tcp_place *places; /* of the epoch's addresses, sorted */
    uint32_t places_count;

    struct hth_ids socks, conns, grants;
    pthread_mutex_t grants_lock; /* of the table, and of readers; lists are the caller's thread's */
    pthread_cond_t grants_unread;
    struct hth_tcp_lane lane[HTH_TCP_LANES];
    uint32_t lanes, lane_next;
    uint32_t extras; /* bulk sockets beside the first of each connection */
    pthread_mutex_t back_lock;
    struct hth_tcp_pull *back_pulls, **back_pulls_end;
    struct hth_tcp_bulk *back_bulks, **back_bulks_end;
    struct hth_tcp_conn *doomed, **doomed_end;
    const struct hth_tcp_pull *pulled; /* whose on_pull(0) runs; NULL: none */
    pthread_mutex_t regions_lock;
    struct hth_region *regions;
    const struct hth_key *key; /* one of zeros without any */
    uint32_t suites;
    unsigned char read[HTH_TCP_READ]; /* messages of the connection whose turn it is */
};

static inline struct hth_tcp *hth_tcp_of(struct hth_transport *t)
{
    return (struct hth_tcp *)(void *)t;
}

/* NULL: gone, or never was. */
static inline struct hth_tcp_conn *hth_tcp_conn_get(struct hth_tcp *t, hth_conn id)
{
    return hth_ids_get(&t->conns, id);
}

#endif
