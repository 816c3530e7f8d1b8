/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks' table of a joining goes from engine to engine: the real engines, and the order in
 * which the host answers (meeting/share.c). The host's own messages over TCP are counted, and not
 * sent. All ranks come to the meeting and wait for the table.
 */
#include "join.h"

#include "core/base/buf.h"
#include "core/format/rows.h"
#include "core/format/ticket.h"
#include "meeting/share.h"
#include "meeting/wire.h"
#include "transport/loop/loop.h"
#include "world_parts.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUND      77u
#define FIRST      (UINT64_C(1) << 40) /* + rank: our requests */
#define MOST_BYTES (UINT64_C(64) << 20)
#define MOST_MS    60000u

struct joining {
    struct world *w;
    struct hth_node_meeting *hands; /* [nodes] */
    struct hth_share *share;
    struct hth_buf *table;
    uint64_t *bytes, *messages; /* [ports] out of each engine */
    uint32_t ports, come, have, failed, tickets;
};

static struct joining joining;

static struct hth_loop_verdict join_count(void *arg, enum hth_loop_kind kind, uint32_t from,
        uint32_t to, const void *bytes, size_t len)
{
    (void)arg, (void)to, (void)bytes;
    if (from < joining.ports && kind == HTH_LOOP_MESSAGE) {
        joining.bytes[from] += len;
        joining.messages[from]++;
    }
    return (struct hth_loop_verdict){ HTH_LOOP_NONE, 0, 0 };
}

/* ---- the meeting of each node ---------------------------------------------------------------- */

static int join_come(void *self, uint32_t rank, uint32_t world, const struct hth_local_meet *m,
        struct hearth_error *err)
{
    (void)self, (void)rank, (void)world, (void)m, (void)err;
    joining.come++;
    return HEARTH_OK;
}

static void join_gone(void *self, uint32_t rank)
{
    (void)self, (void)rank;
}

static void join_has(uint32_t node, struct hth_buf *table)
{
    struct hth_node *n = world_node(joining.w, node);
    uint32_t per_node = joining.w->opts.ranks_per_node;

    hth_node_table(n, ROUND, table);
    for (uint32_t i = 0; i < per_node; i++)
        hth_node_met(n, node * per_node + i, ROUND, HEARTH_OK, "");
    hth_share_has(joining.share, node);
}

static void join_fetched(void *self, uint32_t round, struct hth_buf *table)
{
    uint32_t node = (uint32_t)((const struct hth_node_meeting *)self - joining.hands);

    (void)round;
    if (table) {
        join_has(node, table);
        return;
    }
    joining.failed++;
    hth_share_waits(joining.share, node);
}

/* ---- the host -------------------------------------------------------------------------------- */

static void join_ticket(struct world *w, const struct hth_handing *h)
{
    struct machine *x = &w->machine[w->member[h->node]];
    const struct hth_local_attached *a = &w->rank[h->source * w->opts.ranks_per_node].gathered;
    struct hth_ticket t = { .len = joining.table->len,
        .at = { .node = "source", .store = a->store, .addr_len = a->addr_len } };

    memcpy(t.at.addr, a->addr, sizeof(t.at.addr));
    memcpy(t.digest, joining.table->digest, HTH_DIGEST);
    joining.tickets++;
    machine_enter(x);
    hth_node_ticket(x->node, ROUND, MOST_MS, &t);
    machine_leave(x);
    machine_due(x, 0);
}

/* A node that the host would send the table itself is a failure here: join_judge() counts
 * tickets. */
static void join_hand_on(struct world *w)
{
    struct hth_handing h;

    while (hth_share_next(joining.share, &h))
        if (h.source != HTH_SHARE_HOST)
            join_ticket(w, &h);
}

static void join_serve(struct world *w)
{
    struct machine *first = &w->machine[w->member[0]];

    machine_enter(first);
    join_has(0, joining.table);
    machine_leave(first);
    machine_due(first, 0);
    for (uint32_t n = 1; n < w->opts.nodes; n++)
        hth_share_waits(joining.share, n);
}

