/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of ranks, one record each, from the first request to the connection's end. */
#ifndef HEARTH_ENGINE_CLIENT_H
#define HEARTH_ENGINE_CLIENT_H

#include "core/local/local.h"
#include <stdint.h>

struct hth_node;

struct client {
    uint32_t id; /* the server's number for the connection */
    struct client *next;
    uint32_t rank, world, pid; /* as ATTACH had them */
    uint32_t seen_pid;         /* as this process counts it; 0: another namespace's */
    char host[HTH_LOCAL_HOST]; /* as ATTACH had it; "": of an older rank */
    uint32_t version;          /* of the local protocol, likewise */
    int attached, helper;
    int ahead;                /* slots may be lent to it before it asks */
    uint64_t ahead_bytes;     /* that its last save asked for; 0: none yet */
    uint64_t epoch, nonce;    /* that its rank has joined; 0: none */
    uint64_t recover_request; /* waits for the end of recovery; 0: no */
    int has_recovered;        /* this process has, in an epoch that may be over */
    uint32_t pinned;          /* as its last SEAL of bytes from GPUs had it; 0: none yet */
};

struct client *client_find(struct hth_node *n, uint32_t id); /* NULL: it has gone */
struct client *client_get(struct hth_node *n, uint32_t id);  /* or make; NULL: no memory */
void client_remove(struct hth_node *n, uint32_t id);
uint32_t client_count(const struct hth_node *n); /* attached now */
void client_close(struct hth_node *n);           /* removes all */

#endif
