/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rank 0 and a rank that comes to it say to each other, byte by byte:
 *
 *     rank 0 --> guest   challenge   0 "HTHMEET4"   8 u32 1: there is a key   12 u32 zero
 *                                    16 32 random number                            (48 bytes)
 *     guest --> rank 0   greeting    0 "HTHMEET4"   8 u32 rank, world, round, length of the row
 *                                    24 16 token of the process   40 u64 node   48 32 random number
 *                                    80 16 proof                                    (96 bytes)
 *                        and the row
 *     rank 0 --> guest   answer      0 "HTHMEET4"   8 i32 code   12 u32 round   16 u64 length
 *                                    24 u32 where the table is   28 u32 zero
 *                                    32 16 proof                                    (48 bytes)
 *                        and the table, packed (core/format/rows.h), if it is to follow, or a
 *                        ticket (core/format/ticket.h), or with a code a sentence
 *
 * Of the ranks that say one node, one receives the table and brings it to the node's engine; the
 * others receive its length and the proof of it, and the table from that engine. In a large job
 * that rank receives a ticket in place of the table: it names another node, from whose engine
 * its own engine receives the table. A rank that does not receive it there comes to rank 0
 * again, which answers it or another rank of its node with another ticket, or with the table.
 * Node 0: the rank has no engine that it could ask.
 *
 * Each gather has a random number, its round, which rank 0 draws. The answer has it. A greeting has
 * the round of the last table that the rank received, or zero. Neither side counts rounds, so ranks
 * can meet again after gathers that some of them missed.
 *
 * A proof is a code over all that both have said so far and what it stands for, with a key of the
 * job's for this purpose; zeros where there is none. The random numbers make each connection's
 * proofs its own: what was heard on one is worth nothing on another.
 */
#ifndef HEARTH_CLIENT_RENDEZVOUS_H
#define HEARTH_CLIENT_RENDEZVOUS_H

#include "core/base/auth.h"
#include "core/format/ticket.h"
#include <hearth/bootstrap.h>
#include <stdint.h>

#define HTH_CHALLENGE 48u
#define HTH_GREETING  96u
#define HTH_ANSWER    48u
#define HTH_TOKEN     16u

struct hth_greeting {
    uint32_t rank, world, round, len;
    unsigned char token[HTH_TOKEN]; /* of one process: the same when it comes again */
    uint64_t node;                  /* the same for all ranks of one engine; 0: none */
};

enum hth_where {
    HTH_TABLE_HERE,     /* it follows, for this rank alone */
    HTH_TABLE_FOR_NODE, /* it follows, for all ranks of the node */
    HTH_TABLE_AT_NODE,  /* another rank of the node has it */
    HTH_TABLE_AT_OTHER, /* another node's engine has it: a ticket follows */
    HTH_TABLE_WHERES
};

struct hth_answer {
    int32_t code;
    uint32_t round; /* of the gather */
    uint64_t len;   /* of the packed table, wherever it is, or of the sentence */
    uint32_t where; /* enum hth_where; with a code 0 */
};

/* How ranks give each other the table: at their engines. Functions return 0 or a negative code. */
struct hth_mates {
    uint64_t node; /* as in a greeting; 0: they do not */
    void *self;
    int (*bring)(void *self, uint32_t round, const void *packed, size_t len);
    /* out[len] when another rank has brought it, in wait_ms at most. */
    int (*meet)(void *self, uint32_t round, uint64_t wait_ms, void *out, size_t len);
    /* The same from another node's engine. */
    int (*fetch)(void *self, uint32_t round, uint64_t wait_ms,
            const unsigned char ticket[HTH_TICKET], void *out, size_t len);
    /* Of rank 0. Where the engine is that this row is of. NULL: engines do not fetch. */
    int (*place)(void *self, const void *row, struct hth_member *out);
    /* 0: each engine of the table may fetch from each other one. */
    int (*alike)(void *self, const void *table, uint32_t world);
};

/* What a bootstrap knows of the job: nothing, or what hearth_open() tells it. */
struct hth_knows {
    int told;                      /* by hearth_open() */
    unsigned keyed;                /* how many keys there are */
    int trusted;                   /* no key is needed off loopback */
    char job[HTH_NAME_MAX + 1];    /* in each proof, so that two jobs with one key are two */
    unsigned char key[2][HTH_KEY]; /* the first proves, both are taken */
};

/* Both sides of one connection, as they went over it. */
struct hth_talk {
    unsigned with; /* of rank 0: which key the guest proved */
    unsigned char challenge[HTH_CHALLENGE];
    unsigned char greeting[HTH_GREETING];
};

/* What hearth_open() knows: a bootstrap of ours over TCP proves the job's key with it from here
 * on, or is content without one on this machine and, where `trusted`, on others. A bootstrap of
 * the caller's own is left alone. key[keys], 2 at most, are those for the rendezvous (HTH_GATHER_PURPOSE):
 * the first to prove with, both to take. */
void hth_bootstrap_tell(const struct hearth_bootstrap *bootstrap, const char *job,
        const unsigned char (*key)[HTH_KEY], unsigned keys, int trusted);

/* How this rank and others of its node share a table, from here on. A bootstrap of the caller's
 * own is left alone. */
void hth_bootstrap_mates(const struct hearth_bootstrap *bootstrap, const struct hth_mates *mates);

/* Engines receive the table from each other where rank 0 would send more than so many bytes to
 * them; 0: 16 MiB. For tests: jobs of their size have no such table. */
void hth_bootstrap_tree_from(const struct hearth_bootstrap *bootstrap, uint64_t bytes);

void hth_challenge_make(unsigned char out[HTH_CHALLENGE], const struct hth_knows *k);
/* 1: there is a key, 0: none. Errors: HEARTH_EPROTO, HEARTH_EUNSUPPORTED another version's. */
int hth_challenge_decode(const unsigned char in[HTH_CHALLENGE]);

/* t->greeting, for the challenge that is in t->challenge. */
void hth_greeting_make(struct hth_talk *t, const struct hth_knows *k, const struct hth_greeting *g,
        const void *row);
/* Errors: HEARTH_EPROTO. Whatever it says is a claim until it is proved. */
int hth_greeting_decode(struct hth_greeting *out, const unsigned char in[HTH_GREETING]);
/* 1: the sender has a key of ours (t->with) and sent this row, or there is no key on either side. */
int hth_greeting_holds(struct hth_talk *t, const struct hth_knows *k, const void *row, size_t len);

/* Proved with the key that the guest proved. The digest is of the table, the ticket or the
 * sentence: the table is one, and its readers are many. */
void hth_answer_make(unsigned char out[HTH_ANSWER], const struct hth_talk *t,
        const struct hth_knows *k, const struct hth_answer *a,
        const unsigned char digest[HTH_DIGEST]);
int hth_answer_decode(struct hth_answer *out, const unsigned char in[HTH_ANSWER]);
int hth_answer_holds(const unsigned char in[HTH_ANSWER], const struct hth_talk *t,
        const struct hth_knows *k, const unsigned char digest[HTH_DIGEST]);

#endif
