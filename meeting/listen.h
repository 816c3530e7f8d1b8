/* SPDX-License-Identifier: Apache-2.0 */
/* The addresses at which the host listens. */
/* For this folder alone. */
#ifndef HEARTH_MEETING_LISTEN_H
#define HEARTH_MEETING_LISTEN_H

#include "meeting.h"
#include "stream.h"

#define HTH_LISTENERS 32u

struct hth_listener {
    struct hth_watch watch; /* first */
    void *self;
    int shut; /* 1: ranks may not meet at it */
};

struct hth_listening {
    const struct hth_meeting_place *place; /* borrowed */
    unsigned count;
    int narrow; /* hth_listen_wider() may add addresses */
    struct hth_listener at[HTH_LISTENERS];
};

/* Listens at all addresses of the place that this machine has. Returns 0, or an errno with `tried`
 * in words and no listener: EADDRINUSE if an address is in use. */
int hth_listen_once(struct hth_listening *l, char *tried, size_t len);
/* Listens at this machine's other addresses too, if the place is its host name and the resolver
 * has only loopback addresses for it. For when a key, or the caller, allows that. */
void hth_listen_wider(struct hth_listening *l);
void hth_listen_end(struct hth_listening *l);

/* " (rank 0 listens at ...)", or nothing if it listens at the place's address alone. */
void hth_listen_text(const struct hth_listening *l, char *out, size_t len);

#endif
