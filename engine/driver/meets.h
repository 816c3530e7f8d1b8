/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' meeting, between this engine's node and the sockets of meeting/. */
#ifndef HEARTH_ENGINE_MEETS_H
#define HEARTH_ENGINE_MEETS_H

#include "engine/state/node.h"
#include "meeting/meeting.h"

struct hth_meets {
    struct hth_meeting *meeting; /* NULL until a rank comes */
    struct hth_node *node;       /* set by the driver */
    const struct hth_clock *clock;
    const struct hth_log *log;
    const struct hth_key *key; /* NULL: there is none */
    int trusted;               /* network = trusted */
    uint64_t store;
    const char *job;
    int fd;    /* to wait on; -1: none yet */
    int stirs; /* it is readable */
};

struct hth_node_meeting hth_meets_hands(struct hth_meets *m);
void hth_meets_rekeyed(struct hth_meets *m); /* m->key holds other keys now */
void hth_meets_turn(struct hth_meets *m);
uint64_t hth_meets_due_ms(const struct hth_meets *m);
void hth_meets_close(struct hth_meets *m);

#endif
