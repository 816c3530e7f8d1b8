/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs and functions that the files of this backend share. UCX calls us back only inside
 * ucp_worker_progress(); there we take notes (struct hth_ucx_event) and nothing else. The user's
 * callbacks, and everything that makes or closes an endpoint, run after it has returned.
 */
/* For this folder alone. */
#ifndef HEARTH_UCX_UCX_H
#define HEARTH_UCX_UCX_H

#include "core/base/bytes.h"
#include "transport/ids.h"
#include "transport/map.h"
#include "transport/transport.h"
#include <net/if.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <ucp/api/ucp.h>

#define HTH_UCX_CONNS      256u       /* UCX_TCP_MAX_NUM_EPS; as many may be LEAVING */
#define HTH_UCX_PULLS      1024u      /* on their way, of all connections */
#define HTH_UCX_CONN_PULLS 64u        /* of one connection, on both sides of it */
#define HTH_UCX_GRANTS     (1u << 20) /* alive */

/* Active messages. Numbers are wire format, see README.md. */
enum hth_ucx_am {
    HTH_UCX_AM_MESSAGE = 1, /* data: the message */
    HTH_UCX_AM_ASK = 2,     /* header: struct of HTH_UCX_ASK bytes */
    HTH_UCX_AM_REPLY =
            3, /* header: HTH_UCX_REPLY bytes; data: the bytes asked for, as rendezvous; then the
                * same without data: whether the grant still stood when they had been read */
    HTH_UCX_AM_GREETING = 4, /* header: HTH_UCX_GREETING bytes */
    HTH_UCX_AM_KEY = 5       /* header: u64 region; data: its key, or nothing: it is over */
};
#define HTH_UCX_ASK        40u /* u64 grant, nonce, offset, length, pull */
#define HTH_UCX_REPLY      16u /* u64 pull, i32 code, u32 zero */
#define HTH_UCX_GREETING   8u  /* u32 'HUCX', u16 version, u16 1: hello, 2: welcome */
#define HTH_UCX_KEY        8u  /* u64 region */
#define HTH_UCX_DESC       32u /* of a descriptor */
#define HTH_UCX_HEADER_MAX 40u

enum hth_ucx_kind {
    HTH_UCX_REQUEST,  /* a peer dials this node */
    HTH_UCX_INBOUND,  /* an active message */
    HTH_UCX_WRITABLE, /* a connection: send more, on_writable() */
    HTH_UCX_PULLED,   /* a pull: on_pull() */
    HTH_UCX_SERVED,   /* a pull of theirs: UCX has read all of it, say whether that was right */
    HTH_UCX_DOWN      /* a connection: on_down(), after GONE the last there is of it */
};

/* One note, embedded in what it is about. First in, first out. */
struct hth_ucx_event {
    struct hth_ucx_event *next;
    enum hth_ucx_kind kind;
};

struct hth_ucx_request {
    struct hth_ucx_event event;
    ucp_conn_request_h request;
};

struct hth_ucx_inbound {
    struct hth_ucx_event event;
    hth_conn conn;
    enum hth_ucx_am id;
    size_t len;
    unsigned char bytes[]; /* [len] */
};

/* Something on its way out. UCX borrows header and data until it has sent them. */
struct hth_ucx_packet {
    struct hth_ucx_event event;         /* SERVED, when UCX has given it back */
    struct hth_ucx_packet *next, *prev; /* all that UCX has */
    struct hth_ucx *t;
    hth_conn conn;
    enum hth_ucx_am id;
    struct hth_region *region; /* that data lies in */
    struct hth_region *holds;  /* the same, until UCX gives the packet back */
    uint64_t grant;            /* that data is read under */
    const void *data;
    size_t data_len;
    size_t header_len;
    unsigned char header[HTH_UCX_HEADER_MAX];
    unsigned char bytes[];
};

enum hth_ucx_state {
    HTH_UCX_DIALING, /* dialled; no welcome yet */
    HTH_UCX_CALLED,  /* they dialled; no hello yet */
    HTH_UCX_UP,
    HTH_UCX_FAILED,  /* to be closed in the next progress() */
    HTH_UCX_LEAVING, /* on_down() is due; closed when its handshake has ended */
    HTH_UCX_CLOSING, /* UCX is closing it */
    HTH_UCX_GONE     /* on_down() is noted */
};

