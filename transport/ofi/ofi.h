/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The structs and functions that the files of this backend share. One struct hth_ofi is one
 * transport: one libfabric domain, one completion queue, one event queue, one listening endpoint,
 * one thread.
 */
/* For this folder alone. */
#ifndef HEARTH_TRANSPORT_OFI_H
#define HEARTH_TRANSPORT_OFI_H

#include "providers.h"
#include "transport/address.h"
#include "transport/ids.h"
#include "transport/transport.h"
#include "transport/wake.h"

#include <netinet/in.h>
#include <pthread.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdatomic.h>

#define HTH_OFI_CONNS  4096u /* at once, both directions; less where descriptors are few */
#define HTH_OFI_RING   64u   /* pulls at once, a connection */
#define HTH_OFI_TAKEN  8u    /* receives posted, a connection */
#define HTH_OFI_KEPT   32u   /* sends kept, a connection */
#define HTH_OFI_PLACE  (HTH_MESSAGE_MAX + 64u) /* bytes of a buffer: a message and its kind */
#define HTH_OFI_QUEUE  65535u /* completions that there is room for; a device may have less */
#define HTH_OFI_DETAIL 256u

/* ---- load.c: libfabric itself ---- */

struct hth_ofi_lib {
    uint32_t (*version)(void);
    int (*getinfo)(uint32_t version, const char *node, const char *service, uint64_t flags,
            const struct fi_info *hints, struct fi_info **info);
    void (*freeinfo)(struct fi_info *info);
    struct fi_info *(*dupinfo)(const struct fi_info *info);
    int (*fabric)(struct fi_fabric_attr *attr, struct fid_fabric **fabric, void *context);
    const char *(*strerror)(int errnum);
};

/* The process's one libfabric, loaded at the first call and kept, with the settings of that
 * call's provider and of those in `also`; NULL: all are started, none has its settings. library:
 * its full path; NULL: the one that the loader finds. Errors: HEARTH_ENOENT naming the path,
 * HEARTH_ESTATE another one is loaded, HEARTH_EUNSUPPORTED. */
int hth_ofi_load(const char *library, const char *provider, const char *const *also,
        const struct hth_ofi_lib **out, struct hearth_error *err);

/* ---- fds.c ---- */

/* The descriptors that are open before the library opens more, so that the library's can be
 * found. */
struct hth_ofi_fds {
    unsigned char *bit; /* of descriptors below 8 * bytes; higher ones are not open */
    size_t bytes;
    int failed; /* no memory: the bits are not known */
};
/* Connections that may stand: each may be a descriptor of the library's, and others need some,
 * too. */
uint32_t hth_ofi_conns_max(void);
void hth_ofi_fds_note(struct hth_ofi_fds *before); /* until the seal, which frees it */
/* Sets close-on-exec for descriptors that were not there before; `before` NULL: for sockets on this
 * node's address. */
void hth_ofi_fds_seal(struct hth_ofi_fds *before, const union hth_addr *self);
/* The endpoint's socket gives what it has received, and then its end. Without one: nothing. */
void hth_ofi_socket_end(struct fid_ep *ep);
/* The port, in network order, of a socket from here to there; 0: there is none. */
uint16_t hth_ofi_socket_port(const union hth_addr *here, const union hth_addr *there);
/* The same as hth_ofi_socket_end() for all from here to there but that from port `spare`. */
void hth_ofi_sockets_end(const union hth_addr *here, const union hth_addr *there, uint16_t spare);

/* ---- the transport ---- */

struct hth_ofi_conn;
struct hth_ofi_link;
struct hth_ofi_contexts;
struct hth_ofi_event;

#define HTH_OFI_RAW_KEY 24u /* bytes of a provider's raw key, at most */

struct hth_region {
    struct hth_region *next, *prev; /* guarded by regions_lock */
    unsigned char *base;
    uint64_t len;
    uint32_t busy; /* pulls into it */
    int writable;  /* pulls may go into it */
    struct fid_mr *mr;
    uint64_t key; /* of mr; or, where keys are raw: */
    uint64_t raw_base;
    uint8_t raw_bytes, raw[HTH_OFI_RAW_KEY];
    struct hth_ofi_granted *granted; /* connections that may read it, see granted.c */
    uint32_t granted_count, granted_cap;
};

/* Of one connection: the number of this node's newest grant, and which grants of the peer are
 * over. */
