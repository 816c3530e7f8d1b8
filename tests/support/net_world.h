/* SPDX-License-Identifier: Apache-2.0 */
/* A few sessions on the net inside the process, in virtual time; each writes down what it
 * receives. */
#ifndef NET_WORLD_H
#define NET_WORLD_H

#include "transport/loop/loop.h"
#include "transport/session/session.h"

#define NET_NODES 8
#define NET_EPOCH 7
#define NET_NONCE 77

struct net_world;

struct net_node {
    struct net_world *w;
    struct hth_session *session;
    struct hth_transport *transport;
    struct hth_epoch epoch;
    int paused; /* a stopped process: neither reads nor ticks */
    int messages[NET_NODES], ups[NET_NODES], downs[NET_NODES];
    int down_code;
    char down_text[HEARTH_ERROR_TEXT];
    uint16_t type; /* of the last message */
    size_t len;
    unsigned char body[HTH_BODY_MAX];
    uint64_t number[NET_NODES]; /* first 8 bytes of the last one from there */
    int disorder;               /* a number that did not rise */
    uint32_t outside;           /* the last engine in no epoch from which a message came */
    int visits, ends;           /* messages from such engines, and ends of connections to them */
    uint64_t pulled;            /* bytes, as the session reports them */
    uint32_t stalled;
};

struct net_world {
    struct hth_loop_net *net;
    uint64_t now_ms;
    uint64_t seed;
    struct hth_clock clock;
    struct hth_random random;
    uint32_t nodes;
    int unwatched; /* no node watches another: idle connections may be closed */
    struct hth_member member[NET_NODES];
    struct net_node node[NET_NODES];
};

/* Aborts the test's process when it cannot. opts NULL: all defaults. All have joined the epoch. */
struct net_world *net_world_open(uint32_t nodes, const struct hth_session_opts *opts);
void net_world_close(struct net_world *w);

/* Take one node away and bring it back with other options (NULL: none yet joined it). */
void net_node_close(struct net_world *w, uint32_t node);
void net_node_open(struct net_world *w, uint32_t node, const struct hth_session_opts *opts);

void net_run(struct net_world *w, uint64_t ms);
void net_pause(struct net_world *w, uint32_t node, int paused); /* and what goes to it waits */

/* The number as a message of type HTH_MSG_WANT. */
int net_send(struct net_world *w, uint32_t from, uint32_t to, uint64_t number);

/* A script for hth_loop_net_script(): what goes wrong, as long as `times` lasts. */
struct net_fault {
    enum hth_loop_kind kind;
    enum hth_loop_fault fault;
    uint32_t from;
    size_t len; /* of the message; 0: any */
    int times;  /* < 0: always */
};
struct hth_loop_verdict net_play(void *fault, enum hth_loop_kind kind, uint32_t from, uint32_t to,
        const void *bytes, size_t len);

/* Options with a job key of this byte. */
struct hth_session_opts net_keyed(unsigned char byte);

#endif
