/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's conversations with the other members of its epoch, by member index.
 *
 * Connections are made when one side has a message to send, authenticated both ways, and watched:
 * each side pings; a member that is silent for dead_ms is down. One connection carries both
 * messages and pulls. When both sides dial at once there are two connections; each side sends on
 * the first that came up, and receives on both. A node that joined another epoch receives nothing
 * of this one.
 *
 * A connection that neither side has used for idle_ms is closed by agreement, unless one of them
 * watches the other. Its peer is not down: it is dialled again when there is something to send.
 * When the limit of connections is reached, the least recently used idle one is closed sooner, and
 * the peer that waits for its place is not down either.
 *
 *   dialler: HELLO{versions, job, epoch, nonce, from, to, store, backend, nonceA}
 *   acceptor: HELLO_ACK{version, its own, nonceB, proof}   dialler: AUTH{proof}   then messages
 *
 * An engine of the job can also be met in no epoch, by its address (hth_session_visit()): HELLO
 * has epoch 0 then, and the index HTH_NODE_NONE for both sides. Such a connection goes on when
 * an epoch is joined. It is never watched, and never made again: when it ends, its peer is down.
 *
 * Single thread, fed by the transport's events and tick(); waits for nothing.
 */
#ifndef HEARTH_TRANSPORT_SESSION_H
#define HEARTH_TRANSPORT_SESSION_H

#include "frame.h"

#define HTH_OUTSIDE 0x80000000u /* indices from here on are of engines that are met in no epoch */

struct hth_session;

struct hth_session_opts {
    uint32_t heartbeat_ms; /* 0: the option's default, as of dead_ms and stall_ms */
    uint32_t dead_ms;
    uint32_t hello_ms;   /* 0: 2000 */
    uint32_t connect_ms; /* 0: 5000: give a peer up as unreachable after that long of retries */
    uint32_t stall_ms;   /* a pull without its completion */
    uint32_t queue_max;  /* messages waiting for one peer; 0: 1024 */
    uint32_t idle_ms;    /* 0: 60000 */
    uint32_t renew_ms;   /* 0: 3600000; a connection this old is made anew, over another exchange */
    uint32_t links_max;  /* connections that may stand; 0: 1024; 3/4 of the transport's at most */
    uint8_t version_low, version_high; /* 0: the versions of this build; tests set others */
    int no_fence;  /* simulator: accept other epochs too, to test that a property then fails */
    int all_alive; /* likewise: a late tick marks all peers as alive */
    const struct hth_key *key; /* borrowed until hth_session_close(); NULL: none */
    /* CPU time that the thread which ticks has used so far; NULL: not known, and counted as
     * none. */
    uint64_t (*busy_ms)(void);
    uint64_t store; /* of this node's memory; identifies it to peers outside of an epoch */
    char job[HTH_NAME_MAX + 1];
};

struct hth_session_events {
    void *self;
    void (*on_message)(
            void *self, uint32_t node, uint16_t type, const unsigned char *body, size_t len);
    /* A peer that this node is connected with, or has dialled, is up or down. Down: the connection
     * is lost and not back within dead_ms, or the peer is silent, unreachable, or refuses. text
     * names the node and the reason. code HEARTH_ESTATE: no connection has stood, and the peer
     * answers that it is not in this epoch. */
    void (*on_peer_up)(void *self, uint32_t node);
    void (*on_peer_down)(void *self, uint32_t node, int code, const char *text);
    /* 1: the owner must be notified of this peer's end even if no messages are exchanged: its
     * connection stays. NULL: all peers are watched so. */
    int (*is_watched)(void *self, uint32_t node);
    /* A pull of `len` bytes from the peer has completed (code 0) or stalled (HEARTH_ETIMEOUT), even
     * if messages of the peer still come. Runs before the pull's `done`. NULL: no call. */
    void (*on_pulled)(void *self, uint32_t node, uint64_t len, int code);
};

/* One pull, embedded in its owner; the session's from pull() until `done`. */
struct hth_session_pull {
    void (*done)(struct hth_session_pull *pull, int code); /* HEARTH_ETIMEOUT after a stall too */
    uint64_t due_ms;
    uint64_t most_ms; /* it is given up then, even if bytes of other pulls come */
    uint64_t cookie;
    hth_conn conn;
    uint32_t node;
    uint64_t len;
    int code;
    int has_crc;  /* in done(), code 0: the transport has computed */
    uint32_t crc; /* the CRC32C of the range as it lies in the region */
    struct hth_session_pull *next, *prev;
};

/* A grant to one peer; for revoke. */
struct hth_grant {
    hth_conn conn; /* the holder's connection, on which it is valid; not sent to the peer */
    uint32_t desc_len;
    unsigned char desc[HTH_DESC_MAX];
};

int hth_session_open(const struct hth_session_opts *opts, const struct hth_session_events *events,
        const struct hth_clock *clock, const struct hth_random *random, const struct hth_log *log,
        struct hth_session **out, struct hearth_error *err);

/* Other deadlines than those of open, from here on; 0: as they are. */
void hth_session_times(
        struct hth_session *s, uint32_t heartbeat_ms, uint32_t dead_ms, uint32_t stall_ms);

