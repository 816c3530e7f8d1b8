/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reliable datagrams (FI_EP_RDM): what the rdm_*.c files share. One struct hth_rdm is one
 * transport: a home endpoint with the published address, for messages and for peers to read by, and
 * a pull endpoint for this node's own reads, which can be closed and made again without an effect
 * on peers. Each has an address vector and a completion queue of its own. A connection is made of
 * packets (rdm_wire.c).
 */
/* For this folder alone. */
#ifndef HEARTH_TRANSPORT_OFI_RDM_H
#define HEARTH_TRANSPORT_OFI_RDM_H

#include "ofi.h"

#include <time.h>

#define HTH_RDM_HEAD    40u /* bytes before each packet's own */
#define HTH_RDM_PACKET  (HTH_RDM_HEAD + HTH_MESSAGE_MAX)
#define HTH_RDM_LEAST   256u /* a packet with a greeting fits in that */
#define HTH_RDM_WINDOW  32u  /* packets under way to a peer that it has not acknowledged */
#define HTH_RDM_KEPT    64u  /* messages kept, a connection */
#define HTH_RDM_HALF    64u  /* connections that have not answered this node's greeting yet */
#define HTH_RDM_OPS     256u /* of each kind with the library, an endpoint */
#define HTH_RDM_EACH    16u  /* packets with the library, a connection */
#define HTH_RDM_BYES    512u
#define HTH_RDM_SCAN_MS 50u                 /* between looks at deadlines */
#define HTH_RDM_ADDR    (HTH_ADDR_MAX - 4u) /* bytes of a provider's address */

struct hth_rdm;
struct hth_rdm_conn;

/* ---- rdm_wire.c ---- */

enum hth_rdm_kind {
    HTH_RDM_OPEN = 1,  /* greeting of who dials; without a place in the order */
    HTH_RDM_ACCEPT,    /* the answer; the first packet in the order of who accepts */
    HTH_RDM_DATA,      /* a message, or a part of one */
    HTH_RDM_ACK,       /* nothing but the header; without a place in the order */
    HTH_RDM_BYE,       /* the last packet */
    HTH_RDM_PULL_FROM, /* the endpoint that will read */
    HTH_RDM_PULL_OK,   /* it may */
    HTH_RDM_GRANTS,    /* words about grants, see granted.c */
};

struct hth_rdm_head {
    enum hth_rdm_kind kind;
    int more;           /* the message goes on in the next packet */
    uint32_t len;       /* bytes that follow */
    uint64_t to, token; /* the receiver's id of the connection, and the secret that goes with it */
    uint64_t seq;       /* this packet's place in the order */
    uint64_t ack;       /* all before this place have come */
};

/* OPEN, ACCEPT, PULL_FROM. */
struct hth_rdm_hello {
    uint64_t id, token;               /* of the sender's side; PULL_FROM: the endpoint's number */
    uint32_t packet;                  /* bytes that the sender's buffers take */
    uint32_t addr_len;                /* 0: none */
    unsigned char addr[HTH_ADDR_MAX]; /* blob, see rdm_peer.c */
};

void hth_rdm_head_write(const struct hth_rdm_head *h, unsigned char out[HTH_RDM_HEAD]);
int hth_rdm_head_read(const unsigned char *in, size_t len, struct hth_rdm_head *out);
size_t hth_rdm_hello_write(const struct hth_rdm_hello *h, unsigned char out[HTH_RDM_LEAST]);
int hth_rdm_hello_read(const unsigned char *in, size_t len, struct hth_rdm_hello *out);

/* ---- rdm_peer.c: addresses ---- */

/* A peer's address, once however often it is used; lives while connections or operations use it. */
struct hth_rdm_peer {
    struct hth_rdm_peer *next;
    uint32_t refs;
    uint32_t len;
    unsigned char blob[HTH_ADDR_MAX];
    fi_addr_t home; /* in the home endpoint's vector */
    struct {        /* in a pull endpoint's vector */
        uint32_t number;
        fi_addr_t addr;
    } pull[2];
    int home_known;     /* where connections are sockets: home_port is known */
    uint16_t home_port; /* of the home endpoint's socket to it, in network order; 0: it has none */
    uint32_t sealed;    /* number of the pull endpoint whose sockets to it are close-on-exec */
    char label[HTH_ADDR_LABEL];
};

