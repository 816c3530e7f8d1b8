/* SPDX-License-Identifier: Apache-2.0 */
/* For this folder alone: what a handshake makes. */
#ifndef HEARTH_TRANSPORT_TCP_SEAL_RECORD_H
#define HEARTH_TRANSPORT_TCP_SEAL_RECORD_H

#include "seal.h"

/* What both sides have computed; the caller wipes it. */
struct hth_seal_keys {
    unsigned char out[HTH_KEY], in[HTH_KEY];
    struct hth_seal_bond bond;
};

/* NULL: no memory. */
struct hth_seal *hth_seal_new(
        const struct hth_seal_opts *opts, enum hth_suite suite, const struct hth_seal_keys *keys);

#endif