/* The keys at opts.key have changed, or their order has. Connections that were proved with a
 * removed key are renewed: each is closed when nothing is under way on it, at the latest after a
 * while, and made again; its peer is not reported down meanwhile. Returns how many there are. */
uint32_t hth_session_rekeyed(struct hth_session *s);

/* The events the transport is to be opened with; then the transport itself (borrowed until
 * close), or another in its place, before any epoch and after the close of the one before. */
struct hth_transport_events hth_session_events_for(struct hth_session *s);
void hth_session_attach(struct hth_session *s, struct hth_transport *transport);

/* Leaves the old epoch (its connections are dropped, its pulls fail) and enters this one. The
 * members are borrowed until the next join. */
void hth_session_join(struct hth_session *s, const struct hth_epoch *epoch);

/* Dials an engine of the job outside of an epoch, by its node, store and address. *out_node is its
 * index for hth_session_send(), on_message() and on_peer_down(), and is forgotten after
 * on_peer_down(). An engine that visits this one gets an index in the same way, when it has proved
 * the job key. Errors: HEARTH_ENOMEM, HEARTH_ESTATE no transport. */
int hth_session_visit(struct hth_session *s, const struct hth_member *at, uint32_t *out_node);
/* The caller does not need the peer any more: its connection is dropped, and on_peer_down() does
 * not run. */
void hth_session_leave(struct hth_session *s, uint32_t node);

/* Queues a message for the peer, and connects if needed. Order is kept while the connection lives;
 * messages that are queued when a peer goes down are lost (callers repeat them:
 * docs/design/protocol.md). Errors: HEARTH_EBUSY queue full, HEARTH_EINVAL too long, or the node is
 * not a member or is this node. */
int hth_session_send(
        struct hth_session *s, uint32_t node, uint16_t type, const void *body, size_t len);

/* The protocol versions of this build. */
void hth_session_versions(const struct hth_session *s, uint32_t *low, uint32_t *high);

int hth_session_is_up(const struct hth_session *s, uint32_t node);
/* 1: there is a connection with the peer now, and no message waits for another. */
int hth_session_is_connected(const struct hth_session *s, uint32_t node);
/* The protocol version of the connection that the next message to the peer goes on; 0: there is
 * none. */
uint8_t hth_session_version(const struct hth_session *s, uint32_t node);
uint64_t hth_session_messages(
        const struct hth_session *s); /* received so far, without the session's own */
uint64_t hth_session_heard_ms(const struct hth_session *s, uint32_t node); /* last; 0: never */
uint32_t hth_session_connections(const struct hth_session *s);

/* How often a tick came late by more than dead_ms / 3. out_still: this machine stood still, and all
 * deadlines were re-armed. out_busy: this thread was busy, and no deadline was re-armed. */
void hth_session_late(const struct hth_session *s, uint32_t *out_still, uint32_t *out_busy);

/* Memory for grants and pulls: registered once, kept for its life. Takes seconds where pages are
 * pinned. Any thread, once a transport is attached and until its close() begins. */
int hth_session_reg(struct hth_session *s, void *base, uint64_t len, struct hth_region **out,
        struct hearth_error *err);
int hth_session_dereg(struct hth_session *s, struct hth_region *region);

/* Makes a grant for the peer's present connection; it ends with that connection. Errors:
 * HEARTH_EPEER not up. */
int hth_session_grant(struct hth_session *s, uint32_t node, struct hth_region *region, uint64_t off,
        uint64_t len, struct hth_grant *out, struct hearth_error *err);
/* 1: a new grant would be for the same connection. */
int hth_session_granted(const struct hth_session *s, uint32_t node, const struct hth_grant *grant);
int hth_session_stands(
        const struct hth_session *s, const struct hth_grant *grant); /* its connection */
/* Ends a grant that the peer does not use any more. */
void hth_session_ungrant(struct hth_session *s, const struct hth_grant *grant);
/* Ends a grant even if the peer still uses it. If hth_session_revokes() returns 1, only the grant
 * ends; otherwise its connection is cut with it. */
void hth_session_revoke(struct hth_session *s, const struct hth_grant *grant);
int hth_session_revokes(const struct hth_session *s);

/* Pulls on the connection by which the grant's message came (the connection that received last).
 * Errors: HEARTH_EPEER, HEARTH_EBUSY. `done` runs exactly once for an accepted pull, never inside
 * this call. A pull with no completion within stall_ms drops the connection; `done` runs once the
 * range is safe. */
int hth_session_pull(struct hth_session *s, uint32_t node, const struct hth_grant *grant,
        uint64_t roff, struct hth_region *region, uint64_t doff, uint64_t len,
        struct hth_session_pull *pull);

/* Cuts all connections with the peer (and dials again when a message is queued for it). */
void hth_session_drop(struct hth_session *s, uint32_t node);

/* Time has passed: pings, deadlines, dials. Call it in every round of the loop. If a tick comes
 * late by more than dead_ms / 3, not counting the time that this thread worked (a paused machine),
 * every deadline is re-armed before any peer is judged. */
void hth_session_tick(struct hth_session *s);
uint64_t hth_session_due_ms(const struct hth_session *s);

void hth_session_close(struct hth_session *s); /* after the transport's close() */

#endif