/* The blob of an endpoint of this node. 0 or -fi_errno. */
int hth_rdm_blob(struct hth_rdm *r, struct fid_ep *ep, unsigned char *out, uint32_t *out_len);
/* HEARTH_EINVAL: the blob is not an address for this transport. */
int hth_rdm_peer_get(struct hth_rdm *r, const unsigned char *blob, uint32_t len,
        struct hth_rdm_peer **out, struct hearth_error *err);
void hth_rdm_peer_put(struct hth_rdm *r, struct hth_rdm_peer *peer);
/* Before the first read from it: its sockets are those of the home endpoint. */
void hth_rdm_peer_note_socket(struct hth_rdm *r, struct hth_rdm_peer *peer);
/* All other sockets to it are at their end, and so are the reads that went by them. */
void hth_rdm_peer_end_reads(struct hth_rdm *r, struct hth_rdm_peer *peer);

/* ---- rdm_end.c: an endpoint and what is under way on it ---- */

enum hth_rdm_op_kind { HTH_RDM_RECV, HTH_RDM_SEND, HTH_RDM_READ };

/* The context of an operation, which the library returns. It lives as long as its endpoint, and
 * names its connection by id, so that a late completion of an ended connection finds no
 * connection. */
struct hth_rdm_op {
    struct fi_context2 context; /* first, so that one pointer is both; the library's */
    enum hth_rdm_op_kind kind;
    struct hth_rdm_end *end;
    struct hth_rdm_op *next;   /* free, or a receive to give back */
    struct hth_rdm_peer *peer; /* SEND, READ: kept until then */
    hth_conn conn;
    uint32_t index;       /* READ: the pull */
    unsigned char *bytes; /* RECV, SEND: [packet] */
};

struct hth_rdm_end {
    struct hth_rdm *r;
    struct fid_domain *domain; /* its own; NULL: the transport's */
    struct fid_av *av;
    struct fid_cq *cq;
    struct fid_ep *ep;
    int fd;                 /* of cq; -1: none */
    struct hth_rdm_op *ops; /* [count] */
    uint32_t count;
    unsigned char *slab;     /* the ops' bytes */
    struct fid_mr *mr;       /* over slab, where the provider wants that */
    struct hth_rdm_op *free; /* SEND or READ */
    struct hth_rdm_op *back; /* RECV, to be given back to the library */
    uint32_t busy;           /* SEND or READ with the library */

    size_t most;           /* bytes of a read */
    uint32_t number;       /* of a pull endpoint: 1, 2, ... */
    uint32_t orphans;      /* READ whose connection is over */
    uint64_t orphan_bytes; /* of them */
    uint64_t retired_ms;   /* no new reads since */
    uint64_t ending_ms;    /* its sockets were shut down then; 0: not yet */
    int kept;              /* the library did not close it, and that was logged */
};

int hth_rdm_home_open(struct hth_rdm *r, struct hearth_error *err);
int hth_rdm_pull_end_open(struct hth_rdm *r, struct hth_rdm_end *e, struct hearth_error *err);
/* Closes the endpoint: from here on the library writes nothing for it. 0, or -fi_errno: the library
 * did not close it. */
int hth_rdm_end_close(struct hth_rdm_end *e);
struct hth_rdm_op *hth_rdm_op_take(
        struct hth_rdm_end *e, struct hth_rdm_peer *peer, hth_conn conn, uint32_t index);
void hth_rdm_op_give(struct hth_rdm_op *op);
void hth_rdm_receives_post(struct hth_rdm_end *e);
int hth_rdm_end_read(struct hth_rdm_end *e); /* its completions; how many */

/* ---- a connection ---- */

/* A packet to be sent in order, or what is left of a message. */
struct hth_rdm_out {
    struct hth_rdm_out *next;
    enum hth_rdm_kind kind;
    uint32_t len, sent;
    unsigned char bytes[];
};

