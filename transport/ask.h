/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport's library asked for what it offers, in a process of its own: it loads drivers and
 * starts threads, takes 0.3 s, and on a machine where something is wrong it may crash or wait for
 * ever.
 */
#ifndef HEARTH_TRANSPORT_ASK_H
#define HEARTH_TRANSPORT_ASK_H

#include "offers.h"

#define HTH_ASK_TEXT 640

struct hth_library {
    const char *transport; /* "ofi", "ucx", "tcp" */
    int answered;
    char why[HTH_ASK_TEXT]; /* it did not answer */
    struct hth_offers offers;
};

/* A question under way. */
struct hth_asking {
    struct hth_library library;
    struct answer *shared;
    int child, end;    /* 0: there is none; readable at the answer */
    uint64_t until_ms; /* of the monotonic clock */
};

/* Begins to ask; several at once. dir, file: as in hth_transport_offers(). A copy of this process
 * is made: call it before there are threads where that can be had. */
void hth_offers_ask(const char *transport, const char *dir, const char *file,
        const struct hth_machine *machine, struct hth_asking *out);
/* The answer, which a->library then has; waits for ten seconds from the question on. Once each. */
void hth_offers_hear(struct hth_asking *a);
void hth_offers_drop(struct hth_asking *a); /* the answer is not wanted any more; none: nothing */

#endif
