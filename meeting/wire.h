/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages between a node and the host, byte by byte:
 *
 *     host --> node   challenge   0 "HTHMEET5"   8 u32 1: there is a key   12 u32 zero
 *                                 16 32 random number                                (48 bytes)
 *     node --> host   greeting    0 "HTHMEET5"   8 u32 world   12 u32 length of a row, 0: it leaves
 *                                 16 u32 round of the newest table that is here, or 0
 *                                 20 u32 zero   24 16 token of the visit   40 u64 node
 *                                 48 32 random number   80 16 proof                  (96 bytes)
 *     then frames, both ways      0 u16 type   2 u16 zero   4 u32 rank   8 u32 round
 *                                 12 i32 code   16 u64 length   24 16 proof          (40 bytes)
 *                                 and the body
 *
 *     node --> host   ROW     rank; body: 16 token of the rank's process, its row
 *                     GONE    rank: it has died, or has given up
 *                     HAS     round: the table is at this node; the host ends the connection
 *                     LACKS   round: the table could not be fetched
 *     host --> node   TABLE   round; body: the table, packed (core/format/rows.h)
 *                     TICKET  round; body: core/format/ticket.h: another engine has the table
 *                     NO      rank (HTH_ALL: all of this node), code; body: a sentence. Code 0:
 *                             not now
 *
 * A connection takes the place of an earlier one with the same token: it brings all rows anew.
 *
 * A gather has a random number, its round, which the host draws. Neither side counts rounds, so
 * ranks meet again after gathers that some of them missed. Node 0: there is no engine, so it
 * cannot fetch the table, nor give it to others.
 *
 * A proof is a code with a key of the job's for this purpose; zeros where there is none. That of a
 * greeting is over the job, the challenge and the greeting. From these comes a key for the
 * connection, with which each frame is proved, with its number and direction. So a frame that was
 * recorded on one connection is refused on another.
 */
#ifndef HEARTH_MEETING_WIRE_H
#define HEARTH_MEETING_WIRE_H

#include "meeting.h"

#define HTH_CHALLENGE  48u
#define HTH_GREETING   96u
#define HTH_MEET_FRAME 40u
#define HTH_ALL        UINT32_MAX

enum hth_meet_frame_type {
    HTH_MEET_FRAME_ROW = 1,
    HTH_MEET_FRAME_GONE,
    HTH_MEET_FRAME_HAS,
    HTH_MEET_FRAME_LACKS,
    HTH_MEET_FRAME_TABLE,
    HTH_MEET_FRAME_TICKET,
    HTH_MEET_FRAME_NO,
    HTH_MEET_FRAME_TYPES
};

struct hth_greeting {
    uint32_t world, len, round;
    unsigned char token[HTH_MEETING_TOKEN];
    uint64_t node;
};

struct hth_meet_frame {
    enum hth_meet_frame_type type;
    uint32_t rank, round;
    int32_t code;
    uint64_t len; /* of the body */
};

/* Both sides of one connection, as they went over it. */
struct hth_talk {
    unsigned char challenge[HTH_CHALLENGE];
    unsigned char greeting[HTH_GREETING];
};

/* Of one connection, once it is greeted. */
struct hth_proving {
    int keyed;
    unsigned char key[HTH_KEY];
    uint64_t sent, heard; /* frames */
    int is_host;
};

void hth_challenge_make(unsigned char out[HTH_CHALLENGE], const struct hth_meeting_keys *k);
/* 1: there is a key, 0: none. Errors: HEARTH_EPROTO, HEARTH_EUNSUPPORTED another version's. */
int hth_challenge_decode(const unsigned char in[HTH_CHALLENGE]);

/* t->greeting, for the challenge that is in t->challenge; the frames of its connection. */
void hth_greeting_make(struct hth_talk *t, const struct hth_meeting_keys *k,
        const struct hth_greeting *g, struct hth_proving *out);
/* Errors: HEARTH_EPROTO. Whatever it says is a claim until it is proved. */
int hth_greeting_decode(struct hth_greeting *out, const unsigned char in[HTH_GREETING]);
/* 1: the sender has a key of ours, or there is no key on either side. */
int hth_greeting_holds(
        const struct hth_talk *t, const struct hth_meeting_keys *k, struct hth_proving *out);

/* Of the next frame that is sent; digest: of its body. */
void hth_meet_frame_make(unsigned char out[HTH_MEET_FRAME], struct hth_proving *p,
        const struct hth_meet_frame *f, const unsigned char digest[HTH_DIGEST]);
/* Errors: HEARTH_EPROTO. */
int hth_meet_frame_decode(struct hth_meet_frame *out, const unsigned char in[HTH_MEET_FRAME]);
/* 1: it is the next frame of the other side. */
int hth_meet_frame_holds(const unsigned char in[HTH_MEET_FRAME], struct hth_proving *p,
        const unsigned char digest[HTH_DIGEST]);

#endif
