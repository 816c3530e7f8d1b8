/* SPDX-License-Identifier: Apache-2.0 */
/* The link's fields. h->lock guards them, but for `next`, and for `packet`, which only the reading
 * thread uses. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_LINK_PARTS_H
#define HEARTH_CLIENT_LINK_PARTS_H

#include "core/base/attempts.h"
#include "fallen.h"
#include "link.h"

struct hth_inside;
struct hth_lease;

/* A request whose answer no caller waits for, or waits for any more. */
struct hth_posted {
    struct hth_posted *next;
    uint64_t request;
    uint64_t number; /* of the handle that it is about; 0: none */
    uint64_t token;  /* as it was asked with */
    uint32_t type;   /* posted; 0: its caller gave up: the slot or lease in the answer goes back */
    uint32_t want;   /* of one whose caller gave up */
    uint64_t since_ms;
};

/* Something that goes back to the engine: the slot of a save (ABORT) or a lease (UNMAP). */
struct hth_give {
    struct hth_give *next;
    uint32_t type;
    uint64_t id;
};

struct hth_link {
    struct hth_link *next; /* of all in this process, for fork */
    struct hearth *h;
    pthread_cond_t changed;
    int fd; /* -1: no connection */
    int reading, connecting;
    uint64_t incarnation;          /* connections so far */
    uint64_t requests, numbers;    /* so far */
    struct hth_asked *asked;       /* whose answers are not here yet */
    struct hth_asked *came;        /* whose descriptors are here, and nobody has asked for */
    struct hearth_handle *handles; /* of saves that events are about */
    struct hth_lease *leases, *last_lease;
    struct hth_lease *renewing;  /* the engine is being asked for it again; NULL: for none */
    int restoring;               /* the leases are being taken again, before fd is set */
    struct hth_posted *posted;   /* on this connection, oldest first */
    struct hth_give *gives;      /* that did not fit into the socket yet */
    struct hth_local_lent ahead; /* a slot lent before we asked; token 0: none */
    int ahead_fd;
    int stuck;                 /* the socket did not accept all messages that are due */
    struct hth_attempts begun; /* by this rank in its epoch */
    struct hth_inside *inside; /* an engine in this process */
    struct hth_fallen
            fallen;        /* engines before this one; the connecting thread's, but for the count */
    int joins;             /* a new epoch: the one before is not joined again */
    int table_fd;          /* what the ranks gathered, to join again; -1: none */
    uint64_t store;        /* the engine's, that the epoch was joined with */
    unsigned char *packet; /* [HTH_LOCAL_MAX] the reader's */
};

#endif
