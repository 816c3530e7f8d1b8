/* SPDX-License-Identifier: Apache-2.0 */
/* Events that the engine sends unasked: the progress of saves. */
#ifndef HEARTH_CLIENT_EVENTS_H
#define HEARTH_CLIENT_EVENTS_H

#include "kept.h"

/* From here on, until it is dropped, events of its save are written into it. */
void hth_events_add(struct hearth_handle *handle);
/* Its caller has done with it: freed now, or when the engine has all of what was committed. */
void hth_events_drop(struct hearth_handle *handle);

/* With h->lock held: one came. */
void hth_event_locked(struct hearth *h, const struct hth_local_event *event, size_t len);

#endif
