/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engines that meet in no epoch: one asks another for the ranks' table, or is asked, with any bytes
 * in any message. The other engine answers its ranks afterwards.
 */
#include "engines.h"
#include "played_meeting.h"
#include "steps.h"

#include "core/format/ticket.h"
#include "transport/session/session_parts.h"

#define LEN 17000u

enum { GIVES = 1, LEAVES = 2 }; /* of a step's `how` */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Node 1 has a table, of round 7, or receives it from node 0, which does not have it. */
static void begin(struct world *w, int gives)
{
    static unsigned char bytes[LEN];
    struct hth_ctx *ctx = hth_node_ctx(world_node(w, 0));
    struct hth_ticket t = { .len = LEN, .at = ctx->epoch->member[0] };
    struct hth_buf *table;

    if (gives) { /* its requests are on their way: what node 0 says comes first */
        hth_node_ticket(world_node(w, 1), 7, 5000, &t);
    } else {
        table = hth_buf_of(bytes, LEN);
        if (!table)
            abort();
        hth_node_table(world_node(w, 1), 7, table);
        hth_buf_put(table);
    }
    machine_touch(w, w->member[1]);
}

/* Node 0's peer outside of its epoch; a visit to node 1 where there is none. */
static uint32_t outside(struct world *w)
{
    struct hth_ctx *ctx = hth_node_ctx(world_node(w, 0));
    uint32_t node = HTH_NODE_NONE;

    for (const struct peer *p = ctx->session->peers; p; p = p->next)
        if (p->at && !p->over)
            return p->node;
    (void)hth_session_visit(ctx->session, &ctx->epoch->member[1], &node);
    return node;
}

static void say(struct world *w, const struct step *s)
{
    struct hth_session *session = hth_node_ctx(world_node(w, 0))->session;
    size_t len = s->len < HTH_BODY_MAX ? s->len : HTH_BODY_MAX;
    uint32_t to = outside(w);

    if (s->how & LEAVES)
        hth_session_leave(session, to);
    else
        (void)hth_session_send(session, to, s->type, s->bytes, len);
    machine_touch(w, w->member[0]);
    engines_advance(w, 1 + s->more);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hth_reader r = { .at = data, .len = size };
    struct played_meeting meeting;
    struct world w;
    struct step s;

    engines_open(&w, 2, 0);
    played_meeting_begin(&meeting, &w, 1);
    begin(&w, size && data[0] & GIVES);
    for (int i = 0; i < STEPS_MAX && step_next(&r, &s); i++)
        say(&w, &s);
    engines_advance(&w, 50);
    must_answer(&w, 0);
    must_answer(&w, 1);
    if (meeting.tables + meeting.lacks > 1)
        abort();
    world_close(&w);
    played_meeting_end(&meeting);
    return 0;
}
