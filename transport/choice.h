/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric that an engine would open on this machine, and why not a better one: one set of
 * sentences, for the engine and for `hearth doctor net`.
 */
#ifndef HEARTH_TRANSPORT_CHOICE_H
#define HEARTH_TRANSPORT_CHOICE_H

#include "ask.h"
#include "core/base/network.h"
#include "core/format/fabric.h"

/* 1: the first reason, as a sentence, why an engine cannot listen like this, in the order in which
 * an engine would meet them; 0: no reason is visible. library: of network->transport; NULL: not
 * asked. */
int hth_choice_refused(const struct hth_network *network, const struct hth_machine *machine,
        const struct hth_library *library, char *out, size_t len);

/* "set HEARTH_TRANSPORT=...", for an offer that nothing stands against. */
void hth_choice_setting(const struct hth_machine *machine, const char *transport,
        const struct hth_offer *offer, char *out, size_t len);

/* A fabric from which transport = auto can choose on this node, the best first. */
struct hth_candidate {
    const struct hth_fabric *fabric;
    char rate[HTH_MACHINE_WORD]; /* "400 Gb/sec (4X NDR)", "25000 Mbit/s"; empty: not known */
    char against[HTH_ASK_TEXT];  /* empty: it can be taken */
    int untrusted;               /* the library has it, and the option `network` is against it */
};

struct hth_candidates {
    uint32_t count, usable; /* usable: bits, of fabric numbers */
    struct hth_candidate one[HTH_FABRICS_MOST];
};

/* network: transport and provider are not looked at. */
void hth_candidates_find(const struct hth_network *network, const struct hth_machine *machine,
        const struct hth_library *libraries, size_t count, struct hth_candidates *out);
/* No candidate can be used: writes the reasons against those that need no hardware. */
void hth_candidates_why(const struct hth_candidates *c, const struct hth_network *network,
        const struct hth_machine *machine, char *out, size_t len);

#endif
