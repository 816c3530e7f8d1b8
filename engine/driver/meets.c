/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of this node at their meeting: requests in, the table and tickets out. */
#include "meets.h"

#include <stdio.h>
#include <string.h>

static void meets_keys(const struct hth_meets *m)
{
    struct hth_meeting_keys k = { .told = 1, .trusted = m->trusted };

    snprintf(k.job, sizeof(k.job), "%s", m->job);
    if (m->key) {
        hth_subkey(k.key[0], m->key->bytes, HTH_GATHER_PURPOSE);
        k.keyed = 1;
    }
    if (m->key && m->key->other) {
        hth_subkey(k.key[1], m->key->other, HTH_GATHER_PURPOSE);
        k.keyed = 2;
    }
    hth_meeting_keys(m->meeting, &k);
    hth_wipe(&k, sizeof(k));
}

static void meets_table(void *self, uint32_t round, struct hth_buf *packed)
{
    struct hth_meets *m = self;

    hth_node_table(m->node, round, packed);
}

static void meets_ticket(
        void *self, uint32_t round, uint32_t wait_ms, const struct hth_ticket *ticket)
{
    struct hth_meets *m = self;

    hth_node_ticket(m->node, round, wait_ms, ticket);
}

static void meets_done(void *self, uint32_t rank, uint32_t round, int code, const char *text)
{
    struct hth_meets *m = self;

    if (code && code != HEARTH_ENOENT)
        hth_say(m->log, HEARTH_LOG_WARN, "ranks-not-met", "rank %u: %s", rank, text);
    hth_node_met(m->node, rank, round, code, text);
}

static int meets_come(void *self, uint32_t rank, uint32_t world, const struct hth_local_meet *a,
        struct hearth_error *err)
{
    struct hth_meets *m = self;
    const struct hth_meeting_events events = {
        .self = m, .table = meets_table, .ticket = meets_ticket, .done = meets_done
    };
    const struct hth_meeting_opts opts = { .events = &events, .node = m->store };
    struct hth_meeting_rank r = { .rank = rank,
        .world = world,
        .deadline_ms = a->deadline_ms,
        .left_ms = a->left_ms,
        .place = &a->place,
        .row = a->row,
        .len = HTH_GATHER,
        .tree_from = a->tree_from };
    int rc = m->meeting ? HEARTH_OK : hth_meeting_open(&opts, &m->meeting, err);

    if (rc)
        return rc;
    m->fd = hth_meeting_fd(m->meeting);
    memcpy(r.token, a->token, sizeof(r.token));
    meets_keys(m);
    return hth_meeting_come(m->meeting, &r, hth_now_ms(m->clock), err);
}

static void meets_gone(void *self, uint32_t rank)
{
    const struct hth_meets *m = self;

    if (m->meeting)
        hth_meeting_gone(m->meeting, rank);
}

static void meets_fetched(void *self, uint32_t round, struct hth_buf *table)
{
    const struct hth_meets *m = self;

    if (m->meeting)
        hth_meeting_fetched(m->meeting, round, table);
}

struct hth_node_meeting hth_meets_hands(struct hth_meets *m)
{
    return (struct hth_node_meeting){
        .come = meets_come, .gone = meets_gone, .fetched = meets_fetched, .self = m
    };
}

void hth_meets_rekeyed(struct hth_meets *m)
{
    if (m->meeting)
        meets_keys(m);
}

void hth_meets_turn(struct hth_meets *m)
{
    uint64_t now_ms = hth_now_ms(m->clock);

    if (!m->meeting || (!m->stirs && now_ms < hth_meeting_due_ms(m->meeting)))
        return;
    m->stirs = 0;
    hth_meeting_turn(m->meeting, now_ms);
}

uint64_t hth_meets_due_ms(const struct hth_meets *m)
{
    return m->meeting ? hth_meeting_due_ms(m->meeting) : HTH_NEVER;
}

void hth_meets_close(struct hth_meets *m)
{
    hth_meeting_close(m->meeting);
    m->meeting = NULL;
}
