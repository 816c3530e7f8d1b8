/* SPDX-License-Identifier: Apache-2.0 */
/* One connection: packets, and which request each answers. With h->lock held, but while it
 * waits. */
/* For this folder alone. */
#ifndef HEARTH_CLIENT_WIRE_H
#define HEARTH_CLIENT_WIRE_H

#include "link.h"

/* The packet is out, or the connection is lost. HEARTH_ESTATE: it is not the one of ask->token. */
int hth_ask_send_locked(
        struct hearth *h, struct hth_ask *ask, struct hth_asked *asked, uint64_t until);
int hth_ask_wait_locked(struct hearth *h, struct hth_asked *asked, uint64_t until, const char *what,
        struct hearth_error *err);
void hth_ask_drop_locked(struct hearth *h, struct hth_asked *asked);
/* What of the saves is not said yet, and what goes back, as far as the socket takes it. */
void hth_say_locked(struct hearth *h);
/* Until another thread has changed something, or `until` passed. */
void hth_await_change_locked(struct hearth *h, uint64_t until);
/* Its connection has ended, and slots, leases and tokens with it: what was to be said of them is
 * not. */
void hth_link_forget(struct hth_link *link);

/* One request on a connection that nobody else uses yet; events that come meanwhile are heard. */
int hth_ask_over_locked(
        struct hearth *h, int fd, struct hth_ask *ask, uint64_t until, struct hearth_error *err);

#endif
