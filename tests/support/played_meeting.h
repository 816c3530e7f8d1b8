/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks' meeting of an engine in virtual time, played by a test: it notes each call. */
#ifndef HEARTH_TESTS_PLAYED_MEETING_H
#define HEARTH_TESTS_PLAYED_MEETING_H

#include "core/base/buf.h"
#include "core/base/fail.h"
#include "world_parts.h"

#define PLAYED_RANKS 4u

struct played_meeting {
    struct hth_node_meeting hands;
    int refuses;                  /* come() says this code; 0: it takes the rank */
    int waits[PLAYED_RANKS];      /* 1: the rank has come, and is not answered */
    uint32_t comes, gones, world; /* calls; of the last one */
    struct hth_local_meet last;   /* that came */
    uint32_t tables, lacks;       /* calls of fetched(), with a table and without */
    uint32_t round;               /* of the last one */
    struct hth_buf *table;        /* likewise; NULL: none */
};

static inline int played_come(void *self, uint32_t rank, uint32_t world,
        const struct hth_local_meet *m, struct hearth_error *err)
{
    struct played_meeting *p = self;

    if (p->refuses)
        return hth_fail(err, p->refuses, 0, "the meeting does not take this rank");
    p->comes++;
    p->world = world;
    p->last = *m;
    p->waits[rank % PLAYED_RANKS] = 1;
    return HEARTH_OK;
}

static inline void played_gone(void *self, uint32_t rank)
{
    struct played_meeting *p = self;

    p->gones++;
    p->waits[rank % PLAYED_RANKS] = 0;
}

static inline void played_fetched(void *self, uint32_t round, struct hth_buf *table)
{
    struct played_meeting *p = self;

    p->tables += table != NULL;
    p->lacks += table == NULL;
    p->round = round;
    hth_buf_put(p->table);
    p->table = table ? hth_buf_get(table) : NULL;
}

/* Of this node, from now on. */
static inline void played_meeting_begin(struct played_meeting *p, struct world *w, uint32_t node)
{
    *p = (struct played_meeting){
        .hands = { .come = played_come, .gone = played_gone, .fetched = played_fetched, .self = p }
    };
    w->machine[w->member[node]].meeting = &p->hands;
}

static inline void played_meeting_end(struct played_meeting *p)
{
    hth_buf_put(p->table);
    p->table = NULL;
}

#endif
