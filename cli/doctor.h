/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of `hearth doctor net`, collected before it prints them. */
/* For this folder alone. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "core/store/pages.h"
#include "transport/choice.h"
#include <hearth/opts.h>

#define DOCTOR_TEXT HTH_ASK_TEXT

/* ---- choice.c: what an engine would take, and what would be better ---- */

struct choice {
    const char *transport, *provider, *bind;
    const char *transport_by, *provider_by, *bind_by; /* "default", "auto", "HEARTH_PROVIDER" */
    char refused[DOCTOR_TEXT]; /* why an engine does not open with it; empty */
    char why[DOCTOR_TEXT];     /* auto: why this one; empty */
    char note[DOCTOR_TEXT];    /* what else is to be known of it; empty */
    struct hth_candidates candidates;
    /* A better offer of this machine, with the options to set for it, or the reason against it. */
    struct better {
        const struct hth_offer *offer;
        char text[DOCTOR_TEXT];
    } better[HTH_OFFERS_MOST];
    unsigned betters;
};

void choice_make(const struct hearth_opts *opts, const struct hth_machine *machine,
        const struct hth_library *libraries, size_t count, struct choice *out);

#endif
