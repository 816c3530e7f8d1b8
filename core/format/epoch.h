/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One joining of all ranks, as every member records it before it answers any request: members in
 * order of their lowest rank (node 0 is the coordinator), and which node has which rank. Record:
 * "HTHEPOCH", version, the fields below in order, digest at the end. Version 2, without machines,
 * is read.
 */
#ifndef HEARTH_CORE_FORMAT_EPOCH_H
#define HEARTH_CORE_FORMAT_EPOCH_H

#include "core/base/auth.h"
#include "core/base/id.h"
#include "sizes.h"
#include "versions.h"
#include <stddef.h>

#define HTH_ADDR_MAX           128 /* bytes of a transport's address blob */
/* The first byte of a tcp blob of several addresses (transport/address.h), and the first protocol
 * whose engines read it. */
#define HTH_ADDR_SEVERAL       2u
#define HTH_PROTOCOL_ADDRESSES 8u
#define HTH_DOMAINS_MAX        4 /* levels, narrowest first; the node itself is below level 0 */
#define HTH_NODE_NONE          UINT32_MAX
#define HTH_BACKEND_MAX        15 /* letters of a transport's name */
#define HTH_PROVIDER_MAX       31 /* and of its provider's */

struct hth_member {
    char node[HTH_NAME_MAX + 1];      /* its id */
    uint64_t store;                   /* of its memory */
    uint64_t domain[HTH_DOMAINS_MAX]; /* hash of each level's name; 0: none given */
    /* 1 + the index of the first member on its machine; 0: no other member is on it */
    uint32_t machine;
    uint32_t addr_len;
    unsigned char addr[HTH_ADDR_MAX];
};

struct hth_epoch {
    uint64_t epoch;
    uint64_t nonce;
    uint32_t world; /* ranks */
    uint32_t nodes;
    uint32_t self;             /* our node's index */
    uint32_t *rank_node;       /* [world] */
    struct hth_member *member; /* [nodes] */
};

/*
 * The row of one rank in the bootstrap's all-gather (fixed size, little-endian). Ranks of one node
 * send the same facts about the node.
 */
#define HTH_GATHER                512 /* bytes per rank */
#define HTH_GATHER_ALLOW_DEGRADED 1u
#define HTH_GATHER_TRUSTED        2u /* network = trusted */
#define HTH_GATHER_ABSENT         4u /* the rank cannot take part: `why`, in place of its node's facts */
#define HTH_GATHER_ALLOW_SLOWER   8u  /* a worse fabric than the first epoch's will do */
#define HTH_GATHER_STRONG         16u /* integrity = strong, by version 7 */
#define HTH_WHY_MAX               336u
struct hth_gather {
    char job[HTH_NAME_MAX + 1];
    char node[HTH_NAME_MAX + 1];
    uint64_t store;
    uint64_t highest_epoch; /* seen by the node */
    uint64_t wall_ms;
    uint64_t random;
    uint64_t domain[HTH_DOMAINS_MAX];
    uint64_t machine; /* hash of the machine's id, by version 10; 0: the rank does not know it */
    /* Which loopback its node has, by version 10: HTH_LOOPBACK_... and an id of at least 2; 0: the
     * rank does not know it. */
    uint32_t loopback;
    uint32_t copies, min_copies, keep; /* these and those below must be equal on all ranks ... */
    uint32_t flags;                    /* HTH_GATHER_... */
    uint32_t heartbeat_ms, dead_ms, bad_after;
    char transport[HTH_BACKEND_MAX + 1];
    char provider[HTH_PROVIDER_MAX + 1]; /* of the transport's; empty: not said, by version 2 */
    uint32_t version_low,
            version_high; /* ... these have to meet: protocols that its engine speaks */
    uint32_t addr_len;
    unsigned char addr[HTH_ADDR_MAX];
    struct hth_sizes objects; /* of one save of this rank; none: not said, by version 8 one alone */
    /* transport = auto, by version 4 (fabric.h): bits of what the node may still take; 0: by hand.
     * The transport, provider and address above are those that it listens on now. */
    uint32_t fabrics;
    uint32_t first_fabric; /* a number: what this job's first epoch ran on here; 0: none has been */
    int code;              /* ABSENT: of its error, and the sentence */
    char why[HTH_WHY_MAX + 1];
    uint32_t rank, world;         /* whose row it is, of how many */
    unsigned char proof[HTH_MAC]; /* of the job's key over all before it; zeros: there is none */
};
void hth_gather_encode(const struct hth_gather *g, unsigned char out[HTH_GATHER]);
int hth_gather_decode_as(const struct hth_versions *versions, struct hth_gather *out,
        const unsigned char in[HTH_GATHER], struct hearth_error *err);