struct hth_ucx_conn {
    struct hth_ucx *t;
    hth_conn id;
    enum hth_ucx_state state;
    int accepted;  /* they dialled */
    int announced; /* the user has its id: one on_down() must follow */
    int muted;     /* this node dropped it: its messages are not delivered any more */
    /* its handshake has ended, well or not: UCX's own thread does not use it any more */
    int settled;
    ucp_ep_h ep;     /* NULL from CLOSING */
    void *close;     /* UCX's request to close it; NULL: none, or done */
    uint64_t due_ms; /* to stand by then */
    int code;        /* why it failed */
    char detail[192];
    uint32_t pulls;                        /* this node's pulls on it */
    uint32_t serving;                      /* the peer's pulls on it */
    uint32_t receiving;                    /* of this node's pulls: destinations that UCX has */
    struct hth_ucx_packet *out, **out_end; /* waiting for their turn */
    uint32_t out_len;
    int sending; /* one of them is with UCX */
    int choked;  /* send() said HEARTH_EBUSY */
    int writable_noted;
    struct hth_ucx_event writable, down;
    struct hth_map keys; /* the peer's, by its number of the region */
    struct hth_map told; /* this node's regions whose key the peer has, by their serial */
};

struct hth_region {
    struct hth_region *next, *prev; /* by the transport's `memory` */
    unsigned char *base;
    uint64_t len;
    uint64_t serial; /* never used twice */
    void *key;       /* packed, where the card reads (get.c); NULL elsewhere */
    size_t key_len;
    ucp_mem_h memh;   /* UCX's registration, handed along with every transfer */
    uint32_t pulls;   /* into it */
    uint32_t serving; /* out of it */
    uint32_t
            held; /* packets with it that UCX has not given back, whatever became of their connection */
    int dead;     /* deregistered: it goes with the last of them */
};

struct hth_ucx_grant {
    uint64_t id, nonce;
    struct hth_region *region;
    uint64_t off, len;
    hth_conn conn;
};

struct hth_ucx_pull {
    struct hth_ucx_event event;
    struct hth_ucx *t;
    uint64_t id;
    hth_conn conn;
    struct hth_region *region;
    unsigned char *dst;
    uint64_t len;
    uint32_t crc; /* of what has come; not of what a card has read */
    uint64_t cookie;
    struct hth_ucx_key *key; /* get.c: that it is read with */
    int answered;            /* the owner has spoken */
    int received;            /* all bytes are here */
    int judged;              /* the owner has said `code` of them */
    int completed;           /* with `code`; its PULLED is noted */
    int code;
};

struct hth_ucx {
    struct hth_transport base;
    struct hth_transport_events events;
    struct hth_clock clock;
    struct hth_log log;
    uint32_t connect_ms;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_listener_h listener;
    int worker_fd, wake_fd, epoll_fd; /* the first two in the third */
    int closed;                       /* close() has begun: nothing new */
    int rdma;                         /* the provider is network cards alone */
    int gets;                         /* pulls are reads of UCX's, see get.c */
    const uint32_t *pulled_crc;       /* inside on_pull(): of what has come; NULL: not known */
    int settles;                      /* no handshake is cut, see close.c */
    uint32_t failing;                 /* connections in FAILED, LEAVING or CLOSING */
    uint32_t leaving;                 /* of those: they take no room */
    struct hth_ids conns, pulls, grants;
    pthread_mutex_t memory;     /* guards the next four: reg() comes from any thread */
    struct hth_region *regions; /* registered */
    struct hth_region *over;    /* done with while `mapping`: by `next`, to be unmapped */
    uint64_t serial;            /* of the last region */
    uint32_t mapping;           /* calls of reg() inside UCX; no thread may unmap meanwhile */
    struct hth_ucx_packet *packets;
    struct hth_ucx_event *noted, **noted_end;
    struct sockaddr_storage bound;
    /* [known] inodes of descriptors that were open before this transport; 0: none */
    ino_t *known_fds;
    size_t known;
};

