/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric that an engine chooses with the options of this environment, whether it opens, and the
 * better ones that this machine has.
 */
#include "doctor.h"

#include "core/base/options.h"
#include "transport/transport.h"
#include <stdio.h>
#include <string.h>

static const char *choice_by(const char *text, enum hth_option_row row)
{
    return text ? hth_options[row].variable : "default";
}

static const struct hth_library *choice_library(
        const struct hth_library *libraries, size_t count, const char *transport)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(libraries[i].transport, transport) == 0)
            return &libraries[i];
    return NULL;
}

static void choice_notes(const struct hth_machine *machine, struct choice *out)
{
    char one[HTH_BIND_TEXT];

    if (hth_address_reach(out->bind) == HTH_REACH_LOOPBACK)
        snprintf(out->note, sizeof(out->note),
                "%s is loopback: only ranks of this node take part; HEARTH_BIND names the address "
                "for the others",
                out->bind);
    for (const char *at = out->bind; hth_bind_next(&at, one) && !out->note[0];) {
        const struct hth_interface *i = hth_machine_interface_of(machine, one);

        if (i && strcmp(i->state, "down") == 0)
            snprintf(out->note, sizeof(out->note), "interface %s of %s is down", i->name, one);
    }
}

static void better_add(struct choice *out, const struct hth_offer *offer, const char *transport,
        const struct hth_machine *machine)
{
    struct better *b = &out->better[out->betters++];

    b->offer = offer;
    if (offer->against[0])
        snprintf(b->text, sizeof(b->text), "%s", offer->against);
    else
        hth_choice_setting(machine, transport, offer, b->text, sizeof(b->text));
}

/* Adds the offers that are better than the one an engine takes, the best first. */
static void choice_betters(
        const struct hth_machine *machine, const struct hth_library *ofi, struct choice *out)
{
    int is_ofi = strcmp(out->transport, "ofi") == 0;

    for (unsigned i = 0; ofi && ofi->answered && i < ofi->offers.count; i++) {
        const struct hth_offer *offer = &ofi->offers.offer[i];

        if (is_ofi && strcmp(offer->provider, out->provider) == 0)
            break;
        if (offer->hardware > 0)
            better_add(out, offer, ofi->transport, machine);
    }
}

/* Takes the first candidate that can be taken, as the engine does. The engine also depends on what
 * the other nodes have. */
static void choice_auto(
        const struct hth_network *network, const struct hth_machine *machine, struct choice *out)
{
    const struct hth_candidates *c = &out->candidates;
    struct hearth_error err = { 0 };

    out->provider = "none";
    if (hth_network_check(network, &err)) {
        snprintf(out->refused, sizeof(out->refused), "%s", err.text);
        return;
    }
    for (uint32_t i = 0; i < c->count; i++)
        if (!c->one[i].against[0]) {
            out->transport = c->one[i].fabric->transport;
            out->provider = c->one[i].fabric->provider;
            out->transport_by = out->provider_by = "auto";
            snprintf(out->why, sizeof(out->why),
                    "%s is the best that this node has%s%s; a job takes the best that all of its "
                    "nodes have",
                    c->one[i].fabric->name, c->one[i].rate[0] ? ", " : "", c->one[i].rate);
            return;
        }
    hth_candidates_why(c, network, machine, out->refused, sizeof(out->refused));
}

void choice_make(const struct hearth_opts *opts, const struct hth_machine *machine,
        const struct hth_library *libraries, size_t count, struct choice *out)
{
    struct hth_network network = { .transport =
                                           hth_network_transport(opts->transport, opts->provider),
        .provider = opts->provider ? opts->provider : HTH_PROVIDER_DEFAULT,
        .has_key = opts->key_file != NULL,
        .trusted = opts->network == HEARTH_NETWORK_TRUSTED,
        .strong = opts->integrity == HEARTH_INTEGRITY_STRONG };

    memset(out, 0, sizeof(*out));
    out->transport = network.transport;
    out->provider = network.provider;
    network.bind = out->bind = opts->bind ? opts->bind : hth_options[HTH_AT_bind].text;
    out->transport_by = choice_by(opts->transport, HTH_AT_transport);
    out->provider_by = choice_by(opts->provider, HTH_AT_provider);
    out->bind_by = choice_by(opts->bind, HTH_AT_bind);
    hth_candidates_find(&network, machine, libraries, count, &out->candidates);
    if (strcmp(network.transport, HTH_TRANSPORT_AUTO) == 0)
        choice_auto(&network, machine, out);
    else
        hth_choice_refused(&network, machine, choice_library(libraries, count, network.transport),
                out->refused, sizeof(out->refused));
    choice_notes(machine, out);
    choice_betters(machine, choice_library(libraries, count, "ofi"), out);
}