struct hth_ofi_grants {
    uint32_t given;
    struct hth_ofi_span *span;
    uint32_t spans, span_cap;
    uint32_t *word; /* words for the peer, the oldest first */
    uint32_t words, word_cap;
};

/* Connections of either kind. */
struct hth_ofi_list {
    struct hth_ofi_link *head, *tail;
    uint32_t count;
};

/* A connection that is dialled, and the endpoint that is made for it. */
struct hth_ofi_dial {
    struct hth_ofi_dial *next;
    hth_conn conn;
    struct fi_info *info;
    struct fid_ep *ep;
    int rc; /* 0: ep is made; else -fi_errno */
};

struct hth_ofi_dialler {
    pthread_mutex_t lock;
    pthread_cond_t ended;                         /* a thread has */
    struct hth_ofi_dial *todo, **todo_end, *done; /* guarded by lock, as: */
    uint32_t threads;
    atomic_int any_done;
};

struct hth_ofi {
    struct hth_transport base; /* first, so that one pointer is both */
    const struct hth_ofi_lib *lib;
    struct hth_transport_events events;
    struct hth_clock clock;
    struct hth_log log;
    uint32_t connect_ms;
    union hth_addr self;

    struct fi_info *info;
    struct fid_fabric *fabric;
    struct fid_domain *domain;
    struct fid_eq *eq;
    struct fid_cq *cq;
    uint32_t queue; /* completions that cq has room for */
    struct fid_pep *pep;
    struct fid_ep *home; /* registrations are bound to it where mr_mode has FI_MR_ENDPOINT */
    int mr_mode;
    int sockets;                /* the provider's connections are sockets of this process */
    const uint32_t *pulled_crc; /* inside on_pull(): of what came; NULL: not known */

    int epoll_fd, wake_fd;
    atomic_int woken;
    struct hth_ofi_dialler dialler; /* for connected endpoints only */

    pthread_mutex_t regions_lock;
    struct hth_region *regions; /* guarded by regions_lock */
    /* These are set once, so that granted.c, pulls.c and link.c work for both kinds of connection.
     * The grants of a connection. NULL: no pull of it reads any more. */
    struct hth_ofi_grants *(*grants_of)(struct hth_ofi *o, hth_conn conn);
    void (*grants_flush)(struct hth_ofi *o, hth_conn conn);
    /* by pulls of this node */
    int (*grant_is_read)(struct hth_ofi *o, hth_conn conn, uint32_t number);
    void (*pull_post)(struct hth_ofi_link *c, uint32_t index); /* a new one that WAITS */
    /* this node ends the connection */
    void (*leave)(struct hth_ofi_link *c, int code, const char *why);
    void (*conn_free)(struct hth_ofi_link *c);

    struct hth_ids conns;        /* struct hth_ofi_link, each the first of its kind's struct */
    struct hth_ofi_list leaving; /* it is over; the library may still have something of it */
    struct hth_ofi_list doomed;  /* endpoint closed; callbacks owed */
    struct hth_ofi_event *kept;  /* read already, the first one first */
    struct hth_ofi_contexts *contexts_free;
    struct hth_ofi_contexts *contexts_late; /* completions with them may still be in the queue */
    uint32_t stuck;  /* connections with something the library did not take yet */
    uint32_t ripe;   /* pulls done without the library */
    uint32_t held;   /* operations of all connections with the library */
    uint64_t due_ms; /* earliest connect deadline; HTH_NEVER: none */
    uint64_t turn;   /* calls of progress() */
    int closing;
};

static inline struct hth_ofi *hth_ofi_of(struct hth_transport *t)
{
    return (struct hth_ofi *)t;
}

/* ---- link.c: a connection, whether it is the library's or made of packets ---- */

enum hth_ofi_state {
    HTH_OFI_DIALLED,
    HTH_OFI_HALF_OPEN, /* a peer has asked for it; the owner does not know it yet */
    HTH_OFI_UP,
    HTH_OFI_LEAVING, /* over; the library may still have something of it */
    HTH_OFI_DOOMED,  /* callbacks owed */
};

enum hth_ofi_pull_state {
    HTH_OFI_PULL_FREE,
    HTH_OFI_PULL_WAITS,  /* for the library to take the next piece */
    HTH_OFI_PULL_POSTED, /* a piece is under way */
    HTH_OFI_PULL_RIPE,   /* done without the library, at the next progress() */
    HTH_OFI_PULL_FAILED, /* its completion is owed when its connection ends */
};

