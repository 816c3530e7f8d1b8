/* SPDX-License-Identifier: Apache-2.0 */
/* The bootstrap over TCP, as its two sides see it. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_TCP_H
#define HEARTH_CLIENT_TCP_H

#include "bootstrap.h"
#include "rendezvous.h"
#include <sys/socket.h>

#define HTH_SAID_MAX  HEARTH_ERROR_TEXT
#define HTH_GRACE_MS  1000u /* so that rank 0's error arrives before our own deadline */
#define HTH_LISTENERS 32u

struct hth_tcp {
    struct hearth_bootstrap base;
    struct hth_knows knows;
    struct hth_mates mates;
    uint64_t tree_from; /* bytes; 0: TREE_FROM */
    char host[256], port[8];
    uint32_t rank, world, deadline_ms;
    uint32_t round; /* of the last table that this rank received; rank 0: of its newest gather */
    unsigned char token[HTH_TOKEN];
    struct sockaddr_storage good; /* the address that the last table came from */
    unsigned listeners;
    int listener[HTH_LISTENERS];
    int narrow; /* rank 0: hth_listen_wider() may add addresses */
};

#endif
