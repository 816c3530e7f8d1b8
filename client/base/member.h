/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One rank's membership, and the parts it is made of.
 *
 * One lock, `h->lock`, guards the connection, the handles' status, the slot maps and the leases.
 * Copies run without it. Log lines have a lock of their own and reach the caller's sink with
 * no lock held.
 */
#ifndef HEARTH_CLIENT_MEMBER_H
#define HEARTH_CLIENT_MEMBER_H

#include "core/base/auth.h"
#include "core/local/local.h"
#include "log.h"
#include <pthread.h>
#include <stdatomic.h>

struct hearth {
    struct hearth *next; /* of all in this process, for fork */
    atomic_int forked;
    struct hearth_opts opts;  /* strings: own copies, NULL where unset */
    struct hearth_opts wants; /* the same, but times 0 where unset; strings: of opts */
    char *records;            /* <root>/<job>/.hearth */
    struct hth_lines lines;
    struct hth_crew *crew;
    struct hth_spawned *inside;

    pthread_mutex_t lock;
    pthread_cond_t changed;
    int fd; /* -1: no connection */
    int reading, connecting;
    uint64_t incarnation; /* connections so far */
    uint64_t requests, numbers;
    struct hth_call *calls;
    struct hearth_handle *handles;
    struct hth_slot_map *slots;
    struct hth_lease *leases;
    struct hth_local_attached attached;
    struct hth_local_opts joined; /* in effect at the engine */
    unsigned char *packet;        /* [HTH_LOCAL_MAX] the reader's */

    int table_fd; /* what the ranks gathered, to join again; -1: none */
    uint64_t epoch, nonce;
    int recovered; /* in this epoch */
    int asked;     /* hearth_recover() was called: the next one begins a new epoch */
    int rounds;    /* gathers so far */
    int keyed;
    unsigned char key[HTH_KEY]; /* of the job's, for the rendezvous alone */
};

/* Every public call begins with this: 0, HEARTH_EINVAL for NULL, HEARTH_EFORK. */
int hth_enter(const struct hearth *h, struct hearth_error *err);

#endif
