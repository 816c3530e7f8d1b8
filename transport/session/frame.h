/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every message between engines, little-endian:
 *
 *    0 u32 'HRTH'   4 u8 version   5 u8 zero   6 u16 type   8 u32 body length   12 u32 zero
 *   16 u64 epoch   24 u64 nonce    of the session's epoch; messages of another one are refused
 *   32 u64 seq                      strictly rising per connection and direction, from 1
 *   40 16  mac                      keyed BLAKE2b-128 over bytes 0..39 and the body
 *   56 u64 zero
 *   64 body [body length <= HTH_BODY_MAX]
 *
 * The three messages of the handshake are authenticated with the job key, the rest with the
 * connection's own, one for each direction. Without a job key the key is all zeros: checksums, no
 * secrecy.
 */
#ifndef HEARTH_TRANSPORT_FRAME_H
#define HEARTH_TRANSPORT_FRAME_H

#include "core/base/auth.h"
#include "transport/transport.h"

#define HTH_FRAME_HEAD      64u
#define HTH_BODY_MAX        (HTH_MESSAGE_MAX - HTH_FRAME_HEAD)
#define HTH_VERSION_LOW     6u /* protocols; 6: hellos of tcp have a mac, one fact of reach */
#define HTH_VERSION_HIGH    9u /* 7: SUM_WANT, SUM; WRITING; 8: HTH_PROTOCOL_ADDRESSES, SLICES */
#define HTH_VERSION_SUMS    7u
#define HTH_VERSION_WRITING 7u
#define HTH_VERSION_SLICES  8u
#define HTH_VERSION_ASK     9u

enum hth_message {
    /* 1..15: the session's own */
    HTH_MSG_HELLO = 1,
    HTH_MSG_HELLO_ACK = 2,
    HTH_MSG_AUTH = 3,
    HTH_MSG_PING = 4,
    HTH_MSG_PONG = 5,
    HTH_MSG_REFUSE = 6, /* before a drop: why, in words */
    HTH_MSG_REST = 7,   /* may this idle connection be closed: asked, yes, no (session/rest.c) */
    /* 16..31: envelope of the tree: see replication/tree/tree.h */
    HTH_MSG_UP = 16,   /* to the coordinator */
    HTH_MSG_DOWN = 17, /* from the coordinator to all */
    HTH_MSG_TO = 18,   /* from the coordinator to one node, by the tree */
    HTH_MSG_UPS = 19,  /* several UP of one subtree */
    /* 32..63: replication, between owner and holder */
    HTH_MSG_OFFER = 32,
    HTH_MSG_READY = 33,
    HTH_MSG_END = 34,
    HTH_MSG_PULLED = 35,
    HTH_MSG_WANT = 36,
    HTH_MSG_NAK = 37,
    HTH_MSG_RELEASE = 38,
    HTH_MSG_BAD = 39,
    HTH_MSG_BLOB = 40,      /* parent to child: a blob you should have, with its grant */
    HTH_MSG_BLOB_WANT = 41, /* child to parent: offer it again */
    HTH_MSG_BLOB_DONE = 42, /* child to parent: have it, revoke the grant */
    HTH_MSG_SUM_WANT = 43,  /* to a holder: the checksum of a slice that is being pulled */
    HTH_MSG_SUM = 44,       /* from the holder: that checksum, or the chunk that is wrong there */
    HTH_MSG_WRITING = 45,   /* to a node that will hold a copy: chunks that may be pulled already */
    HTH_MSG_SLICES_WANT =
            46,          /* to a holder: slices of its objects; their bytes, if they are small */
    HTH_MSG_SLICES = 47, /* from the holder: of each its checksum, and its bytes */
    /* 64..79: between engines in no epoch */
    HTH_MSG_TABLE_GET =
            64, /* the ranks' table of a gather, from an offset on (engine/job/fetch.c) */
    HTH_MSG_TABLE_PART = 65,
    /* 80..95: between engines of an epoch, for people who look (engine/job/elsewhere.c) */
    HTH_MSG_ASK = 80,    /* a question, or the next part of its answer */
    HTH_MSG_ANSWER = 81, /* a part of the answer, or why there is none */
};

struct hth_frame {
    uint8_t version;
    uint16_t type;
    uint32_t body_len;
    uint64_t epoch, nonce, seq;
    const unsigned char *body; /* in the message */
};

/* Writes head, mac and body to out[HTH_FRAME_HEAD + body_len]; returns that many. */
size_t hth_frame_encode(
        const struct hth_frame *frame, const unsigned char key[HTH_KEY], unsigned char *out);

/* Structure only. Errors: HEARTH_EPROTO with what is wrong. */
int hth_frame_decode(
        struct hth_frame *out, const void *bytes, size_t len, struct hearth_error *err);

/* 1 when the mac of the whole message is right. */
int hth_frame_check(const void *bytes, size_t len, const unsigned char key[HTH_KEY]);

#endif
