/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks' table of a joining goes from engine to engine: the real engines, and the order in
 * which rank 0 answers (client/bootstrap/share.c). What rank 0 itself says over TCP is counted, and
 * not sent.
 */
#include "join.h"

#include "client/bootstrap/share.h"
#include "core/format/rows.h"
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
    struct hth_share *share;
    unsigned char *packed;
    size_t len;
    unsigned char digest[HTH_DIGEST];
    uint64_t *bytes, *messages; /* [ports] out of each engine */
    uint32_t ports, have, failed, tickets;
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

static void join_bring(struct world *w, uint32_t rank)
{
    struct hth_local_meet m = { .head = { sizeof(m), HTH_LOCAL_BRING, FIRST + rank, 0 },
        .round = ROUND };

    rank_send(&w->rank[rank], &m, sizeof(m), joining.packed, joining.len);
}

static void join_meet(struct world *w, uint32_t rank)
{
    struct hth_local_meet m = {
        .head = { sizeof(m), HTH_LOCAL_MEET, FIRST + rank, 0 }, .round = ROUND, .wait_ms = MOST_MS
    };

    rank_send(&w->rank[rank], &m, sizeof(m), NULL, 0);
}

static void join_fetch(struct world *w, uint32_t rank, uint32_t source)
{
    const struct hth_local_attached *a = &w->rank[source].gathered;
    struct hth_local_fetch m = {
        .head = { sizeof(m), HTH_LOCAL_FETCH, FIRST + rank, 0 }, .round = ROUND, .wait_ms = MOST_MS
    };
    struct hth_ticket t = { .len = joining.len,
        .at = { .node = "source", .store = a->store, .addr_len = a->addr_len } };

    memcpy(t.at.addr, a->addr, sizeof(t.at.addr));
    memcpy(t.digest, joining.digest, HTH_DIGEST);
    hth_ticket_encode(&t, m.ticket);
    joining.tickets++;
    rank_send(&w->rank[rank], &m, sizeof(m), NULL, 0);
}

static void join_hand_on(struct world *w)
{
    struct hth_handing h;

    while (hth_share_next(joining.share, &h)) {
        if (h.where == HTH_TABLE_AT_OTHER)
            join_fetch(w, h.rank, h.source);
        else if (h.where == HTH_TABLE_AT_NODE)
            join_meet(w, h.rank);
        else
            join_bring(w, h.rank);
    }
}

static void join_hear(struct world *w, const struct letter *l)
{
    const struct hth_local_head *head = (const void *)l->bytes;
    uint32_t rank = (uint32_t)(head->request - FIRST);

    if (head->request < FIRST || rank >= w->ranks)
        return;
    if (head->type == HTH_LOCAL_ERROR) {
        joining.failed++;
        hth_share_gone(joining.share, rank);
        hth_share_waits(joining.share, rank);
    } else if (rank) {
        joining.have++;
        hth_share_has(joining.share, rank);
    } else {
        hth_share_begin(joining.share, 1, 1);
        for (uint32_t r = 1; r < w->ranks; r++)
            hth_share_waits(joining.share, r);
    }
    join_hand_on(w);
}

static void join_open(struct world *w)
{
    uint64_t *node = calloc(w->ranks, sizeof(*node));

    joining = (struct joining){ .ports = w->machines + 2 };
    joining.packed = malloc((size_t)hth_rows_most(HTH_GATHER, w->ranks));
    joining.bytes = calloc(joining.ports, sizeof(*joining.bytes));
    joining.messages = calloc(joining.ports, sizeof(*joining.messages));
    if (!node || !joining.packed || !joining.bytes || !joining.messages)
        abort();
    joining.len = hth_rows_pack(joining.packed, w->table, HTH_GATHER, w->ranks);
    hth_digest(joining.digest, joining.packed, joining.len);
    for (uint32_t r = 0; r < w->ranks; r++)
        node[r] = 1 + w->rank[r].machine;
    joining.share = hth_share_open(node, w->ranks);
    free(node);
    if (!joining.share)
        abort();
}

static void join_close(void)
{
    hth_share_close(joining.share);
    free(joining.packed);
    free(joining.bytes);
    free(joining.messages);
}

/* With all that rank 0 says to ranks. */
static void join_judge(struct world *w, uint64_t ms)
{
    uint64_t most = 0, messages = 0, rank_0;

    for (uint32_t i = 0; i < joining.ports; i++) {
        most = joining.bytes[i] > most ? joining.bytes[i] : most;
        messages = joining.messages[i] > messages ? joining.messages[i] : messages;
    }
    rank_0 = (uint64_t)w->ranks * (HTH_CHALLENGE + HTH_ANSWER) + joining.tickets * HTH_TICKET;
    printf("joining: a table of %zu bytes to %u nodes in %" PRIu64 " ms, %u tickets failed; out of "
           "an engine at most %" PRIu64 " bytes in %" PRIu64 " messages, out of rank 0 %" PRIu64
           " besides\n",
            joining.len, w->opts.nodes, ms, joining.failed, most, messages, rank_0);
    if (most + rank_0 > MOST_BYTES)
        world_broken(w, "%" PRIu64 " bytes out of one node for a joining", most + rank_0);
    if (joining.have + 1 != w->ranks || joining.tickets != w->opts.nodes - 1 || joining.failed)
        world_broken(w, "%u of %u ranks have the table, by %u tickets", joining.have + 1, w->ranks,
                joining.tickets);
}

void scale_join(struct world *w)
{
    uint64_t began_ms = w->now_ms;

    join_open(w);
    w->stranger = join_hear;
    hth_loop_net_script(w->net, join_count, w);
    join_bring(w, 0);
    while (joining.have + 1 < w->ranks && !w->why[0] && w->now_ms < began_ms + MOST_MS)
        world_advance(w, w->now_ms + 1);
    w->stranger = NULL;
    net_open(w);
    join_judge(w, w->now_ms - began_ms);
    join_close();
}
