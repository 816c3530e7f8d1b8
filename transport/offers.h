/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The providers that a backend's library offers on this machine, found without opening a transport:
 * for `hearth doctor net`. A module exports it as `hth_transport_list`.
 */
#ifndef HEARTH_TRANSPORT_OFFERS_H
#define HEARTH_TRANSPORT_OFFERS_H

#include "machine.h"
#include <hearth/error.h>

#define HTH_OFFERS_MOST 32u

/* Everything in it is text and numbers: it may be handed from process to process. */
struct hth_offer {
    char provider[48];
    char fabric[64];
    char shape[16];    /* "connected", "datagram" */
    char devices[160]; /* "mlx5_0, mlx5_1"; empty: none that the library shows */
    int hardware;      /* 1: it is here, 0: it is not, -1: none is needed */
    int needs_ip;      /* it finds peers by an IP address of an adapter's interface */
    int offered;       /* the library comes up with it */
    int keys;          /* its hardware checks keys: it may listen where strangers are */
    char against[512]; /* why it cannot be used here, and what to do; empty: it can */
};

struct hth_offers {
    char library[160]; /* "libfabric 1.17" */
    unsigned count;
    struct hth_offer offer[HTH_OFFERS_MOST]; /* the best first */
};

/* `library`: its full path; NULL: the loader's. Loads it for good, and may take seconds. */
typedef int hth_transport_list_fn(const char *library, const struct hth_machine *machine,
        struct hth_offers *out, struct hearth_error *err);

/* Loads the module as hth_transport_open() does. Errors: HEARTH_ENOENT, and the module's. */
int hth_transport_offers(const char *name, const char *dir, const char *library,
        const struct hth_machine *machine, struct hth_offers *out, struct hearth_error *err);

#endif
