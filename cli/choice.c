/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an engine takes with the options of this environment, whether it opens with that, and what
 * this machine has that is better.
 */
#include "doctor.h"

#include "core/base/network.h"
#include "core/base/options.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *choice_by(const char *text, enum hth_option_row row)
{
    return text ? hth_options[row].variable : "default";
}

static const struct library *library_of(
        const struct library *libraries, size_t count, const char *transport)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(libraries[i].transport, transport) == 0)
            return &libraries[i];
    return NULL;
}

static const struct hth_offer *offer_of(const struct library *library, const char *provider)
{
    for (unsigned i = 0; i < library->offers.count; i++)
        if (strcmp(library->offers.offer[i].provider, provider) == 0)
            return &library->offers.offer[i];
    return NULL;
}

/* The address to use an adapter by; "" where none has one. */
static const char *rdma_address(const struct hth_machine *m, char out[64])
{
    out[0] = '\0';
    for (unsigned i = 0; i < m->interfaces && !out[0]; i++)
        if (m->interface[i].is_rdma && strcmp(m->interface[i].state, "down") != 0)
            snprintf(out, 64, "%.*s", (int)strcspn(m->interface[i].addresses, ","),
                    m->interface[i].addresses);
    return out;
}

/* What the machine and the library have against the provider, on this address. */
static void choice_refuse_here(
        const struct hth_machine *machine, const struct library *library, struct choice *out)
{
    const struct hth_interface *own = hth_machine_interface_of(machine, out->bind);
    const struct hth_offer *offer = offer_of(library, out->provider);
    char address[64];

    if (hth_address_reach(out->bind) == HTH_REACH_OTHERS && !own)
        snprintf(out->refused, sizeof(out->refused),
                "no interface of this machine has the address %.64s", out->bind);
    else if (!library->answered)
        snprintf(out->refused, sizeof(out->refused), "%.600s", library->why);
    else if (offer && offer->against[0])
        snprintf(out->refused, sizeof(out->refused), "%s", offer->against);
    else if (offer && offer->needs_ip && !(own && own->is_rdma))
        snprintf(out->refused, sizeof(out->refused),
                "%.64s is no address of an RDMA adapter's interface, by which %s finds its peers: "
                "set HEARTH_BIND=%s",
                out->bind, out->provider, rdma_address(machine, address));
}

/* An engine would not open: why. In the order in which it would be found out. */
static void choice_refuse(const struct hearth_opts *opts, const struct hth_machine *machine,
        const struct library *library, struct choice *out)
{
    struct hth_network network = { .bind = out->bind,
        .transport = out->transport,
        .provider = out->provider,
        .has_key = opts->key_file != NULL,
        .trusted = opts->network == HEARTH_NETWORK_TRUSTED };
    struct hearth_error err = { 0 };

    if (hth_network_check(&network, &err))
        snprintf(out->refused, sizeof(out->refused), "%s", err.text);
    else if (library)
        choice_refuse_here(machine, library, out);
}

static void choice_notes(const struct hth_machine *machine, struct choice *out)
{
    const struct hth_interface *i = hth_machine_interface_of(machine, out->bind);

    if (hth_address_reach(out->bind) == HTH_REACH_LOOPBACK)
        snprintf(out->note, sizeof(out->note),
                "%s is loopback: only ranks of this node take part; HEARTH_BIND names the address "
                "for the others",
                out->bind);
    else if (i && strcmp(i->state, "down") == 0)
        snprintf(out->note, sizeof(out->note), "interface %s of %s is down", i->name, out->bind);
}

static void better_add(struct choice *out, const struct hth_offer *offer, const char *transport,
        const struct hth_machine *machine)
{
    struct better *b = &out->better[out->betters++];
    char address[64];

    b->offer = offer;
    rdma_address(machine, address);
    if (offer->against[0])
        snprintf(b->text, sizeof(b->text), "%s", offer->against);
    else
        snprintf(b->text, sizeof(b->text), "set HEARTH_TRANSPORT=%s HEARTH_PROVIDER=%s%s%s",
                transport, offer->provider, address[0] ? " HEARTH_BIND=" : "", address);
}

void choice_make(const struct hearth_opts *opts, const struct hth_machine *machine,
        const struct library *libraries, size_t count, struct choice *out)
{
    const struct library *ofi = library_of(libraries, count, "ofi");
    int is_ofi;

    memset(out, 0, sizeof(*out));
    out->transport = opts->transport ? opts->transport : hth_options[HTH_AT_transport].text;
    out->provider = opts->provider ? opts->provider : hth_options[HTH_AT_provider].standard;
    out->bind = opts->bind ? opts->bind : hth_options[HTH_AT_bind].text;
    out->transport_by = choice_by(opts->transport, HTH_AT_transport);
    out->provider_by = choice_by(opts->provider, HTH_AT_provider);
    out->bind_by = choice_by(opts->bind, HTH_AT_bind);
    choice_refuse(opts, machine, library_of(libraries, count, out->transport), out);
    choice_notes(machine, out);
    is_ofi = strcmp(out->transport, "ofi") == 0;
    /* The best first, up to the one that is taken. */
    for (unsigned i = 0; ofi && ofi->answered && i < ofi->offers.count; i++) {
        const struct hth_offer *offer = &ofi->offers.offer[i];

        if (is_ofi && strcmp(offer->provider, out->provider) == 0)
            break;
        if (offer->hardware > 0)
            better_add(out, offer, ofi->transport, machine);
    }
}
