/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the two sides of the bootstrap over TCP. */
/* For this folder alone. */
#ifndef CLIENT_BOOTSTRAP_TCP_H
#define CLIENT_BOOTSTRAP_TCP_H

#include "bootstrap.h"
#include "rendezvous.h"

#define HTH_SAID_MAX    HEARTH_ERROR_TEXT
#define HTH_FIRST_ROUND 1u
#define HTH_GRACE_MS    1000u /* for rank 0's sentence to arrive before ours */

struct hth_tcp {
    struct hearth_bootstrap base;
    struct hth_knows knows;
    char host[256], port[8];
    uint32_t rank, world, deadline_ms, round;
    unsigned char token[HTH_TOKEN];
    int listener;
};

/* "10.0.0.7 port 4711", of the other end or of our own. */
#define HTH_PLACE_TEXT 80
void hth_place_text(int fd, int own, char out[HTH_PLACE_TEXT]);

/* Without a key nobody is spoken to but on this machine, unless the network is trusted.
 * Errors: HEARTH_EINVAL. */
int hth_place_check(const struct hth_tcp *t, int fd, int own, struct hearth_error *err);

/* Rank 0's side of one gather. */
int hth_host(struct hth_tcp *t, const void *mine, size_t len, void *all, struct hearth_error *err);

/* Another rank's. */
int hth_come(struct hth_tcp *t, const void *mine, size_t len, void *all, struct hearth_error *err);

#endif