static void join_hear(struct world *w, const struct letter *l)
{
    const struct hth_local_head *head = (const void *)l->bytes;

    if (head->request < FIRST || head->request - FIRST >= w->ranks)
        return;
    if (head->type == HTH_LOCAL_BYTES && l->attached == joining.table->len &&
            !memcmp(l->bytes + l->len, joining.table->at, l->attached))
        joining.have++;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void join_pack(const struct world *w)
{
    unsigned char *packed = malloc((size_t)hth_rows_most(HTH_GATHER, w->ranks));

    if (packed)
        joining.table = hth_buf_of(packed, hth_rows_pack(packed, w->table, HTH_GATHER, w->ranks));
    free(packed);
    if (!joining.table)
        abort();
}

static void join_open(struct world *w)
{
    unsigned char *fetches = malloc(w->opts.nodes);

    joining = (struct joining){ .w = w, .ports = w->machines + 2 };
    joining.hands = calloc(w->opts.nodes, sizeof(*joining.hands));
    joining.bytes = calloc(joining.ports, sizeof(*joining.bytes));
    joining.messages = calloc(joining.ports, sizeof(*joining.messages));
    if (!fetches || !joining.hands || !joining.bytes || !joining.messages)
        abort();
    memset(fetches, 1, w->opts.nodes);
    joining.share = hth_share_open(w->opts.nodes, fetches, 1);
    free(fetches);
    if (!joining.share)
        abort();
    join_pack(w);
    for (uint32_t n = 0; n < w->opts.nodes; n++) {
        struct hth_node_meeting *hands = &joining.hands[n];

        *hands = (struct hth_node_meeting){ join_come, join_gone, join_fetched, hands };
        w->machine[w->member[n]].meeting = hands;
    }
}

static void join_close(struct world *w)
{
    for (uint32_t n = 0; n < w->opts.nodes; n++)
        w->machine[w->member[n]].meeting = NULL;
    hth_share_close(joining.share);
    hth_buf_put(joining.table);
    free(joining.hands);
    free(joining.bytes);
    free(joining.messages);
}

static void join_send(struct world *w)
{
    for (uint32_t r = 0; r < w->ranks; r++) {
        struct hth_local_meet m = { .head = { sizeof(m), HTH_LOCAL_MEET, FIRST + r, 0 },
            .deadline_ms = MOST_MS,
            .left_ms = MOST_MS };

        memcpy(m.row, w->table + (size_t)r * HTH_GATHER, HTH_GATHER);
        rank_send(&w->rank[r], &m, sizeof(m), NULL, 0);
    }
}

/* Counts all that the host sends to the nodes, too. */
static void join_judge(struct world *w, uint64_t ms)
{
    uint64_t most = 0, messages = 0, host;

    for (uint32_t i = 0; i < joining.ports; i++) {
        most = joining.bytes[i] > most ? joining.bytes[i] : most;
        messages = joining.messages[i] > messages ? joining.messages[i] : messages;
    }
    host = (uint64_t)w->opts.nodes * HTH_CHALLENGE +
           (uint64_t)joining.tickets * (HTH_MEET_FRAME + HTH_TICKET);
    printf("joining: a table of %zu bytes to %u nodes in %" PRIu64 " ms, %u tickets failed; out of "
           "an engine at most %" PRIu64 " bytes in %" PRIu64 " messages, out of the host %" PRIu64
           " besides\n",
            joining.table->len, w->opts.nodes, ms, joining.failed, most, messages, host);
    if (most + host > MOST_BYTES)
        world_broken(w, "%" PRIu64 " bytes out of one node for a joining", most + host);
    if (joining.come != w->ranks || joining.have != w->ranks ||
            joining.tickets != w->opts.nodes - 1 || joining.failed)
        world_broken(w, "%u of %u ranks have the table, by %u tickets", joining.have, w->ranks,
                joining.tickets);
}

void scale_join(struct world *w)
{
    uint64_t began_ms = w->now_ms;

    join_open(w);
    w->stranger = join_hear;
    hth_loop_net_script(w->net, join_count, w);
    join_send(w);
    join_serve(w);
    while (joining.have < w->ranks && !w->why[0] && w->now_ms < began_ms + MOST_MS) {
        join_hand_on(w);
        world_advance(w, w->now_ms + 1);
    }
    w->stranger = NULL;
    net_open(w);
    join_judge(w, w->now_ms - began_ms);
    join_close(w);
}
