/* SPDX-License-Identifier: Apache-2.0 */
/* All members of a job dial one node at the same moment, as when all machines start again. */
#include "check.h"

#include "core/base/bytes.h"
#include "transport/loop/loop.h"
#include "transport/session/session.h"

#include <stdio.h>
#include <unistd.h>

#define NODES 1000

static struct hth_loop_net *net;
static struct hth_session *node[NODES];
static struct hth_transport *transport[NODES];
static struct hth_transport_events first; /* node 0's session */
static struct hth_member member[NODES];
static struct hth_epoch epoch[NODES];
static uint64_t now_ms = 1000000, seed = 1;
static int accepts, drops, heard, downs;

static uint64_t meeting_now(void *self)
{
    (void)self;
    return now_ms;
}

static uint64_t meeting_random(void *self)
{
    (void)self;
    return hth_splitmix64(&seed);
}

static const struct hth_clock clock_of_all = { meeting_now, meeting_now, NULL };
static const struct hth_random random_of_all = { meeting_random, NULL };

static void meeting_message(
        void *self, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    (void)from, (void)type, (void)body, (void)len;
    heard += self == &node[0];
}

static void meeting_up(void *self, uint32_t from)
{
    (void)self, (void)from;
}

static void meeting_down(void *self, uint32_t from, int code, const char *text)
{
    (void)self, (void)from, (void)code, (void)text;
    downs++;
}

static void first_accepts(void *self, hth_conn conn)
{
    accepts++;
    first.on_accept(self, conn);
}

static void first_ends(void *self, hth_conn conn, int code, const char *detail)
{
    drops++;
    first.on_down(self, conn, code, detail);
}

static void meeting_open(uint32_t i, const struct hth_key *key)
{
    struct hth_session_opts o = { .job = "job", .key = key };
    struct hth_session_events events = { .self = &node[i],
        .on_message = meeting_message,
        .on_peer_up = meeting_up,
        .on_peer_down = meeting_down };
    struct hth_transport_events below;

    must(hth_session_open(&o, &events, &clock_of_all, &random_of_all, NULL, &node[i], NULL));
    below = hth_session_events_for(node[i]);
    if (!i) {
        first = below;
        below.on_accept = first_accepts;
        below.on_down = first_ends;
    }
    must(hth_loop_open(net, i, &below, &transport[i], NULL));
    snprintf(member[i].node, sizeof(member[i].node), "host%u", i);
    member[i].store = 100 + i;
    member[i].addr_len = 4;
    hth_put32(member[i].addr, i);
    epoch[i] = (struct hth_epoch){
        .epoch = 7, .nonce = 77, .world = NODES, .nodes = NODES, .self = i, .member = member
    };
    hth_session_attach(node[i], transport[i]);
}

Test(meeting, a_thousand_members_that_dial_one_node_at_once_lose_no_connection)
{
    static const unsigned char bytes[HTH_KEY] = { 1, 2, 3 };
    const struct hth_key key = { .bytes = bytes, .id = 5 };
    uint64_t body = 1, until = now_ms + 1000;

    alarm(60);
    must(hth_loop_net_open(&clock_of_all, 1, &net, NULL));
    for (uint32_t i = 0; i < NODES; i++)
        meeting_open(i, &key);
    for (uint32_t i = 0; i < NODES; i++)
        hth_session_join(node[i], &epoch[i]);
    for (uint32_t i = 1; i < NODES; i++)
        must(hth_session_send(node[i], 0, HTH_MSG_WANT, &body, sizeof(body)));
    for (; heard < NODES - 1 && now_ms < until; now_ms++)
        for (uint32_t i = 0; i < NODES; i++) {
            transport[i]->ops->progress(transport[i]);
            hth_session_tick(node[i]);
        }
    cr_expect(eq(int, heard, NODES - 1));
    cr_expect(eq(int, accepts, NODES - 1));
    cr_expect(zero(int, drops));
    cr_expect(zero(int, downs));
    for (uint32_t i = 0; i < NODES; i++) {
        transport[i]->ops->close(transport[i]);
        hth_session_close(node[i]);
    }
    hth_loop_net_close(net);
}
