/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What rank 0 and a rank that comes to it say to each other, byte by byte:
 *
 *     rank 0 --> guest   challenge   0 "HTHMEET2"   8 u32 1: there is a key   12 u32 zero
 *                                    16 32 random number                            (48 bytes)
 *     guest --> rank 0   greeting    0 "HTHMEET2"   8 u32 rank, world, round, length of the row
 *                                    24 16 token of the process   40 32 random number
 *                                    72 16 proof                                    (88 bytes)
 *                        and the row
 *     rank 0 --> guest   answer      0 "HTHMEET2"   8 i32 code   12 u32 round   16 u64 length
 *                                    24 16 proof                                    (40 bytes)
 *                        and the table, packed (core/format/rows.h), or with a
 *                        code a sentence
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
#include <hearth/bootstrap.h>
#include <stdint.h>

#define HTH_CHALLENGE 48u
#define HTH_GREETING  88u
#define HTH_ANSWER    40u
#define HTH_TOKEN     16u

struct hth_greeting {
    uint32_t rank, world, round, len;
    unsigned char token[HTH_TOKEN]; /* of one process: the same when it comes again */
};

struct hth_answer {
    int32_t code;
    uint32_t round; /* of the gather */
    uint64_t len;
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

void hth_challenge_make(unsigned char out[HTH_CHALLENGE], const struct hth_knows *k);
/* 1: there is a key, 0: none. Errors: HEARTH_EPROTO. */
int hth_challenge_decode(const unsigned char in[HTH_CHALLENGE]);

/* t->greeting, for the challenge that is in t->challenge. */
void hth_greeting_make(struct hth_talk *t, const struct hth_knows *k, const struct hth_greeting *g,
        const void *row);
/* Errors: HEARTH_EPROTO. Whatever it says is a claim until it is proved. */
int hth_greeting_decode(struct hth_greeting *out, const unsigned char in[HTH_GREETING]);
/* 1: the sender has a key of ours (t->with) and sent this row, or there is no key on either side. */
int hth_greeting_holds(struct hth_talk *t, const struct hth_knows *k, const void *row, size_t len);

/* Proved with the key that the guest proved. The digest is of the body that follows: the table is one, and its readers are many. */
void hth_answer_make(unsigned char out[HTH_ANSWER], const struct hth_talk *t,
        const struct hth_knows *k, const struct hth_answer *a,
        const unsigned char digest[HTH_DIGEST]);
int hth_answer_decode(struct hth_answer *out, const unsigned char in[HTH_ANSWER]);
int hth_answer_holds(const unsigned char in[HTH_ANSWER], const struct hth_talk *t,
        const struct hth_knows *k, const unsigned char digest[HTH_DIGEST]);

#endif
