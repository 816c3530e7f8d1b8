/* SPDX-License-Identifier: Apache-2.0 */
/* The link's fields. Under h->lock, but for `next`, and `packet`, which the thread that reads has
 * to itself. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_LINK_PARTS_H
#define HEARTH_CLIENT_LINK_PARTS_H

#include "link.h"

struct hth_inside;
struct hth_lease;

struct hth_link {
    struct hth_link *next; /* of all in this process, for fork */
    struct hearth *h;
    pthread_cond_t changed;
    int fd; /* -1: no connection */
    int reading, connecting;
    uint64_t incarnation;          /* connections so far */
    uint64_t requests, numbers;    /* so far */
    struct hth_asked *asked;       /* whose answers are not here yet */
    struct hearth_handle *handles; /* of saves that events are about */
    struct hth_lease *leases;
    struct hth_inside *inside; /* an engine in this process */
    int table_fd;              /* what the ranks gathered, to join again; -1: none */
    unsigned char *packet;     /* [HTH_LOCAL_MAX] the reader's */
};

#endif