/* release.c: does the UCX that is loaded need it? */
enum hth_ucx_work_around {
    HTH_UCX_OLD_PROTOCOLS,
    HTH_UCX_COPIED_SENDS,
    HTH_UCX_CUT_HANDSHAKES,
    HTH_UCX_NO_LOOPBACK
};
int hth_ucx_needs(enum hth_ucx_work_around w);
void hth_ucx_work_arounds_say(const struct hth_log *log);

/* bind.c: addresses */
int hth_ucx_bind(const struct hth_transport_opts *opts, struct sockaddr_storage *out,
        char device[IF_NAMESIZE], struct hearth_error *err);
socklen_t hth_ucx_sockaddr_len(const struct sockaddr_storage *ss);
uint32_t hth_ucx_blob_encode(const struct sockaddr_storage *ss, unsigned char *out);
int hth_ucx_blob_decode(struct sockaddr_storage *out, const unsigned char *blob, uint32_t len);

/* fds.c: descriptors that a child must not inherit */
int hth_ucx_fds_note(struct hth_ucx *t); /* 0 or HEARTH_ENOMEM */
void hth_ucx_fds_close_on_exec(struct hth_ucx *t, int sockets_only);

/* event.c: notes */
void hth_ucx_note(struct hth_ucx *t, struct hth_ucx_event *event, enum hth_ucx_kind kind);
struct hth_ucx_event *hth_ucx_notes_take(struct hth_ucx *t); /* all of them, the first one first */

/* conn.c: the table of connections, and their states */
struct hth_ucx_conn *hth_ucx_conn_new(struct hth_ucx *t, enum hth_ucx_state state);
struct hth_ucx_conn *hth_ucx_conn_get(struct hth_ucx *t, hth_conn id);
struct hth_ucx_conn *hth_ucx_conn_of(struct hth_ucx *t, const ucp_am_recv_param_t *param);
void hth_ucx_drop(struct hth_transport *base, hth_conn id);
void hth_ucx_conn_fail(struct hth_ucx *t, struct hth_ucx_conn *c, int code, const char *fmt, ...)
        HTH_PRINTF(4, 5);
void hth_ucx_conn_broke(struct hth_ucx_conn *c, ucs_status_t status);
uint64_t hth_ucx_conns_due_ms(struct hth_ucx *t);
int hth_ucx_conns_expire(struct hth_ucx *t);
void hth_ucx_conns_fail(struct hth_ucx *t, int code, const char *why);

/* region.c: memory that UCX knows */
int hth_ucx_reg(struct hth_transport *base, void *at, uint64_t len, struct hth_region **out,
        struct hearth_error *err);
void hth_ucx_region_free(struct hth_ucx *t, struct hth_region *r);
void hth_ucx_region_put(struct hth_ucx *t, struct hth_region *r);

/* grant.c: which peers may read it */
int hth_ucx_dereg(struct hth_transport *base, struct hth_region *region);
void hth_ucx_regions_fini(struct hth_ucx *t);
int hth_ucx_grant(struct hth_transport *base, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err);
void hth_ucx_revoke(struct hth_transport *base, const unsigned char *desc, uint32_t len);
struct hth_ucx_desc {
    uint64_t grant; /* id of the grant; get.c: serial of the region */
    uint64_t at;    /* nonce of the grant; get.c: address of its first byte */
    uint64_t len;
};
/* desc.c: as bytes. Encode: how many were written to out[HTH_DESC_MAX]. Decode: HEARTH_EINVAL. */
uint32_t hth_ucx_desc_encode(
        const struct hth_ucx *t, const struct hth_ucx_desc *d, unsigned char *out);
int hth_ucx_desc_decode(const struct hth_ucx *t, const unsigned char *bytes, uint32_t len,
        struct hth_ucx_desc *out);
void hth_ucx_grants_drop(struct hth_ucx *t, const struct hth_region *region, hth_conn conn);

/* send.c: what goes out */
int hth_ucx_send(struct hth_transport *base, hth_conn id, const void *bytes, size_t len);
void hth_ucx_post(struct hth_ucx *t, struct hth_ucx_conn *c, enum hth_ucx_am id,
        const unsigned char *header, size_t header_len);