struct hth_ofi_pull {
    enum hth_ofi_pull_state state;
    int code; /* of a failed one; 0: the connection's */
    uint64_t cookie;
    struct hth_region *region;
    unsigned char *into;
    uint64_t left;   /* bytes to come, the piece under way included */
    uint64_t piece;  /* bytes under way */
    uint32_t crc;    /* of those that have come, over sockets */
    uint32_t number; /* of the grant */
    uint64_t from;   /* remote address */
    uint64_t key;    /* of the region there; where keys are raw, its base until it is mapped */
    uint8_t raw_bytes, raw[HTH_OFI_RAW_KEY];
    int mapped;              /* 1: this pull has mapped the key and unmaps it */
    struct hth_rdm_end *end; /* datagrams, POSTED: by this endpoint, */
    int orphan;              /* and the connection is over */
};

struct hth_ofi_link {
    struct hth_ofi *o;
    hth_conn id;
    enum hth_ofi_state state;
    int dialled;
    int known;                 /* the owner has seen the id: it gets an on_down() */
    int code;                  /* why it ends */
    int stuck;                 /* the library did not take something: counted in o->stuck */
    uint64_t due_ms;           /* DIALLED, HALF_OPEN: until then */
    uint64_t pulled_ms;        /* a piece of a pull came last; 0: never */
    struct hth_ofi_link *next; /* in a list */
    char detail[HTH_OFI_DETAIL];
    struct hth_ofi_grants grants;
    uint32_t pulls;   /* not FREE */
    uint32_t reading; /* POSTED */
    struct hth_ofi_pull pull[HTH_OFI_RING];
};

static inline struct hth_ofi_link *hth_ofi_link_get(const struct hth_ofi *o, hth_conn id)
{
    return hth_ids_get(&o->conns, id);
}

/* What both kinds of transport have, before libfabric is loaded; and its end. */
void hth_ofi_init(struct hth_ofi *o, const struct hth_transport_ops *ops,
        const struct hth_transport_opts *opts, const struct hth_transport_events *events);
void hth_ofi_fini(struct hth_ofi *o);
uint32_t hth_ofi_caps(struct hth_transport *t);

void hth_ofi_list_push(struct hth_ofi_list *list, struct hth_ofi_link *c);
void hth_ofi_list_take(struct hth_ofi_list *list, struct hth_ofi_link *c);
/* The connection gets an id and a deadline. 0: as many stand as may, or no memory. */
int hth_ofi_link_add(struct hth_ofi *o, struct hth_ofi_link *c, enum hth_ofi_state state);
void hth_ofi_link_up(struct hth_ofi_link *c); /* and on_up() runs */
void hth_ofi_link_note(struct hth_ofi_link *c, const char *peer, int code, const char *why);
void hth_ofi_link_stuck(struct hth_ofi_link *c, int stuck);
/* DOOMED: its callbacks come at the next hth_ofi_finish(). */
void hth_ofi_link_doom(struct hth_ofi_link *c);
int hth_ofi_finish(struct hth_ofi *o); /* doomed -> callbacks, gone; how many */
int hth_ofi_link_grant(struct hth_transport *t, struct hth_region *region, uint64_t off,
        uint64_t len, hth_conn conn, unsigned char *out_desc, uint32_t *out_len,
        struct hearth_error *err);

/* ---- pulls.c: the pulls of a connection of either kind ---- */

int hth_ofi_pull(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie);
int hth_ofi_pulled_crc(struct hth_transport *t, uint32_t *out);
uint64_t hth_ofi_pulled_ms(struct hth_transport *t, hth_conn conn);
void hth_ofi_pull_move_to(
        struct hth_ofi_link *c, struct hth_ofi_pull *p, enum hth_ofi_pull_state state);
/* 1: its piece has come, and was the last; 0: and is followed by another. */
int hth_ofi_pull_came(struct hth_ofi_link *c, struct hth_ofi_pull *p);
void hth_ofi_pull_failed(struct hth_ofi_link *c, struct hth_ofi_pull *p, int fi_err);
void hth_ofi_pull_complete(struct hth_ofi_link *c, struct hth_ofi_pull *p, int code);
/* 1: a pull of that connection is under the grant. */
int hth_ofi_grant_is_read(struct hth_ofi *o, hth_conn conn, uint32_t number);
int hth_ofi_pulls_ripen(struct hth_ofi *o);
/* The library has nothing of it any more: completes all that are left. */
void hth_ofi_pulls_end(struct hth_ofi_link *c);

