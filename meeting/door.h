/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's listeners, and guests: connections that have not proved anything yet. Bytes of a guest
 * are kept in a buffer of fixed size, for at most HTH_HALF_MS. If all buffers are used, the oldest
 * guest is disconnected, once it has had 50 ms.
 */
/* For this folder alone. */
#ifndef HEARTH_MEETING_DOOR_H
#define HEARTH_MEETING_DOOR_H

#include "listen.h"
#include "parts.h"
#include "place.h"

#define HTH_GUESTS  256u  /* at once */
#define HTH_HALF_MS 5000u /* to prove it, and then to bring a row */

struct hth_door;

struct hth_guest {
    struct hth_watch watch; /* first; -1: unused */
    struct hth_door *door;
    uint64_t since_ms;
    int own;    /* of the host's node */
    size_t got; /* of the greeting */
    struct hth_talk talk;
};

struct hth_door_owner {
    /* A greeting is whole and proved. fd is in the epoll set, and the owner's. */
    void (*admit)(void *self, int fd, int own, const struct hth_greeting *hello,
            const struct hth_proving *proving);
    /* No descriptor is left, and guests hold none that could be freed. e: errno. */
    void (*full)(void *self, int e);
    void *self;
};

struct hth_door {
    struct hth_meeting *m;
    struct hth_door_owner owner;
    struct hth_listening listening;
    struct hth_guest guest[HTH_GUESTS];
    uint32_t guests;
    int is_open;           /* epoll waits for the listeners */
    uint64_t rest_till_ms; /* no accept before that */
    uint32_t unproved;     /* guests whose proof failed, and one of them */
    char unproved_from[HTH_PLACE_TEXT];
};

void hth_door_init(struct hth_door *d, struct hth_meeting *m, const struct hth_door_owner *owner,
        const struct hth_meeting_place *place); /* borrowed */
/* It listens already (hth_listen_once()). Errors: HEARTH_EINVAL, ranks may not meet at any of the
 * addresses; HEARTH_ENOMEM. */
int hth_door_open(struct hth_door *d, struct hearth_error *err);
void hth_door_let_in(struct hth_door *d, int fd); /* of the host's own node; taken over */
/* open: connections are to be accepted. */
void hth_door_tick(struct hth_door *d, int open);
uint64_t hth_door_due_ms(const struct hth_door *d);
void hth_door_shut(struct hth_door *d); /* nothing listens any more */
void hth_door_close(struct hth_door *d);

#endif
