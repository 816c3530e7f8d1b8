/* SPDX-License-Identifier: Apache-2.0 */
/* The messages between owner and holder: to and from bytes, and to a node. */
/* For this folder alone. */
#ifndef REPLICATION_WIRE_H
#define REPLICATION_WIRE_H

#include "replication/held/ctx.h"

#define HTH_WIRE_TEXT   160u  /* bytes of a NAK's text, no terminator counted */
#define HTH_WIRE_CHUNKS 1024u /* checksums in a READY */

enum hth_nak { HTH_NAK_OFFER = 0, HTH_NAK_WANT = 1, HTH_NAK_WRITING = 2 }; /* what was refused */

/* One struct for all messages; each type uses its fields. */
struct hth_wire {
    struct hth_save_id save;
    uint64_t id;              /* of the object: all; END and OFFER have it in `object` too */
    struct hth_object object; /* OFFER, END; WRITING: data_len: bytes of the file asked for */
    uint32_t follows;         /* OFFER: 1: END comes right behind it */
    struct hth_grant grant;   /* READY, END, WRITING */
    uint32_t first, count; /* READY: chunks that are final; WRITING: complete from the first on */
    const unsigned char *crc;         /* READY: [count] u32, in the message */
    uint64_t off, len;                /* WANT, SUM_WANT, SUM: bytes of the file; WANT, len 0: all */
    uint32_t sum;                     /* SUM: CRC32C of these bytes */
    unsigned char digest[HTH_DIGEST]; /* PULLED */
    uint64_t
            chunk; /* BAD; UINT64_MAX: table or block. SUM: wrong at the holder; UINT64_MAX: none */
    int code;      /* NAK */
    enum hth_nak of;
    char text[HTH_WIRE_TEXT + 1];
};

/* 0, or HEARTH_EPROTO: the bytes, of any length and content, are not a valid message. */
int hth_wire_decode(struct hth_wire *out, uint16_t type, const unsigned char *body, size_t len);

/* Sends the message to a node. If it is lost, the node that gets no answer sends its own message
 * again. */
void hth_wire_say(struct hth_ctx *ctx, uint32_t node, uint16_t type, const struct hth_wire *wire);
void hth_wire_nak(struct hth_ctx *ctx, uint32_t node, struct hth_save_id save, uint64_t object,
        enum hth_nak of, int code, const char *text);

#endif
