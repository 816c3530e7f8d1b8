/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A few nodes with all parts of replication below the commit, on the net inside the process, in
 * virtual time: each has a store in memory, a session and a ctx. Works run one per step.
 */
#ifndef PAIR_H
#define PAIR_H

#include "core/format/head.h"
#include "core/format/places.h"
#include "replication/held/draft.h"
#include "replication/held/seal.h"
#include "replication/transfer/transfer.h"
#include "replication/tree/blob.h"
#include "replication/tree/tree.h"
#include "transport/loop/loop.h"

#define PAIR_NODES 80
#define PAIR_KINDS 64

struct pair;

struct pair_node {
    struct pair *p;
    uint32_t index;
    int open;
    struct hth_ctx ctx;
    struct hth_store *store;
    struct hth_transport *transport;
    struct hth_epoch epoch;
    uint32_t lost[PAIR_NODES];
    int wanted;        /* what the commit would say to offers */
    uint32_t sealed;   /* replicas that came */
    uint32_t no_rooms; /* offers refused for that */
    int no_room_code;  /* of the last */
    uint32_t peer_downs;
    uint32_t delivered;         /* facts */
    uint32_t heard[PAIR_KINDS]; /* of each kind */
    uint32_t origin;            /* of the last */
    uint16_t kind;
    size_t len;
    unsigned char fact[HTH_TREE_MAX];
    void (*on_fact)(struct pair_node *n); /* or NULL: it sees each, `fact` alone has the last */
    uint32_t arrived;                     /* blobs */
    struct hth_blob_id blob;              /* the last */
    uint32_t blob_failed;
    char logged[4096];            /* "event event ..." of warnings and errors */
    char last[HEARTH_ERROR_TEXT]; /* text of the last of them */
};

struct pair {
    struct hth_loop_net *net;
    uint64_t now_ms;
    uint64_t seed;
    uint32_t nodes;
    struct hth_work *works, **works_end;
    struct hth_work *slow; /* has run, and is done at slow_ms; later ones wait for it */
    uint64_t slow_ms;
    uint32_t work_ms;          /* what each of them takes */
    int working;               /* a worker runs: this is not an engine's thread */
    int stopping;              /* the workers take nothing any more */
    uint32_t regs, regs_large; /* registrations; of a MiB or more */
    uint32_t regs_by_engine;   /* on an engine's thread */
    uint32_t reg_ms;           /* what a large one takes */
    int reg_code;              /* what a large one fails with, at reg_node */
    uint32_t reg_node;
    struct hth_member member[PAIR_NODES];
    struct pair_node node[PAIR_NODES];
    const char *points[64]; /* reached, in order */
    uint32_t point_count;
};

/* Aborts the test when it cannot. dead_ms 2000, stall_ms 1000, retry_ms 100, budget 64 MiB. */
struct pair *pair_open(uint32_t nodes);
void pair_close(struct pair *p);
void pair_node_close(struct pair *p, uint32_t node); /* its process dies; the store stays */
void pair_node_open(struct pair *p, uint32_t node);  /* adopts what the store has */

/* One thing that is due happens, or time passes to the next; 0: nothing will ever happen. */
int pair_step(struct pair *p);
/* The engines' threads use the processor for that long; meanwhile they read no message and do not
 * tick. */
void pair_busy(struct pair *p, uint64_t ms);
void pair_run(struct pair *p, uint64_t ms);
void pair_works(
        struct pair *p); /* all works run and are done, what these submit too; no time passes */
/* 1 as soon as *value >= at_least; 0: not within ms. */
int pair_until(struct pair *p, const uint32_t *value, uint32_t at_least, uint64_t ms);

/* A sealed object of `bytes` data at `node`: one byte item with key "k", content from `seed`. */
struct hth_held *pair_seal(struct pair *p, uint32_t node, struct hth_save_id save, uint64_t id,
        uint64_t bytes, uint64_t seed);
/* The same, written and not sealed. items_len: of the items part. */
struct hth_held *pair_write(struct pair *p, uint32_t node, struct hth_save_id save, uint64_t id,
        uint64_t bytes, uint64_t seed, uint64_t *items_len);
struct hth_held *pair_held(struct pair *p, uint32_t node, struct hth_save_id save, uint64_t id);
/* 1: node's copy is the same in every byte of the file as that of `other`. */
int pair_equal(struct pair *p, uint32_t node, uint32_t other, struct hth_save_id save, uint64_t id);

/* The head on record there, and its map, which is the caller's. NULL: not wanted. */
struct hth_head pair_head(const struct pair *p, uint32_t node, struct hth_places *out_map);

int pair_logged(const struct pair *p, uint32_t node, const char *event); /* how often */

#endif