int hth_gather_decode(
        struct hth_gather *out, const unsigned char in[HTH_GATHER], struct hearth_error *err);

/* `objects` of a row that hth_epoch_make() has taken. */
void hth_gather_objects(const unsigned char row[HTH_GATHER], struct hth_sizes *out);

/* Of a failure domain's or machine's name, as rows and members have it; never 0. */
uint64_t hth_domain_hash(const char *name);

/* The purpose of the key (hth_subkey) that rows are proved with, and the rendezvous itself. */
#define HTH_GATHER_PURPOSE "hearth rendezvous 1"
void hth_gather_prove(unsigned char row[HTH_GATHER], const unsigned char key[HTH_KEY]);

/* Checks table[world]: each row is in its rank's place, is of this world, and is proved with one of
 * key[keys], or with no key where keys is 0; and all ranks take part. Errors: HEARTH_ECORRUPT,
 * HEARTH_EINVAL, HEARTH_EAUTH, and the error of a rank that cannot take part; each names rank and
 * node. */
int hth_gather_check(const unsigned char *table, uint32_t world,
        const unsigned char (*key)[HTH_KEY], unsigned keys, struct hearth_error *err);

/* Refuses a node that listens on its loopback address while another node has another loopback and
 * so cannot reach it. table[world] has passed hth_gather_check(). Errors: HEARTH_EINVAL naming a
 * rank of each node. */
#define HTH_LOOPBACK_LISTENS 1u /* the node listens there */
int hth_loopback_check(const unsigned char *table, uint32_t world, struct hearth_error *err);

/* The number that a row has for the newest session (epoch, nonce) of its node: the epoch, at most
 * the highest that other nodes believe. Above that, sessions are ordered by their nonces, so
 * *random becomes larger than `nonce`. */
uint64_t hth_epoch_seen(uint64_t epoch, uint64_t nonce, uint64_t *random);

/* Makes the epoch, the same on all ranks, from the same table[world][HTH_GATHER]. Number: max(1 +
 * highest, rank 0's clock), which counts as far as the median of all clocks and a day; nonce: rank
 * 0's number, above 2^62 the highest. self is the node whose store id is `store`. Nodes whose ranks
 * name one machine stand on one.
 * Errors: HEARTH_EINVAL naming the two ranks that disagree (job, options, transport, node twice,
 * the failure domains of their machine), or the rank that reports an epoch above 2^62;
 * HEARTH_EPROTO: their engines have no protocol in common, or a node has several addresses and an
 * engine is of before HTH_PROTOCOL_ADDRESSES. */
int hth_epoch_make(struct hth_epoch *out, const unsigned char *table, uint32_t world,
        uint64_t store, struct hearth_error *err);
void hth_epoch_fini(struct hth_epoch *e);

size_t hth_epoch_bytes(const struct hth_epoch *e);
void hth_epoch_encode(const struct hth_epoch *e, unsigned char *out);
int hth_epoch_decode_as(const struct hth_versions *versions, struct hth_epoch *out,
        const void *bytes, size_t len, struct hearth_error *err);
int hth_epoch_decode(
        struct hth_epoch *out, const void *bytes, size_t len, struct hearth_error *err);

#endif