/* ---- conn.c: connections of the library ---- */

struct hth_ofi_send {
    uint16_t len; /* with its last byte, the kind */
    uint8_t done;
};

/* Over sockets this thread copies incoming bytes, and checksums them from its cache, so many at a
 * time. */
#define HTH_OFI_SIP (256u << 10)

struct hth_ofi_conn {
    struct hth_ofi_link link; /* first, so that one pointer is both */
    struct fid_ep *ep;        /* NULL once closed */
    uint64_t turn;            /* LEAVING since */
    char peer[HTH_ADDR_LABEL];

    unsigned char *bytes; /* [TAKEN + KEPT][HTH_OFI_PLACE]: receives, then sends */
    struct fid_mr *mr;    /* over bytes, where the provider wants that */

    uint64_t unposted; /* receives to give back, a bit each */
    struct hth_ofi_contexts *contexts;

    /* Sends are counted: [tail, post) the library's, [post, head) waiting. Slot = count % KEPT. */
    uint32_t head, post, tail;
    int blocked; /* send() said HEARTH_EBUSY: on_writable() owed */
    struct hth_ofi_send send[HTH_OFI_KEPT];

    uint32_t held;    /* operations with the library */
    uint32_t sending; /* of them: sends */
};

/* ---- contexts.c ---- */

enum hth_ofi_kind { HTH_OFI_RECV = 1, HTH_OFI_SEND = 2, HTH_OFI_PULL = 3 };
_Static_assert(HTH_OFI_CONNS < 1u << 16 && HTH_OFI_RING <= 64, "a context's number has room");

/* 0, or -FI_ENOMEM. Before the first operation. */
int hth_ofi_contexts_init(struct hth_ofi_conn *c);
void hth_ofi_contexts_fini(struct hth_ofi_conn *c); /* after its endpoint is closed */
/* What travels through the library with the operation. */
void *hth_ofi_context(struct hth_ofi_conn *c, enum hth_ofi_kind kind, uint32_t index);
/* Its number: kind << 24 | index << 16, and the connection's id in the bits beside. */
uint64_t hth_ofi_context_number(const void *context);
/* Nothing of endpoints that are closed is in the queue any more. */
void hth_ofi_contexts_drained(struct hth_ofi *o);
void hth_ofi_contexts_free(struct hth_ofi *o);

/* ---- conn.c ---- */

static inline struct hth_ofi_conn *hth_ofi_conn_get(const struct hth_ofi *o, hth_conn id)
{
    return hth_ids_get(&o->conns, id);
}

/* 1: libfabric's error means that a resource of this node is used up; the peer is not the cause. */
static inline int hth_ofi_is_used_up(int rc)
{
    return rc == -FI_ENOMEM || rc == -FI_ENOSPC || rc == -FI_EMFILE || rc == -ENFILE;
}

struct hth_ofi_conn *hth_ofi_conn_of(struct hth_ofi *o, const struct fid *fid);
/* Without an endpoint yet, in a slot of its own. NULL: no memory, or as many stand as may. */
struct hth_ofi_conn *hth_ofi_conn_new(
        struct hth_ofi *o, enum hth_ofi_state state, const union hth_addr *peer);
void hth_ofi_drop(struct hth_transport *t, hth_conn conn);
struct hth_ofi_grants *hth_ofi_conn_grants(struct hth_ofi *o, hth_conn conn);
void hth_ofi_conn_up(struct hth_ofi_conn *c);
/* The connection is over: messages that have come are delivered, reads that the library has end,
 * then the connection is doomed. */
void hth_ofi_conn_leave(struct hth_ofi_conn *c, int code, const char *why);
/* This node ends the connection: nothing more is delivered. */
void hth_ofi_conn_cut(struct hth_ofi_conn *c, const char *why);
/* Closes the endpoint now: from here on the library writes nothing for its pulls. */
void hth_ofi_conn_doom(struct hth_ofi_conn *c, int code, const char *why);
/* 1: the library's queues have room for one more operation of it, a receive or another. */
int hth_ofi_conn_has_room(const struct hth_ofi_conn *c, enum hth_ofi_kind kind);
void hth_ofi_conn_hold(struct hth_ofi_conn *c, enum hth_ofi_kind kind);    /* it has one more */
void hth_ofi_conn_release(struct hth_ofi_conn *c, enum hth_ofi_kind kind); /* one has ended */
/* The library did not take an operation, for -fi_errno: again in progress(), or it is over. */
void hth_ofi_conn_refused(struct hth_ofi_conn *c, ssize_t rc);
int hth_ofi_settle(struct hth_ofi *o, int drained); /* leaving -> doomed */
int hth_ofi_expire(struct hth_ofi *o);              /* connect deadlines */

