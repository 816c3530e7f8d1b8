/* SPDX-License-Identifier: Apache-2.0 */
/* Events that the engine sends unasked: the progress of saves. */
#ifndef HEARTH_CLIENT_EVENTS_H
#define HEARTH_CLIENT_EVENTS_H

#include "kept.h"

/* From this call until hth_events_drop(), events of its save are written into it. */
void hth_events_add(struct hearth_handle *handle);
/* Its caller has closed it: freed now, or once the engine has everything that was committed. */
void hth_events_drop(struct hearth_handle *handle);

/* With h->lock held: its copies from GPUs have ended. The handle is freed if its caller has closed
 * it and no event matters any more. */
void hth_events_settle_locked(struct hearth_handle *handle);

/* With h->lock held: an event has come. */
void hth_event_locked(struct hearth *h, const struct hth_local_event *event, size_t len);

#endif
