/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the net inside a process: nodes (net.c), ends of connections (end.c), what is in
 * flight (flight.c), pulls (pull.c), the transport (loop.c). Each file calls those named before it
 * only.
 */
/* For this folder alone. */
#ifndef TRANSPORT_LOOP_PARTS_H
#define TRANSPORT_LOOP_PARTS_H

#include "heap.h"
#include "loop.h"
#include "transport/map.h"
#include <pthread.h>
#include <stdatomic.h>

enum event_kind {
    EVENT_ARRIVE, /* a peer dials this node */
    EVENT_UP,     /* the peer has answered this node's dial */
    EVENT_MESSAGE,
    EVENT_WRITABLE,
    EVENT_PULL, /* a pull of this node is due */
    EVENT_DOWN,
};

struct place;

/* Something that happens at `to`, in its progress(), because of `from`. */
struct event {
    struct hth_due due; /* first */
    enum event_kind kind;
    struct place *from, *to;
    struct event *held_next;
    hth_conn conn;  /* at `to`; 0: EVENT_ARRIVE */
    hth_conn other; /* at `from` */
    int code;       /* EVENT_DOWN */
    struct loop_pull *pull;
    size_t len; /* EVENT_MESSAGE */
    unsigned char bytes[];
};

/* Events waiting for a silence to end, in the order they would have come. */
struct held {
    struct event *first, **end;
};

/* A node of the net. Stays for the net's life, whichever transports open and close there. */
struct place {
    uint32_t node;
    struct loop *loop; /* NULL: no transport listens */
    int silent, blocked;
    struct hth_due *events; /* heap */
    struct held held;
    size_t at;          /* in net->order */
    struct place *next; /* all */
};

struct hth_loop_net {
    struct hth_clock clock;
    uint32_t latency_ms;
    hth_loop_script *script;
    void *script_arg;
    hth_loop_reg_fn *on_reg;
    void *on_reg_arg;
    int no_revoke, sums;
    uint64_t seq;
    uint32_t generation;
    struct hth_map nodes; /* node + 1 -> struct place */
    struct hth_map muted; /* from << 32 | to, + 1 -> struct place of `to` */
    struct place *places;
    struct place **order; /* [count]: heap of places by their first event */
    size_t count;
};

/* One side of a connection. */
struct end {
    enum { END_DIALLING, END_UP, END_ENDING } state;
    hth_conn conn;
    struct place *peer;
    hth_conn peer_conn; /* 0: not answered yet */
    uint64_t last_due;  /* of what was sent last: keeps the order */
    uint32_t flying;    /* messages sent and not there yet */
    int blocked;        /* send() said EBUSY */
    struct event *down_own, *down_peer,
            *up; /* made with the end, so that a break needs no memory */
    struct event *writable;
    struct loop_pull *pulls;
    uint32_t pull_count;
};

struct loop_pull {
    struct event *event; /* NULL: none will come (a stall) */
    struct end *end;     /* NULL: over, only the event is still under way */
    uint64_t cookie;
    enum hth_loop_fault fault;
    struct hth_region *region;
    uint64_t doff, roff, len;
    unsigned char desc[HTH_DESC_MAX];
    uint32_t desc_len;
    struct loop_pull *next;
};

struct loop_grant; /* of pull.c */

struct loop {
    struct hth_transport base; /* first */
    struct hth_loop_net *net;
    struct place *place;
    struct hth_transport_events events;
    const uint32_t *pulled; /* CRC32C of the pull whose on_pull() runs; NULL: there is none */
    struct end **ends;      /* [end_cap], by the lower half of the id */
    uint32_t end_cap;
    int closing;
    atomic_int woken;
    pthread_mutex_t lock; /* guards regions: reg() comes from any thread */
    struct hth_region *regions;
    struct loop_grant *grants; /* [grant_cap] */
    uint32_t grant_cap;
};

static inline uint64_t hth_loop_now(const struct hth_loop_net *net)
{
    return hth_now_ms(&net->clock);
}

/* net.c */
struct place *hth_loop_place(struct hth_loop_net *net, uint32_t node); /* NULL: no memory */
void hth_loop_reorder(
        struct hth_loop_net *net, struct place *place); /* its first event is another one */
struct hth_loop_verdict hth_loop_ask(struct hth_loop_net *net, enum hth_loop_kind kind,
        uint32_t from, uint32_t to, const void *bytes, size_t len);
struct event *hth_loop_event_new(enum event_kind kind, size_t len); /* NULL: no memory */
void hth_loop_event_free(struct event *e);

/* end.c */
struct end *hth_loop_end_new(struct loop *loop, struct place *peer);   /* NULL: no memory */
struct end *hth_loop_end_find(const struct loop *loop, hth_conn conn); /* NULL: stale */
void hth_loop_end_free(struct loop *loop, struct end *end);

/* flight.c */
void hth_loop_post(struct hth_loop_net *net, struct event *e, struct place *from, struct place *to,
        uint64_t due_ms);
/* The next event that is due at the place and not newer than last_seq; the caller's. */
struct event *hth_loop_take(struct hth_loop_net *net, struct place *place, uint64_t last_seq);
/* no transport listens there now */
void hth_loop_leave(struct hth_loop_net *net, struct place *place);
/* When a message that the end sends now is due. Only with `late` may it overtake earlier
 * messages. */
uint64_t hth_loop_sent_due_ms(struct loop *loop, struct end *end, uint64_t delay_ms, int late);
/* The end gets EVENT_DOWN at `due_ms`; `spare` is the event for it, used at most once. */
void hth_loop_post_down(struct loop *loop, struct end *end, struct event **spare,
        struct place *from, int code, uint64_t due_ms);
void hth_loop_break(struct loop *loop, struct end *end, int code); /* both sides */
/* The other side alone, if it is connected with this end. */
void hth_loop_break_peer(struct loop *loop, struct end *end);
/* No transport accepts the dial at arrive->to: the dialler gets EVENT_DOWN. */
void hth_loop_refuse(struct hth_loop_net *net, struct event *arrive);

/* pull.c */
int hth_loop_reg(struct hth_transport *t, void *base, uint64_t len, struct hth_region **out,
        struct hearth_error *err);
int hth_loop_dereg(struct hth_transport *t, struct hth_region *region);
int hth_loop_grant(struct hth_transport *t, struct hth_region *region, uint64_t off, uint64_t len,
        hth_conn conn, unsigned char *out_desc, uint32_t *out_len, struct hearth_error *err);
void hth_loop_revoke(struct hth_transport *t, const unsigned char *desc, uint32_t len);
int hth_loop_pulled_crc(struct hth_transport *t, uint32_t *out);
int hth_loop_pull(struct hth_transport *t, hth_conn conn, const unsigned char *desc,
        uint32_t desc_len, uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        uint64_t cookie);
void hth_loop_pull_due(struct loop *loop, struct event *e);
void hth_loop_pulls_end(struct loop *loop, struct end *end, int code); /* and its grants */
void hth_loop_memory_free(struct loop *loop);

#endif