void hth_ucx_post_data(struct hth_ucx *t, struct hth_ucx_conn *c, enum hth_ucx_am id,
        const unsigned char *header, size_t header_len, const void *data, size_t len);
struct hth_ucx_packet *hth_ucx_packet_new(
        struct hth_ucx *t, struct hth_ucx_conn *c, enum hth_ucx_am id, size_t room);
void hth_ucx_packet_start(struct hth_ucx *t, struct hth_ucx_conn *c, struct hth_ucx_packet *p);
void hth_ucx_packets_forget(struct hth_ucx *t, struct hth_ucx_conn *c);
void hth_ucx_writable(struct hth_ucx *t, struct hth_ucx_conn *c);

/* serve.c: pulls of theirs */
void hth_ucx_serve(struct hth_ucx *t, struct hth_ucx_conn *c, const unsigned char *ask);
void hth_ucx_served(struct hth_ucx *t, struct hth_ucx_packet *p); /* frees it */

/* pulls.c: the table of this node's pulls */
void hth_ucx_pull_complete(struct hth_ucx_pull *p, int code);
void hth_ucx_pull_received(struct hth_ucx_pull *p, ucs_status_t status, size_t len);
void hth_ucx_pulled(struct hth_ucx_pull *p);
int hth_ucx_pulled_crc(struct hth_transport *base, uint32_t *out);
void hth_ucx_pulls_fini(struct hth_ucx *t);
void hth_ucx_pulls_fail(struct hth_ucx *t, struct hth_ucx_conn *c);

/* pull.c: this node's requests, and their answers */
int hth_ucx_pull(struct hth_transport *base, hth_conn id, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie);
ucs_status_t hth_ucx_replied(void *arg, const void *header, size_t header_len, void *data,
        size_t len, const ucp_am_recv_param_t *param);

/* key.c: keys of regions, where the network card reads */
struct hth_ucx_desc hth_ucx_key_grant(struct hth_ucx *t, struct hth_ucx_conn *c,
        struct hth_region *r, uint64_t off, uint64_t len);
void hth_ucx_key_end(struct hth_ucx *t, const struct hth_region *r);
void hth_ucx_key_heard(
        struct hth_ucx *t, struct hth_ucx_conn *c, const unsigned char *bytes, size_t len);
struct hth_ucx_key *hth_ucx_key_get(struct hth_ucx_conn *c, const struct hth_ucx_desc *desc);
ucp_rkey_h hth_ucx_key_use(struct hth_ucx_key *key);
void hth_ucx_key_put(struct hth_ucx_key *key);
void hth_ucx_keys_drop(struct hth_ucx_conn *c);

/* get.c: pulls that the network card carries out */
void hth_ucx_get(struct hth_ucx_conn *c, struct hth_ucx_pull *p, const struct hth_ucx_desc *desc,
        uint64_t roff);

/* dial.c: connections begin */
int hth_ucx_connect(struct hth_transport *base, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err);
void hth_ucx_conn_accept(struct hth_ucx *t, ucp_conn_request_h request);
void hth_ucx_conn_greeted(
        struct hth_ucx *t, struct hth_ucx_conn *c, const unsigned char *bytes, size_t len);

/* close.c: connections end */
int hth_ucx_conns_close(struct hth_ucx *t);
void hth_ucx_conns_forget(struct hth_ucx *t);
void hth_ucx_conn_down(struct hth_ucx *t, struct hth_ucx_conn *c);

/* receive.c: what comes in */
ucs_status_t hth_ucx_handlers_set(struct hth_ucx *t);
void hth_ucx_received(struct hth_ucx *t, struct hth_ucx_inbound *in); /* frees it */

/* progress.c: one turn, and the wait for the next */
int hth_ucx_progress(struct hth_transport *base);
int hth_ucx_events_run(struct hth_ucx *t);
int hth_ucx_arm(struct hth_transport *base, int *out_fd, uint64_t *out_due_ms);
void hth_ucx_wake(struct hth_transport *base);

#endif
