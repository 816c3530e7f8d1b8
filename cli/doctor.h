/* SPDX-License-Identifier: Apache-2.0 */
/* What `hearth doctor net` finds of this node's networks, before it prints that. */
/* For this folder alone. */
#ifndef CLI_DOCTOR_H
#define CLI_DOCTOR_H

#include "cli.h"

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

/* ---- doctor.c ---- */

#define LEAST_MEMLOCK (64u << 20) /* not even the queues of an adapter fit below it */

#define LIBRARIES     3u /* ofi, ucx, and our own sockets, which need none */

struct doctor {
    struct hth_machine machine;
    struct hth_library library[LIBRARIES];
    struct hth_pages pages;
    struct hearth_opts opts;
    struct choice choice;
};

/* The folder in place of "/": "", but in a build for tests. */
const char *doctor_root(void);
/* Fills d, of zeros, but for the pages. root: NULL: choice.refused does not speak of it. err: what
 * of the environment cannot be read; code 0: nothing. hth_machine_fini() it. */
void doctor_look(struct doctor *d, const char *root, struct hearth_error *err);
enum status doctor_net(const struct args *a);

#endif
