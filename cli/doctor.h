/* SPDX-License-Identifier: Apache-2.0 */
/* What `hearth doctor net` finds out, file by file, before it prints a word. */
/* For this folder alone. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "core/store/pages.h"
#include "transport/offers.h"
#include <hearth/opts.h>

#define DOCTOR_TEXT 640

/* ---- library.c: what a transport's library offers ---- */

struct library {
    const char *transport; /* "ofi", "ucx" */
    int answered;
    char why[DOCTOR_TEXT]; /* it did not answer */
    struct hth_offers offers;
};

/* In a process of its own, with a deadline: a library that crashes or hangs is a finding. file: the
 * library's path, or NULL. */
void library_ask(const char *transport, const char *file, const struct hth_machine *machine,
        struct library *out);

/* ---- choice.c: what an engine would take, and what would be better ---- */

struct choice {
    const char *transport, *provider, *bind;
    const char *transport_by, *provider_by, *bind_by; /* "the default", "HEARTH_PROVIDER" */
    char refused[DOCTOR_TEXT]; /* why an engine does not open with it; empty */
    char note[DOCTOR_TEXT];    /* what else is to be known of it; empty */
    /* One that is here and better, what to set for it, or what stands against it. */
    struct better {
        const struct hth_offer *offer;
        char text[DOCTOR_TEXT];
    } better[HTH_OFFERS_MOST];
    unsigned betters;
};

void choice_make(const struct hearth_opts *opts, const struct hth_machine *machine,
        const struct library *libraries, size_t count, struct choice *out);

#endif