/* ---- events.c ---- */

struct hth_ofi_event {
    struct hth_ofi_event *next;
    uint32_t event;
    int err;               /* fi_errno; 0: none, and: */
    const struct fid *fid; /* of the endpoint, which is open */
    struct fi_info *info;  /* FI_CONNREQ: the caller's */
};

int hth_ofi_event_next(struct hth_ofi *o, struct hth_ofi_event *out); /* 0: there is none */
/* That endpoint has just been closed. */
void hth_ofi_events_drop(struct hth_ofi *o, const struct fid *fid);
void hth_ofi_events_end(struct hth_ofi *o);

/* ---- message.c ---- */

int hth_ofi_message_init(struct hth_ofi_conn *c); /* buffers, receives posted; 0 or -fi_errno */
void hth_ofi_message_fini(struct hth_ofi_conn *c);
int hth_ofi_send(struct hth_transport *t, hth_conn conn, const void *bytes, size_t len);
void hth_ofi_receives_post(struct hth_ofi_conn *c);
void hth_ofi_sends_post(struct hth_ofi_conn *c);
void hth_ofi_received(struct hth_ofi_conn *c, uint32_t index, size_t len);
void hth_ofi_sent(struct hth_ofi_conn *c, uint32_t index);
void hth_ofi_words_post(struct hth_ofi_conn *c); /* about grants, while there are places */

/* ---- pull.c: pulls of the library's connections ---- */

void hth_ofi_pulls_post(struct hth_ofi_conn *c);
void hth_ofi_pull_post(struct hth_ofi_link *c, uint32_t index);
void hth_ofi_pulled(struct hth_ofi_conn *c, uint32_t index);

/* ---- granted.c: which peers may read a region, and which have ended ---- */

/* *out: the number of grants of that region on that connection. Errors: HEARTH_ENOMEM. */
int hth_ofi_granted_number(
        struct hth_ofi *o, struct hth_region *region, hth_conn conn, uint32_t *out);
/* HEARTH_EBUSY: peers that may read the region were asked to stop, and not all have answered. */
int hth_ofi_granted_end(struct hth_ofi *o, struct hth_region *region);
int hth_ofi_grant_is_over(const struct hth_ofi_grants *grants, uint32_t number);
/* No pull runs any more under a grant that is over: queues OVER; the caller flushes. Errors:
 * HEARTH_ENOMEM, HEARTH_EBUSY. */
int hth_ofi_grant_unread(struct hth_ofi_grants *grants, uint32_t number);
/* Words from a peer. HEARTH_EPROTO, HEARTH_ENOMEM, HEARTH_EBUSY: the connection must end. */
int hth_ofi_words_heard(struct hth_ofi *o, hth_conn conn, const unsigned char *bytes, size_t len);
/* Takes the oldest waiting words into out[most]. Returns their bytes. */
size_t hth_ofi_words_take(struct hth_ofi_grants *grants, unsigned char *out, size_t most);
void hth_ofi_grants_fini(struct hth_ofi_grants *grants);

/* ---- region.c ---- */

/* Any thread, beside progress(): the domain is opened for that. */
int hth_ofi_reg(struct hth_transport *t, void *base, uint64_t len, struct hth_region **out,
        struct hearth_error *err);
int hth_ofi_dereg(struct hth_transport *t, struct hth_region *region);
/* The caller has checked that the connection is up. Errors: HEARTH_EINVAL, HEARTH_ENOMEM. */
int hth_ofi_grant(struct hth_ofi *o, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err);
void hth_ofi_revoke(struct hth_transport *t, const unsigned char *desc, uint32_t len);
void hth_ofi_regions_end(struct hth_ofi *o);
/* With a random key; `mr` closed by fi_close(). 0 or -fi_errno. */
int hth_ofi_mr_open(
        struct hth_ofi *o, void *base, uint64_t len, uint64_t access, struct fid_mr **out);

