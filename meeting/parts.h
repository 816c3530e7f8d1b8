/* SPDX-License-Identifier: Apache-2.0 */
/* One meeting: what its files share. */
/* For this folder alone. */
#ifndef HEARTH_MEETING_PARTS_H
#define HEARTH_MEETING_PARTS_H

#include "core/base/fail.h"
#include "meeting.h"
#include "stream.h"
#include "wire.h"

#define HTH_SAID_MAX HEARTH_ERROR_TEXT
#define HTH_GRACE_MS 1000u /* so that the host's reason arrives before a visitor's own deadline */

struct hth_host;
struct hth_visit;

struct hth_meeting {
    struct hth_meeting_events events;
    struct hth_meeting_keys keys;
    uint64_t node;
    int epoll;
    uint64_t now_ms;
    struct hth_visit *visits;
    struct hth_host *host;                 /* NULL: rank 0 is not here */
    const struct hth_meeting_place *hosts; /* where it is the host of a gather; NULL: nowhere */
    uint32_t hosts_world;
};

/* ---- visit.c: one place and world, and the ranks of this node that come to it ---- */

/* Errors: HEARTH_ENOMEM. */
int hth_visit_come(struct hth_meeting *m, const struct hth_meeting_rank *rank);
void hth_visit_gone(struct hth_meeting *m, uint32_t rank);
void hth_visit_fetched(struct hth_meeting *m, uint32_t round, struct hth_buf *packed);
/* The host of this place is here: the visit's end of a connection with it; taken over. */
int hth_visit_inside(
        struct hth_meeting *m, const struct hth_meeting_place *place, uint32_t world, int fd);
/* stays: the ranks of the host's own node need not wait for the other nodes: this engine goes on
 * serving while they join. */
void hth_visit_may_go(
        struct hth_meeting *m, const struct hth_meeting_place *place, uint32_t world, int stays);
/* The answer to the ranks of the host's own node: to those that have the table and wait for the
 * other nodes, or, had_table: 0, to all. */
void hth_visit_served(struct hth_meeting *m, const struct hth_meeting_place *place, uint32_t world,
        int had_table, int code, const char *text);
void hth_visits_tick(struct hth_meeting *m);
uint64_t hth_visits_due_ms(const struct hth_meeting *m);
void hth_visits_close(struct hth_meeting *m);

/* ---- host.c: rank 0's node ---- */

/* Errors: HEARTH_ENOMEM. */
int hth_host_open(struct hth_meeting *m, const struct hth_meeting_rank *rank);
void hth_host_tick(struct hth_meeting *m);
uint64_t hth_host_due_ms(const struct hth_meeting *m);
void hth_host_close(struct hth_meeting *m);
/* Rank 0 has gone. A table that is final is still sent for a while; nothing listens any more. */
void hth_host_gone(struct hth_meeting *m);

#endif
