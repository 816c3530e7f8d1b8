/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the ranks of a job receive the table of all ranks' rows when they know nothing of each other
 * but a host name and a port. The ranks of a node give their rows to their engine. The engine of
 * rank 0 listens at that place (the host); each engine makes one connection to it, which carries
 * the rows of all ranks of its node (a visit). Once a row of each rank is there, the host sends
 * the table to each node: itself, or as a ticket that names another node's engine.
 *
 *     rank ──come()──► meeting ──visit──► host (at rank 0's engine)
 *          ◄──done()──         ◄─ table, ticket or refusal ─
 *
 * A program that gathers without an engine, or a rank whose engine cannot start, runs a meeting of
 * its own with one rank in it (client/bootstrap/tcp.c).
 *
 * One thread. Sockets and one epoll descriptor; no call waits. The bytes are in wire.h.
 */
#ifndef HEARTH_MEETING_MEETING_H
#define HEARTH_MEETING_MEETING_H

#include "core/base/auth.h"
#include "core/base/buf.h"
#include "core/base/env.h"
#include "core/base/meeting_place.h"
#include "core/format/ticket.h"
#include <hearth/error.h>
#include <stdint.h>

#define HTH_MEETING_TOKEN 16u

/* One rank that comes to a gather. */
struct hth_meeting_rank {
    uint32_t rank, world;
    uint32_t deadline_ms;                   /* of the whole gather, as sentences name it */
    uint32_t left_ms;                       /* of it */
    unsigned char token[HTH_MEETING_TOKEN]; /* of its process: the same when it comes again */
    const struct hth_meeting_place *place;
    const void *row; /* [len] */
    uint32_t len;
    uint64_t tree_from; /* of rank 0: engines fetch from each other above so many bytes in all; 0:
                           16 MiB */
};

/* The keys with which nodes prove that they take part. */
struct hth_meeting_keys {
    int told;                   /* 0: it is not known if there is a key, so any place is accepted */
    int trusted;                /* no key is needed off loopback */
    unsigned keyed;             /* how many keys there are */
    char job[HTH_NAME_MAX + 1]; /* in each proof, so that two jobs with one key are two */
    unsigned char key[2][HTH_KEY]; /* for HTH_GATHER_PURPOSE: the first proves, both are accepted */
};

struct hth_meeting_events {
    void *self;
    /* The packed table (core/format/rows.h) of this gather is here, before done() of its ranks. */
    void (*table)(void *self, uint32_t round, struct hth_buf *packed);
    /* The table is at another node's engine. hth_meeting_fetched() says how that ended. NULL: this
     * meeting has no engine, and it reports that to the host. */
    void (*ticket)(void *self, uint32_t round, uint32_t wait_ms, const struct hth_ticket *ticket);
    /* The end for one rank. code 0: it has the table of `round`. HEARTH_ENOENT: nothing answers
     * at any of its addresses: resolve the name anew and come again, however much time is left.
     * Each other code is final. Not inside hth_meeting_come(). */
    void (*done)(void *self, uint32_t rank, uint32_t round, int code, const char *text);
};

struct hth_meeting_opts {
    const struct hth_meeting_events *events; /* copied */
    uint64_t node; /* the same for all ranks of one engine; 0: no engine */
};

struct hth_meeting;

/* Errors: HEARTH_ENOMEM. */
int hth_meeting_open(
        const struct hth_meeting_opts *opts, struct hth_meeting **out, struct hearth_error *err);
void hth_meeting_close(struct hth_meeting *m); /* NULL: nothing */

/* Before the first rank comes, and when they change. */
void hth_meeting_keys(struct hth_meeting *m, const struct hth_meeting_keys *keys);

/* Rank 0 makes this meeting the host. A rank that is here already comes anew: its earlier coming
 * ends without done(). Errors: HEARTH_EINVAL rank, world or addresses, HEARTH_ENOMEM. */
int hth_meeting_come(struct hth_meeting *m, const struct hth_meeting_rank *rank, uint64_t now_ms,
        struct hearth_error *err);
/* The rank has died, or does not wait any more: done() is not called for it. For rank 0 this may
 * also come after done(). */
void hth_meeting_gone(struct hth_meeting *m, uint32_t rank);
/* The table of a ticket; NULL: it could not be fetched. */
void hth_meeting_fetched(struct hth_meeting *m, uint32_t round, struct hth_buf *packed);

int hth_meeting_fd(const struct hth_meeting *m); /* readable: turn() has something to do */
void hth_meeting_turn(struct hth_meeting *m, uint64_t now_ms);
uint64_t hth_meeting_due_ms(const struct hth_meeting *m);

/* "3, 7-9, ...": those whose there[rank] is 0. */
void hth_ranks_text(char *out, size_t len, const unsigned char *there, uint32_t world);

#endif