/* A packet that came before its turn. */
struct hth_rdm_early {
    uint32_t len;
    unsigned char bytes[];
};

struct hth_rdm_conn {
    struct hth_ofi_link link; /* first, so that one pointer is both */
    struct hth_rdm *r;
    uint64_t token;
    uint64_t stuck_ms; /* nothing of it was taken since; 0: something was */

    struct hth_rdm_peer *peer;
    uint64_t peer_id, peer_token;
    uint32_t packet; /* bytes of a packet that both sides take */

    struct hth_rdm_out *out, **out_end;
    uint32_t kept;  /* messages in `out` */
    uint32_t sends; /* packets with the library */
    int greeted;    /* DIALLED: the library has the OPEN */
    int want_ack;
    uint32_t owed; /* PULL_OK in `out` */
    int words;     /* GRANTS in `out` */
    int blocked;   /* send() said HEARTH_EBUSY: on_writable() owed */
    uint64_t out_seq, out_ack;

    uint64_t in_seq, in_told; /* the next to take; and as last reported to the peer */
    struct hth_rdm_early *early[HTH_RDM_WINDOW];
    unsigned char *whole; /* [HTH_MESSAGE_MAX]: a message of several packets */
    uint32_t whole_len;

    uint64_t told_ms;
    /* number of the pull endpoint that was sent to the peer, and that it accepted */
    uint32_t end_told, end_ok;
    struct hth_rdm_peer *reader[2]; /* the peer's pull endpoints: the newest and the one before */
    uint32_t reader_last;
};

struct hth_rdm_bye {
    struct hth_rdm_peer *peer;
    uint64_t due_ms; /* tried until then */
    unsigned char bytes[HTH_RDM_HEAD];
};

struct hth_rdm {
    struct hth_ofi o; /* first, so that one pointer is both; conns: struct hth_rdm_conn */
    struct fi_info *pull_info;
    /* An operation has ended: 0 or the number of -fi_errno. Set once, so that an endpoint does not
     * depend on the files above it. */
    void (*ended)(struct hth_rdm_op *op, size_t len, int fi_err);
    struct hth_rdm_end home;
    struct hth_rdm_end *pull; /* NULL: made when it is needed */
    struct hth_rdm_end *old;  /* the one before, until its reads have ended */
    uint32_t pulls_made;
    uint64_t pull_retry_ms; /* one could not be made: not before then */
    int polls;              /* there is nothing to wait on */
    int own_domains;        /* a pull endpoint has a domain of its own, see rdm_end.c */
    uint32_t packet;        /* bytes of this node's buffers */
    unsigned char address[HTH_ADDR_MAX];
    uint32_t address_len;

    struct hth_rdm_peer *peers;
    struct hth_ofi_list half; /* HALF_OPEN */
    struct hth_rdm_bye bye[HTH_RDM_BYES];
    uint32_t byes;
    uint32_t waiting;   /* connections DIALLED or HALF_OPEN */
    uint64_t scan_ms;   /* deadlines are looked at then; HTH_NEVER: there are none */
    uint64_t lately_us; /* something happened; hth_rdm_real_us() */
    int timer_fd;       /* in the set that is waited on */
};

static inline struct hth_rdm *hth_rdm_of(struct hth_transport *t)
{
    return (struct hth_rdm *)t;
}

static inline struct hth_rdm_conn *hth_rdm_conn_get(const struct hth_rdm *r, hth_conn id)
{
    return hth_ids_get(&r->o.conns, id);
}

static inline uint64_t hth_rdm_now(const struct hth_rdm *r)
{
    return hth_now_ms(&r->o.clock);
}

