/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One engine: all state machines of a node behind three kinds of events. Requests of ranks come in
 * as the bytes of core/local/local.h, the peers' messages through the session, time through tick.
 * The engine never sleeps, reads a clock, starts a thread or touches a socket. Its caller does: in
 * production engine/driver/driver.c, in tests the simulator's single thread.
 */
#ifndef HEARTH_ENGINE_NODE_H
#define HEARTH_ENGINE_NODE_H

#include "core/base/buf.h"
#include "core/format/fabric.h"
#include "core/format/ticket.h"
#include "core/local/local.h"
#include "replication/held/ctx.h"

struct hth_node;

#define HTH_CONFINED_TEXT 400 /* bytes of hth_node_env.confined at most, with terminator */

/* transport = auto: what this node may listen on, by the numbers of core/format/fabric.h. */
struct hth_node_fabrics {
    uint32_t
            offered; /* bits, of what opens as far as is known; written by whoever finds that it does not */
    uint32_t opened;
    uint32_t first, last; /* of the record `.hearth/fabric`; written by the node */
    /* An epoch was joined, or is gone on with, on `opened`: another one needs another engine.
     * NULL: unused. */
    void (*settled)(void *self);
    void *self;
};

/* The ranks' meeting (meeting/meeting.h), which has sockets. Functions return at once. */
struct hth_node_meeting {
    /* A rank comes: hth_node_met() is called for it, later, unless it goes. NULL: no rank can.
     * Errors: as of hth_meeting_come(). */
    int (*come)(void *self, uint32_t rank, uint32_t world, const struct hth_local_meet *m,
            struct hearth_error *err);
    void (*gone)(void *self, uint32_t rank);
    /* The table of hth_node_ticket(); NULL: it could not be fetched. */
    void (*fetched)(void *self, uint32_t round, struct hth_buf *table);
    void *self;
};

/* The program that may take this engine's place. */
struct hth_successor {
    /* Starts it for a trial, in which it prints its versions (build.h) and ends: out[size], with
     * terminator. Any thread, one at a time. Errors: HEARTH_EENGINE, in a sentence. */
    int (*trial)(void *self, char *out, size_t size, struct hearth_error *err);
    void *self;
};

struct hth_node_env {
    struct hth_clock clock;
    struct hth_random random;
    struct hth_workers workers;
    struct hth_log log;
    struct hth_points points;
    struct hth_store *store;         /* borrowed until hth_node_close() */
    struct hth_session_opts session; /* heartbeat, dead, stall; key; job */
    struct hth_transport *(*transport)(void *self, const struct hth_transport_events *events,
            struct hearth_error *err); /* called once by hth_node_open(): opens and gives away */
    void *transport_self;
    struct hth_node_meeting meeting;
    struct hth_node_fabrics *fabrics;      /* borrowed until hth_node_close(); NULL: set by hand */
    const struct hth_successor *successor; /* likewise; NULL: the engine is part of a rank */
    /* An answer or event for a client: bytes[len]; fd >= 0: a descriptor to pass on (borrowed
     * during the call). */
    void (*reply)(void *self, uint32_t client, const void *bytes, size_t len, int fd);
    /* Writes bytes[len] at `off` of a descriptor for reply(). If *fd is -1, the descriptor is made,
     * and the caller closes it. last: from now on no process can change it. Any thread, one at a
     * time for a descriptor. -1 and errno. */
    int (*attach)(void *self, int *fd, const void *bytes, uint64_t off, size_t len, int last);
    /* The client's pid in this process's pid namespace; 0: it has none. NULL: the pid that the
     * client has sent. */
    uint32_t (*pid_of)(void *self, uint32_t client);
    void *reply_self;
    char node[HTH_NAME_MAX + 1]; /* this node's id */
    /* a sentence, which may change, whether the process is confined; borrowed; NULL: none */
    const char *confined;
    char log_path[512]; /* sent to clients, as are the next three */
    char provider[32];
    char bind[HTH_BINDS_TEXT]; /* one address or several */
    char device[32];
    int trusted;           /* network = trusted; ranks must have the same */
    int strong;            /* integrity = strong, likewise */
    uint32_t linger_s;     /* until ranks set another; 0: the default of linger_s */
    uint32_t retry_ms;     /* 0: 500 */
    uint32_t foreign_last; /* foreign containers are recovered only while no save was PROTECTED */
    uint32_t tree_degree;  /* 0: HTH_TREE_DEGREE; less in tests */
    uint64_t breaks;       /* enum hth_break, tests */
};

/* Adopts the objects in the store. If the store has an epoch record whose job still runs (an engine
 * that died under living ranks), the engine enters that epoch again and goes on with it. */
int hth_node_open(const struct hth_node_env *env, struct hth_node **out, struct hearth_error *err);

/* Serves one packet of a client (any number > 0 that the server chose); content: of the descriptor
 * that came with it, NULL: none; taken over. Workers read large contents later. */
void hth_node_request(struct hth_node *node, uint32_t client, const void *bytes, size_t len,
        struct hth_content *content);

/* The client's connection ended or its process died: its leases and loans end. */
void hth_node_client_gone(struct hth_node *node, uint32_t client);

/* The meeting of the ranks delivers the packed table of this gather; it is kept for other engines,
 * too, until the next table. */
void hth_node_table(struct hth_node *node, uint32_t round, struct hth_buf *table);
/* Another engine has the table: env.meeting.fetched() is called, maybe inside. */
void hth_node_ticket(
        struct hth_node *node, uint32_t round, uint32_t wait_ms, const struct hth_ticket *ticket);
/* The end for a rank: code 0: it has the table of that round; else why it has none. */
void hth_node_met(struct hth_node *node, uint32_t rank, uint32_t round, int code, const char *text);

struct hth_transport *hth_node_transport(struct hth_node *node); /* for progress and arm */
/* 1: the engine is to end and to begin anew, on another fabric or as another program. It answers no
 * request any more. */
int hth_node_ends(const struct hth_node *node);
int hth_node_hands_over(const struct hth_node *node); /* 1: as another program */

/* Time has passed, or the transport's progress has left work. Call it when it is due and after any
 * event. */
void hth_node_tick(struct hth_node *node);
uint64_t hth_node_due_ms(struct hth_node *node); /* store's background work included */

/* env.session.key has changed. Returns how many connections are made anew for it. */
uint32_t hth_node_rekeyed(struct hth_node *node);
/* This engine ends, though the job does not. Clients that wait for an answer get `why`, and so do
 * clients that send a request from now on. */
void hth_node_fail(struct hth_node *node, const struct hearth_error *why);

uint32_t hth_node_clients(const struct hth_node *node); /* attached now */
/* 1: the job was dropped, on all nodes as far as this engine can find out, and no client is left:
 * the engine may end. */
int hth_node_done(const struct hth_node *node);

/* Which files stay when the engine ends. */
enum hth_leftover {
    HTH_LEAVE_ALL,     /* the job goes on, or may */
    HTH_LEAVE_RECORDS, /* it was dropped, and some nodes may not have learned it */
    HTH_LEAVE_NOTHING
};
enum hth_leftover hth_node_leftover(const struct hth_node *node);

uint32_t hth_node_linger_s(const struct hth_node *node);

/* For tests and the simulator. */
struct hth_ctx *hth_node_ctx(struct hth_node *node);
struct history;
const struct history *hth_node_history(const struct hth_node *node);  /* engine/state/history.h */
struct hth_slot *hth_node_lent(struct hth_node *node, uint64_t slot); /* in a rank's hands; NULL */

void hth_node_close(struct hth_node *node); /* the transport too; the store stays */

#endif
