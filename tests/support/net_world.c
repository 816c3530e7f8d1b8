/* SPDX-License-Identifier: Apache-2.0 */
#include "net_world.h"

#include "core/base/bytes.h"
#include <stdio.h>
#include <stdlib.h>

#define LATENCY_MS 1

static void must_be(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "net world: %s\n", what);
    abort();
}

static uint64_t now_ms(void *self)
{
    return ((struct net_world *)self)->now_ms;
}

static uint64_t next_random(void *self)
{
    return hth_splitmix64(&((struct net_world *)self)->seed);
}

static void on_message(
        void *self, uint32_t from, uint16_t type, const unsigned char *body, size_t len)
{
    struct net_node *n = self;
    uint64_t number;

    n->type = type;
    n->len = len;
    if (len)
        memcpy(n->body, body, len);
    if (from >= HTH_OUTSIDE) {
        n->outside = from;
        n->visits++;
        return;
    }
    n->messages[from]++;
    if (len < 8)
        return;
    number = hth_get64(body);
    n->disorder += number <= n->number[from];
    n->number[from] = number;
}

static void on_peer_up(void *self, uint32_t node)
{
    struct net_node *n = self;

    n->ups[node]++;
}

static void on_peer_down(void *self, uint32_t node, int code, const char *text)
{
    struct net_node *n = self;

    *(node >= HTH_OUTSIDE ? &n->ends : &n->downs[node]) += 1;
    n->down_code = code;
    snprintf(n->down_text, sizeof(n->down_text), "%s", text);
}

static int is_watched(void *self, uint32_t node)
{
    struct net_node *n = self;

    (void)node;
    return !n->w->unwatched;
}

static void on_pulled(void *self, uint32_t node, uint64_t len, int code)
{
    struct net_node *n = self;

    (void)node;
    n->pulled += code == 0 ? len : 0;
    n->stalled += code == HEARTH_ETIMEOUT;
}

void net_node_open(struct net_world *w, uint32_t node, const struct hth_session_opts *opts)
{
    struct net_node *n = &w->node[node];
    struct hth_session_opts plain = { .job = "job" };
    struct hth_session_events events = { .self = n,
        .on_message = on_message,
        .on_peer_up = on_peer_up,
        .on_peer_down = on_peer_down,
        .is_watched = is_watched,
        .on_pulled = on_pulled };
    struct hth_transport_events below;

    memset(n, 0, sizeof(*n));
    n->w = w;
    plain.store = w->member[node].store;
    n->epoch = (struct hth_epoch){ .epoch = NET_EPOCH,
        .nonce = NET_NONCE,
        .world = w->nodes,
        .nodes = w->nodes,
        .self = node,
        .member = w->member };
    must_be(hth_session_open(opts ? opts : &plain, &events, &w->clock, &w->random, NULL,
                    &n->session, NULL) == 0,
            "a session opens");
    below = hth_session_events_for(n->session);
    must_be(hth_loop_open(w->net, node, &below, &n->transport, NULL) == 0, "a transport opens");
    hth_session_attach(n->session, n->transport);
    hth_session_join(n->session, &n->epoch);
}

void net_node_close(struct net_world *w, uint32_t node)
{
    struct net_node *n = &w->node[node];

    if (!n->session)
        return;
    n->transport->ops->close(n->transport);
    hth_session_close(n->session);
    n->session = NULL;
    n->transport = NULL;
}

struct net_world *net_world_open(uint32_t nodes, const struct hth_session_opts *opts)
{
    struct net_world *w = calloc(1, sizeof(*w));

    must_be(w && nodes <= NET_NODES, "there is memory");
    w->now_ms = 1000000;
    w->seed = 1;
    w->nodes = nodes;
    w->clock = (struct hth_clock){ now_ms, now_ms, w };
    w->random = (struct hth_random){ next_random, w };
    must_be(hth_loop_net_open(&w->clock, LATENCY_MS, &w->net, NULL) == 0, "the net opens");
    for (uint32_t i = 0; i < nodes; i++) {
        snprintf(w->member[i].node, sizeof(w->member[i].node), "host%u", i);
        w->member[i].store = 100 + i;
        w->member[i].addr_len = 4;
        hth_put32(w->member[i].addr, i);
    }
    for (uint32_t i = 0; i < nodes; i++)
        net_node_open(w, i, opts);
    return w;
}

void net_world_close(struct net_world *w)
{
    for (uint32_t i = 0; i < NET_NODES; i++)
        net_node_close(w, i);
    hth_loop_net_close(w->net);
    free(w);
}

void net_pause(struct net_world *w, uint32_t node, int paused)
{
    w->node[node].paused = paused;
    hth_loop_net_silence(w->net, node, paused);
}

void net_run(struct net_world *w, uint64_t ms)
{
    uint64_t end = w->now_ms + ms, next, due;
    int fd;

    for (;;) {
        next = end;
        for (uint32_t i = 0; i < NET_NODES; i++) {
            struct net_node *n = &w->node[i];

            if (!n->session || n->paused)
                continue;
            n->transport->ops->progress(n->transport);
            if (hth_session_due_ms(n->session) <= w->now_ms)
                hth_session_tick(n->session);
        }
        if (w->now_ms >= end)
            return;
        for (uint32_t i = 0; i < NET_NODES; i++) {
            struct net_node *n = &w->node[i];

            if (!n->session || n->paused)
                continue;
            if (!n->transport->ops->arm(n->transport, &fd, &due))
                due = w->now_ms;
            next = due < next ? due : next;
            due = hth_session_due_ms(n->session);
            next = due < next ? due : next;
        }
        if (next > w->now_ms)
            w->now_ms = next;
    }
}

int net_send(struct net_world *w, uint32_t from, uint32_t to, uint64_t number)
{
    return hth_session_send(w->node[from].session, to, HTH_MSG_WANT, &number, sizeof(number));
}

struct hth_loop_verdict net_play(void *fault, enum hth_loop_kind kind, uint32_t from, uint32_t to,
        const void *bytes, size_t len)
{
    struct net_fault *f = fault;
    struct hth_loop_verdict v = { HTH_LOOP_NONE, 0, 0 };

    (void)to, (void)bytes;
    if (kind != f->kind || from != f->from || (f->len && f->len != len) || !f->times)
        return v;
    f->times--;
    v.fault = f->fault;
    return v;
}

struct hth_session_opts net_keyed(unsigned char byte)
{
    static unsigned char bytes[256][HTH_KEY];
    static struct hth_key keys[256];
    struct hth_session_opts o = { .key = &keys[byte], .job = "job" };

    memset(bytes[byte], byte, HTH_KEY);
    keys[byte].bytes = bytes[byte];
    return o;
}
