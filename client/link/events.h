/* SPDX-License-Identifier: Apache-2.0 */
/* What the engine says unasked: how saves move on. */
#ifndef HEARTH_CLIENT_EVENTS_H
#define HEARTH_CLIENT_EVENTS_H

#include "client/base/member.h"

#define HTH_FOLLOWED (UINT64_C(1) << 63) /* tokens of ours, apart from the engine's */

/* A save that events are about: under h->lock. */
struct hearth_handle {
    struct hearth *h;
    struct hearth_handle *next; /* of those that events are about */
    uint64_t token;
    uint64_t incarnation; /* of the connection that token belongs to */
    int committed;
    int copied;       /* COPIED was heard, which may be before or after COMPLETE */
    uint32_t objects; /* that the engine took over: sealed and common ones */
    struct hth_save_id save;
    struct hearth_status status;
};

/* From here on, until it is dropped, events of its save are written into it. */
void hth_events_add(struct hearth_handle *handle);
void hth_events_drop(struct hearth_handle *handle);

/* With h->lock held: one came. */
void hth_event_locked(struct hearth *h, const struct hth_local_event *event, size_t len);

#endif
