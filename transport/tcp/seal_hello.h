/* SPDX-License-Identifier: Apache-2.0 */
/* A hello as bytes and as numbers: seal.h draws it. */
#ifndef HEARTH_TRANSPORT_TCP_SEAL_HELLO_H
#define HEARTH_TRANSPORT_TCP_SEAL_HELLO_H

#include "seal.h"

enum hth_seal_side { HTH_SEAL_DIALS = 1, HTH_SEAL_ACCEPTS = 2 };

struct hth_seal_hello {
    uint8_t low, high; /* versions */
    enum hth_seal_side side;
    enum hth_purpose purpose;
    uint32_t suites; /* a dialler's may include some that this version does not have */
    unsigned char id[16], nonce[32], public_key[HTH_KEY];
};

/* Without a mac. */
void hth_seal_hello_encode(const struct hth_seal_hello *hello, unsigned char out[HTH_SEAL_HELLO]);
/* A dialler's mac: written; 1: it is of this job key. */
void hth_seal_hello_sign(unsigned char hello[HTH_SEAL_HELLO], const unsigned char job_key[HTH_KEY]);
int hth_seal_hello_is_of(
        const unsigned char hello[HTH_SEAL_HELLO], const unsigned char job_key[HTH_KEY]);

/* Decodes a hello of the side that the caller expects. Errors: HEARTH_EPROTO for values that this
 * side never writes. */
int hth_seal_hello_decode(struct hth_seal_hello *out, const unsigned char bytes[HTH_SEAL_HELLO],
        enum hth_seal_side side, struct hearth_error *err);

#endif
