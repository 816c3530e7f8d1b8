/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ranks' table is at another node's engine: which table, and which engine. Rank 0 writes a
 * ticket, a rank receives it with rank 0's proof, and gives it to its node's engine.
 *
 *     0 32 BLAKE2b-256 of the packed table   32 u64 its length   40 u64 store of the node
 *    48 64 the node's id, NUL-padded   112 u32 length of its engine's address   116 u32 zero
 *   120 128 the address, zero-padded
 */
#ifndef HEARTH_CORE_FORMAT_TICKET_H
#define HEARTH_CORE_FORMAT_TICKET_H

#include "epoch.h"

#define HTH_TICKET     248u
#define HTH_TABLE_MOST (UINT64_C(1) << 30) /* bytes of a packed table that a ticket may name */

struct hth_ticket {
    unsigned char digest[HTH_DIGEST];
    uint64_t len;
    struct hth_member at; /* node, store and address */
};

void hth_ticket_encode(const struct hth_ticket *t, unsigned char out[HTH_TICKET]);
int hth_ticket_decode(
        struct hth_ticket *out, const unsigned char in[HTH_TICKET]); /* HEARTH_EPROTO */

#endif
