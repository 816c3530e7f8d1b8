/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Members form a tree by index, degree 32: parent(i) = (i - 1) / 32, node 0 is the coordinator. A
 * lost member's children turn to the next living ancestor, the coordinator at last; so does a
 * member that cannot reach its parent: alone for its own facts, and in both directions when the map
 * has the pair.
 *
 *   up    one node's fact to the coordinator, handed on hop by hop
 *   down  the coordinator's message to all nodes (itself included: delivered at once)
 *   to    the coordinator's message to one node
 *
 * A member with nodes below it gathers the facts that come up for some milliseconds, so that a
 * parent receives few messages of each subtree, however many nodes are in it.
 *
 * Envelopes: UP {u32 origin, u16 kind, u16 zero, u64 life, u64 count, bytes}; UPS: several of them,
 * each after {u16 length, u16 zero}; DOWN {u16 kind, u16 zero, u32 zero, bytes}; TO {u32 target,
 * u16 kind, u16 zero, bytes}. May be lost with a connection: whoever says a fact repeats it, less
 * and less often, until it has had its effect, and everybody takes repeats. Life and count rise
 * with each fact of a node: a newer one shows that the node was there later.
 */
#ifndef HEARTH_REPLICATION_TREE_H
#define HEARTH_REPLICATION_TREE_H

#include "replication/held/ctx.h"

#define HTH_TREE_DEGREE    32u /* at most: tests have trees that are deeper, ctx->opts.tree_degree */
#define HTH_TREE_MAX       (HTH_BODY_MAX - 24u) /* bytes of one fact */

#define HTH_INVENTORY_HEAD 16u /* of a part */

/* Kinds. 1..31 commit, 32..63 recovery. */
enum hth_kind {
    /* up: the objects of a save that the sender's ranks wrote: {save, u32 part, u32 parts, u32
     * count, u32 zero, objects of 128 bytes} */
    HTH_KIND_DONE = 1,
    HTH_KIND_HELD = 2,    /* up: {save, text} manifest and raw objects are here */
    HTH_KIND_PROMISE = 3, /* up: {save, u64 store, name of the map 32} */
    /* up: {save, i32 code, text} the sender requests that the save is cancelled */
    HTH_KIND_FAILED = 4,
    HTH_KIND_COMPLETE = 6, /* down: {save} */
    /* down, and to a node that is behind or lost: {head} as on record, with its map if the map is
     * new or the node may have missed it: PROTECTED, CANCELLED, the lost nodes, the moves,
     * settled */
    HTH_KIND_HEAD = 7,
    HTH_KIND_ALIVE = 8, /* up: {} the sender lives; the answer is the newest head */
    /* up: {save, u64 store} the sender lacks a part: its promise is void */
    HTH_KIND_COPY_LOST = 20,
    HTH_KIND_WISH = 21,        /* up: {u64 number, u32 wish, u32 zero, save} of the keep list */
    HTH_KIND_WISH_RESULT = 22, /* to: {u64 number, i32 code, text} what came of it */
    HTH_KIND_POSITION = 23,    /* down, with each heartbeat: {u64 position of the newest head} */
    /* up: {u32 node, u32 1: the sender cannot reach it; 2: it reaches the node but cannot pull from
     * it; 0: it can again} */
    HTH_KIND_UNREACHABLE = 24,
    /* down: {save, runs of its set of ranks} some nodes have sent DONE, and others have not for
     * dead_ms. An older engine passes it on and ignores it. */
    HTH_KIND_AWAITED = 25,
    /* up: {u32 part, u32 parts, u32 plans up to this are void here, u32 crc of all of it, bytes} */
    HTH_KIND_INVENTORY = 32,
    HTH_KIND_PLAN = 33,         /* to: {u32 serial} there is a plan: ask for it */
    HTH_KIND_VOTE = 34,         /* up */
    HTH_KIND_GO = 35,           /* down */
    HTH_KIND_EPOCH_FAILED = 36, /* down, and to a node that missed it: {i32 code, text} */
    /* up: {u32 1}: all ranks of the node have dropped; {u32 2}: it has freed */
    HTH_KIND_CLOSE = 37,
    HTH_KIND_DROP = 38, /* down: all nodes have dropped: free everything */
    HTH_KIND_ECHO = 39, /* to: does nothing; shows whether the member can be reached */
    /* down: {u32 serial} plans up to it are void: each node sends its inventory again */
    HTH_KIND_ASK_INVENTORY = 40,
    HTH_KIND_REFUSED = 41, /* up: {i32 code, text} the node cannot take part: the epoch fails */
    /* down, and to a node that missed it, just before GO: {u32 serial, text} what was ruled out and
     * why, a line each. An older engine passes it on and ignores it. */
    HTH_KIND_RULED_OUT = 42,
};

/* Delivers a message: `up` at the coordinator, with its origin; `down` and `to` at the node, with
 * origin 0. */
typedef void hth_tree_deliver(
        void *self, uint32_t origin, uint16_t kind, const unsigned char *bytes, size_t len);

/* At the coordinator, before a fact is delivered: life and count from the node's envelope. */
typedef void hth_tree_sign(void *self, uint32_t origin, uint64_t life, uint64_t count);

int hth_tree_open(struct hth_ctx *ctx, hth_tree_deliver *deliver, void *self, struct hth_tree **out,
        struct hearth_error *err);

void hth_tree_on_sign(struct hth_ctx *ctx, hth_tree_sign *sign); /* with the `self` of open */

void hth_tree_up(struct hth_ctx *ctx, uint16_t kind, const void *bytes, size_t len);
void hth_tree_down(
        struct hth_ctx *ctx, uint16_t kind, const void *bytes, size_t len); /* coordinator only */
void hth_tree_to(struct hth_ctx *ctx, uint32_t node, uint16_t kind, const void *bytes, size_t len);

/* From the session: 1 when the message was the tree's. */
int hth_tree_message(
        struct hth_ctx *ctx, uint32_t from, uint16_t type, const unsigned char *body, size_t len);

/* This node cannot reach a member, or reaches it again. */
void hth_tree_reach(struct hth_ctx *ctx, uint32_t node, int up);
/* 1: by the newest map these two cannot reach each other. */
int hth_tree_is_unreachable(const struct hth_ctx *ctx, uint32_t a, uint32_t b);

void hth_tree_tick(struct hth_ctx *ctx); /* in an epoch: what was gathered goes on */
uint64_t hth_tree_due_ms(const struct hth_ctx *ctx);

/* The parent by index, as if no node were lost; node is not 0. */
uint32_t hth_tree_above(const struct hth_ctx *ctx, uint32_t node);
/* The nearest living ancestor; HTH_NODE_NONE for node 0. */
uint32_t hth_tree_parent(const struct hth_ctx *ctx, uint32_t node);
/* Living children of `node`, out[cap]; returns how many there are (>= HTH_TREE_DEGREE possible
 * after losses). */
uint32_t hth_tree_children(const struct hth_ctx *ctx, uint32_t node, uint32_t *out, uint32_t cap);
/* 1: `node` is this node's parent or child. */
int hth_tree_is_neighbour(const struct hth_ctx *ctx, uint32_t node);
void hth_tree_close(struct hth_ctx *ctx);

#endif