/* The clock of the time that is slept, which r->o.clock may differ from. */
static inline uint64_t hth_rdm_real_us(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* ---- rdm_state.c ---- */

/* Ends the connection. tell: BYE is sent to the peer, if that is possible. If our answer was sent
 * on a half-open one, BYE is sent in any case: the peer may be up. */
void hth_rdm_conn_leave(struct hth_rdm_conn *c, int code, const char *why, int tell);
void hth_rdm_conn_up(struct hth_rdm_conn *c);
void hth_rdm_conn_doom_ready(struct hth_rdm_conn *c); /* LEAVING and no reads left: DOOMED */
/* The library did not take an operation, for -fi_errno: again in progress(), or it is over. */
void hth_rdm_conn_refused(struct hth_rdm_conn *c, ssize_t rc);
void hth_rdm_conn_taken(struct hth_rdm_conn *c);
void hth_rdm_scan_soon(struct hth_rdm *r); /* there is a deadline to watch */
void hth_rdm_byes_post(struct hth_rdm *r);

/* ---- rdm_stream.c: packets in order ---- */

int hth_rdm_send(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len);
/* HEARTH_ENOMEM, or it is queued; the flush is the caller's. */
int hth_rdm_queue(struct hth_rdm_conn *c, enum hth_rdm_kind kind, const void *bytes, size_t len);
void hth_rdm_grants_flush(struct hth_ofi *o, hth_conn conn);
void hth_rdm_flush(struct hth_rdm_conn *c); /* what the peer and the library take */
void hth_rdm_sent(struct hth_rdm_conn *c);
void hth_rdm_stream_fini(struct hth_rdm_conn *c);

/* ---- rdm_pull.c ---- */

void hth_rdm_pull_post(struct hth_ofi_link *c, uint32_t index);
void hth_rdm_pulls_post(struct hth_rdm_conn *c);
void hth_rdm_pulled(struct hth_rdm_conn *c, uint32_t index, int fi_err);
/* The peer has accepted this node's pull endpoint. 0 or HEARTH_EPROTO. */
int hth_rdm_reader_taken(struct hth_rdm_conn *c, const unsigned char *bytes, size_t len);
/* An endpoint is closed: its orphans have ended, its other pulls wait for the next endpoint. */
void hth_rdm_pulls_return(struct hth_rdm *r, const struct hth_rdm_end *e);

/* ---- rdm_pull_end.c: the pull endpoint, and who knows it ---- */

struct hth_rdm_end *hth_rdm_pull_end(struct hth_rdm *r); /* NULL: not now */
/* The peer has sent the pull endpoint by which it will read. 0 or HEARTH_EPROTO. */
int hth_rdm_reader_told(struct hth_rdm_conn *c, const unsigned char *bytes, size_t len);
/* 1: the peer has accepted the endpoint; 0: it was sent to the peer now. */
int hth_rdm_peer_knows(struct hth_rdm_conn *c, const struct hth_rdm_end *e);
/* *out: the peer's address for that endpoint. 0 or -fi_errno. */
int hth_rdm_peer_at(struct hth_rdm_conn *c, struct hth_rdm_end *e, fi_addr_t *out);

/* ---- rdm_renew.c: pull endpoints, one after the other ---- */

void hth_rdm_pull_ends_settle(struct hth_rdm *r);
void hth_rdm_pull_ends_close(struct hth_rdm *r);

/* ---- rdm_conn.c ---- */

int hth_rdm_connect(struct hth_transport *t, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err);
void hth_rdm_drop(struct hth_transport *t, hth_conn conn);
void hth_rdm_greeted(struct hth_rdm *r, const unsigned char *bytes, size_t len);
int hth_rdm_accepted(struct hth_rdm_conn *c, const unsigned char *bytes, size_t len);
int hth_rdm_expire(struct hth_rdm *r);
void hth_rdm_conn_free(struct hth_ofi_link *c);

/* ---- rdm_receive.c ---- */

void hth_rdm_received(struct hth_rdm *r, const unsigned char *bytes, size_t len);

/* ---- rdm_progress.c ---- */

void hth_rdm_ended(struct hth_rdm_op *op, size_t len, int fi_err);

int hth_rdm_progress(struct hth_transport *t);
int hth_rdm_arm(struct hth_transport *t, int *out_fd, uint64_t *out_due_ms);
void hth_rdm_drain(struct hth_rdm *r); /* what has been sent may leave */

/* ---- rdm_open.c ---- */

int hth_rdm_open(const struct hth_transport_opts *opts, const struct hth_transport_events *events,
        struct hth_transport **out, struct hearth_error *err);

#endif