struct hth_ofi_desc {
    uint64_t base, len; /* remote address of the grant's first byte, and how many there are */
    uint64_t key;       /* with a raw key: its base */
    uint32_t number;
    uint8_t raw_bytes, raw[HTH_OFI_RAW_KEY];
};
/* Bytes of a peer. Errors: HEARTH_EINVAL. */
int hth_ofi_desc_read(const unsigned char *desc, uint32_t len, struct hth_ofi_desc *out);
/* 1: [roff, roff + len) lies in the grant, and [doff, doff + len) in a region of this node. */
int hth_ofi_desc_fits(const struct hth_ofi_desc *d, uint64_t roff, const struct hth_region *region,
        uint64_t doff, uint64_t len);

/* ---- dialler.c: making an endpoint may block ---- */

void hth_ofi_dialler_init(struct hth_ofi *o);
/* Takes the info. 0 or -fi_errno. */
int hth_ofi_dial(struct hth_ofi *o, struct hth_ofi_conn *c, struct fi_info *info);
/* Passes finished dials, made or failed, to connections that still need them. Returns how many. */
int hth_ofi_dialled(
        struct hth_ofi *o, void (*take)(struct hth_ofi_conn *c, struct hth_ofi_dial *dial));
void hth_ofi_dialler_fini(struct hth_ofi *o); /* waits for endpoints that are being made */

/* ---- dial.c: connections begin ---- */

/* Goes on with endpoints that are made. Returns how many. */
int hth_ofi_dials_take(struct hth_ofi *o);

int hth_ofi_connect(struct hth_transport *t, const unsigned char *addr, uint32_t len,
        hth_conn *out_conn, struct hearth_error *err);
void hth_ofi_accept(struct hth_ofi *o, struct fi_info *info); /* takes the info */

/* ---- progress.c ---- */

void hth_ofi_conn_hooks(struct hth_ofi *o); /* the transport's connections are the library's */
int hth_ofi_progress(struct hth_transport *t);
void hth_ofi_drain(struct hth_ofi *o); /* until nothing is leaving */
int hth_ofi_arm(struct hth_transport *t, int *out_fd, uint64_t *out_due_ms);
void hth_ofi_wake(struct hth_transport *t);

/* ---- list.c: what the library offers ---- */

/* 1: it has this provider, whether or not it comes up here. */
int hth_ofi_built(const struct hth_ofi_lib *lib, const struct hth_ofi_provider *p);
/* 1: it is of the provider that Hearth's table calls so. */
int hth_ofi_info_is(const struct fi_info *info, const char *provider);
/* What stands against the provider on this machine, for a listener on `bind` (NULL: any): 1, and a
 * sentence; 0: nothing that can be seen. */
int hth_ofi_explain(const struct hth_ofi_lib *lib, const char *provider, const char *bind,
        const struct hth_machine *machine, char *out, size_t len);

/* ---- provider.c: which provider, with which endpoints ---- */

#define HTH_OFI_PROVIDER 64u

/* The provider's name in libfabric; returns its endpoints, FI_EP_MSG or FI_EP_RDM. A name may say
 * which: "net/rdm", "verbs/msg". */
enum fi_ep_type hth_ofi_provider_type(const char *provider, char out_name[HTH_OFI_PROVIDER]);
/* Sets o->self, o->lib and o->info. Errors: those of loading; HEARTH_EINVAL with what there is; a
 * listener that is not safe. */
int hth_ofi_provider_choose(
        struct hth_ofi *o, const struct hth_transport_opts *opts, struct hearth_error *err);

/* ---- fabric.c: the library's objects ---- */

/* Fabric and domain of the chosen provider. */
int hth_ofi_domain_open(struct hth_ofi *o, struct hearth_error *err);
/* Queues, something to wait on, a listening endpoint. */
int hth_ofi_listen_open(struct hth_ofi *o, struct hearth_error *err);
void hth_ofi_fabric_close(struct hth_ofi *o);
int hth_ofi_fabric_refused(
        const struct hth_ofi *o, int rc, const char *what, struct hearth_error *err);
/* Makes an endpoint, bound to the transport's queues and enabled. 0 or -fi_errno. */
int hth_ofi_endpoint(struct hth_ofi *o, struct fi_info *info, struct fid_ep **out);
/* Binds the endpoint to the transport's queues and enables it; on failure it is closed. */
int hth_ofi_endpoint_enable(struct hth_ofi *o, struct fid_ep *ep);

#endif
