/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: packets, and which request each answers. With h->lock held, but while it
 * waits. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_WIRE_H
#define HEARTH_CLIENT_WIRE_H

#include "link.h"

/* Sends the packet. HEARTH_EENGINE: the connection is lost; HEARTH_ETIMEOUT: its socket did not
 * accept the packet by `until`; HEARTH_ESTATE: it is not the connection of ask->token. */
int hth_ask_send_locked(
        struct hearth *h, struct hth_ask *ask, struct hth_asked *asked, uint64_t until);
int hth_ask_wait_locked(struct hearth *h, struct hth_asked *asked, uint64_t until, const char *what,
        struct hearth_error *err);
void hth_ask_drop_locked(struct hearth *h, struct hth_asked *asked);
/* Waits until another thread has changed something, or `until` has passed. */
void hth_await_change_locked(struct hearth *h, uint64_t until);
/* The connection has ended, and with it its slots, leases and tokens: messages about them are
 * dropped. */
void hth_link_forget(struct hth_link *link);

/* Sends one request on a connection that no other thread uses yet, and waits for its answer; events
 * that come meanwhile are handled. */
int hth_ask_over_locked(
        struct hearth *h, int fd, struct hth_ask *ask, uint64_t until, struct hearth_error *err);

#endif
